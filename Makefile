# Needs Python 3.11 or later, git and make; everything else goes into folders of the checkout. Nothing needs root.

PYTHON ?= python3
PROCESSES ?=
SEEDS ?= 200
ARGS ?=
PEERS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROTO_READY := .venv-proto/.ready
PEERS_READY := .venv-peers/.ready
CODE := core backends tests tools examples benchmarks
PIP := pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-cluster test conformance check format lint types proto proto-check architecture states states-check \
	readme-figures readme-figures-check wheel bench bench-cluster bench-parts simulate simulate-scale fmt clean

help:  ## show what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(firstword $(MAKEFILE_LIST)) | awk -F': ' '{printf "%-22s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Outboard needs Python 3.11 or later: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) -e '.[dev]'
	@touch $@

$(PROTO_READY): tools/proto-requirements.txt
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/pip install --quiet --disable-pip-version-check -r tools/proto-requirements.txt
	@touch $@

$(PEERS_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/$(PIP) distributed joblib numpy psutil ray scikit-learn
	@touch $@

venv: $(READY)  ## make the environment for development (.venv)

demo: $(READY)  ## scikit-learn's search over the digits on every CPU and on loky, with a heat map
	$(BIN)/python examples/svc_search.py $(if $(PROCESSES),--processes $(PROCESSES)) $(ARGS)

demo-cluster: $(READY)  ## a search with a Pool on a head and two nodes, one of them killed on the way
	$(BIN)/python examples/cluster_search.py $(ARGS)

# Many tests wait rather than work, so three processes share a run even on two CPUs, which are then busy for 94 % of it;
# tests are dealt few at a time, so that all end together. ARGS="-n 0": all in one process, for a debugger.
test: $(READY)  ## run the tests (ARGS=… goes to pytest)
	$(BIN)/pytest -n 3 --maxschedchunk 2 $(ARGS)

conformance: $(READY)  ## joblib's and scikit-learn's own tests on our backend, all of them (ARGS="joblib -x")
	$(BIN)/python -m tests.conformance.suites.running $(ARGS)

check: format lint types proto-check states-check readme-figures-check architecture wheel  ## all that must pass but the tests

format: $(READY)
	$(BIN)/ruff format --check $(CODE)

lint: $(READY)
	$(BIN)/ruff check $(CODE)

types: $(READY)  ## mypy --strict over the package as it is imported
	$(BIN)/python tools/types_tree.py build/types
	cd build/types && ../../$(BIN)/mypy --strict --config-file ../../pyproject.toml -p outboard

proto: $(PROTO_READY)  ## generate the messages from core/rpc/protos/*.proto (Python 3.11)
	.venv-proto/bin/python tools/proto.py

proto-check: $(PROTO_READY)
	.venv-proto/bin/python tools/proto.py --check

architecture: $(READY)
	$(BIN)/pytest -q tests/test_architecture.py

states: $(READY)  ## draw docs/architecture.md from the table of transitions
	$(BIN)/python tools/state_diagram.py

states-check: $(READY)
	$(BIN)/python tools/state_diagram.py --check

readme-figures: $(READY)  ## fill the README's table from benchmarks/results.json
	$(BIN)/python tools/readme_figures.py

readme-figures-check: $(READY)
	$(BIN)/python tools/readme_figures.py --check

wheel: $(READY)  ## build the wheel and import every module from it
	$(BIN)/python tools/check_wheel.py

bench: $(READY) $(if $(PEERS),$(PEERS_READY))  ## measure beside the stock pools and joblib's backends; PEERS=1 adds Ray and Dask
	$(BIN)/python -m benchmarks --out build/bench.json $(ARGS)

bench-cluster: $(READY)  ## what crossing machines costs: a head and nodes on this one (ARGS="work join killed silent head")
	$(BIN)/python -m benchmarks.cluster $(ARGS)

bench-parts: $(READY)  ## what each process and part costs of one call
	@for part in client node worker codec pickles link loop owner dispatch segments; do $(BIN)/python -m benchmarks.parts.$$part || exit 1; done

simulate: $(READY)  ## drive the machines through seeds of faults (SEEDS=200), on all CPUs
	$(BIN)/python -m outboard.testing.simulate --seeds $(SEEDS) $(ARGS)

simulate-scale: $(READY)  ## what a task costs in messages and time over 10, 100 and 1,000 simulated nodes
	$(BIN)/python -m outboard.testing.scale $(ARGS)

fmt: $(READY)  ## format, and mend what lint can mend
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:  ## remove what was built (environments too)
	rm -rf build dist .venv .venv-proto .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
