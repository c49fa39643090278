PYTHON_FILES = driver examples tests tools

.PHONY: setup setup-tests demo test lint format figures

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

figures: setup
	.venv/bin/python tools/figures.py
