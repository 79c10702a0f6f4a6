# Everything below works in a clean checkout with Python 3.10+, a C++20 compiler and make.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
export CMAKE_GENERATOR := Ninja
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# The core is compiled once, for the tree and for the wheel: both are made in build/release, one at a time.
SAME_BUILD := -C build-dir=build/release -C cmake.define.PRISM_WARNINGS_AS_ERRORS=ON
.NOTPARALLEL:

.PHONY: help deps venv kernels build install types test test-cpp test-python fuzz soak sanitize lint format demo bench clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

deps: ## packages of Debian with headers that the build needs: installs them where it may, else names them
	@scripts/deps.sh

$(VENV)/.ready: pyproject.toml requirements.txt
	@echo '>> once: $(VENV) with torch and the pinned tools, several GB to download (minutes)'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -r requirements.txt
	@touch $@

venv: $(VENV)/.ready ## the one virtual environment, with every pinned tool

install: deps venv ## build the wheel and install it into the environment
	@echo '>> compiling the C++ core into a wheel: about 2 minutes on 2 cores, unless the tree has it compiled'
	$(PY) -m pip install -v --no-build-isolation --no-deps --force-reinstall $(SAME_BUILD) .

build: deps venv ## compile into the tree (PYTHONPATH=python), with the C++ tests
	@echo '>> compiling the C++ core and its tests into the tree: about 3 minutes on 2 cores the first time'
	cmake --preset release -DPython_EXECUTABLE=$(CURDIR)/$(PY)
	cmake --build --preset release

# Of one CUDA version: another cudafe or ptxas beside nvcc fails in strange ways.
NVCC := build/nvcc
NVCC_PACKAGES := nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
$(NVCC)/bin/nvcc:
	@echo '>> once: nvcc in $(NVCC), about 200 MB to download'
	$(PYTHON) -m venv $(NVCC)/venv
	$(NVCC)/venv/bin/python -m pip install -q $(NVCC_PACKAGES)
	@mkdir -p $(NVCC)/bin
	@found=$$(ls -d $$PWD/$(NVCC)/venv/lib/python*/site-packages/nvidia/cu13/bin/nvcc) && \
	  printf '#!/bin/sh\nexec "%s" "$$@"\n' "$$found" > $@.new && chmod +x $@.new "$$found" && mv $@.new $@

kernels: deps venv $(NVCC)/bin/nvcc ## the kernels for real GPUs, with an nvcc of its own (PyPI), and their tests
	cmake --preset release -DPython_EXECUTABLE=$(CURDIR)/$(PY) -DPRISM_KERNELS=ON -DPRISM_NVCC=$(CURDIR)/$(NVCC)/bin/nvcc
	cmake --build --preset release --target prism_tests
	ctest --preset release -R '^(kernel_image|hold|driver)$$'

test-cpp: build
	ctest --preset release

test-python: install
	$(PY) -m pytest -n 2 --dist loadfile

FUZZ ?= 10
fuzz: build ## the properties of the quick tests with FUZZ=10 other seeds
	@for seed in $$(shuf -i 1-1000000 -n $(FUZZ)); do echo ">> --hypothesis-seed=$$seed"; \
	  PYTHONPATH=python $(PY) -m pytest -q -n 2 -m 'not torch' -p no:cacheprovider --hypothesis-seed=$$seed \
	    $$(grep -l "@given" tests/python/test_*.py) || exit 1; done

soak: install ## SPARe's random kills with 100 seeds instead of 6, ordinary and deterministic sums, and stops: an hour
	PRISM_SPARE_SEEDS=100 $(PY) -m pytest tests/python/test_spare_session.py -k three_of_eight

types: build ## mypy, strict on the package
	$(PY) -m mypy

test: lint types test-cpp test-python ## everything that runs without a GPU

sanitize: deps venv ## the C++ tests under asan+ubsan and under tsan
	for p in asan tsan; do cmake --preset $$p && cmake --build --preset $$p && ctest --preset $$p || exit 1; done

lint: venv ## ruff, clang-format
	ruff check . && ruff format --check .
	clang-format --dry-run -Werror $$(git ls-files '*.cc' '*.h')

format: venv
	ruff check --fix . && ruff format .
	clang-format -i $$(git ls-files '*.cc' '*.h')

DEMO := build/demo
DEMO_JOB := --world-size 64 --device virtual:h100
DEMO_PROGRAM := examples/megatron_gpt.py --tp 2 --pp 4 --micro-batches 8

demo: install ## from nothing to a mapped and replayed Megatron job of 64 ranks
	@mkdir -p $(DEMO)
	$(VENV)/bin/prism doctor
	$(VENV)/bin/prism collect $(DEMO_JOB) -o $(DEMO)/job.prism -- $(DEMO_PROGRAM)
	$(VENV)/bin/prism replay $(DEMO)/job.prism --ranks 0,63
	$(VENV)/bin/prism export perfetto $(DEMO)/job.prism -o $(DEMO)/job.pftrace

bench: install ## benchmarks at small sizes; those that need public traces only where PRISM_DATA names them
	$(PY) benchmarks/record_op.py --ops 200000 --repeats 3
	$(PY) benchmarks/record_rank.py --ops 200000 --repeats 3
	$(PY) benchmarks/collect_scale.py --worlds 64
	$(PY) benchmarks/replay_event.py --ranks 64,512,4096 --repeats 1
	$(PY) benchmarks/replay_scale.py --ranks 256,1024 --repeats 1
	$(PY) benchmarks/ghosts.py --parts scheduler --ranks 64,512
	$(PY) benchmarks/trace_import.py --megabytes 5,20 --repeats 1
	$(PY) benchmarks/spare_solver.py --groups 600 --lives 1 --samples 10
	$(PY) benchmarks/spare_paper.py --seeds 2 --trials 200
	$(PY) benchmarks/spare_life_scale.py --seeds 1
	$(PY) benchmarks/spare_quirks.py --seeds 2
	$(PY) benchmarks/spare_recovery.py --groups 8 --kills 2
	$(PY) benchmarks/spare_vs_torchft.py --kills 1
	$(PY) benchmarks/spare_overhead.py --groups 4 --rounds 1 --steps 10
	$(PY) benchmarks/spare_soak.py --steps 60
	@set -e; if [ -n "$$PRISM_DATA" ]; then \
	  $(PY) benchmarks/accuracy/run.py $(addprefix --only ,straggler kineto calibrate collectives); \
	  for b in kernel_accuracy host_cost; do $(PY) benchmarks/$$b.py; done; fi

clean:
	rm -rf build dist python/prismcore/_core*.so python/prismcore/_core.pyi python/prismcore/lib
