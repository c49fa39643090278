PYTHON_FILES = driver examples tests tools

# The VM tests where neither KVM nor a Nix cache is, and their results for docs/what-ran.md. T=sweep runs one of them,
# BOOT="../shared/nix-boot/boot --limit 60" gives them longer. Each takes 5 to 12 minutes there.
BOOT = ../shared/nix-boot/boot

.PHONY: setup setup-tests demo test lint format docs figures boot

setup:
	@tools/setup.sh

demo: setup
	.venv/bin/nixwulf bench sweeps/demo.yaml

test: setup-tests lint
	.venv/bin/pytest

setup-tests:
	@tools/setup.sh tests

lint: setup
	.venv/bin/ruff check $(PYTHON_FILES)
	.venv/bin/ruff format --check $(PYTHON_FILES)
	cd driver && ../.venv/bin/mypy
	cd driver && ../.venv/bin/lint-imports --no-cache
	.venv/bin/python tools/docs --check

# The reference in docs/reference, and the figures of the project's own runs; lint compares.
docs: setup
	.venv/bin/python tools/docs

format: setup
	.venv/bin/ruff check --fix $(PYTHON_FILES)
	.venv/bin/ruff format $(PYTHON_FILES)

boot: setup
	@[ -x $(firstword $(BOOT)) ] || { echo "There is no $(firstword $(BOOT)) here; with KVM, run 'nix build .#checks.x86_64-linux.vm-NAME -L'."; exit 1; }
	@.venv/bin/python tools/what_ran.py boot --with "$(BOOT)" $(T)

figures: setup
	.venv/bin/python tools/figures.py
