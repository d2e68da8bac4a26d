# make run             tunes a network on this CPU and writes report.html; NETWORK, MINUTES, COST_MODEL, WORK_DIR
# make test            checks style, types and the import rules, and runs the tests in both environments
# make test-all        the same with the slow tests, before a release
# make lint            the checks alone
# make bench           the page of all benchmarks, work/report/index.html; runs first what has no result yet
# make docs            the documentation as a site, work/site/docs/index.html
# make wheel           dist/*.whl for any Linux with glibc 2.17; WHEEL_ARCH=aarch64 cross-compiles
# make auto-scheduler  sets up .venv-auto-scheduler: the same package beside a TVM that has auto_scheduler
#
# .venv has today's TVM (MetaSchedule). Each target sets up what it needs: running needs less than the tests.

NETWORK ?= resnet-18
MINUTES ?= 5
COST_MODEL ?= gnn
WORK_DIR ?=
WHEEL_ARCH ?= $(shell uname -m)

VENV := .venv
AUTO_SCHEDULER := .venv-auto-scheduler
WHEEL_VENV := work/venv-wheel
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 2>/dev/null))

# Extras of pyproject.toml. The style and the types are checked in .venv alone.
RUN_EXTRAS := tvm,tune,compare
DEV_EXTRAS := tvm,tune,compare,train,tpugraphs,xla,dev
AUTO_SCHEDULER_RUN_EXTRAS := auto-scheduler,train
AUTO_SCHEDULER_DEV_EXTRAS := auto-scheduler,train,tpugraphs,test
# The exact versions that the figures were measured with; users of the package get ranges.
CONSTRAINTS := tests/constraints.txt
AUTO_SCHEDULER_CONSTRAINTS := tests/constraints-auto-scheduler.txt

# The modules whose examples doctest does not run: those of the other TVM, and a script that looks for its library.
NO_DOCTESTS := $(addprefix --ignore tvm_gnn_cost/schedulers/, auto_scheduler meta_schedule/run.py)
# An editable install takes a new folder with modules for an empty one until it is made again.
BUILT_FROM := pyproject.toml CMakeLists.txt $(wildcard extraction/* tvm_gnn_cost/*/__init__.py tvm_gnn_cost/*/*/__init__.py)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Two files of tests at a time, in the order of tests/conftest.py: a file runs in one process and shares its fixtures.
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# Which tests: `make test-all` runs the slow ones too.
SPEED := not slow

.PHONY: run test test-all lint bench docs wheel test-plain test-meta-schedule test-auto-scheduler \
    install dev auto-scheduler auto-scheduler-dev
.DELETE_ON_ERROR:

run: install
	$(VENV)/bin/tvm-gnn-cost tune $(NETWORK) --minutes $(MINUTES) --cost-model $(COST_MODEL) $(addprefix --work-dir ,$(WORK_DIR))

# What fails quickly comes first.
test: lint docs test-plain test-meta-schedule test-auto-scheduler

test-all: SPEED := slow or not slow
test-all: test

lint: dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/clang-format --dry-run -Werror extraction/*.h extraction/*.cc
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/mypy

# The benchmarks of each scheduler run in its own environment.
bench: dev auto-scheduler-dev
	$(VENV)/bin/python benchmarks/report.py --run

docs: dev
	$(VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going -c docs . work/site

wheel: $(WHEEL_VENV)/ready
	$(WHEEL_VENV)/bin/python tools/build_wheel.py --arch $(WHEEL_ARCH)

# Tests that need another environment leave themselves out (tests/conftest.py).
test-plain: dev
	$(VENV)/bin/python $(PYTEST) --tvm none -m "$(SPEED)"
	$(VENV)/bin/python -m pytest -q -p tests.doctest_data --doctest-modules tvm_gnn_cost $(NO_DOCTESTS)

test-meta-schedule: dev
	$(VENV)/bin/python $(PYTEST) --tvm only -m "$(SPEED)"

test-auto-scheduler: auto-scheduler-dev
	$(AUTO_SCHEDULER)/bin/python $(PYTEST) --tvm only -m "$(SPEED)"

install: $(VENV)/installed-run
dev: $(VENV)/installed-dev
auto-scheduler: $(AUTO_SCHEDULER)/installed-run
auto-scheduler-dev: $(AUTO_SCHEDULER)/installed-dev

# $(call stage,what is being done,command): one line for a stage; what it prints is shown only if it fails.
stage = @echo "$(1) ..."; { $(2); } >$@.log 2>&1 || \
    { tail -n 40 $@.log >&2; echo "error: this stage failed; all of its output is in $@.log" >&2; exit 1; }

# Editable: the package is read from here, and only a change of what is built or required installs again.
$(VENV)/installed-run: $(BUILT_FROM) $(CONSTRAINTS) | $(VENV)/ready
	$(call stage,Installing the dependencies and building the extractor in $(@D) (a few minutes the first time),\
	    $(@D)/bin/python -m pip install -c $(CONSTRAINTS) --no-build-isolation --editable '.[$(RUN_EXTRAS)]')
	@touch $@

# bitblas wants torch with CUDA and more that is not needed to import the TVM inside it; that TVM wants the CUDA runtime.
$(AUTO_SCHEDULER)/installed-run: $(BUILT_FROM) $(AUTO_SCHEDULER_CONSTRAINTS) tools/auto_scheduler_environment.py | $(AUTO_SCHEDULER)/ready
	$(call stage,Installing a TVM with auto_scheduler and building the extractor in $(@D) (a few minutes the first time),\
	    $(@D)/bin/python -m pip install -c $(AUTO_SCHEDULER_CONSTRAINTS) --no-build-isolation \
	        --editable '.[$(AUTO_SCHEDULER_RUN_EXTRAS)]' && \
	    $(@D)/bin/python -m pip install --no-deps \
	        'bitblas==0.1.0.post1' 'nvidia-cuda-nvrtc-cu12==12.*' 'nvidia-cuda-runtime-cu12==12.*' && \
	    $(@D)/bin/python tools/auto_scheduler_environment.py)
	@touch $@

# The package is installed by now: pip adds what its extras name and builds nothing.
$(VENV)/installed-dev: $(VENV)/installed-run
	$(call stage,Installing the test tools in $(@D),$(@D)/bin/python -m pip install -c $(CONSTRAINTS) \
	    'tvm-gnn-cost[$(DEV_EXTRAS)]')
	@touch $@

$(AUTO_SCHEDULER)/installed-dev: $(AUTO_SCHEDULER)/installed-run
	$(call stage,Installing the test tools in $(@D),\
	    $(@D)/bin/python -m pip install -c $(AUTO_SCHEDULER_CONSTRAINTS) \
	    'tvm-gnn-cost[$(AUTO_SCHEDULER_DEV_EXTRAS)]')
	@touch $@

# What builds the package must be there before it: without isolation pip does not fetch it by itself.
$(VENV)/ready $(AUTO_SCHEDULER)/ready:
	@test -n "$(PYTHON)" || { echo "error: there is no Python; install Python 3.11 or later" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "error: $(PYTHON) is older than Python 3.11; install that, or make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@command -v $${CXX:-c++} >/dev/null || \
	    { echo "error: there is no C++ compiler (c++); install one (g++ or clang), or set CXX" >&2; exit 2; }
	@echo "Creating $(@D) ..."
	@$(PYTHON) -m venv --clear $(@D) || \
	    { echo "error: $(PYTHON) cannot make a virtual environment; install its venv module (python3-venv)" >&2; exit 2; }
	$(call stage,Installing the build tools in $(@D),$(@D)/bin/python -m pip install -c $(CONSTRAINTS) \
	    scikit-build-core apache-tvm-ffi 'cmake>=3.18' ninja setuptools wheel pybind11)
	@touch $@

$(WHEEL_VENV)/ready: tools/build_wheel.py pyproject.toml
	@$(PYTHON) -m venv --clear $(@D)
	$(call stage,Installing the build tools in $(@D),\
	    $(@D)/bin/python tools/build_wheel.py --requirements >$(@D)/requirements.txt && \
	    $(@D)/bin/python -m pip install -r $(@D)/requirements.txt)
	@touch $@
