# Each target installs what it needs inside the checkout (.venv*), once.
PYTHON ?= python3
export PYTHON
VENV := .venv
# Always keep compiled modules: tests start Python a thousand times.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test stress e2e console integrations check format bench docs mutants release rules stuck clean

help:  ## list these commands
	@awk -F':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo:  ## watch an agent get stuck and be stopped (about 20 seconds, no key, nothing to install)
	@scripts/venv $(VENV) -e .
	@$(BIN)/switchgear run --agent demo --budget 1; code=$$?; \
	  if [ $$code -ne 10 ]; then exit $$code; fi; \
	  echo "Stopped by the breaker with exit code 10, as intended."

test:  ## set up and run the tests, all but the long ones and the integrations (about 4 minutes)
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -m pytest -n auto --dist worksteal --ignore tests/integrations

stress:  ## the long tests: stress, chaos, and property tests at full depth
	@scripts/venv $(VENV) -e '.[dev]'
	@# They measure real time and kill processes: failed tests run once more, one at a time.
	@export SWITCHGEAR_DEEP=1 HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-stress}; \
	  $(BIN)/python -m pytest -n auto --dist worksteal --timeout 3600 --durations 10 \
	  -m '(stress or deep or hypothesis) and not e2e_agents' || { \
	  code=$$?; [ $$code -eq 1 ] || exit $$code; echo "Running the failed tests once more, one at a time:"; \
	  $(BIN)/python -m pytest --timeout 3600 -m 'not e2e_agents' --last-failed --last-failed-no-failures none; }

e2e:  ## real agent CLIs against a scripted model API on loopback (needs node and npm)
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python tests/e2e/agents/installation.py
	@# External programs can time out on a busy machine: failed tests run once more, one at a time.
	@$(BIN)/python -m pytest -n 3 --durations 10 -m e2e_agents tests/e2e/agents || { \
	  code=$$?; [ $$code -eq 1 ] || exit $$code; echo "Running the failed tests once more, one at a time:"; \
	  $(BIN)/python -m pytest -m e2e_agents --last-failed --last-failed-no-failures none tests/e2e/agents; }

integrations:  ## SDKs and frameworks, real packages: openai 2 with httpx, openai 3 with httpx2, others
	@for set in openai2 openai3 agents; do \
	  scripts/venv .venv-$$set -e . -r tests/integrations/requirements-$$set.txt && \
	  .venv-$$set/bin/python tests/integrations/check_set.py || exit 1; done

console:  ## the web page in a real Chromium (installs it where apt allows); screenshots in build/console
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python tests/e2e/console/installation.py
	@$(BIN)/python -m pytest -m console tests/e2e/console tests/unit/console

check:  ## format, lint, strict types, import rules, for the sources and the examples in the docs
	@scripts/venv $(VENV) -e '.[dev]'
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/architecture/check_examples.py
	$(BIN)/python tests/architecture/check_types.py

format:  ## format the sources and apply automatic lint fixes
	@scripts/venv $(VENV) -e '.[dev]'
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench:  ## ratios against bare Python, bare stores and eight other libraries, in one run
	@scripts/venv .venv-bench -e '.[proxy,redis]' -r bench/requirements.txt
	@scripts/venv .venv-litellm 'litellm[proxy]==1.106.*' || echo "LiteLLM cannot be installed here: it is not compared"
	@.venv-bench/bin/python -m bench

mutants:  ## introduce defects into the mechanism and count those that the tests detect (about an hour)
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python scripts/mutants.py

rules:  ## measure the rules: evasions refused, harmless commands refused, time per check
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python tests/rules/measure.py

stuck:  ## measure the progress presets on recorded runs: make stuck CORPUS=folder
	@scripts/venv $(VENV) -e '.[dev]'
	@$(BIN)/python scripts/measure_ledger.py $(CORPUS)

release:  ## build and check the packages; `make release UPLOAD=1` uploads them (docs/release.md)
	@scripts/release $(if $(UPLOAD),--upload)

docs:  ## build the documentation site into build/site, offline
	@scripts/venv .venv-docs -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

clean:  ## remove what these commands created
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .switchgear
