# make: set up, run the default study and build results/report.html.   make test: set up and run the tests.
# Both may be repeated: what is finished is kept. `make help` lists every target.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := study
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
CUDA := .venv-cuda
DYNAMICS := .venv-dynamics-bench
NEWEST := .venv-newest
# A stamp has the checksum of the lock that its environment was made from, so an edited lock makes it again.
SETUP := $(VENV)/.ketscale-$(shell cksum < envs/cpu.lock | cut -d' ' -f1)
SETUP_CUDA := $(CUDA)/.ketscale-$(shell cksum < envs/cuda.lock | cut -d' ' -f1)
SETUP_DYNAMICS := $(DYNAMICS)/.ketscale-$(shell cksum < envs/dynamics-bench.lock | cut -d' ' -f1)
BENCH := $(VENV)/.bench-$(shell cksum < envs/bench.lock | cut -d' ' -f1)
TRITON := $(VENV)/.triton-$(shell cksum < envs/triton.lock | cut -d' ' -f1)
TRACKERS := $(VENV)/.trackers-$(shell cksum < envs/trackers.lock | cut -d' ' -f1)
DOCS := $(VENV)/.docs-$(shell cksum < envs/docs.lock | cut -d' ' -f1)

IS_311 := -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
PYTHON ?= $(shell for name in python3.11 python3; do "$$name" $(IS_311) && { echo "$$name"; break; }; done)

# The torch of test-newest is the lock's, since a newer one from PyPI brings gigabytes of CUDA: TORCH=torch where pip's index
# has builds for CPUs.
TORCH ?= $(shell grep '^torch==' envs/cpu.lock)

# Of the machine that has the GPU: torch with CUDA, triton and numpy.
GPU_PYTHON ?= python3

# Commands find the environment's programs first, and no settings of another environment. Images of containers set
# PYTHONDONTWRITEBYTECODE; then every process would compile this package's modules anew.
ENV = env -u PYTHONPATH -u PYTHONHOME -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

# A process for each core; one that has nothing left takes tests from another.
SIDE_BY_SIDE := --numprocesses logical --dist worksteal --durations 10
ON_SLURM := --numprocesses 3 --dist loadfile

.PHONY: study setup env-cuda env-dynamics-bench bench-extra triton-extra trackers-extra docs-extra docs test test-nightly test-newest test-faults-long wheel-check gpu-kit gpu-check gpu-docs test-slurm test-slurm-long lint format clean help

study: $(SETUP) ## the default study, ending in results/report.html (the default)
	@echo "==> Running the study of config.yaml (what is finished is kept)"
	@$(ENV) snakemake --profile profiles/local
	@echo "==> Done: open results/report.html"

setup: $(SETUP) ## the environment .venv from envs/cpu.lock
	@echo "==> $(VENV) is ready: source $(VENV)/bin/activate"

test: $(SETUP) ## the tests, but for those of tests/nightly and what is marked so
	@echo "==> Testing"
	@$(ENV) python -m pytest -m "not nightly" $(SIDE_BY_SIDE)

# Each part runs whatever became of those before it.
test-nightly: $(SETUP) $(BENCH) $(TRITON) $(TRACKERS) $(DOCS) ## all other tests: before a release or a note (an hour; SLURM's need root and its packages)
	@status=0; \
	echo "==> Testing what takes long"; \
	$(ENV) python -m pytest tests/nightly --ignore tests/nightly/slurm $(SIDE_BY_SIDE) || status=1; \
	$(ENV) python -m pytest -m nightly $(SIDE_BY_SIDE) || status=1; \
	echo "==> Testing properties with 2,000 examples"; \
	$(ENV) KETSCALE_EXAMPLES=2000 python -m pytest tests/property $(SIDE_BY_SIDE) || status=1; \
	echo "==> Testing with the newest packages"; \
	$(MAKE) test-newest || status=1; \
	echo "==> Testing on SLURM"; \
	$(ENV) python -m pytest tests/nightly/slurm -m "not long" $(ON_SLURM) || status=1; \
	exit $$status

# It resolves anew each time, so it has no stamp. All that a package can break is tested, but for what compares with the lock.
test-newest: VENV := $(NEWEST)
test-newest: ## the tests with the newest packages that pyproject.toml allows, in .venv-newest (TESTS= for some, TORCH=)
	@echo "==> Bringing $(NEWEST) up to date"
	@"$(PYTHON)" $(IS_311) || { echo "Python 3.11 was not found: name it with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(NEWEST)
	@$(NEWEST)/bin/python -m pip install -qq --no-compile --upgrade "$(TORCH)"
	@$(NEWEST)/bin/python -m pip install -qq --no-compile --upgrade --upgrade-strategy eager "$(TORCH)" --editable ".[test,bench,mlflow,tensorboard]"
	@$(NEWEST)/bin/python -m pip check
	@$(ENV) python -c "$$COMPILED"
	@$(ENV) python -c "$$DIFFERENCES"
	@echo "==> Testing"
	@$(ENV) python -m pytest -m "not nightly" -k "not what_the_lock_says" $(SIDE_BY_SIDE) $(TESTS)

test-faults-long: $(SETUP) ## 2,000 kills and interruptions of each kind, and as many examples of each property (SEED=; a night)
	@echo "==> Testing under damage"
	@$(ENV) $(if $(SEED),KETSCALE_FAULT_SEED=$(SEED)) KETSCALE_FAULT_COUNT=2000 KETSCALE_EXAMPLES=2000 python -m pytest tests/nightly/faults tests/property -s

wheel-check: ## build sdist and wheel, install them into an empty environment, and train from another folder
	@echo "==> Checking the wheel"
	@PYTHON="$(PYTHON)" tests/style/packaging/check.sh

gpu-kit: $(SETUP) ## fill gpu-kit/ with what gpu-check needs on a machine without a network (63 MiB with the checkout)
	@echo "==> Filling gpu-kit/"
	@$(ENV) python tests/nightly/gpu/kit

gpu-check: ## what a machine with a GPU proves and measures, in 20 minutes, into gpu-check/gpu.json (GPU_PYTHON: one with torch)
	@echo "==> Checking this machine's GPU"
	@$(GPU_PYTHON) tests/nightly/gpu/check

gpu-docs: $(SETUP) ## a page and figures in docs/gpu of what gpu-check found (RESULT=gpu-check/gpu.json), and its records
	@$(ENV) PYTHONPATH=. python -m tests.nightly.gpu.publish $(or $(RESULT),gpu-check/gpu.json)

test-slurm: $(SETUP) ## four runs on a real SLURM cluster, started here, one of them requeued (root; Debian packages: docs/contributing.md)
	@echo "==> Testing on SLURM"
	@$(ENV) python -m pytest tests/nightly/slurm/test_smoke.py

test-slurm-long: $(SETUP) ## the tests on SLURM that wait for time limits, a campaign with nine faults, and a study of 3,000 runs
	@echo "==> Testing on SLURM (the long tests)"
	@$(ENV) python -m pytest tests/nightly/slurm -m long -s

lint: $(SETUP) ## ruff, mypy, snakefmt, Snakemake's own lint, and the ceilings of lines
	@echo "==> Checking style and types"
	@$(ENV) ruff check .
	@$(ENV) ruff format --check .
	@$(ENV) mypy
	@$(ENV) snakefmt --check Snakefile workflow/rules
	@$(ENV) snakemake --lint
	@$(ENV) python -m tests.style.rooms

format: $(SETUP) ## format the code as `make lint` requires
	@$(ENV) ruff check --fix .
	@$(ENV) ruff format .
	@$(ENV) snakefmt Snakefile workflow/rules

env-cuda: $(SETUP_CUDA) ## the environment .venv-cuda for GPUs, with lightning.gpu, from envs/cuda.lock
	@echo "==> $(CUDA) is ready: source $(CUDA)/bin/activate && snakemake --profile profiles/local"

env-dynamics-bench: $(SETUP_DYNAMICS) ## the environment .venv-dynamics-bench for `ketscale bench dynamics` with outside packages
	@echo "==> $(DYNAMICS) is ready: $(DYNAMICS)/bin/ketscale bench dynamics"

bench-extra: $(BENCH) ## adds the outside simulators of `ketscale bench simulators` to .venv, from envs/bench.lock
	@echo "==> $(VENV) has the outside simulators: ketscale bench simulators"

triton-extra: $(TRITON) ## adds Triton (1 GB) to .venv, for the tests of fused's GPU kernels, from envs/triton.lock
	@echo "==> $(VENV) has Triton: make test covers the GPU kernels"

trackers-extra: $(TRACKERS) ## adds TensorBoard and MLflow's client to .venv, for `ketscale export`, from envs/trackers.lock
	@echo "==> $(VENV) has TensorBoard and MLflow: ketscale export"

docs-extra: $(DOCS) ## adds Sphinx and its themes to .venv, for `make docs`, from envs/docs.lock
	@echo "==> $(VENV) has Sphinx: make docs"

docs: $(DOCS) ## the documentation, in docs/_build/html/index.html; a broken link or notebook is an error
	@echo "==> Building the documentation"
	@$(ENV) python -m sphinx -q -E -W --keep-going -n -b html docs docs/_build/html
	@echo "==> Done: open docs/_build/html/index.html"

clean: ## delete results and results-* (the environment is kept)
	@echo "==> Deleting results/, results-*/ and Snakemake's notes on them"
	@rm -rf results results-* .snakemake

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1: \2/p' Makefile

# Little of what is installed is ever imported, and only that is compiled: at once, since later commands may be told to
# write no bytecode.
define COMPILED
from importlib import import_module, util
for name in ("torch.distributed.run", "llvmlite.binding", "pennylane", "qiskit", "seaborn", "snakemake.cli"):
    if util.find_spec(name.partition(".")[0]):
        import_module(name)
endef
export COMPILED

# The packages of this environment that are not as the locks pin them.
define DIFFERENCES
from importlib.metadata import distributions
from pathlib import Path
key = lambda name: name.lower().replace("_", "-").replace(".", "-")
locks = "".join(Path(f"envs/{name}.lock").read_text() for name in ("cpu", "bench", "trackers"))
pins = {key(line.split("==")[0]): line.split("==")[1] for line in locks.splitlines() if not line.startswith("#")}
for name, version in sorted({(key(one.name), one.version.split("+")[0]) for one in distributions()}):
    if pins.get(name) != version:
        print(f"{name} {version} (lock: {pins.get(name, 'none')})")
endef
export DIFFERENCES

# $(1): the folder, $(2): its lock. torch is installed first, alone, for the reason given in the lock.
define install
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 was not found: install it, or name it with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" $(IS_311) || { echo "PYTHON=$(PYTHON) is not a Python 3.11" >&2; exit 1; }
	@echo "==> Making $(1) from $(2) (minutes, once)"
	@"$(PYTHON)" -m venv --clear $(1)
	@$(1)/bin/python -m pip install -qq --no-compile "$$(grep '^torch==' $(2))"
	@$(1)/bin/python -m pip install -qq --no-compile --no-deps --requirement $(2)
	@$(1)/bin/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@env -u PYTHONDONTWRITEBYTECODE $(1)/bin/python -c "$$COMPILED"
	@$(1)/bin/python -m pip check
	@touch $@
endef

$(SETUP):
	$(call install,$(VENV),envs/cpu.lock)

$(SETUP_DYNAMICS):
	$(call install,$(DYNAMICS),envs/dynamics-bench.lock)

$(BENCH): $(SETUP)
	@echo "==> Adding envs/bench.lock to $(VENV)"
	@$(VENV)/bin/python -m pip install -qq --no-compile --no-deps --requirement envs/bench.lock
	@touch $@

$(TRITON): $(SETUP)
	@echo "==> Adding envs/triton.lock to $(VENV)"
	@$(VENV)/bin/python -m pip install -qq --no-compile --no-deps --requirement envs/triton.lock
	@touch $@

$(TRACKERS): $(SETUP)
	@echo "==> Adding envs/trackers.lock to $(VENV)"
	@$(VENV)/bin/python -m pip install -qq --no-compile --no-deps --requirement envs/trackers.lock
	@touch $@

$(DOCS): $(SETUP)
	@echo "==> Adding envs/docs.lock to $(VENV)"
	@$(VENV)/bin/python -m pip install -qq --no-compile --no-deps --requirement envs/docs.lock
	@touch $@

# If pip is configured to prefer CPU wheels, it installs that build of torch here too: refused, never used silently.
$(SETUP_CUDA):
	$(call install,$(CUDA),envs/cuda.lock)
	@$(CUDA)/bin/python -c 'import sys, torch; sys.exit(torch.version.cuda is None and "torch here is a CPU build: unset PIP_FIND_LINKS and PIP_EXTRA_INDEX_URL, then make env-cuda")' || { rm -f $@; exit 1; }
