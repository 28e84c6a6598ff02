# Everything a newcomer needs: `make train` and `make test`. Each makes its own virtual environment.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ALGO   ?= ppo
ENV    ?= Pendulum-v1
SEED   ?= 0
ARGS   ?= --preset auto
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -q
QUICK  := tests/formulas tests/compute tests/test_config.py tests/test_networks.py tests/trainers/*/test_*_losses.py \
	tests/trainers/*/test_*_vectors.py tests/trainers/vmpo/test_vmpo_e_step.py

.DEFAULT_GOAL := help
.PHONY: help train quick test test-mathdoc test-slow test-all faults lint types docs docs-check docs-serve pictures release wheel-test system-deps clean

help:
	@echo "make train [ALGO=ppo] [ENV=Pendulum-v1] [SEED=0] [ARGS='--total-steps 50000']   train a policy"
	@echo "make quick       lint, and the tests of formulas, losses, compute and config (under a minute: after every edit)"
	@echo "make test        lint, types and tests (about twelve minutes on two cores); what needs a system library that is"
	@echo "                 not there is skipped with the line that installs it"
	@echo "make test-mathdoc   the tests of the formula checker, after a change to packages/mathdoc"
	@echo "make faults      kill, fill, damage and deceive runs, thousands of times, and write docs/faults.md (three hours)"
	@echo "make docs        the documentation, into build/site; docs-check: every formula against its line; docs-serve: read it"
	@echo "make pictures    the pictures of README, from the committed results and the site (needs chromium)"
	@echo "make release     wheels and source archives of both packages, checked, into dist"
	@echo "make test-slow   what takes longer: learning tests, the built wheel in an empty environment; test-all: all of them"

# pip is told nothing but the pinned versions: the same set of packages on every machine
$(VENV)/.made: constraints.txt
	$(PYTHON) -m venv $(VENV)
	@$(PIP) hatchling editables setuptools
	@touch $@

$(VENV)/.use: $(VENV)/.made pyproject.toml constraints.txt Makefile
	@echo "installing Minerva into $(VENV) ..."
	@$(PIP) --no-build-isolation -e ".[dm-control]"
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml packages/mathdoc/pyproject.toml constraints.txt Makefile
	@echo "installing Minerva, mathdoc and their development tools into $(VENV) ..."
	@$(PIP) --no-build-isolation -e "packages/mathdoc[site,test]" -e ".[dm-control,envpool,warp,video,export,cluster,mlflow,hub,docs,dev]"
	@touch $@ $(VENV)/.use

train: $(VENV)/.use
	@$(BIN)/minerva train $(ALGO) --env $(ENV) --seed $(SEED) $(ARGS)

# what one runs after every edit: the mathematics and what runs it, nothing that calls a C++ compiler
quick: lint
	$(PYTEST) -m "not slow and not cuda and not compiles" $(QUICK)

test: lint types
	$(PYTEST) -m "not slow and not cuda" tests --ignore tests/mathdoc

# a package of its own, which Minerva's tests use for its formulas and do not change
test-mathdoc: $(VENV)/.dev
	$(PYTEST) -m "not slow" packages/mathdoc/tests tests/mathdoc

test-slow: $(VENV)/.dev wheel-test
	$(PYTEST) -m "slow and not cuda"

# all at once, which is what CI runs: what tests share is made once, and nothing waits for the longest of the others
test-all: lint types wheel-test
	$(PYTEST) -m "not cuda"

faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tools/faults/run_faults.py --long

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

# the documentation: every formula evaluated on what its line computes, then the site
docs: $(VENV)/.dev
	$(BIN)/minerva docs build

docs-check: $(VENV)/.dev
	$(BIN)/minerva docs check

docs-serve: $(VENV)/.dev
	$(BIN)/minerva docs serve

# the pictures of README: learning curves of the committed results, formulas of the site, a report
pictures: docs
	$(BIN)/minerva docs results
	$(BIN)/python tools/site/screenshots.py

# wheels and source archives of both packages, with a list of what is in them, metadata and digests checked
release: $(VENV)/.dev
	$(BIN)/python tools/release/build_release.py

# the wheels, as a user gets them: built, each installed into an empty environment, trained with, checked with
wheel-test: $(VENV)/.dev
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python tools/release/build_release.py --out build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/minerva-*.whl
	$(PYTHON) -m venv build/wheel/checker
	build/wheel/checker/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/mathdoc-*.whl pytest
	cp -r packages/mathdoc/examples/fields build/wheel/fields && cd build/wheel/fields && rm fields/adam.py fields/attention.py docs/notation/[a]*.toml docs/exercises.py docs/unmarked.toml
	cd build/wheel/fields && ../checker/bin/mathdoc init fields && ../checker/bin/mathdoc check && ../checker/bin/python -m pytest -q --mathdoc
	cd build/wheel && venv/bin/minerva train ppo --total-steps 10000 --out-dir trained
	cd build/wheel && venv/bin/python -c "import glob, minerva; print(minerva.load_policy(glob.glob('trained/*')[0]).act([1.0, 0.0, 0.0]))"

# the only target that calls apt: what the tests need of the system, on Debian
system-deps:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ git libegl1 libgl1 libopengl0 libosmesa6 chromium chromium-driver > /dev/null

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
