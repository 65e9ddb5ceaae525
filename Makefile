# setup: a virtual environment, the compose plugin, the base image. demo: the main job. test: all tests. See README.md.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

DEMO_CONFIG := $(if $(POLICY_BASE_URL),configs/quickstart_endpoint.yaml,configs/quickstart.yaml)

.PHONY: setup browser demo test check bench peer clean

setup:
	@bash images/setup.sh "$(PYTHON)" "$(VENV)"

demo: setup
	@$(BIN)/python servers/resources_servers/reasoning_gym/prepare.py --demo
	@$(BIN)/gym-compose eval run --config $(DEMO_CONFIG) --split train --num-repeats 2 --concurrency 32 \
	  --output results/demo/rollouts.jsonl --overwrite

# A headless Chromium for the tests of reports, from Debian's packages; without it, and without a way to install it, they skip.
browser:
	@bash images/setup.sh "$(PYTHON)" "$(VENV)" browser

test: setup browser
	@$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@set -e; for server in servers/*/*/; do echo "mypy $$server"; MYPYPATH=$$server:servers $(BIN)/mypy --config-file pyproject.toml $$server; done
	$(BIN)/lint-imports

bench: setup
	@$(BIN)/python -m bench

# NeMo Gym's own servers in our images: `make peer` all of the list (hours), `make peer NAME...` those, `make peer RESUME=1` goes on with a
# run that was interrupted; writes docs/peer-servers.md.
peer: setup
	@$(BIN)/python -m bench.peer $(if $(RESUME),--resume) $(PEER_NAMES)

ifeq (peer,$(firstword $(MAKECMDGOALS)))
PEER_NAMES := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
ifneq (,$(PEER_NAMES))
.PHONY: $(PEER_NAMES)
$(PEER_NAMES): ;@:
endif
endif

clean:
	@if [ -x $(BIN)/gym-compose ]; then $(BIN)/gym-compose compose down --all; fi
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
