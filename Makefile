# `make demo` and `make test` do all the set-up there is, in a virtual environment of their own.
# Another torch than the one named here:  make demo TORCH='torch==2.8.0'   (or TORCH=, for none)

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
TRACE := demo-out/demo.pt.trace.json.gz
HAS_TORCH := import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)

.PHONY: demo test lint bench clean

demo: $(VENV)/.whyidle $(VENV)/.torch
	@$(PY) -c "$(HAS_TORCH)" || { echo "make demo records a PyTorch run, and torch could not be \
	installed: see the message above, or name another one with TORCH=..."; exit 1; }
	$(PY) examples/demo.py $(TRACE)
	$(VENV)/bin/whyidle trace $(TRACE)

test: lint $(VENV)/.torch
	$(PY) -m pytest

lint: $(VENV)/.dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

# Needs room for traces of 1 GB of JSON, and a while: see docs/benchmarks.md.
bench: $(VENV)/.whyidle bench-out/hta-venv/.installed
	$(PY) benchmarks/trace_speed.py --hta bench-out/hta-venv/bin/python $(BENCH)

# A torch that the machine's Python already has (with its CUDA or ROCm) is used, not fetched again.
$(PY):
	$(PYTHON) -m venv $$($(PYTHON) -c "$(HAS_TORCH)" && echo --system-site-packages) $(VENV)

$(VENV)/.whyidle: pyproject.toml | $(PY)
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(PY)
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.whyidle

# Without torch the tests that record a run are skipped; everything else needs none.
$(VENV)/.torch: | $(PY)
	@if ! $(PY) -c "$(HAS_TORCH)" && [ -n "$(TORCH)" ]; then \
	  echo "$(PIP) $(TORCH)"; \
	  $(PIP) $(TORCH) && touch $@ || echo "torch could not be installed: tests that need it skip"; \
	fi

bench-out/hta-venv/.installed:
	$(PYTHON) -m venv bench-out/hta-venv
	bench-out/hta-venv/bin/python -m pip install --quiet HolisticTraceAnalysis
	@touch $@

clean:
	rm -rf $(VENV) demo-out bench-out
