# The whole project from here: `make app` serves it, `make test` tests it; each sets up what it needs.

PORT ?= 8501
PYTHON := .venv/bin/python
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup app test test-all faults lint format docs release bench gpu validate example lock clean

help:  ## what can be made
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/make \1	\2/p' Makefile

setup:  ## make .venv with everything that is needed (nothing to do when it is there)
	@sh scripts/setup.sh

app: setup  ## serve the app on http://localhost:8501 (PORT=8600: on another port)
	@exec $(PYTHON) scripts/serve.py --server.port $(PORT)

test:  ## run the tests that protect the product, before each change (ARGS="-k pairs": some of them)
	@sh scripts/setup.sh browser
	@$(PYTHON) scripts/find_browser.py
	@$(PYTHON) -m pytest -n 2 -m "not slow and not faults" $(ARGS)

test-all:  ## run the slow tests too: training, gallery, notebook, clusters, all screens in a browser
	@sh scripts/setup.sh browser
	@$(PYTHON) scripts/find_browser.py
	@$(PYTHON) -m pytest -n 2 $(ARGS)

faults: setup  ## feed it hostile input, kill and damage it: the long tests (ARGS="-k tables": some of them)
	@$(PYTHON) -m pytest -m faults --timeout 5400 $(ARGS)

lint: setup  ## check style, format, types, imports and words
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@.venv/bin/lint-imports --no-logo
	@$(PYTHON) scripts/texts.py

format: setup  ## put the code in the one format
	@$(PYTHON) -m ruff check --fix .
	@$(PYTHON) -m ruff format .

docs: setup  ## build the docs site into build/docs; a broken link fails
	@$(PYTHON) -m pip install -qq --disable-pip-version-check -c constraints.txt -r requirements-docs.txt
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	@echo "build/docs/index.html (to search, serve it: python3 -m http.server -d build/docs)"

release: setup  ## build the source distribution and the wheel into dist, and check them
	@$(PYTHON) -m pip install -qq --disable-pip-version-check -c constraints.txt -r requirements-release.txt
	@rm -rf dist build/lib build/bdist.*
	@$(PYTHON) -m build --no-isolation
	@$(PYTHON) -m twine check --strict dist/*
	@$(PYTHON) -m check_wheel_contents dist/*.whl

bench: setup  ## measure the speed, side by side with what one would use instead
	@$(PYTHON) -m benchmarks $(ARGS)

gpu: setup  ## measure and check what runs on a CUDA GPU, into benchmarks/results/gpu.md (says what it skips)
	@$(PYTHON) -m benchmarks.gpu $(ARGS)

validate: setup  ## measure what the estimators recover, into docs/validation (goes on where it stopped)
	@$(PYTHON) -m validation $(ARGS)

example: setup  ## make the finished analysis that ships with the program anew
	@$(PYTHON) -m mlem_core.tasks.examples

lock: setup  ## write constraints.txt anew from what .venv holds
	@sh scripts/lock.sh

clean:  ## remove what can be made again; results in cache/ stay
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache out
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
