# Everything works on a fresh machine: each target first makes its own virtual environment, once.
#   make demo                  side by side with stock torch
#   make zoo                   real models beside stock torch: a table and a page
#   make test                  lint, types and the suite
#   make test TORCH=2.15.0     the same on another torch

TORCH  ?= 2.13.0
PYTHON ?= python3
PYTEST_ARGS ?=
ZOO_ARGS ?=

VENV  := .venv-$(TORCH)
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready-$(shell cksum pyproject.toml | cut -d' ' -f1)

.PHONY: demo zoo test pytest lint types format docs clean venv
.DEFAULT_GOAL := test

# torch comes first and alone, so that a local wheel is taken; the constraint keeps later installs from replacing it.
$(STAMP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "torch==$(TORCH)"
	$(BIN)/python -c "import importlib.metadata as m; print('torch==' + m.version('torch'))" > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable ".[dev]"
	rm -f $(VENV)/.ready-*
	touch $@

venv: $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m anyshape demo

# Goes on where an earlier run was stopped; ZOO_ARGS="--only llama bert" for some of it.
zoo: $(STAMP)
	$(BIN)/python -m benchmarks.zoo $(ZOO_ARGS)

test: lint types pytest

# A worker that dies is begun again with its whole file, so once has to do.
pytest: $(STAMP)
	$(BIN)/python -m pytest --timeout 600 --numprocesses 2 --dist loadfile --max-worker-restart 1 $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv-* site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
