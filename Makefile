# Thin: the tasks themselves are in crates/xtask.
CARGO ?= cargo
XTASK = $(CARGO) run --quiet --package xtask --

.PHONY: all dist demo check test torture bench-ratios bench-peers

all: dist

# Libraries, headers and programs, into dist/.
dist:
	$(XTASK) dist

# The main job on a real file, beside stock SQLite: about a minute after the build.
demo: dist
	dist/bin/plait demo

# Formatting, lints, house rules.
check:
	$(XTASK) check

# Everything, against freshly built libraries; one with crash points among them.
test:
	$(XTASK) dist --crash-points
	$(CARGO) test --workspace

# The random suites for DURATION seconds each; a failure prints its seed and a small script.
DURATION ?= 600
SEED ?= 1
torture:
	$(XTASK) dist --crash-points
	$(CARGO) build --release --package plait-tests --bins
	for suite in $(SUITES); do \
		target/release/torture $$suite --seconds $(DURATION) --seed $(SEED) || exit 1; \
	done
SUITES ?= differential isolation crash powercut

# Stock SQLite and Plait interleaved: required and measured ratios. ARGS="--case NAME --repeats N".
bench-ratios: dist
	$(CARGO) run --release --package plait-tests --bin ratios -- $(ARGS)

# The other stores that `plait bench` can measure: Debian's packages, and the suite built again with them.
# PEERS=fjall,turso adds Turso, which takes about eight minutes to build.
PEERS ?= fjall
SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
bench-peers:
	$(SUDO) apt-get update
	$(SUDO) apt-get install --yes --no-install-recommends \
		libdb5.3-dev libdb5.3-sql librocksdb7.8 libpq5 postgresql python3
	$(XTASK) dist --peers $(PEERS)
