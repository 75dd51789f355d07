"""Other people's test suites with every database file in concurrent mode, against the same suites in WAL mode.

    tests/suites/suites.py [--limit SECONDS] [SUITE ...]

Each suite is fetched by name and version, built against `dist/` where it has to be, and run twice: with the stock library of `dist/stock`
and with ours. `every_file.c`, preloaded, asks for WAL whenever a connection is opened; PLAIT_JOURNAL_MODE makes that concurrent mode.
Fails when a test that passes in WAL mode fails in concurrent mode, or fewer tests ran, and `suites.differences` does not say why.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import debian
import fixture

HERE = Path(__file__).resolve().parent
DIST = fixture.ROOT / "dist"
CACHE = fixture.CACHE
SIDES = {"WAL": (DIST / "stock/lib", {}), "concurrent": (DIST / "lib", {"PLAIT_JOURNAL_MODE": "concurrent"})}

APSW = "3.54.1.0"
GO_SQLITE3 = "v1.14.24"
DJANGO = "5.2.8"
SQLALCHEMY = "2.0.44"
# Its distribution has no tests; Debian's sources have them.
PEEWEE = "3.17.7"
PEEWEE_SHA256 = "b82e35336429938d74ca0e87dde60ea59ffe3e830f75190a6704d74cf141150b"
# What the suites above need to run.
MODULES = ["asgiref==3.11.0", "sqlparse==0.5.3", "pytest==8.4.2", "greenlet==3.2.4", "typing_extensions==4.15.0"]


def unpacked(name, version):
    """The source distribution of a Python package, unpacked.

    pip builds metadata of what it downloads, for which APSW would fetch SQLite from elsewhere: what it had unpacked by then stays.
    """
    place = CACHE / f"{name}-{version}"
    if not place.exists():
        with tempfile.TemporaryDirectory() as work:
            options = ["--no-clean", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
            subprocess.run([sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"],
                           cwd=work, env={**os.environ, "TMPDIR": work}, capture_output=True)
            found = [file.parent for file in Path(work).glob("pip-download-*/*/PKG-INFO")]
            if len(found) != 1:
                raise SystemExit(f"pip did not unpack {name} {version}")
            shutil.copytree(found[0], place)
    return place


def apsw():
    """APSW, built against our headers and library; at run time either library is found by its path."""
    place = unpacked("apsw", APSW)
    if not list(place.glob("apsw/__init__*.so")):
        (place / "setup.apsw").write_text(
            f"[build_ext]\nuse_system_sqlite_config = True\ninclude_dirs = {DIST}/include\nlibrary_dirs = {DIST}/lib\n"
            "enable = COLUMN_METADATA\n")
        fixture.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=place,
                    env={**os.environ, "LD_LIBRARY_PATH": str(DIST / "lib")})
    return [sys.executable, "-m", "apsw.tests"], {"PYTHONPATH": str(place)}, None


def go_sqlite3():
    """mattn/go-sqlite3 with its tag for the system's library."""
    program = CACHE / f"go-sqlite3-{GO_SQLITE3}.test"
    sources = CACHE / f"go-sqlite3-{GO_SQLITE3}"
    if not program.exists():
        work = CACHE / "go"
        work.mkdir(parents=True, exist_ok=True)
        (work / "go.mod").write_text("module suites\n")
        told = fixture.run(["go", "mod", "download", "-json", f"github.com/mattn/go-sqlite3@{GO_SQLITE3}"], cwd=work)
        shutil.rmtree(sources, ignore_errors=True)
        shutil.copytree(re.search(r'"Dir": "(.*)"', told).group(1), sources)
        subprocess.run(["chmod", "-R", "u+w", str(sources)], check=True)
        fixture.run(["go", "test", "-c", "-tags", "libsqlite3 sqlite_fts5", "-o", str(program), "."], cwd=sources,
                    env={**os.environ, "CGO_CFLAGS": f"-I{DIST}/include", "CGO_LDFLAGS": f"-L{DIST}/lib"})
    return [str(program), "-test.v"], {}, sources


def cpython():
    """The interpreter's own tests of its module."""
    return [sys.executable, "-m", "test", "-v", "test_sqlite3"], {}, None


def modules():
    """Where the modules lie that suites need."""
    place = CACHE / "modules"
    if not place.exists():
        made = CACHE / "modules.new"
        shutil.rmtree(made, ignore_errors=True)
        fixture.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(made), *MODULES])
        made.rename(place)
    return place


def peewee():
    """peewee, whose connections begin with `PRAGMA journal_mode=wal` in many of its tests."""
    place = CACHE / f"peewee-{PEEWEE}"
    if not place.exists():
        debian.unpack("peewee", f"{PEEWEE}+dfsg-1", f"peewee_{PEEWEE}+dfsg.orig.tar.gz", PEEWEE_SHA256, ["trixie"], CACHE)
    return [sys.executable, "runtests.py", "-v", "2"], {"PEEWEE_TEST_BACKEND": "sqlite"}, place


def django():
    """Django's tests of databases, over two files; by itself it takes memory."""
    place = unpacked("Django", DJANGO)
    labels = ["backends", "transactions", "transaction_hooks", "basic", "bulk_create", "delete", "get_or_create", "queries", "schema",
              "migrations", "select_for_update", "test_utils", "cache", "sessions_tests", "introspection"]
    command = [sys.executable, "tests/runtests.py", "--settings", "two_files", "--parallel", "1", "--noinput", *labels]
    return command, {"PYTHONPATH": os.pathsep.join(map(str, [place, HERE, modules()]))}, place


def sqlalchemy():
    """SQLAlchemy's tests that use a database, over a file."""
    place = unpacked("SQLAlchemy", SQLALCHEMY)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--db", "sqlite_file", "--backend-only", "-q", "-rfE",
               "test/dialect", "test/engine", "test/sql", "test/orm/test_transaction.py", "test/orm/test_session.py"]
    return command, {"PYTHONPATH": os.pathsep.join(map(str, [place / "lib", modules()]))}, place


SUITES = {"cpython": cpython, "apsw": apsw, "go-sqlite3": go_sqlite3, "peewee": peewee, "django": django, "sqlalchemy": sqlalchemy}

FAILED = re.compile(r"^(?:FAIL|ERROR): (\S+)|^\s*--- FAIL: (\S+)|^(?:FAILED|ERROR) (\S+::\S+)", re.MULTILINE)
RAN = re.compile(r"^Ran (\d+) tests? in|^\s*--- (?:PASS|FAIL|SKIP): |\b(\d+) passed", re.MULTILINE)


def preloaded():
    """The library that asks for WAL."""
    library = CACHE / "every_file.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    fixture.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{DIST}/include", f"-L{DIST}/lib",
                 "-o", str(library), str(HERE / "every_file.c"), "-lsqlite3"])
    return library


def play(command, env, folder, side, limit, log):
    """Failed tests, number of tests and seconds of one run."""
    place, more = SIDES[side]
    where = tempfile.mkdtemp(prefix="plait-suite-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    env = {**os.environ, **env, **more, "LD_LIBRARY_PATH": str(place), "LD_PRELOAD": str(preloaded()), "TMPDIR": where}
    began = time.monotonic()
    try:
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=folder or where, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                out.write(b"\nFAIL: stopped_after_its_time\n")
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    finally:
        shutil.rmtree(where, ignore_errors=True)
    text = log.read_text(errors="replace")
    failed = {next(filter(None, match)) for match in FAILED.findall(text)}
    ran = sum(int(next(filter(None, numbers), 1)) for numbers in RAN.findall(text))
    return failed, ran, time.monotonic() - began


def reasons():
    """What may differ: (suite, test) of each line that does not begin with white space or a hash."""
    lines = (HERE / "suites.differences").read_text().splitlines()
    return {tuple(line.split(None, 1)) for line in lines if line and line[0] not in " #"}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--limit", type=float, default=1200, help="seconds for one run of a suite")
    options.add_argument("suites", nargs="*", choices=[[], *SUITES], metavar="SUITE")
    asked = options.parse_args()
    allowed, bad = reasons(), 0
    for name in asked.suites or SUITES:
        command, env, folder = SUITES[name]()
        results = {side: play(command, env, folder, side, asked.limit, CACHE / f"{name}-{side}.log") for side in SIDES}
        (known, ran, before), (failed, now, after) = results["WAL"], results["concurrent"]
        differing = failed - known
        unexplained = {test for test in differing if (name, test) not in allowed}
        if ran == 0 or now < ran:
            unexplained.add(f"{now} tests ran, in WAL mode {ran}")
        bad += len(unexplained)
        print(f"{name}: {now} tests; failed in WAL mode {len(known)}, in concurrent mode {len(failed)}, of these "
              f"{len(differing)} in concurrent mode alone; {before:.0f} s and {after:.0f} s", flush=True)
        for test in sorted(unexplained):
            print(f"    without a reason: {test}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
