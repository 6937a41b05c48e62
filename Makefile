# Everything a person or CI does with this repository. `make` alone lists the targets.
# ARGS are handed on: make demo ARGS="--workers 3 --for 60"

SHELL := bash
BIN := .venv/bin
DEMO_READY := .venv/.demo-ready
PACKAGES_DONE := .venv/.packages-done
SETUP_DONE := .venv/.setup-done
COLLECTED := .venv/.collected
SCRIPTS := scripts/lock_jars scripts/map scripts/runtime_requirements deploy/docker/probe
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
PYTEST := $(BIN)/pytest -m "not long and not alone"
# Tests run side by side; ARGS="-n 0" for one after another. Those of a file in one process, which makes its cases once;
SIDE_BY_SIDE := -n 3 --dist loadfile
# so with integration tests, in the order of tests/integration/conftest.py, which often wait;
SHARED_OUT := -n 4 --dist loadfile --no-loadscope-reorder
# of acceptance, each process takes the next test (tests/acceptance/conftest.py).
SPREAD := -n 3 --dist loadscope
ALONE := $(shell grep -rl pytest.mark.alone tests)

# Images of containers switch bytecode off: then each process that is started compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode

.DEFAULT_GOAL := help
.PHONY: help setup demo check map pages house pictures unit test test-long bench bench-long lock lock-jars clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(SETUP_DONE) ## what the tests need, and jars: downloads what is missing, verified; at once when nothing is
	@$(BIN)/kctl jars fetch broker spark s3
	@$(BIN)/python -m tests.delta_jars
	@$(BIN)/python -m tests.servers.schema_registry
	@$(BIN)/python -m tests.record_classes

$(SETUP_DONE): requirements.lock pyproject.toml agent/pyproject.toml scripts/setup
	@scripts/setup tests
	@touch $(DEMO_READY) $(PACKAGES_DONE) $@

$(PACKAGES_DONE): requirements.lock pyproject.toml agent/pyproject.toml scripts/setup
	@scripts/setup packages
	@touch $@

$(DEMO_READY): deploy/requirements.lock pyproject.toml agent/pyproject.toml scripts/setup
	@scripts/setup demo
	@touch $@

demo: $(DEMO_READY) ## a real Kafka broker, and Spark workers that store its messages; Ctrl-C ends it (ARGS: see kctl demo --help)
	@$(BIN)/kctl demo $(ARGS)

check: $(PACKAGES_DONE) ## format, lint, types, dependency rules
	$(BIN)/ruff format --check . $(SCRIPTS)
	$(BIN)/ruff check . $(SCRIPTS)
	$(BIN)/mypy
	$(BIN)/lint-imports

map: ## every module, with the first sentence of its docstring
	@python3 scripts/map

pages: $(PACKAGES_DONE) ## write the pages and recorded outputs that are made of the code
	$(BIN)/python -m tests.pages
	$(BIN)/python -m tests.recorded_fleet

house: $(PACKAGES_DONE) ## lines, files, words, names that exist twice, circles of imports
	@$(BIN)/python -m tests.house

pictures: setup ## the pictures of README, from a running demo, and of the page in ten states (ARGS=FOLDER), in a headless Chromium
	@$(BIN)/python -m tests.pictures $(ARGS)

$(COLLECTED): $(PACKAGES_DONE) # compiles the tests, which each of the processes that run them would do again
	-@$(PYTEST) --collect-only -q tests >/dev/null
	@touch $@

unit: $(COLLECTED) ## the tests that need Python alone; what else they would use is skipped where it is missing
	$(PYTEST) $(SIDE_BY_SIDE) $(ARGS) tests/unit tests/project

test: setup ## everything the project can prove about itself, the fast part first
	@$(MAKE) --no-print-directory -j 2 check unit # mypy has one processor
	$(PYTEST) $(SHARED_OUT) $(ARGS) tests/integration
	$(PYTEST) $(SPREAD) $(ARGS) tests/acceptance
	$(BIN)/pytest -m "alone and not long" $(ARGS) $(ALONE)

test-long: setup ## soak and fault runs, and workers with a Spark driver each
	$(BIN)/pytest -m long $(ARGS) tests
	KCTL_TEST_ENGINE=own $(PYTEST) $(SPREAD) $(ARGS) tests/acceptance

bench: setup ## the results of benchmarks/README.md, as JSON lines
	@$(BIN)/python -m benchmarks $(ARGS)

bench-long: setup ## the same with more rounds, for results that go into the README
	@$(BIN)/python -m benchmarks --long $(ARGS)

lock: $(SETUP_DONE) ## pin requirements.in in requirements.lock, and the image's part of it (ARGS=--upgrade for newer versions)
	@$(LOCK) $(ARGS) --output-file requirements.lock requirements.in
	@scripts/runtime_requirements | $(LOCK) --constraint requirements.lock --output-file deploy/requirements.lock -

lock-jars: $(SETUP_DONE) ## write kctl/jars/*.lock and tests/*.lock anew (needs Maven; versions stand in scripts/lock_jars)
	@$(BIN)/python scripts/lock_jars

clean: ## remove the environment and all that tools left (fetched jars stay in their cache)
	rm -rf .venv .demo build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
