# Thin: the tasks themselves are in crates/xtask.
CARGO ?= cargo
XTASK = $(CARGO) run --quiet --profile task --package xtask --

.PHONY: all dist demo check edits test tree install uninstall packages packages-test npm-suite wheel wheels wheel-test pages torture powercut-images fuzz sanitize tsan arm tcl suites adopt real site site-test bench-ratios bench-peers wheels-test-musl musl replica-torture stores

all: dist

# Libraries, headers and programs, into dist/.
dist:
	$(XTASK) dist

# The main job on a real file, beside stock SQLite: about a minute after the build.
demo:
	$(XTASK) dist --demo
	dist/bin/plait demo

# Formatting, lints, house rules.
check:
	$(XTASK) check

# The list of SQLite's changed lines, docs/sqlite-edits.md, written anew from crates/sqlite/build/edits/.
edits:
	$(XTASK) edits

# Everything, against freshly built libraries; one with crash points among them.
test:
	$(XTASK) dist --crash-points
	$(XTASK) test

# What is installed, as it lies below a prefix: dist/tree.
tree:
	$(XTASK) tree

# docs/install.md. Where there is no cargo, as for root under sudo, what `make tree` has made is installed.
PREFIX ?= /usr/local
DESTDIR ?=
install: $(if $(shell command -v $(CARGO)),tree)
	sh packages/install.sh dist/tree "$(PREFIX)" "$(DESTDIR)"

uninstall:
	sh packages/uninstall.sh "$(PREFIX)" "$(DESTDIR)"

# An archive, a Debian package and an amalgamation: dist/packages. For Debian 11's glibc, or with NATIVE=1 for this machine's.
# TARGET=x86_64-unknown-linux-musl, aarch64-unknown-linux-gnu or aarch64-unknown-linux-musl: for another C library or processor, which takes
# Debian's packages gcc-aarch64-linux-gnu and qemu-user.
# Where Go is, also a Go module; where npm is, also an npm package, with NATIVE=1 only if NPM=1 asks for it: SQLite is compiled once more for it.
NATIVE ?=
TARGET ?=
NPM ?=
packages:
	$(XTASK) packages $(if $(NATIVE),--native) $(if $(TARGET),--target $(TARGET)) $(if $(NPM),--npm)

# They are tested as they are installed, some in containers with nothing else inside; needs root, CMake, pkg-config, debootstrap and lintian.
# QUICK=1: for this machine's glibc, without containers.
QUICK ?=
packages-test:
	$(MAKE) packages NATIVE=$(or $(NATIVE),$(QUICK)) TARGET=$(TARGET) NPM=$(NPM)
	sh packages/tests/run.sh $(if $(QUICK),quick,all) $(TARGET)

# better-sqlite3's own tests on the npm package, from CHECKOUT of its repository: after `make packages`.
npm-suite:
	sh packages/tests/npm-suite.sh $(CHECKOUT)

# The Python package: dist/plait-*.whl, with the library inside, for PYTHON and this machine's glibc. pip fetches the pinned setuptools and the
# sources of pysqlite3.
PYTHON ?= python3
wheel: dist
	rm -rf dist/plait-*.whl python/build
	$(PYTHON) python/pysqlite3.py target/python
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./python

# The same for each of PYTHONS, and for Debian 11's glibc or for TARGET: dist/wheels. auditwheel, which pip fetches, says what they need.
PYTHONS ?= $(PYTHON)
wheels: packages
	sh python/wheels.sh $(or $(TARGET),$(shell uname -m)-unknown-linux-gnu) $(PYTHONS)

# The wheels for musl on CPythons for musl in Alpine's root folder; needs root, and builds these CPythons from Debian's sources. Wheels for ARM are
# tested by `make packages-test TARGET=aarch64-unknown-linux-gnu`.
wheels-test-musl:
	$(MAKE) wheels TARGET=$(MUSL)
	sh python/tests/musl.sh $(PYTHONS)

# Its tests, in an empty virtual environment without the network and without a compiler.
wheel-test: wheel
	sh python/tests/installed.sh $(PYTHON) $(ARGS)

# Programs of others, unchanged, on our library beside the system's: pip fetches them. What was stored is verified; the figures are not judged.
# Then the Python package with Django, SQLAlchemy and aiosqlite, and the page docs/adopt/python.md, block by block. ARGS=test_django.
adopt: wheel
	$(PYTHON) examples/flask/measure.py --seconds 2 --trials 1
	$(PYTHON) examples/real/measure.py huey cache queue --seconds 2 --trials 1
	sh python/adopt/run.sh $(PYTHON) $(ARGS)

# Ten programs from PyPI and the Go proxy with eight workers on one file, on stock SQLite in WAL mode and on Plait in turn (docs/real-programs.md):
# about 12 minutes after what pip and go fetch. ARGS="huey shop --seconds 2 --trials 1". For the page, on a quiet machine:
# ARGS="--json docs/benchmarks/real.json --page docs/real-programs.md".
real: dist
	$(PYTHON) examples/real/measure.py $(ARGS)

# docs/migrate.md and the pages of docs/adopt but for Python's, block by block, with the packages for this machine's glibc. go, npm, cargo and mvn
# fetch what they name; Debian's packages php-cli, php-sqlite3, ruby-sqlite3, libdbd-sqlite3-perl and
# libmono-sqlite4.0-cil with mono-mcs are there or the page is left out.
# ARGS=test_pages.Pages.test_go.
pages:
	$(MAKE) packages NATIVE=1 NPM=$(NPM)
	cd adopt && $(PYTHON) -m unittest --verbose $(or $(ARGS),test_pages)

# The pages as a site, dist/site: any web server can show it. mdBook is compiled once, which takes minutes. SOURCE is the address at which a forge
# shows the files of this tree; without it links to sources are plain text.
MDBOOK_VERSION = 0.5.4
MDBOOK = target/mdbook-$(MDBOOK_VERSION)/bin/mdbook
SOURCE ?=
$(MDBOOK):
	$(CARGO) install --quiet --locked --no-default-features --features search --root target/mdbook-$(MDBOOK_VERSION) mdbook@$(MDBOOK_VERSION)

site: $(MDBOOK)
	$(XTASK) site $(if $(SOURCE),--source $(SOURCE))
	rm -rf dist/site
	$(MDBOOK) build target/site --dest-dir $(CURDIR)/dist/site

# The site in a browser, on a screen and on a telephone, light and dark: links, widths, contrast, search. Needs Node and Debian's chromium; npm
# fetches the pinned playwright-core.
PLAYWRIGHT_VERSION = 1.65.1
site-test: site
	npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix target/site-test playwright-core@$(PLAYWRIGHT_VERSION)
	NODE_PATH=target/site-test/node_modules node --test site/site.test.cjs

# The random suites for DURATION seconds together; a failure prints its seed and a small script. What was run is appended to
# TALLY. SUITES="isolation crash" runs some of them, for DURATION each. SEARCHERS processes side by side, each with seeds of its own:
# one works in memory, of several the last on the disk.
DURATION ?= 3600
SEED ?= 1
SUITES ?= all
SEARCHERS ?= 1
TALLY ?= target/torture.jsonl
torture:
	$(XTASK) dist --crash-points
	$(CARGO) build --release --package plait-tests --bins
	for suite in $(SUITES); do \
		target/release/torture $$suite --seconds $(DURATION) --seed $(SEED) --searchers $(SEARCHERS) --tally $(TALLY) || exit 1; \
	done

# Replicas in a simulated world, RUNS runs from SEED on, objects damaged in two of five. ARGS="--fault NAME" plants a fault.
RUNS ?= 100000
replica-torture:
	$(CARGO) run --release --package plait-replicate --features simulation --bin replicate-torture -- --runs $(RUNS) --seed $(SEED) $(ARGS)

# Replicas in real stores: versitygw, gofakes3 and azurite, which are fit for them, and s3rver and s3s-fs, which the probe has to refuse.
# go, npm and cargo fetch them. ARGS="azurite s3rver".
stores:
	sh crates/replicate/stores.sh $(ARGS)

# Power cuts under ext4, xfs and btrfs on loop devices, for DURATION seconds together; then with a library that does not sync, which has to
# be reported. Needs root, FUSE, and the packages e2fsprogs, xfsprogs and btrfs-progs.
powercut-images:
	$(XTASK) dist --crash-points --no-suite
	$(CARGO) build --release --package plait-tests --bins
	target/release/images --seconds $(DURATION) --seed $(SEED) --tally $(TALLY)
	PLAIT_FAULT=log.unsynced PLAIT_LIB=$(CURDIR)/dist/crash/lib/libsqlite3.so.0 target/release/images \
		--seconds 240 --seed 1 --must-report 'commits were acknowledged or seen'

# Logs, shared memory and databases changed at random, ROUNDS of each, after the corpus.
ROUNDS ?= 20000
fuzz: dist
	PLAIT_FUZZ_ROUNDS=$(ROUNDS) $(CARGO) test --release --package plait-engine hostile
	PLAIT_FUZZ_ROUNDS=$(ROUNDS) $(CARGO) test --release --package plait-engine --test hostile_memory
	PLAIT_FUZZ_ROUNDS=$(ROUNDS) $(CARGO) test --release --package plait-tests --test hostile_log --test hostile_base

# The suites that reach most of the shim, on a library whose C part looks for faults of memory and undefined behaviour. Slow.
SANITIZED ?= maps_beside_sql maps_in_transactions map_model cursors disturbed_statements interfaces exclusive hostile_log hostile_base large_values differential
RUNTIMES = $(foreach lib,libasan.so libubsan.so,$(shell $(CC) -print-file-name=$(lib)))
sanitize:
	$(XTASK) dist --sanitizers --crash-points
	PLAIT_LIB=$(CURDIR)/dist/sanitize/lib/libsqlite3.so.0 $(CARGO) test --no-fail-fast --package plait-tests \
		$(addprefix --test ,$(SANITIZED)) --config "target.'cfg(all())'.runner = ['env', \
		'LD_PRELOAD=$(RUNTIMES)', 'ASAN_OPTIONS=detect_leaks=0', \
		'UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1']"

# Suites on a library that is built with ThreadSanitizer, like its C part and the tests; then one with a planted race. Slow. Needs rustup and gcc.
RACING ?= maps_shared conflicts tickets readers disturbed_statements fairness commits_waiting_for_memory serializability
tsan:
	$(XTASK) tsan $(RACING)

# The engine's own tests for ARM, under qemu. Left out is what qemu's emulation does not do: it keeps robust futexes and MADV_DONTFORK from the
# kernel, and a program for ARM cannot start itself.
# Needs rustup and Debian's packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
ARM = aarch64-unknown-linux-gnu
NOT_IN_QEMU = shm::witness a_child_does_not_keep_its_parents_locks log::tests::processes
arm:
	rustup target add $(ARM)
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
		$(CARGO) test --release --target $(ARM) --package plait-engine --lib --test '*' -- $(addprefix --skip ,$(NOT_IN_QEMU))

# The engine's own tests and suites on the library, for musl, whose loader starts them: Debian's package musl. Left out are suites that take the
# SQLite shell, and a test in which the stand-in for the base allocates 12 MB in a transaction, over which musl's allocator takes a quarter of an hour.
MUSL = $(shell uname -m)-unknown-linux-musl
MUSL_MADE = $(CURDIR)/target/packages/$(shell uname -m)-musl/suites
MUSL_SUITES ?= panics failing_calls several_files_killed commit_hooks limits address_space tickets serializability readers visibility fairness conflicts \
	maps_shared map_model cancellation forks namespaces processes_come_and_go stalls stopped survivors crash_kills crash_points differential interfaces cursors
musl:
	$(XTASK) within $(MUSL) $(CARGO) test --release --target $(MUSL) --package plait-engine --lib --test '*' -- \
		--skip many_merges_under_load_lose_nothing
	$(XTASK) within $(MUSL) sh -c '"$$XTASK" dist --crash-points --no-suite --target $(MUSL) --out $(MUSL_MADE)'
	PLAIT_LIB=$(MUSL_MADE)/lib/libsqlite3.so.0 PLAIT_STOCK_LIB=$(MUSL_MADE)/stock/lib/libsqlite3.so.0 \
		PLAIT_CRASH_LIB=$(MUSL_MADE)/crash/lib/libsqlite3.so.0 $(XTASK) within $(MUSL) \
		$(CARGO) test --profile task --no-fail-fast --target $(MUSL) --package plait-tests --bins $(addprefix --test ,$(MUSL_SUITES))

# SQLite's own tests (docs/testing.md), each file in WAL mode and in concurrent mode: about 40 minutes. ARGS="--limit 100 FILE.test ...".
tcl:
	python3 tests/suites/tcl.py $(ARGS)

# Other people's test suites, in WAL mode and in concurrent mode: about 15 minutes. ARGS="go-sqlite3 ...".
suites: dist
	python3 tests/suites/suites.py $(ARGS)

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
