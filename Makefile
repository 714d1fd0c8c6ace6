# What a developer does every day; `make help` lists it.
# Everything is installed into .venv and kept under this folder (and the usual caches of pip and Ivy).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export SCYLLA_CDC_BRIDGE_JARS ?= $(CURDIR)/.local-stack/jars
export SCYLLA_CDC_BRIDGE_TOOLS ?= $(CURDIR)/.local-stack/tools

.DEFAULT_GOAL := help
.PHONY: help setup demo test check tools unit integration cluster chaos chaos-matrix chaos-backlog chart chart-e2e chart-files \
	switches live live-vectors screenshots bench backlog format constraints docs licences audit wheel clean

help: ## List these targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Install everything into .venv

$(STAMP): pyproject.toml sandbox/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e ./sandbox
	@$(BIN)/python -m spark.jvm.class_archive --quiet || echo "without an archive of the JVM's classes: jobs start all the same, more slowly"
	touch $@

demo: $(STAMP) ## Run the whole bridge on this machine and write build/demo/report.html
	$(BIN)/scylla-cdc-bridge demo

# Tests wait for servers and for jobs that start, which use half of two cores. A file is one worker's, with a stack of its
# own; files come in their order, so the many short ones of tests/unit, at the end, even the workers out.
WORKERS ?= 2
IN_PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: check tools ## Check the code, then run every test (WORKERS=1: one after the other, with half the memory)
	@mkdir -p build
	$(BIN)/python -m pytest $(IN_PARALLEL) --basetemp build/pytest

check: $(STAMP) ## Lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Without servers the files with most tests come first, so that the workers end together.
unit: $(STAMP) ## Run the tests that need no servers
	@mkdir -p build
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --basetemp build/pytest tests/unit

tools: $(STAMP) ## Build what tests need from Go modules: Helm, kubeconform, actionlint
	$(BIN)/python -m tests.build_tools

integration: $(STAMP) ## Run the tests on real servers
	@mkdir -p build
	$(BIN)/python -m pytest $(IN_PARALLEL) --basetemp build/pytest tests/integration

cluster: $(STAMP) ## Count on a cluster of two CQL servers which node is asked for which stream
	@mkdir -p build
	SCYLLA_CDC_BRIDGE_CLUSTER=1 $(BIN)/python -m pytest --basetemp build/pytest tests/integration/reading/test_routing.py

SEED ?= 1
MINUTES ?= 1.5

chaos: $(STAMP) ## Random faults on the real stack: make chaos SEED=7 MINUTES=2
	$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES)

chaos-matrix: $(STAMP) ## Kill the job at every named point of the lane protocol
	@mkdir -p build
	SCYLLA_CDC_BRIDGE_CHAOS=matrix $(BIN)/python -m pytest -s --basetemp build/pytest tests/integration/job/test_crash_matrix.py

chaos-backlog: $(STAMP) ## Kill the job twice while it drains 500,000 changes of few streams
	@mkdir -p build
	SCYLLA_CDC_BRIDGE_CHAOS=backlog $(BIN)/python -m pytest -s --basetemp build/pytest tests/integration/job/test_chaos.py -k backlog

chart: $(STAMP) ## Run all tests of the Helm chart and of the image (the first run builds Helm and promtool)
	@mkdir -p build
	$(BIN)/python -m tests.build_tools --chart
	SCYLLA_CDC_BRIDGE_BUILD=1 $(BIN)/python -m pytest --basetemp build/pytest tests/chart tests/integration/job/test_pod.py

chart-e2e: tools ## Run the chart on a real API server (the first run builds one: eight minutes of CPU time)
	@mkdir -p build
	$(BIN)/python -m tests.chart.e2e.control_plane
	$(BIN)/python -m pytest --basetemp build/pytest tests/chart/e2e

SCYLLA ?=
TABLETS ?=
LIVE ?=

live: $(STAMP) ## Run against a ScyllaDB and compare log, table and topics: make live SCYLLA=host:port LIVE='--kills 5'
	$(BIN)/python -m tests.live --seed $(SEED) $(if $(SCYLLA),--scylla $(SCYLLA)) $(LIVE)

live-vectors: $(STAMP) ## Hold a ScyllaDB's CDC log against the simulator and the bridge: make live-vectors SCYLLA=host:port [TABLETS=1]
	$(BIN)/python -m tests.live.vectors $(if $(SCYLLA),--scylla $(SCYLLA)) $(if $(TABLETS),--tablets)

screenshots: $(STAMP) ## Take the pictures of docs/monitoring.md (needs Chromium)
	$(BIN)/python -m tests.integration.support.browser docs/status-page

chart-files: $(STAMP) ## Write the chart's generated files
	$(BIN)/python -m deploy.chart

switches: $(STAMP) ## Follow 20 generation changes and 20 splits and merges in real time, with kills (six minutes)
	@mkdir -p build
	SCYLLA_CDC_BRIDGE_SWITCHES=20 $(BIN)/python -m pytest --basetemp build/pytest \
		tests/integration/reading/test_stream_changes.py -k switches

bench: $(STAMP) ## Measure speed, cost and latency on this machine
	$(BIN)/python -m bench

CHANGES ?= 10000000

backlog: $(STAMP) ## Memory while a backlog is drained with 4 lanes: make backlog CHANGES=3000000 (10 million: a quarter of an hour)
	$(BIN)/python -m bench --tables narrow --changes $(CHANGES) --lanes 4 --seconds 0

format: $(STAMP) ## Put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints: ## Renew constraints.txt from the newest allowed versions
	rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet '.[dev]' ./sandbox
	(head -1 constraints.txt; build/constraints/bin/python -m pip freeze --exclude scylla-cdc-bridge --exclude scylla-cdc-bridge-sandbox) > build/new.txt
	mv build/new.txt constraints.txt

docs: $(STAMP) ## Write the generated parts of docs/ and of the chart
	@mkdir -p build
	$(BIN)/python -m bridge.config.reference.example > build/example.yaml && mv build/example.yaml bridge/config/example.yaml
	$(BIN)/python -m deploy.configuration
	$(BIN)/python -m bridge.monitoring.metrics > build/metrics.md && mv build/metrics.md docs/metrics.md
	$(BIN)/python -m tests.unit.bridge.config.bad_inputs > build/errors.md && mv build/errors.md docs/errors.md
	$(BIN)/python -m deploy.licences
	$(BIN)/python -m deploy.chart

licences: $(STAMP) ## Write docs/licences.md from the installed packages
	$(BIN)/python -m deploy.licences

audit: ## Ask the Python advisory database about the pinned versions (needs the network)
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

wheel: $(STAMP) ## Build the distribution
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .

clean: ## Remove what was built and installed here (stop the local stack first)
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
