# From a clone to an answer: `make demo`. Everything lands in .venv and in the cache folder for models.
SHELL := bash
bin := .venv/bin
tsc := tests/browser/node_modules/.bin/tsc

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint types format clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 16

install: ## make .venv, for the GPU if there is one
	@deploy/setup.sh

demo: install ## bring the model and answer a question about a long document (FULL=1: the whole tour)
	@$(bin)/longfold demo $(if $(FULL),--full)

test: install ## every test that this machine can run
	@$(bin)/longfold models pull smollm2-135m
	@# Ray cannot be started twice in one process: what is left of the first may end the second.
	@failed=0; for part in gpu unit api browser integration engine; do $(bin)/python -m pytest tests/$$part || failed=1; done; exit $$failed

check: lint types ## what should pass before every commit: lint, types and the unit tests
	@$(bin)/python -m pytest -q tests/unit

lint: install
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	@$(bin)/lint-imports --no-logo
	@$(MAKE) --silent --no-print-directory $(tsc)
	@$(tsc) --project tests/browser

$(tsc): tests/browser/package-lock.json
	@command -v npm >/dev/null || { echo "longfold: the console's JavaScript is not checked, because npm is missing; install Node.js 18 or newer with npm (on Debian and Ubuntu: nodejs npm), then run this again." >&2; exit 1; }
	@npm ci --prefix tests/browser --silent --no-audit --no-fund
	@touch $@

types: install
	@$(bin)/mypy

format: install ## let ruff mend and format
	@$(bin)/ruff check --fix .
	@$(bin)/ruff format .

clean: ## remove .venv and the tools' caches; models stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
