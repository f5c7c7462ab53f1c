# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ARGS ?=

.PHONY: help demo test lint bench reproduce serve clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: slatewise needs Python 3.11 or newer; none was found on PATH (or set PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing slatewise and its tools into $(VENV) (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' || { echo "error: the installation failed; is a package index reachable?"; exit 1; }
	@touch $@

demo: $(INSTALLED) ## Get data, train a catalogue and show it
	@$(BIN)/slatewise demo $(ARGS)

test: lint ## Run every check and the whole test suite
	$(BIN)/python -m pytest $(ARGS)

lint: $(INSTALLED) ## Style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(INSTALLED) ## Speed and memory, as ratios of one run
	$(BIN)/slatewise bench $(ARGS)

reproduce: $(INSTALLED) ## The paper's tables and figures
	$(BIN)/slatewise reproduce $(or $(ARGS),all --data ml-100k)

serve: ## The service (not built yet)
	@echo "error: the service is not built yet; CHANGELOG.md says what is"; exit 1

clean: ## Remove everything that make and the tools made
	rm -rf $(VENV) demo results build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
