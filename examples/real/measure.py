"""How programs of others, unchanged, do with eight workers on one SQLite file: on stock SQLite and on Plait.

    python3 examples/real/measure.py                                    all programs; prints the table
    python3 examples/real/measure.py huey optuna --seconds 3            two of them
    python3 examples/real/measure.py --json docs/benchmarks/real.json --page docs/real-programs.md

Each program is a file in programs/, which says what it sets up, what a worker does again and again, and what
has to be in the file in the end. Both sides run the same SQLite release with the same options: stock is
dist/stock, in WAL mode. The first run makes a virtual environment beside this file, for which pip fetches what
requirements.txt pins, and builds the programs in Go, if `go` is there. Build Plait before: `make dist`.
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
DIST = HERE.parent.parent / "dist"
BUILT = HERE / ".venv"
REQUIREMENTS = HERE / "requirements.txt"
GO = HERE / "programs" / "go"
LOCKED = "database is locked"
RUN = [DIST / "bin" / "plait", "run", "--concurrent", "--quiet", "--"]
# What a program is started behind, with which variables, and the journal mode that its file has then.
SIDES = {
    "SQLite, WAL mode": ([], {"LD_LIBRARY_PATH": DIST / "stock" / "lib"}, "wal"),
    "Plait": (RUN, {}, "concurrent"),
    "Plait, PLAIT_BEGIN=immediate": (RUN, {"PLAIT_BEGIN": "immediate"}, "concurrent"),
}
# How long a worker may take to open the database, and to end its last operation when the time is up.
PATIENCE_SECONDS = 120
TABLE_BEGINS, TABLE_ENDS = "<!-- measured: begin -->", "<!-- measured: end -->"


class Failed(Exception):
    """The measurement cannot be made, or something is missing; the text says what."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of others: its file is programs/NAME.py, or programs/go/NAME/main.go."""

    packages: tuple  # the first is the program itself
    operation: str  # what a worker does again and again
    in_go: bool = False
    reads_first: bool = False  # in transactions that begin with a plain BEGIN and then write

    def sides(self):
        """Those on which it is measured."""
        return list(SIDES) if self.reads_first else list(SIDES)[:2]

    def title(self):
        """Its name with the version that is pinned."""
        pinned = (GO / "go.mod" if self.in_go else REQUIREMENTS).read_text()
        version = re.search(rf"^\W*{re.escape(self.packages[0])}(?:==| v)(\S+)", pinned, re.MULTILINE)
        return f"{self.packages[0].rpartition('/')[2]} {version[1]}"


PROGRAMS = {
    "huey": Program(("huey",), "enqueue a task, take one, run it, store its result"),
    "cache": Program(("diskcache",), "`Cache`: set an entry, read it, count it"),
    "fanout": Program(("diskcache",), "`FanoutCache`: set an entry, read it"),
    "queue": Program(("persist-queue",), "put an item"),
    "shop": Program(("Django",), "sell a seat: read the show, insert a sale, update the show", reads_first=True),
    "tasks": Program(("django-tasks-db", "django-tasks"), "enqueue a task, let the worker claim one and run it"),
    "memory": Program(("langgraph-checkpoint-sqlite", "langgraph"), "a turn of a conversation, with checkpoints"),
    "optuna": Program(("optuna",), "a trial: ask, two parameters, report, tell"),
    "tracking": Program(
        ("mlflow-skinny", "alembic", "SQLAlchemy", "sqlparse"), "a run: two parameters, five times two metrics"
    ),
    "goqite": Program(("maragu.dev/goqite",), "send a message, receive one, delete it", in_go=True),
    "pocketbase": Program(
        ("github.com/pocketbase/pocketbase",),
        "count a visit of an account, write it down",
        in_go=True,
        reads_first=True,
    ),
}


def chosen_of(names):
    """These programs, or all that can be built here."""
    if unknown := set(names) - set(PROGRAMS):
        raise Failed(f"no program is named {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    chosen = list(names or PROGRAMS)
    if not shutil.which("go"):
        if names and any(PROGRAMS[name].in_go for name in names):
            raise Failed("a program in Go was asked for, and `go` is not installed")
        chosen = [name for name in chosen if not PROGRAMS[name].in_go]
    return chosen


def environment(chosen):
    """Makes what the programs need: a virtual environment with the pinned versions, a build of each in Go."""
    pins = REQUIREMENTS.read_text()
    stamp = BUILT / "installed.json"
    had = json.loads(stamp.read_text()) if stamp.exists() else {}
    if had.get("pins") != pins:
        print(f"making {BUILT}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", BUILT], check=True)
        had = {"pins": pins, "packages": []}
    needed = {package for name in chosen if not PROGRAMS[name].in_go for package in PROGRAMS[name].packages}
    if wanted := sorted(needed - set(had["packages"])):
        pip = [BUILT / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", REQUIREMENTS, *wanted], check=True)
        stamp.write_text(json.dumps({"pins": pins, "packages": [*had["packages"], *wanted]}))
    for name in chosen:
        if PROGRAMS[name].in_go:
            build_in_go(name)


def build_in_go(name):
    """Links it with the shared libsqlite3, which the loader then finds on either side."""
    find = ["go", "list", "-m", "-f", "{{.Dir}}", PROGRAMS[name].packages[0]]
    subprocess.run(["go", "mod", "download"], cwd=GO, check=True)
    sources = subprocess.run(find, cwd=GO, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    flags = {"CGO_ENABLED": "1", "CGO_CFLAGS": f"-I{DIST}/include", "CGO_LDFLAGS": f"-L{DIST}/stock/lib"}
    build = ["go", "build", "-tags", "libsqlite3,no_default_driver", "-ldflags", f"-X main.sources={sources}"]
    subprocess.run([*build, "-o", BUILT / "bin" / name, f"./{name}"], cwd=GO, env={**os.environ, **flags}, check=True)


def command(name, side, *words):
    """How a step of a program is started on a side: with which words and variables."""
    prefix, settings, _ = SIDES[side]
    start = [BUILT / "bin" / name] if PROGRAMS[name].in_go else [BUILT / "bin" / "python", HERE / "work.py", name]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "DO_NOT_TRACK": "true", **settings}
    return [str(word) for word in [*prefix, *start, *words]], {key: str(value) for key, value in environ.items()}


def step(name, side, *words, told=None):
    """Runs a step of a program to its end: what it answers."""
    line, environ = command(name, side, *words)
    run = subprocess.run(
        line, env=environ, input=json.dumps(told), stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS
    )
    if run.returncode != 0:
        raise Failed(f"{name}: {words[0]!r} has failed on {side}; what it said is above")
    return json.loads(run.stdout)


def work(name, side, folder, arguments):
    """Lets the workers work at the same time: the answer of each."""
    started = []
    for number in range(arguments.workers):
        line, environ = command(name, side, "work", folder, str(number))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(line, env=environ, **pipes))
    watch = threading.Timer(2 * PATIENCE_SECONDS + arguments.seconds, lambda: [worker.kill() for worker in started])
    watch.start()
    try:
        if any(worker.stdout.readline() != "ready\n" for worker in started):
            raise Failed(f"{name}: a worker could not begin on {side}; what it said is above")
        for worker in started:
            worker.stdin.write(f"{arguments.seconds}\n")
            worker.stdin.flush()
        answers = [worker.stdout.read() for worker in started]
        if any(worker.wait() for worker in started):
            raise Failed(f"{name}: a worker has died, or hung, on {side}; what it said is above")
    finally:
        watch.cancel()
        for worker in started:
            worker.kill()
            worker.wait()
            worker.stdin.close()
            worker.stdout.close()
    return [json.loads(answer) for answer in answers]


def trial(name, side, arguments):
    """One program on one side: what was done and refused, how fast. Raises Failed where something is missing."""
    with tempfile.TemporaryDirectory(prefix=f"real-{name}-") as folder:
        step(name, side, "prepare", folder)
        answers = work(name, side, folder, arguments)
        verify(name, side, folder, [entry for answer in answers for entry in answer["acknowledged"]])
    times = sorted(took for answer in answers for _, took in answer["done"])
    failed = collections.Counter()
    for answer in answers:
        failed.update(answer["failed"])
    in_time = sum(ended <= arguments.seconds for answer in answers for ended, _ in answer["done"])
    return {
        "operations": len(times),
        "a_second": round(in_time / arguments.seconds, 2),
        "failed": dict(failed),
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
        "longest_ms": milliseconds(max(answer["longest"] for answer in answers)),
    }


def verify(name, side, folder, acknowledged):
    """Fails where something acknowledged is missing, a file is not sound, or another library was in use."""
    told = step(name, side, "verify", folder, told=acknowledged)
    if told["missing"]:
        raise Failed(f"{name} on {side}: {told['missing']}; the workers were told otherwise")
    if told["plait"] != (SIDES[side][2] == "concurrent"):
        why = "take a Python whose sqlite3 links the shared libsqlite3, as Debian's /usr/bin/python3 does"
        raise Failed(f"{name}: {side} was to be measured, and another library was in use; {why}")
    for database, mode in told["modes"].items():
        with contextlib.closing(sqlite3.connect(Path(folder) / database)) as connection:
            (state,) = connection.execute("PRAGMA integrity_check").fetchone()
        if (mode, state) != (SIDES[side][2], "ok"):
            raise Failed(f"{name} on {side}: {database} is in journal mode {mode}, and the check of it says: {state}")


def percentile(times, part):
    """Of sorted times, in milliseconds; nothing if nothing has succeeded."""
    return milliseconds(times[int(len(times) * part)]) if times else None


def milliseconds(seconds):
    """Rounded to what can matter."""
    return round(seconds * 1000, 2)


def measured(chosen, arguments):
    """All trials, interleaved: the sides of a program behind one another, each of them first in turn."""
    load = os.getloadavg()[1]
    results = {name: {side: [] for side in PROGRAMS[name].sides()} for name in chosen}
    for number in range(arguments.trials):
        for place, name in enumerate(chosen):
            sides = PROGRAMS[name].sides()
            first = (number + place) % len(sides)
            for side in sides[first:] + sides[:first]:
                results[name][side].append(one := trial(name, side, arguments))
                print(f"trial {number + 1}, {name}, {side}: {one}", file=sys.stderr)
    return {
        "made": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} processors, Linux {platform.release()}, Python {platform.python_version()}",
        "load_before": round(load, 1),
        "workers": arguments.workers,
        "seconds": arguments.seconds,
        "trials": arguments.trials,
        "programs": [
            {"name": PROGRAMS[name].title(), "operation": PROGRAMS[name].operation, "sides": sides}
            for name, sides in results.items()
        ],
    }


def table(results):
    """In Markdown: medians of the trials with the least and the greatest rate; errors of all trials."""
    made = "{made}, {machine}. {workers} workers, on each side {trials} x {seconds:g} s, in turns".format(**results)
    lines = [
        f"{made}; load average of five minutes before: {results['load_before']}.",
        "",
        "| program, one operation | | a second | locked | other errors | median | 99 % within | longest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for program in results["programs"]:
        first = f"**{program['name']}**: {program['operation']}"
        for side, trials in program["sides"].items():
            lines.append(f"| {first} | {side} | {' | '.join(figures(trials))} |")
            first = ""
    return "\n".join(lines)


def figures(trials):
    """The cells of one side: rates, errors by kind, times of what succeeded, and the longest of all."""
    rates = [one["a_second"] for one in trials]
    yield f"{short(statistics.median(rates))} ({short(min(rates))}–{short(max(rates))})"
    errors = collections.Counter()
    for one in trials:
        errors.update(one["failed"])
    attempts = sum(one["operations"] for one in trials) + errors.total()
    locked = errors.pop(LOCKED, 0)
    yield f"{locked:,} ({locked / attempts:.1%})" if locked else "0"
    yield "; ".join(f"{count:,} {kind}" for kind, count in errors.items()) or "0"
    for which in ("p50_ms", "p99_ms", "longest_ms"):
        times = [one[which] for one in trials if one[which] is not None]
        yield f"{short(statistics.median(times))} ms" if times else "-"


def short(number):
    """Three digits, where it has no more before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def put_into(page, text):
    """Replaces what stands between the markers of a page."""
    before, begins, rest = page.read_text().partition(TABLE_BEGINS)
    _, ends, after = rest.partition(TABLE_ENDS)
    if not ends:
        raise Failed(f"{page} has not the lines {TABLE_BEGINS} and {TABLE_ENDS}")
    page.write_text(f"{before}{begins}\n{text}\n{ends}{after}")


def main():
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)} (all)")
    parser.add_argument("--workers", type=int, default=8, help="processes (8)")
    parser.add_argument("--seconds", type=float, default=6, help="of each trial (6)")
    parser.add_argument("--trials", type=int, default=3, help="on each side, in turns (3)")
    parser.add_argument("--json", type=Path, help="a file for all results")
    parser.add_argument("--page", type=Path, help="a page for the table, between its markers")
    arguments = parser.parse_args()
    for needed in (DIST / "bin" / "plait", DIST / "stock" / "lib" / "libsqlite3.so.0"):
        if not needed.exists():
            raise Failed(f"{needed} is not there; run `make dist` first")
    chosen = chosen_of(arguments.programs)
    environment(chosen)
    results = measured(chosen, arguments)
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.page:
        put_into(arguments.page, table(results))


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"measure.py: {why}")
