# Thin: the tasks themselves are in crates/xtask.
CARGO ?= cargo
XTASK = $(CARGO) run --quiet --package xtask --

.PHONY: all dist demo check test

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
