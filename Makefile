PYTHON_FILES = driver examples tests tools

# The VM tests where neither KVM nor a Nix cache is; T=sweep for one of them. Each takes 5 to 12 minutes there.
BOOT = ../shared/nix-boot/boot
T = $(filter-out default,$(basename $(notdir $(wildcard nixos/tests/*.nix))))

.PHONY: setup setup-tests demo test lint format figures boot

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

format: setup
	.venv/bin/ruff check --fix $(PYTHON_FILES)
	.venv/bin/ruff format $(PYTHON_FILES)

boot:
	@[ -x $(BOOT) ] || { echo "There is no $(BOOT) here; with KVM, run 'nix build .#checks.x86_64-linux.vm-NAME -L'."; exit 1; }
	@failed=; for test in $(T); do $(BOOT) "vm-$$test" || failed="$$failed $$test"; done; \
	[ -z "$$failed" ] || { echo "Failed:$$failed."; exit 1; }

figures: setup
	.venv/bin/python tools/figures.py
