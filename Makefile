# Everything a person or a pipeline does here. Needs make and Python >= 3.11; the rest is installed into .venv.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV   := .venv
PY     := $(VENV)/bin/python
ARGS   ?=
KILLS  ?= 200
RUNS   ?= 1000
SEEDS  ?= 200
SBOM   ?= build/sbom.json
# Images and pipelines like to set it, and then each process compiles all that it imports anew: more than half of its start.
export PYTHONDONTWRITEBYTECODE :=
SOURCES := schemas engines agents tests requirements website $(wildcard benchmarks examples)

.PHONY: help setup demo test test-page check bench bench-ingest bench-step bench-growth bench-backlog bench-scale bench-spatial bench-tabular bench-trajectory bench-trend bench-people bench-price bench-maps bench-counters bench-sequence bench-table bench-keys audit couple same chaos brokers recipes simulate-job nightly docs drawing pictures lock sbom clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.stamp-all  ## install everything, development tools included, into .venv

demo: $(VENV)/.stamp-demo  ## see the job run on real streams; ARGS="..." are passed on
	@$(VENV)/bin/privstream demo $(ARGS)

# A few processes more than cores, and one broker for all of them (tests/conftest.py); a file's tests stay together,
# since they share what is slow to make, and the longest files come first. The suite passes with ARGS=--reversed too.
PARALLEL := -n logical --dist loadfile --no-loadscope-reorder
# Each process computes in one thread: threads of OpenBLAS and OpenMP that wait for a core on which another process is
# spin meanwhile, which costs several times what is computed.
test nightly: export OMP_NUM_THREADS := 1

test: setup  ## run every test, the real broker's included; doctests are run by check
	$(PY) -m pytest -q $(PARALLEL) --durations=15 tests $(ARGS)

test-page: setup  ## the live page in a headless Chromium: figures in the last line (ARGS=--images: screenshots of docs/)
	@$(PY) -m tests.page $(ARGS)

check: setup  ## format, lint, strict types, import rules, doctests; no broker
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(PY) -m pytest -q --doctest-modules schemas engines agents tests/architecture tests/test_docs.py tests/test_doors.py tests/test_names.py

bench: bench-ingest bench-step bench-growth  ## speed and memory; SIZE=smallest shows in seconds that a bench-... runs

# How much of a benchmark runs: benchmarks/size.py.
BENCH = SIZE=$(SIZE) QUICK=$(QUICK) $(PY)

bench-ingest: setup  ## events per second against a bare consumer loop, Faust, Quix and Bytewax (installs those two)
	$(BENCH) -m benchmarks.ingest $(ARGS)

bench-step: setup  ## milliseconds of one engine step: what they go to, beside plain Python, after 10^5 to 10^8 events
	$(BENCH) -m benchmarks.step $(ARGS)

bench-growth: setup  ## resident memory after a tenth of the steps and after all of them
	$(BENCH) -m benchmarks.growth $(ARGS)

bench-backlog: setup  ## empty steps a second, one and many in a transaction: what a start years back takes
	$(BENCH) -m benchmarks.backlog $(ARGS)

bench-scale: setup  ## latency by width, a long replay, a crash with 10^7 users, backpressure; QUICK=1 takes three minutes
	$(BENCH) -m benchmarks.scale $(ARGS)

bench-spatial: setup  ## error of the spatial engines on every stream; QUICK=1 takes two minutes
	$(BENCH) -m benchmarks.spatial $(ARGS)

bench-tabular: setup  ## error, speed and use of tabular streams; goes on where it was stopped; QUICK=1 takes three minutes
	$(BENCH) -m benchmarks.tabular $(ARGS)

bench-trajectory: setup  ## error of synthetic trips by every mode, on every set of trips; QUICK=1 takes three minutes
	$(BENCH) -m benchmarks.trajectory $(ARGS)

bench-trend: setup  ## monthly counts from synthetic rows against truth, four ways; QUICK=1 runs each once
	$(BENCH) -m benchmarks.trend $(ARGS)

bench-people: setup  ## error where users are protected, not events, at the best bound; QUICK=1 runs each once
	$(BENCH) -m benchmarks.people $(ARGS)

bench-price: setup  ## what releases at every step cost beside one batch release (installs AIM); QUICK=1 takes a minute
	$(BENCH) -m benchmarks.price $(ARGS)

bench-maps: setup  ## seconds to make maps spatial domains, and microseconds an event; QUICK=1 builds each once
	$(BENCH) -m benchmarks.maps $(ARGS)

bench-counters: setup  ## variances of every counter, and the papers' own comparison of three
	$(BENCH) -m benchmarks.counters $(ARGS)

bench-sequence: setup  ## error of the series and Markov engines against the papers'; QUICK=1 under three minutes
	$(BENCH) -m benchmarks.sequence $(ARGS)

bench-table: setup  ## memory, state and steps of a table of 10^7 keys that nobody listed; QUICK=1 of 10^6
	$(BENCH) -m benchmarks.table $(ARGS)

bench-keys: setup  ## keys that nobody listed, found in streams, beside DP-SQLP and one batch; QUICK=1 takes three minutes
	$(BENCH) -m benchmarks.keys $(ARGS)

audit: setup  ## privstream audit of small streams of every engine, mode and variant (ARGS="--only spatial --runs 100")
	$(VENV)/bin/privstream audit $(ARGS)

couple: setup  ## run neighbouring inputs to public bytes, RUNS pairs (default 1000), and find every planted fault
	$(PY) -m tests.couple --runs $(RUNS) $(ARGS)

same: setup  ## hashes of what fixed seeds release (ARGS="--write FILE" before a change, "--check FILE" after it)
	$(PY) -m benchmarks.same $(ARGS)

chaos: setup  ## kill workers at random, KILLS times (default 200), then check every promise; FAULTS=network adds faults
	$(PY) -m tests.crash.chaos --kills $(KILLS) $(FAULTS:%=--%) $(ARGS)

BROKERS ?= 3.7 3.9 4.0 4.3
ON_BROKERS := $(addprefix tests/crash/test_,crash.py torn_commits.py) $(addprefix tests/kafka/test_,add_partitions.py clocks.py \
	engine.py going_live.py ingest.py membership.py publish.py recovery.py replay.py topics.py transport.py \
	what_a_cluster_may_do.py worker_life.py)
brokers: export OMP_NUM_THREADS := 1
brokers: setup  ## crash and release tests, those of the night too, on each Apache Kafka of docs/operations.md (BROKERS="3.9 4.0")
	@failed=; for line in $(BROKERS); do \
		echo "Apache Kafka $$line"; \
		BROKER_VERSION=$$line $(PY) -m pytest -q $(PARALLEL) -m "nightly or not nightly" $(ON_BROKERS) $(ARGS) || failed="$$failed $$line"; \
	done; test -z "$$failed" || { echo "the job failed on Apache Kafka$$failed" >&2; exit 1; }

nightly: setup  ## what a change need not wait for: its own tests, long chaos on a bad network, simulated seeds, every planted fault
	$(PY) -m pytest -q $(PARALLEL) -m "nightly or hypothesis" --hypothesis-profile nightly tests
	$(MAKE) chaos KILLS=200 FAULTS=network
	$(MAKE) simulate-job SEEDS=2000
	$(MAKE) couple RUNS=5000
	$(MAKE) audit ARGS="--runs 100"

recipes: setup  ## the recipes of docs/consumers.md, as printed: those of Spark, Flink and a JDBC sink too (installs them; needs Java 17), on a broker
	$(PY) -m pytest -q -m "nightly or not nightly" tests/kafka/test_recipes.py tests/kafka/test_typed_output.py $(ARGS)

simulate-job: setup  ## the whole job on an in-memory Kafka and virtual time, SEEDS times (at night 10000), planted faults, clusters put back
	$(PY) -m tests.simulation --seeds $(SEEDS) --plants $(ARGS)
	$(PY) -m tests.simulation --seeds $(SEEDS) --put-back $(ARGS)

docs: setup  ## build the documentation as a site, strictly, into build/site; open build/site/index.html, also without a network
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

drawing: setup  ## draw in docs/architecture.md how the rooms import each other (check fails where it is not so)
	$(PY) -m tests.architecture.drawing

pictures: setup  ## make the pictures of README.md and docs/reports.md from the examples (ARGS=--no-demo needs no broker)
	$(PY) -m benchmarks.pictures $(ARGS)

# demo.lock is resolved first and the others must agree with it: a developer and the image run what a newcomer runs.
COMPILE := $(VENV)/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-header
lock: setup  ## resolve the lock files anew from pyproject.toml (LOCK_ARGS=--upgrade for newer versions)
	$(COMPILE) $(LOCK_ARGS) --extra demo --extra query --extra registry --extra witness pyproject.toml requirements/build.in \
		-o requirements/demo.lock
	$(COMPILE) $(LOCK_ARGS) --extra query --extra registry --extra witness -c requirements/demo.lock pyproject.toml \
		requirements/build.in \
		-o requirements/core.lock
	$(COMPILE) $(LOCK_ARGS) --extra demo --extra query --extra registry --extra witness --extra docs --extra dev -c requirements/demo.lock pyproject.toml \
		requirements/build.in -o requirements/all.lock
	$(COMPILE) $(LOCK_ARGS) --override requirements/price.overrides requirements/price.in -o requirements/price.lock
	$(COMPILE) $(LOCK_ARGS) requirements/streams.in -o requirements/streams.lock
	$(COMPILE) $(LOCK_ARGS) requirements/recipes.in -o requirements/recipes.lock
	$(PY) requirements/kafka_jars.py

sbom: setup  ## what the job is made of, as CycloneDX JSON, in build/sbom.json: every package of its lock file with hashes
	@mkdir -p $(dir $(SBOM))
	$(VENV)/bin/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml --of JSON -o $(SBOM) requirements/core.lock

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(VENV)-price $(VENV)-streams $(VENV)-recipes .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find agents engines schemas tests requirements website benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate must run (version managers leave names on PATH that do not) and be able to make an environment.
$(VENV)/bin/python:
	@for python in python3.13 python3.12 python3.11 python3 python; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			if $$python -c 'import venv, ensurepip' >/dev/null 2>&1; then exec $$python -m venv $(VENV); fi; \
			broken=$$python; \
		fi; \
	done; \
	if [ -n "$$broken" ]; then \
		echo "privstream: $$broken cannot make a virtual environment (no venv or ensurepip)." >&2; \
		echo "  On Debian or Ubuntu: apt install python3-venv; then run make again." >&2; \
	else \
		echo "privstream needs Python 3.11 or newer, and found none on PATH." >&2; \
		echo "  Install it (python.org, your package manager, pyenv or uv) and run make again." >&2; \
	fi; \
	exit 1

# The developer's lock holds everything that the demo's does, so its stamp serves both.
$(VENV)/.stamp-all: requirements/all.lock requirements/demo.lock pyproject.toml | $(VENV)/bin/python
	@$(PY) requirements/install.py requirements/all.lock
	@touch $(VENV)/.stamp-demo $@

$(VENV)/.stamp-demo: requirements/demo.lock pyproject.toml | $(VENV)/bin/python
	@$(PY) requirements/install.py requirements/demo.lock
	@touch $@
