"""One step of a program in Python, as measure.py starts it: work.py NAME prepare|work|verify FOLDER [NUMBER]

`work` says "ready", reads for how many seconds, and does its operation again and again until then. It answers in
one line of JSON when each that succeeded has ended, and how long it took; what has failed, by kind; and what was
acknowledged. `verify` reads what was acknowledged to all workers, and answers what of it is missing.
"""

import collections
import contextlib
import importlib
import json
import os
import sqlite3
import sys
import time


def kind(error):
    """What is counted: SQLite's words wherever a layer above has wrapped them, or what was said, its first line."""
    if "database is locked" in str(error) or "database is locked" in str(error.__cause__):
        return "database is locked"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]}"


def opened(program, number, acknowledged, failed):
    """The operation of a worker that has connected. What is refused meanwhile counts, and is tried again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return program.worker(number, acknowledged)
        except Exception as error:
            failed[kind(error)] += 1
            if time.monotonic() > deadline:
                raise


def work(program, number):
    """What a worker did in its time."""
    acknowledged, failed, done, longest = [], collections.Counter(), [], 0
    operate = opened(program, number, acknowledged, failed)
    print("ready", flush=True)
    seconds = float(sys.stdin.readline())
    begun = time.monotonic()
    while (start := time.monotonic()) < begun + seconds:
        try:
            operate()
        except Exception as error:
            failed[kind(error)] += 1
        else:
            done.append((round(time.monotonic() - begun, 6), round(time.monotonic() - start, 6)))
        longest = max(longest, time.monotonic() - start)
    return {"done": done, "failed": failed, "longest": longest, "acknowledged": acknowledged}


def verify(program):
    """What is missing of what was acknowledged, by which library, and in which mode the files are."""
    missing = program.missing(json.load(sys.stdin))
    modes = {}
    for database in program.DATABASES:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            (modes[database],) = connection.execute("PRAGMA journal_mode").fetchone()
    functions = sqlite3.connect(":memory:").execute("SELECT name FROM pragma_function_list").fetchall()
    return {"missing": missing, "plait": ("plait_version",) in functions, "modes": modes}


def main(name, step, folder, number="0"):
    """Does one step in the folder, and answers in a line of JSON."""
    os.chdir(folder)
    program = importlib.import_module(f"programs.{name}")
    if step == "prepare":
        answer = program.prepare()
    elif step == "work":
        answer = work(program, int(number))
    else:
        answer = verify(program)
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
