# `make help` lists the targets. Everything runs in .venv, which `make setup` makes and keeps up to date.

PYTHON ?= python3
PYTEST_ARGS ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup binaries test unit e2e demo lint format generate lock clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv with the locked dependencies (instant when it is up to date)
	@PYTHON="$(PYTHON)" scripts/setup

binaries: setup ## Find or build the programs of the embedded world (once; 20 minutes or so on 2 cores)
	@$(BIN)/python -m goodput_world.binaries --print

test: setup ## Unit, contract and end-to-end tests in two workers; the programs are built while the unit tests run
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

unit: setup ## The tests that need no world
	$(BIN)/python -m pytest tests $(PYTEST_ARGS)

e2e: setup ## The tests on the embedded world, or with E2E_CLUSTER=existing on the cluster that KUBECONFIG names
	$(BIN)/python -m pytest e2e $(PYTEST_ARGS)

demo: setup ## Replay a real trace against the operator and write build/demo/summary.json (DEMO_SECONDS=600)
	@exec $(BIN)/python -m goodput_world.demo

lint: setup ## Style, types, import contracts, and whether generated files are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate --check
	$(BIN)/python scripts/calibrate --check

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup ## Write crds/ and the API reference from the models
	$(BIN)/python scripts/generate

lock: setup ## Resolve requirements.lock anew from pyproject.toml
	scripts/lock

clean: ## Remove what builds, tests and demos wrote (the cache of binaries and .venv stay)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

distclean: clean ## Remove .venv too
	rm -rf .venv
