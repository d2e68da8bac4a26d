# make run    tunes a network on this CPU and writes report.html; NETWORK, TRIALS, COST_MODEL, WORK_DIR
# make test   checks the style and the types and runs every test
# make lint   the first two of these alone
# make ansor  sets up .venv-ansor: the same package beside a TVM that has auto_scheduler
# Each sets up .venv first: a virtual environment with the pinned dependencies and the built extractor. make test runs
# the tests of both environments.

NETWORK ?= resnet-18
TRIALS ?= 576
COST_MODEL ?= gnn
WORK_DIR ?= work/$(NETWORK)-$(notdir $(basename $(COST_MODEL)))

VENV := .venv
ANSOR := .venv-ansor
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 2>/dev/null))

.PHONY: run test test-today test-ansor quick-today quick-ansor lint install ansor
.DELETE_ON_ERROR:

run: install
	$(VENV)/bin/tvm-gnn-cost tune --network $(NETWORK) --trials $(TRIALS) --cost-model $(COST_MODEL) --work-dir $(WORK_DIR)

test: lint test-today test-ansor quick-today quick-ansor

# In one order where make runs one thing at a time: what fails quickly comes first. The benchmarks' quick runs are apart:
# where make runs two things at a time, parts of unlike length fill both cores to the end.
test-today: install
	$(VENV)/bin/python -m pytest --ignore tests/benchmarks

test-ansor: ansor
	$(ANSOR)/bin/python -m pytest --ignore tests/benchmarks

quick-today: install
	$(VENV)/bin/python -m pytest tests/benchmarks

quick-ansor: ansor
	$(ANSOR)/bin/python -m pytest tests/benchmarks

lint: install
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

install: $(VENV)/installed

# Editable: the package is read from here, and only a change of what is built or required installs again.
$(VENV)/installed: pyproject.toml CMakeLists.txt $(wildcard extraction/*) | $(VENV)/ready
	@echo "Installing the dependencies and building the extractor; the first time this takes some minutes."
	$(VENV)/bin/python -m pip install --disable-pip-version-check --no-build-isolation --editable '.[tvm,xla,dev]'
	@touch $@

ansor: $(ANSOR)/installed

# bitblas wants torch with CUDA and more that is not needed to import the TVM inside it; that TVM wants the CUDA runtime.
$(ANSOR)/installed: pyproject.toml CMakeLists.txt $(wildcard extraction/*) benchmarks/ansor_environment.py | $(ANSOR)/ready
	@echo "Installing the TVM that has auto_scheduler; the first time this takes some minutes."
	$(ANSOR)/bin/python -m pip install --disable-pip-version-check --no-build-isolation --editable '.[ansor,dev]'
	$(ANSOR)/bin/python -m pip install --disable-pip-version-check --no-deps \
	    'bitblas==0.1.0.post1' 'nvidia-cuda-nvrtc-cu12==12.*' 'nvidia-cuda-runtime-cu12==12.*'
	$(ANSOR)/bin/python benchmarks/ansor_environment.py
	@touch $@

# What builds the package must be there before it: without isolation pip does not fetch it by itself.
$(VENV)/ready $(ANSOR)/ready:
	@test -n "$(PYTHON)" || { echo "error: there is no Python; install Python 3.11 or later" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "error: $(PYTHON) is older than Python 3.11; install that, or make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@command -v $${CXX:-c++} >/dev/null || \
	    { echo "error: there is no C++ compiler (c++); install one (g++ or clang), or set CXX" >&2; exit 2; }
	@$(PYTHON) -m venv --clear $(@D) || \
	    { echo "error: $(PYTHON) cannot make a virtual environment; install its venv module (python3-venv)" >&2; exit 2; }
	$(@D)/bin/python -m pip install --disable-pip-version-check --quiet \
	    'scikit-build-core==1.1.*' 'apache-tvm-ffi==0.1.14.post1' 'cmake>=3.18' ninja setuptools wheel pybind11
	@touch $@
