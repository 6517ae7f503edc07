SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test test-slow check bench setup flower experiment report results clean docs docs-screenshots

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Stages are started as `python`: they must find the environment's one, activated or not.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
# Images of containers set it: without compiled files every process would compile 5,000 modules anew.
unexport PYTHONDONTWRITEBYTECODE

# Compiling all modules takes half of an installation. Those that are imported are compiled then.
INSTALL = .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-17s %s\n", $$1, $$2}'

run: setup  ## Install if needed, run the quickstart experiment, print its table and where to look next
	@# Three jobs: on two cores, the third would else run alone.
	@fedprint run quickstart --jobs 3

test: .venv/.dev  ## Run the tests that take minutes at most
	pytest -q -n 2 --dist loadfile -m "not slow"

test-slow: .venv/.dev  ## Run the long tests (about an hour) and record the run in tests/slow-run.yaml
	pytest -q -n 2 --dist worksteal -m slow

check: .venv/.dev  ## Check format, lint, types and the layers of imports
	ruff format --check .
	ruff check .
	mypy
	lint-imports

bench: .venv/.dev  ## Measure what the code costs and write benchmarks/RESULTS.md: make bench [ARGS="--quick --json PATH"]
	@python -m benchmarks $(ARGS)

setup: .venv/.ok  ## Create the virtual environment .venv and the MLflow database

flower: .venv-flower/.ok  ## Create .venv-flower, with Flower and fedprint (docs/flower.md); Flower needs older packages than .venv

experiment: setup  ## Run one experiment: make experiment NAME=mnist-writers [ARGS="--fast --set a.b=c"]
	@test -n "$(NAME)" || { echo "NAME is missing: make experiment NAME=one of $(patsubst configs/experiments/%.yaml,%,$(wildcard configs/experiments/*.yaml))" >&2; exit 2; }
	fedprint run $(NAME) $(ARGS)

report: NAME ?= quickstart
report:  ## Show where a report is, and open it on a desktop: make report [NAME=quickstart]
	@page="$(CURDIR)/reports/$(NAME)/index.html"; \
	test -f "$$page" || { echo "no report of '$(NAME)': make experiment NAME=$(NAME)" >&2; exit 2; }; \
	echo "$$page"; \
	if test -n "$${DISPLAY:-}$${WAYLAND_DISPLAY:-}" || test "$$(uname)" = Darwin; then "$(PYTHON)" -m webbrowser "file://$$page" > /dev/null; fi

results: setup  ## Rewrite the numbers and pictures of README and docs from the published experiments
	python -m fedprint.reports.results

docs: .venv/.docs  ## Build the documentation as a site: site/index.html
	@# Material announces its end of life on every build; that is no warning about our pages.
	@NO_MKDOCS_2_WARNING=1 mkdocs build --quiet
	@echo "$(CURDIR)/site/index.html"

docs-screenshots: setup  ## Make the screenshots of docs/ (needs Chromium)
	python docs/screenshots.py

clean: setup  ## Remove update stores and caches that no report needs
	fedprint clean

# Half an installation must not pass for a whole one: the stamp comes last.
.venv/.ok: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is missing: install it, or make setup PYTHON=/path/to/python" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python %d.%d is too old: make setup PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@echo "Creating .venv with $(PYTHON)"
	@test -x .venv/bin/python || "$(PYTHON)" -m venv .venv
	@echo "Installing the pinned packages (some minutes the first time)"
	@$(INSTALL) -e .
	@# Without git (a ZIP) DVC has to be told so.
	@test -e .git || .venv/bin/dvc config --local core.no_scm true
	@echo "Creating the MLflow database"
	@.venv/bin/python -m fedprint.lab.tracking.database .
	@touch $@
	@echo "Set-up is complete"

.venv-flower/.ok: pyproject.toml examples/flower/constraints.txt
	@test -x .venv-flower/bin/python || "$(PYTHON)" -m venv .venv-flower
	@echo "Installing Flower and the packages that fit it into .venv-flower (some minutes the first time)"
	@.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check -c examples/flower/constraints.txt -e ".[flower]"
	@touch $@

# What tests, or the site, need beside comes with the first command that needs it.
.venv/.dev .venv/.docs: .venv/.%: .venv/.ok
	@echo "Installing the packages for $*"
	@$(INSTALL) -e ".[$*]"
	@touch $@
