# minicb: from a fresh checkout to the demo, the tests or the course, with Python 3.11-3.13 and pip.
# The first run fetches packages and a model; every later one works offline and installs nothing.

.PHONY: help setup model demo test lint lab notebooks soak mutants kernels gpu clean
.DEFAULT_GOAL := help

RUN := .venv/bin/python -m
# Another Python for the set-up:  make demo PYTHON=python3.12
export PYTHON

help:
	@echo "make demo    set up, then real prompts through the engine, padded and continuous side by side"
	@echo "make test    set up, then every check and test"
	@echo "make lab     set up, then open the course in JupyterLab (LAB_FLAGS=... goes to jupyter)"
	@echo "make lint    set up, then format, lint and type checks only"
	@echo "make notebooks  set up, then build the notebooks from their text sources"
	@echo "make soak    set up, then random workloads against the oracle (SEEDS=2000)"
	@echo "make mutants set up, then check that planted faults are found"
	@echo "make gpu     set up, then whatever needs a CUDA GPU: tests, probes, benchmark, in 8 minutes"
	@echo "make kernels set up, then test the CUDA kernels without a GPU, in Triton's interpreter (Linux)"
	@echo "make setup   only the virtual environment in .venv (about 350 MB to fetch, 1.6 GB on disk)"
	@echo "make clean   remove .venv and the caches of the tools; your work in .minicb and the model stay"
	@echo
	@echo "PYTHON=python3.12 picks another Python. pip's own settings apply; on Linux its default torch is the"
	@echo "CUDA build (several GB): PIP_EXTRA_INDEX_URL=... can point at torch's CPU wheels instead."

demo: model
	@$(RUN) minicb demo

# Tests of every kind belong here, in the order in which a failure is cheapest to find.
test: lint model
	@PYTHONWARNDEFAULTENCODING=1 $(RUN) pytest
	@$(RUN) pytest --nbval --nbval-current-env notebooks/solutions
	@$(RUN) pytest --nbval-lax --nbval-current-env notebooks/*.ipynb

# Blank and solved notebooks from notebooks/_source.
notebooks: model
	@$(RUN) minicb.course.build

lint: setup
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy

lab: model
	@$(RUN) jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(LAB_FLAGS)

model: setup
	@$(RUN) minicb download

setup:
	@sh -c "$$SETUP"

# Random workloads against the oracle, as many as you like: make soak SEEDS=2000
SEEDS := 2000
soak: setup
	@$(RUN) tests.harness.soak --seeds $(SEEDS)

# Does the suite notice a fault? Plants them one by one in a copy of the package.
mutants: setup
	@$(RUN) tests.harness.mutate

# What only a GPU can show, saved as gpu-check.json. Without one it says so and ends well.
gpu: model
	@$(RUN) tests.harness.gpu

# The CUDA kernels on a CPU. Triton comes with torch's CUDA builds only; alone it is 290 MB to fetch, 1 GB on disk.
kernels: setup
	@.venv/bin/python -c "import triton" 2>/dev/null || $(RUN) pip install triton==3.9.0
	@$(RUN) pytest tests/test_triton.py tests/test_triton_layer.py tests/test_triton_compile.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist minicb.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The virtual environment. The stamp holds the place and the wishes that it was made for: while they are the same
# nothing is installed, so no network is needed.
define SETUP
set -u
fail() { echo "minicb: $$*" >&2; exit 1; }
stamp=.venv/.minicb-ready
log=.venv/install.log
here=$$(pwd -P)
wishes=$$(cat pyproject.toml constraints.txt | cksum)

# 1. A Python: the one that is asked for, else the first that fits.
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'
version='import sys; print("%d.%d" % sys.version_info[:2])'
old=$$(.venv/bin/python -c "$$version" 2>/dev/null)
set -- .venv/bin/python python3 python3.13 python3.12 python3.11
if [ -n "$${PYTHON:-}" ]; then set -- "$$PYTHON"; fi
python=
for candidate; do
    if "$$candidate" -c "$$fits" 2>/dev/null; then python=$$candidate; break; fi
done
if [ -z "$$python" ]; then
    asked=$${PYTHON:-python3}
    found=$$("$$asked" -c "$$version" 2>/dev/null) || found=missing
    fail "Python 3.11, 3.12 or 3.13 is needed; $$asked is $$found. Name one: make ... PYTHON=/path/to/python3.12"
fi

# 2. Is there nothing to do?
if [ "$$old" = "$$("$$python" -c "$$version")" ] && [ "$$(sed -n 1p $$stamp 2>/dev/null)" = "$$here" ]; then
    if [ "$$(sed -n 2p $$stamp)" = "$$wishes" ]; then exit 0; fi
    task="Bringing the packages in .venv up to date"
else
    task="Installing the packages (about 350 MB to fetch, 1.6 GB on disk; several GB with torch's CUDA build)"
    echo "Making a virtual environment in .venv with Python $$("$$python" -c "$$version")"
    # An environment cannot renew itself: go back to the Python that it was made with.
    python=$$("$$python" -c "import sys; print(getattr(sys, '_base_executable', sys.executable))")
    "$$python" -m venv --clear .venv >/dev/null 2>&1 ||
        fail "$$python has no venv or no pip: install them (Debian, Ubuntu: apt install python3-venv)"
fi
rm -f $$stamp

# 3. Install, quietly; on a terminal the newest line of pip's log shows that it moves.
echo "$$task ..."
viewer=
if [ -t 1 ]; then
    while kill -0 $$$$ && sleep 0.5; do printf '\r\033[K  %.76s' "$$(tail -n 1 $$log)"; done 2>/dev/null &
    viewer=$$!
fi
rest() { if [ -n "$$viewer" ]; then kill $$viewer; printf '\r\033[K'; fi; }
trap 'rest; fail interrupted' INT TERM
pip=".venv/bin/python -m pip --disable-pip-version-check --no-input install --progress-bar off -c constraints.txt"
$$pip setuptools >$$log 2>&1 && $$pip --no-build-isolation --editable ".[course,bench,dev]" >>$$log 2>&1
code=$$?
rest
if [ $$code != 0 ]; then
    if grep -q -e "No space left" $$log; then fail "the disk is full (see $$log)"; fi
    if grep -q -e "Retrying (" -e "ConnectionError" -e "timed out" $$log; then
        fail "cannot reach the package index: check the network and pip's proxy settings (see $$log)"
    fi
    fail "$$(grep ERROR: $$log | tail -n 1) (see $$log)"
fi
printf '%s\n%s\n' "$$here" "$$wishes" >$$stamp
endef
export SETUP
