# These targets install everything the project needs. `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
DOCS := .venv-docs
PUBLISHED ?= ../shared/data

.DEFAULT_GOAL := help
.PHONY: docs tutorials help setup quickstart browser test test-published check format bench bench-lens bench-peers bench-environments study-learning study-faults study-actors study-server study-minatar study-sweeps study-rates clean test-emulator test-fast test-compiler test-gpu test-install test-versions coverage study-hostile

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(READY) ## create the virtual environment .venv with pinned dependencies

$(READY): pyproject.toml constraints.txt setup.py c2d/native/column_norm.c
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed; name it with: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	find c2d -name "*.so" -delete
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -c 'import c2d.native._column_norm' 2>&1 | tail -n 1 \
		| sed 's/^/NO COMPILED CODE: column_norm.c could not be compiled or loaded, which takes GCC and the headers of Python (sudo apt-get install gcc python3-dev, then touch setup.py). Training works without it, but slower, and its tests are LEFT OUT. /'
	@touch $@

quickstart: $(READY) ## train C2D on MinAtar Breakout for a few minutes and show the result
	$(BIN)/c2d quickstart

browser: ## install Chromium for the browser tests with apt-get, if there is no browser and the system allows it
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { echo "make browser: the browser tests need Chromium; installing it system-wide with apt-get ..."; apt-get install -y --no-install-recommends chromium >/dev/null 2>&1; } \
		|| { apt-get update >/dev/null 2>&1 && apt-get install -y --no-install-recommends chromium >/dev/null 2>&1; } \
		|| echo "WARNING: Chromium could not be installed; the browser tests will be SKIPPED. Try: sudo apt-get install chromium"

test: $(READY) browser ## run the test suite (no network, below 5 minutes on 2 cores); installs Chromium with apt-get if there is no browser
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not published and not compiler"

test-fast: $(READY) ## run the core tests (below 30 seconds): mathematics, networks, replay, learner, names
	$(BIN)/python -m pytest -n 3 --dist worksteal -m fast

test-published: $(READY) ## check against the published data, if they exist (PUBLISHED=DIR)
	@if test -d "$(PUBLISHED)"; then C2D_PUBLISHED="$(PUBLISHED)" $(BIN)/python -m pytest -m published; \
	else echo "SKIPPED: no published data in $(PUBLISHED); set their directory with: make test-published PUBLISHED=DIR"; fi

test-compiler: $(READY) ## train by torch.compile and compare with plain training (needs g++, a minute)
	$(BIN)/python -m pytest -m compiler

test-gpu: $(READY) ## the tests that need a CUDA device, and those of the compiler; skipped where there is none
	$(BIN)/python -m pytest -m "gpu or compiler" -rs

test-install: ## install the built wheel alone and with each extra alone, and test each installation (needs the registry, 5 minutes)
	$(PYTHON) .ci/test_install.py

test-versions: $(READY) ## run the core tests on the oldest supported and the newest versions (downloads 6 GB, 10 minutes or more)
	$(PYTHON) .ci/test_versions.py

test-emulator: $(READY) ## save and restore all 55 Atari games in fresh processes and write docs/results/emulator.md (an hour or more)
	$(BIN)/python studies/emulator.py --out docs/results/emulator.md

coverage: $(READY) browser ## run the test suite and print the share of the package's lines that it covers
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not published and not compiler" --cov=c2d --cov-report=term:skip-covered

check: $(READY) ## check format, lint, spelling and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy

$(DOCS)/.ready: constraints.txt pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		$$($(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

docs: $(DOCS)/.ready ## build the documents as a site into build/site; warnings and broken links are errors (C2D_REPOSITORY=URL for links to code)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@echo "open build/site/index.html"

tutorials: $(READY) ## run the tutorials and write what they show into them, and the tables of the algorithm pages
	$(BIN)/python website/algorithm_tables.py
	MPLBACKEND=Agg OMP_NUM_THREADS=1 $(BIN)/python website/notebooks.py

format: $(READY) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure speed and memory on this machine (keep it otherwise idle)
	$(BIN)/c2d bench

$(PEERS)/.ready: constraints.txt Makefile
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		stable-baselines3==2.9.2 sb3-contrib==2.9.2 ale-py opencv-python-headless
	@touch $@

bench-lens: $(READY) browser ## measure frames per second of the lens in Chromium, and a run's speed when watched (idle machine, 7 minutes)
	$(BIN)/python studies/lens_rate.py --out docs/results/lens.md
	$(BIN)/python studies/watched_training.py --out docs/results/watched.md

bench-peers: $(READY) $(PEERS)/.ready ## compare speed with Stable-Baselines3 (idle machine, about 35 minutes)
	$(BIN)/python studies/against_sb3.py --out docs/results/speed-against-sb3.md
	$(BIN)/python studies/against_sb3.py --envs 8 --out docs/results/speed-against-sb3-8-environments.md

bench-environments: $(READY) ## measure many environments, threads and ways to step emulators (idle machine, about 25 minutes)
	$(BIN)/python studies/many_environments.py --out docs/results/many-environments.md
	$(BIN)/python studies/threads.py --out docs/results/threads.md
	$(BIN)/python studies/emulators.py --out docs/results/emulators.md

study-learning: $(READY) ## train CartPole and MinAtar Breakout with default settings and write docs/results
	$(BIN)/c2d quickstart --seeds 1 2 3 4 5 --out docs/results/quickstart.md
	$(BIN)/python studies/learning.py --env gym/CartPole-v1 --seeds 1 2 3 --out docs/results/learning.md

study-faults: $(READY) ## kill and damage runs, fill their disk, measure checkpoints, and write docs/results (about 10 minutes)
	$(BIN)/python studies/faults.py --kills 150 --out docs/results/faults.md
	$(BIN)/python studies/checkpoint_cost.py --out docs/results/checkpoints.md

study-actors: $(READY) ## kill actors, nodes and learners on a real Ray, measure 1, 2 and 4 actors, and write docs/results/actors.md (10 minutes)
	$(BIN)/python studies/actors.py --out docs/results/actors.md

study-server: $(READY) ## put the server and an embedded Ray under load and write docs/results/server.md (about 3 minutes)
	$(BIN)/python studies/server_faults.py --out docs/results/server.md

study-hostile: $(READY) ## try every command on every kind of damaged run directory and write docs/results/hostile.md (15 minutes)
	$(BIN)/python studies/hostile.py --out docs/results/hostile.md

study-minatar: $(READY) ## compare recipes on MinAtar (hours; rerun to resume) and write docs/results/minatar*.md
	$(BIN)/c2d sweep minatar --seeds 2
	$(BIN)/python studies/minatar_study.py runs/minatar --out docs/results/minatar.md
	$(BIN)/c2d sweep minatar-c2d --seeds 1
	$(BIN)/python studies/minatar_study.py runs/minatar-c2d --plan minatar-c2d --out docs/results/minatar-c2d.md

study-sweeps: $(READY) ## measure throughput, Ray's overhead and recovery, and write docs/results/sweeps.md (idle machine, 10 minutes)
	$(BIN)/python studies/sweeps.py --out docs/results/sweeps.md

study-rates: $(READY) ## measure every recipe with one thread, for the forecasts of `c2d sweep` (idle machine, 5 minutes)
	$(BIN)/c2d bench --recipe all --threads 1 --seconds 2 --json /tmp/c2d-rates-atari.json
	$(BIN)/c2d bench --recipe all --threads 1 --seconds 2 --env minatar/breakout --json /tmp/c2d-rates-minatar.json
	$(BIN)/python studies/rates.py /tmp/c2d-rates-atari.json /tmp/c2d-rates-minatar.json

clean: ## remove the virtual environments and caches (keeps runs/)
	find c2d -name "*.so" -delete
	rm -rf $(VENV) $(PEERS) $(DOCS) .venv-versions-* .coverage build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
