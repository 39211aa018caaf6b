# Everything that is done with this repository, for people and for CI alike. `make help` lists it.
# Nothing but a Python >= 3.11 is needed; PYTHON=/path/to/python chooses one.

.DEFAULT_GOAL := help
.PHONY: help setup check test test-spark bench chaos demo docs kafka lock clean static services classes
.DELETE_ON_ERROR:

VENV  := .venv
BIN   := $(VENV)/bin
PY    := $(BIN)/python
STAMP := $(VENV)/.set-up
LOCK  := requirements/lock.txt
ARGS  ?=

# Candidates are asked in this order; the first that is new enough and can make environments is taken.
PYTHONS := $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14 python)
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) services  ## Create .venv and install everything into it, as locked; servers for the tests too

$(STAMP): pyproject.toml $(LOCK)
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	    python=; for candidate in $(PYTHONS); do \
	        if "$$candidate" -c '$(SUITABLE)' 2>/dev/null; then python="$$candidate"; break; fi; \
	    done; \
	    if [ -z "$$python" ]; then \
	        echo "Millpond needs Python 3.11 or newer with the venv module, and found none on PATH." >&2; \
	        echo "  Debian, Ubuntu: apt-get install python3 python3-venv      macOS: brew install python" >&2; \
	        echo "  or name one: make setup PYTHON=/path/to/python" >&2; \
	        exit 1; \
	    fi; \
	    echo "creating $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing $(LOCK) (PySpark alone is 450 MB: the first time takes minutes)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

services: $(STAMP)
	@$(PY) tools/services.py

static: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: static  ## Format, lint, types, layers and the fast tests: seconds, no Spark
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow and not spark and not chaos" $(ARGS)

test: static services classes  ## Everything but bench and chaos; what CI runs. ARGS='-k name' chooses tests
	$(BIN)/pytest -n 3 --dist worksteal --durations 30 -m "not chaos" $(ARGS)

test-spark: $(STAMP) classes  ## Every .test file on Spark, in one batch and in several
	$(BIN)/pytest -n 2 --dist worksteal -m spark tests/test_sql_files.py $(ARGS)

# The archive of Spark's classes, as users have it: made once. The tests run without it as well, only longer.
classes: $(STAMP)
	-@$(PY) -m millpond.engine.archive_maker

bench: $(STAMP)  ## Measure, with the peers beside us
	$(PY) -m bench $(ARGS)

chaos: $(STAMP) services  ## The full form of the long tests: kills and soak
	$(BIN)/pytest -m chaos --timeout 7200 $(ARGS)

demo: $(STAMP) $(if $(KAFKA),services)  ## The profit-and-loss app, from nothing to results; KAFKA=1: over topics of a broker
	$(if $(KAFKA),$(PY) tools/kafka.py demo,$(BIN)/millpond demo) $(ARGS)

docs: $(STAMP)  ## Write docs/reference/ from the declarations in the code, and all pages as a site into build/site
	$(PY) tools/reference.py
	$(PY) tools/site.py

kafka: services  ## A Kafka broker on localhost:9092 to play with, until Ctrl-C
	@$(PY) tools/kafka.py

lock: $(STAMP)  ## Resolve the dependencies anew and write requirements/lock.txt
	$(PY) tools/lock.py

clean:  ## Remove .venv and all that was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
