"""SQLite's own tests with every database file in concurrent mode, against the same tests in WAL mode.

    tests/suites/tcl.py [--set veryquick] [--limit SECONDS] [--again] [FILE.test ...]

Builds two testfixtures (`fixture.py`), runs each file once with stock SQLite in WAL mode and once with Plait in
concurrent mode, and compares name by name. Fails when a test that passes in WAL mode fails or is not reached in
concurrent mode, and `tcl.differences` does not say why. The names that differ are left in `target/suites/tcl/differing`.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fixture

HERE = Path(__file__).resolve().parent
TESTS = fixture.SOURCE / "test"
DIFFERENCES = HERE / "tcl.differences"
RESULTS = fixture.CACHE / "tcl" / "results"
SIDES = {"stock": {}, "plait": {"PLAIT_JOURNAL_MODE": "concurrent", "PLAIT_JOIN": "always"}}
DRIVER = HERE / "one_file.tcl"


def place():
    """A folder for databases: in memory, since neither side is to wait for a disk here."""
    return tempfile.mkdtemp(prefix="plait-tcl-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def play(program, side, file, limit):
    """What one file says: the names that passed, those that failed with what was said, and how it ended."""
    where = place()
    output = Path(where) / "output"
    began = time.monotonic()
    try:
        with output.open("wb") as out:
            process = subprocess.Popen(
                [program, str(DRIVER), "run", str(TESTS), file], cwd=where, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env={**os.environ, **SIDES[side]}, start_new_session=True)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = "time"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        text = output.read_text(errors="replace")
    finally:
        shutil.rmtree(where, ignore_errors=True)
    passed, failed = read(text)
    ended = "finished" if re.search(r"^\d+ errors out of \d+ tests", text, re.MULTILINE) else f"stopped: {code}"
    last = "" if ended == "finished" else text[-1500:]
    return {"passed": sorted(passed), "failed": failed, "ended": ended, "last": last,
            "seconds": round(time.monotonic() - began, 2)}


def read(text):
    """Passed names, and failed ones with the lines that say why."""
    failed = {}
    listed = re.search(r"^!Failures on these tests: (.*)$", text, re.MULTILINE)
    for name in listed.group(1).split() if listed else []:
        failed[name] = ""
    for match in re.finditer(r"^! (\S+) (expected|got): +\[(.*?)\]$", text, re.MULTILINE | re.DOTALL):
        name, kind, value = match.groups()
        failed[name] = failed.get(name, "") + f"{kind} [{value[:300]}] "
    for match in re.finditer(r"^(\S+?)\.\.\.(?:\S+\.\.\.)?\s*\nError: (.*)$", text, re.MULTILINE):
        failed[match.group(1)] = "error: " + match.group(2)[:300]
    passed = set(re.findall(r"^(\S+?)\.\.\. Ok$", text, re.MULTILINE)) - set(failed)
    return passed, failed


def known():
    """The names that may differ, or patterns of them: the indented lines."""
    patterns = []
    for line in DIFFERENCES.read_text().splitlines() if DIFFERENCES.exists() else []:
        if line.startswith("    "):
            patterns += line.split()
    return patterns


def compare(results):
    """Names that pass in WAL mode alone, with what concurrent mode says to them."""
    stock, plait = results["stock"], results["plait"]
    passed = set(plait["passed"])
    # Some names hold random numbers: where both sides ran as many to the end, a name that one side lacks is no failure.
    whole = plait["ended"] == "finished" and count(plait) >= count(stock)
    return {name: plait["failed"].get(name, "not reached: " + plait["ended"])
            for name in stock["passed"] if name not in passed and not (whole and name not in plait["failed"])}


def says_the_same(said):
    """The mode under its own name, or a text of SQLITE_BUSY that goes on: what docs/sql.md says of every answer."""
    match = re.fullmatch(r"expected \[(.*)\] got \[(.*)\] ?", said, re.DOTALL)
    if not match:
        return False
    expected, got = match.groups()
    got = re.sub(r"database is locked: [^}]*", "database is locked", got.replace("concurrent", "wal"))
    return got in (expected.replace("concurrent", "wal"), expected)


def count(result):
    return len(result["passed"]) + len(result["failed"])


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--set", default="veryquick", help="a set of SQLite's: veryquick, quick, full")
    options.add_argument("--limit", type=float, default=60, help="seconds for one file")
    options.add_argument("--again", action="store_true", help="run the baseline again too, instead of taking what is there")
    options.add_argument("files", nargs="*")
    asked = options.parse_args()
    programs = fixture.both()
    files = asked.files or subprocess.run(
        [programs["stock"], str(DRIVER), "list", str(TESTS), asked.set], check=True, capture_output=True, text=True,
        cwd=fixture.CACHE).stdout.split()
    RESULTS.mkdir(parents=True, exist_ok=True)
    patterns, ran, differing, unexplained = known(), 0, {}, 0
    for number, file in enumerate(files):
        results = {}
        for side, program in programs.items():
            kept = RESULTS / f"{side}-{Path(file).name}.json"
            if side == "stock" and kept.exists() and not asked.again:
                results[side] = json.loads(kept.read_text())
                continue
            results[side] = play(program, side, file, asked.limit)
            kept.write_text(json.dumps(results[side]))
        ran += len(results["stock"]["passed"])
        if results["stock"]["ended"] != "finished":
            print(f"{Path(file).name}: in WAL mode {results['stock']['ended']}", flush=True)
        for name, said in compare(results).items():
            differing[name] = said
            if says_the_same(said):
                continue
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                unexplained += 1
                print(f"{Path(file).name}: {name}: {said}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(files)} {Path(file).name:40}", end="", file=sys.stderr)
    (fixture.CACHE / "tcl" / "differing").write_text("".join(f"{n}\t{s}\n" for n, s in differing.items()))
    print(f"{len(files)} files, {ran} names that pass in WAL mode, {len(differing)} differ, {unexplained} without a reason")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
