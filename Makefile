# make demo  a million rows, fitted and predicted          make test   lint, types and the whole test suite
# make bench the speed benchmarks (an hour)                make clean  remove .venv
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench clean

demo: .venv/installed
	$(BIN)/gpnn demo

test: .venv/installed-test lint
	$(BIN)/python -m pytest

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-bench
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/scaling.py

clean: # compiled code too
	rm -rf .venv
	find src tests -name __pycache__ -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

.venv/installed-test: .venv/installed
	$(INSTALL) --editable '.[test]'
	@touch $@

.venv/installed-bench: .venv/installed
	$(INSTALL) --editable '.[bench]'
	@touch $@
