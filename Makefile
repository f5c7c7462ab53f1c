# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUNNABLE := $(VENV)/.runnable
INSTALLED := $(VENV)/.installed
LOCK := requirements.lock
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Files in their order, browsers and processes first: sorted by their number of tests, the longest would come last.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
ARGS ?=
# Some containers ask Python to keep nothing that it compiled; then every process would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test unit slow lint docs image bench reproduce serve durability load soak lock licenses sbom release clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: slatewise needs Python 3.11 or newer; none was found on PATH (or set PYTHON=...)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); \
	echo "error: $(PYTHON) cannot make a virtual environment in $(CURDIR); on Debian: apt-get install python3-venv; else: is the directory writable?"; exit 1; }

$(RUNNABLE): pyproject.toml | $(BIN)/python
	@test $(INSTALLED) -nt pyproject.toml || { echo "installing slatewise into $(VENV) (once; about a minute)"; \
	$(PIP) -e '.[train,serve]' || { echo "error: the installation failed; is a package index reachable? if so, try make clean first"; exit 1; }; }
	@touch $@

$(INSTALLED): pyproject.toml $(LOCK) | $(BIN)/python
	@echo "installing slatewise and its tools into $(VENV), as $(LOCK) says (once; a minute or two)"
	@$(PIP) --require-hashes -r $(LOCK) && $(PIP) --no-deps --no-build-isolation -e '.[dev]' || { echo "error: the installation failed; is a package index reachable? if so, try make clean first"; exit 1; }
	@touch $@

demo: $(RUNNABLE) ## Get data, train, and serve a page that learns
	@$(BIN)/slatewise demo $(ARGS)

test: lint ## Run every check and the test suite
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(ARGS)

unit: $(INSTALLED) ## Only the tests that need nothing but Python; while you work
	$(BIN)/python -m pytest $(PARALLEL) -m unit $(ARGS)

slow: $(INSTALLED) ## The longest tests: whole experiments, demos, load
	$(BIN)/python -m pytest $(PARALLEL) -m slow $(ARGS)

lint: $(INSTALLED) ## Style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(INSTALLED) ## The documentation site, in site/
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict --quiet $(ARGS)

image: ## The container image slatewise, with docker or podman
	@command -v docker >/dev/null 2>&1 || command -v podman >/dev/null 2>&1 || { echo "error: neither docker nor podman was found; install one of them"; exit 1; }
	@$$(command -v docker || command -v podman) build --tag slatewise:$$(sed -n 's/.*"\(.*\)".*/\1/p' src/slatewise/version.py) --tag slatewise:latest $(ARGS) .

bench: $(INSTALLED) ## Speed and memory, as ratios of one run
	$(BIN)/python -m benchmarks $(ARGS)

reproduce: $(INSTALLED) ## The paper's tables and figures
	$(BIN)/slatewise reproduce $(or $(ARGS),all --data ml-100k)

serve: $(RUNNABLE) ## The service on the demo's catalog
	@test -f demo/catalog.json || { echo "error: there is no catalog in demo/ yet; make demo trains one"; exit 1; }
	@$(BIN)/slatewise serve --catalog demo $(ARGS)

durability: $(INSTALLED) ## kill -9, full disks, flipped bytes, a million updates
	$(BIN)/python -m pytest tests/durability --rounds=200 --updates=100000 $(ARGS)

load: $(INSTALLED) ## The service under load, against its bounds
	$(BIN)/python -m benchmarks.load $(ARGS)

soak: $(INSTALLED) ## Ten minutes of load, or ARGS=--hours=8: memory, log, latency
	$(BIN)/python -m benchmarks.load soak $(ARGS)

lock: ## Choose the newest versions of all dependencies, with hashes, for every Python and system; needs uv
	@printf 'editables\nhatchling\n' | uv pip compile pyproject.toml - --extra dev --universal --python-version 3.11 \
	--generate-hashes --upgrade --no-header --no-annotate --no-emit-index-url --quiet --output-file $(LOCK)

licenses: $(INSTALLED) ## List the licenses of all dependencies in docs/licenses.md
	$(BIN)/python -m release.licenses

sbom: $(INSTALLED) ## The bill of materials of this version, as CycloneDX JSON in dist/
	@mkdir -p dist
	$(BIN)/python -m release.sbom dist

release: sbom ## Wheel, source and bill of materials in dist/
	$(BIN)/python -m hatchling build

clean: ## Remove everything that make and the tools made
	rm -rf $(VENV) demo results build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
