# make demo, make test, make lint, make types: each installs what it needs into .venv, once.
# Needs make and Python 3.11, 3.12 or 3.13; PYTHON=... and VENV=... choose others.

VENV   ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
            $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
              2>/dev/null && echo $$p && break; done)
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check
# PARITY=0 leaves PyTorch out; the tests that compare with it are then skipped.
PARITY ?= 1
comma  := ,
EXTRAS := dev,demo$(if $(filter 1,$(PARITY)),$(comma)parity)

.DEFAULT_GOAL := help
.PHONY: help venv demo docs test test-slow test-gpu gpu-bundle test-tools test-cpus lint types clean

help:
	@echo "make demo        train on real digits, compiled (2 minutes on 2 cores)"
	@echo "make test        the test suite; make test-slow for the slow part"
	@echo "make test-gpu    on a machine with an NVIDIA GPU"
	@echo "make test-tools  the tests of capture under a debugger, a profiler and coverage"
	@echo "make test-cpus   libraries for other CPUs, emulated"
	@echo "make lint types  ruff, mypy"
	@echo "make docs        the documentation's site, in build/site"
	@echo "make venv        only install"

$(PY):
	@test -n "$(PYTHON)" || { echo "graphc needs Python 3.11, 3.12 or 3.13" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A stamp per set of extras; each is renewed when pyproject.toml changes.
$(VENV)/.stamp-demo: pyproject.toml | $(PY)
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.stamp-dev-$(PARITY): pyproject.toml | $(PY)
	$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@ $(VENV)/.stamp-demo

venv: $(VENV)/.stamp-dev-$(PARITY)

demo: $(VENV)/.stamp-demo
	$(PY) -m graphc demo

test: venv
	$(PY) -m pytest -n auto --dist loadfile

test-slow: venv
	$(PY) -m pytest -m slow

# On a machine with an NVIDIA GPU, by the Python there: GPU_PYTHON=...
GPU_PYTHON ?= python3
test-gpu:
	$(GPU_PYTHON) -m pytest -m "slow or not slow" --nvidia tests/backends/cuda/device \
	  tests/backends/cuda/test_driver.py
	$(GPU_PYTHON) -m graphc demo --device cuda

# What a machine with a GPU takes along; PACKAGES=FILE names what it has (pip list there).
gpu-bundle: venv
	$(PY) -m tests.gpu.bundle $(if $(PACKAGES),--packages $(PACKAGES))

test-tools: venv
	$(PIP) 'coverage>=7.7'
	$(PY) -m tests.under all --quiet

# libraries for other CPUs, the slow tests, too; qemu-user, if it is installed, runs whole programs
test-cpus: venv
	$(PY) -m pytest -m "slow or not slow" tests/export

# the documentation's site, into build/site
docs: venv
	$(PY) -m mkdocs build --strict

lint: venv
	$(PY) -m ruff check

types: venv
	$(PY) -m mypy

clean:
	rm -rf $(VENV) build dist demo_out *.egg-info .pytest_cache .mypy_cache .ruff_cache
