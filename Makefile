# make demo  a million rows, fitted and predicted          make test   lint, types and the whole test suite
# make lint  lint and types only                           make docs   the site, every example run → docs/_build/html
# make bench the speed benchmarks (an hour)                make package  wheel and sdist → dist/, tried in clean environments
# make clean remove what the others made
# make paper-quick, make paper  the paper's tables and figures beside ours (ten minutes, hours); make reproduction draws
PYTHON ?= python3
BIN := .venv/bin
# Without hooks: a checkout needs no machine code from its installation, numba keeps what it compiles beside the sources.
INSTALL := HATCH_BUILD_NO_HOOKS=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint docs package bench paper paper-quick reproduction clean

demo: .venv/installed
	$(BIN)/gpnn demo

test: .venv/installed-test lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal # a process per core, each for itself

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-bench
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/scaling.py

docs: .venv/installed-docs # -W: a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html

package: .venv/installed-package
	tests/packaging/check.sh $(BIN)/python

paper-quick: QUICK := --quick
paper paper-quick: .venv/installed-paper # stopped, it continues where it was
	-$(BIN)/python experiments/run.py real $(QUICK)
	-$(BIN)/python experiments/run.py prediction $(QUICK)
	-$(BIN)/python experiments/run.py simulation $(QUICK)
	-$(BIN)/python experiments/run.py oakley $(QUICK)
	$(BIN)/python experiments/render.py

reproduction: .venv/installed-paper
	$(BIN)/python experiments/render.py --docs

clean: # compiled code too
	rm -rf .venv dist docs/_build docs/gallery
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

.venv/installed-docs: .venv/installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

.venv/installed-package: .venv/bin/python
	$(INSTALL) build
	@touch $@

.venv/installed-paper: .venv/installed
	$(INSTALL) --editable '.[baselines,data,plots]'
	@touch $@
