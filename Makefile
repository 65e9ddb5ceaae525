# setup: a virtual environment, the compose plugin, the base image. demo: the main job. test: all tests. See README.md.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test check bench clean

setup:
	@bash images/setup.sh "$(PYTHON)" "$(VENV)"

demo: setup
	@$(BIN)/python -m gym_compose.cli.demo

test: setup
	@$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	@$(BIN)/python -m bench

clean:
	@if [ -x $(BIN)/gym-compose ]; then $(BIN)/gym-compose down --all || true; fi
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
