# Everything the project needs is installed by these targets. `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
PUBLISHED ?= ../shared/data

.DEFAULT_GOAL := help
.PHONY: help setup quickstart browser test test-published check format bench bench-lens bench-peers study-learning study-faults study-server study-minatar study-sweeps study-rates clean test-emulator test-fast test-install test-versions coverage study-hostile

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(READY) ## make the virtual environment .venv with pinned dependencies

$(READY): pyproject.toml constraints.txt setup.py c2d/native/column_norm.c
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed; name it with: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	find c2d -name "*.so" -delete
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -c 'import c2d.native._column_norm' 2>&1 | tail -n 1 \
		| sed 's/^/NO COMPILED CODE: column_norm.c could not be compiled or loaded, which takes GCC and the headers of Python (sudo apt-get install gcc python3-dev, then touch setup.py). Training works without it, but slower, and its tests are LEFT OUT. /'
	@touch $@

quickstart: $(READY) ## train C2D on MinAtar Breakout for some minutes and see that it learned
	$(BIN)/c2d quickstart

browser: ## install Chromium for the tests of the page with apt-get, if no browser is there and the system lets it
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { echo "make browser: the tests of the page need Chromium; installing it for the whole system with apt-get ..."; apt-get install -y --no-install-recommends chromium >/dev/null 2>&1; } \
		|| { apt-get update >/dev/null 2>&1 && apt-get install -y --no-install-recommends chromium >/dev/null 2>&1; } \
		|| echo "NO CHROMIUM: it could not be installed here (try: sudo apt-get install chromium); tests of the page in a browser will be LEFT OUT"

test: $(READY) browser ## run the default test suite (no network, below 5 minutes on 2 cores)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not published"

test-fast: $(READY) ## the core in half a minute: mathematics, networks, replay, learner, names
	$(BIN)/python -m pytest -n 2 --dist worksteal -m fast

test-published: $(READY) ## check against the published data in $(PUBLISHED), if they are there
	@if test -d "$(PUBLISHED)"; then C2D_PUBLISHED="$(PUBLISHED)" $(BIN)/python -m pytest -m published; \
	else echo "SKIPPED: no published data in $(PUBLISHED); name their directory with: make test-published PUBLISHED=DIR"; fi

test-install: ## install the built wheel alone and with each extra alone, and run what each is for (needs the registry, 5 minutes)
	$(PYTHON) .ci/test_install.py

test-versions: $(READY) ## run the core tests on the oldest promised and the newest versions (downloads 6 GB, 10 minutes and more)
	$(PYTHON) .ci/test_versions.py

test-emulator: $(READY) ## save and restore all 55 Atari games in fresh processes and write docs/results/emulator.md (an hour or more)
	$(BIN)/python bench/emulator.py --out docs/results/emulator.md

coverage: $(READY) browser ## run the default test suite and print which share of the package's lines it runs
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not published" --cov=c2d --cov-report=term:skip-covered

check: $(READY) ## format, lint, spelling and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy

format: $(READY) ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure speed and memory on this machine (leave it alone meanwhile)
	$(BIN)/c2d bench

$(PEERS)/.ready: constraints.txt Makefile
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		stable-baselines3==2.9.2 sb3-contrib==2.9.2 ale-py opencv-python-headless
	@touch $@

bench-lens: $(READY) browser ## measure painted pictures per second of the lens in Chromium and a run's speed when watched (quiet machine, 7 minutes)
	$(BIN)/python bench/lens_rate.py --out docs/results/lens.md
	$(BIN)/python bench/watched_training.py --out docs/results/watched.md

bench-peers: $(READY) $(PEERS)/.ready ## compare speed with Stable-Baselines3 (quiet machine, about 18 minutes)
	$(BIN)/python bench/against_sb3.py --out docs/results/speed-against-sb3.md

study-learning: $(READY) ## train CartPole and MinAtar Breakout with default settings and write docs/results
	$(BIN)/c2d quickstart --seeds 1 2 3 4 5 --out docs/results/quickstart.md
	$(BIN)/python bench/learning.py --env gym/CartPole-v1 --seeds 1 2 3 --out docs/results/learning.md

study-faults: $(READY) ## kill, damage and starve runs, measure checkpoints, and write docs/results (about 10 minutes)
	$(BIN)/python bench/faults.py --kills 120 --out docs/results/faults.md
	$(BIN)/python bench/checkpoint_cost.py --out docs/results/checkpoints.md

study-server: $(READY) ## strain the server and an embedded Ray and write docs/results/server.md (about 3 minutes)
	$(BIN)/python bench/server_faults.py --out docs/results/server.md

study-hostile: $(READY) ## try every command on every kind of damaged run directory and write docs/results/hostile.md (15 minutes)
	$(BIN)/python bench/hostile.py --out docs/results/hostile.md

study-minatar: $(READY) ## train the field on MinAtar (hours; goes on where it stopped) and write docs/results/minatar*.md
	$(BIN)/c2d sweep minatar --seeds 2
	$(BIN)/python bench/minatar_study.py runs/minatar --out docs/results/minatar.md
	$(BIN)/c2d sweep minatar-c2d --seeds 1
	$(BIN)/python bench/minatar_study.py runs/minatar-c2d --plan minatar-c2d --out docs/results/minatar-c2d.md

study-sweeps: $(READY) ## measure throughput, Ray's overhead and recovery, and write docs/results/sweeps.md (quiet machine, 10 minutes)
	$(BIN)/python bench/sweeps.py --out docs/results/sweeps.md

study-rates: $(READY) ## measure every recipe with one thread, for the forecasts of `c2d sweep` (quiet machine, 5 minutes)
	$(BIN)/c2d bench --recipe all --threads 1 --seconds 2 --json /tmp/c2d-rates-atari.json
	$(BIN)/c2d bench --recipe all --threads 1 --seconds 2 --env minatar/breakout --json /tmp/c2d-rates-minatar.json
	$(BIN)/python bench/rates.py /tmp/c2d-rates-atari.json /tmp/c2d-rates-minatar.json

clean: ## remove the virtual environments and caches (runs/ stays)
	find c2d -name "*.so" -delete
	rm -rf $(VENV) $(PEERS) .venv-versions-* .coverage build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
