PYTHON_FILES = driver examples tests tools

# The VM tests where neither KVM nor a Nix cache is, and their results for docs/what-ran.md. T=sweep runs one of them, STALE=1 those that
# changed since they ran,
# BOOT="../shared/nix-boot/boot --limit 60" gives them longer. Each takes 5 to 12 minutes there.
BOOT = ../shared/nix-boot/boot

PYTEST = .venv/bin/pytest
PARALLEL = -n auto --dist worksteal
LINTS = lint-style lint-shell lint-types lint-rooms lint-docs

.PHONY: setup setup-tests demo check test unit lint campaign $(LINTS) format docs figures boot lock

setup:
	@tools/setup.sh

demo: setup
	.venv/bin/nixwulf bench lab/demo

# For every change: at most 90 s on two cores.
check: setup
	@$(MAKE) --no-print-directory --jobs unit $(LINTS)

unit:
	$(PYTEST) $(PARALLEL) --hypothesis-profile few-examples -m "not (lab or nix or browser or slow)" tests/unit

# Nothing runs beside what measures in the lab.
test: setup-tests lint
	$(PYTEST) $(PARALLEL) -m "not lab"
	@# Else the first test builds it for minutes, and the others wait for it until their time is over.
	.venv/bin/nixwulf engines install llama.cpp
	$(PYTEST) -n auto --dist loadfile -m waits
	$(PYTEST) -m "lab and not (waits or nightly)"

# Hostile inputs, planted private texts and faults: a sample in at most 5 minutes. CAMPAIGN=all takes hours.
CAMPAIGN = sample
campaign: setup
	.venv/bin/nixwulf engines install llama.cpp  # trials have no time to build it
	.venv/bin/python tests/campaign $(CAMPAIGN)

setup-tests:
	@tools/setup.sh tests

lint: setup
	@$(MAKE) --no-print-directory --jobs $(LINTS)

lint-style:
	.venv/bin/ruff check $(PYTHON_FILES)
	.venv/bin/ruff format --check $(PYTHON_FILES)

lint-shell:
	$(firstword $(wildcard .venv/bin/shellcheck) shellcheck) --external-sources --source-path=SCRIPTDIR --severity=warning $(shell git ls-files "*.sh") .ci/run

lint-types:
	cd driver && ../.venv/bin/mypy

lint-rooms:
	cd driver && ../.venv/bin/lint-imports --no-cache

lint-docs:
	.venv/bin/python tools/docs --check

# The reference in docs/reference, and the figures of the project's own runs; lint compares.
docs: setup
	.venv/bin/python tools/docs

format: setup
	.venv/bin/ruff check --fix $(PYTHON_FILES)
	.venv/bin/ruff format $(PYTHON_FILES)

# New versions of what pip installs, with the hashes of their files for all platforms.
LOCK = uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-header --no-annotate
ENGINES = driver/nixwulf/plugins/engines
lock:
	$(LOCK) --extra dev driver/pyproject.toml -o requirements.lock
	echo 'playwright>=1.40' | $(LOCK) -c requirements.lock - -o requirements-browser.lock
	echo 'llama-benchy>=0.3.8' | $(LOCK) - -o requirements-benchy.lock
	echo 'scikit-build-core[pyproject]>=0.9.2' | $(LOCK) - -o $(ENGINES)/llama_cpp/requirements.lock
	.venv/bin/python -c 'from nixwulf.plugins.engines.mlx import REQUIREMENTS; print(*REQUIREMENTS, sep="\n")' | $(LOCK) - -o $(ENGINES)/mlx/requirements.lock
	cd tools/locks/vllm && $(LOCK) --override not-on-cpus.txt pyproject.toml -o ../../../$(ENGINES)/vllm/requirements.lock

boot: setup
	@[ -x $(firstword $(BOOT)) ] || { echo "There is no $(firstword $(BOOT)) here; with KVM, run 'nix build .#checks.x86_64-linux.vm-NAME -L'."; exit 1; }
	@.venv/bin/python tools/what_ran.py boot --with "$(BOOT)" $(if $(STALE),--stale) $(T)

figures: setup
	.venv/bin/python tools/figures.py
