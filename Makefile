# One verb each. Everything a verb needs, it installs inside the checkout (.venv*), once.
PYTHON ?= python3
export PYTHON
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench docs mutants clean

help:  ## list these verbs
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo:  ## watch a breaker at work in the terminal (about 13 seconds)
	@scripts/venv $(VENV) -e .
	@$(BIN)/switchgear demo

test:  ## set up and pass all tests
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python -m pytest -n 2 --dist worksteal

check:  ## format, lint, strict types, import rules
	@scripts/venv $(VENV) -e '.[dev]'
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format:  ## rewrite the sources in the house format
	@scripts/venv $(VENV) -e '.[dev]'
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench:  ## ratios against bare Python, bare stores and eight other libraries, in one run
	@scripts/venv .venv-bench -e '.[redis]' -r bench/requirements.txt
	@.venv-bench/bin/python -m bench

mutants:  ## break the mechanism on purpose and count what the tests catch
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python scripts/mutants.py

docs:  ## build the documentation site into build/site, offline
	@scripts/venv .venv-docs -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

clean:  ## remove what these verbs created
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
