"""How many requests of a small Flask shop fail with "database is locked": on the system's SQLite and on Plait.

    python3 examples/flask/measure.py

The shop (app.py) runs unchanged under gunicorn, with the same clients in turn on either library. The first run makes a virtual
environment beside this file, for which pip fetches what requirements.txt names. Build Plait before: `make dist`.
"""

import argparse
import collections
import contextlib
import http.client
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLAIT = HERE.parent.parent / "dist" / "bin" / "plait"
RUN = [PLAIT, "run", "--concurrent", "--quiet", "--"]
# What the shop is started behind, and with which variables.
SUBJECTS = {
    "SQLite, WAL mode": ([], {}),
    "the same, changed to BEGIN IMMEDIATE": ([], {"BEGIN": "BEGIN IMMEDIATE"}),
    "Plait, unchanged": (RUN, {}),
    "Plait, unchanged, PLAIT_BEGIN=immediate": (RUN, {"PLAIT_BEGIN": "immediate"}),
}
SHOWS = 20
SEATS = 1_000_000
SCHEMA = f"""
    CREATE TABLE shows(id INTEGER PRIMARY KEY, title TEXT, seats INT);
    CREATE TABLE sales(id INTEGER PRIMARY KEY, show INT, seat INT, UNIQUE(show, seat));
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{SHOWS})
        INSERT INTO shows SELECT i, 'show ' || i, {SEATS} FROM n;
"""


class Failed(Exception):
    """The measurement cannot be made; the text says why and what to do."""


def environment():
    """The Python of the virtual environment that the shop runs in."""
    place = HERE / ".venv"
    python = place / "bin" / "python"
    if not python.exists():
        print(f"making {place}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        wanted = HERE / "requirements.txt"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted]
        subprocess.run(pip, check=True)
    return python


def free_port():
    """A port of this machine that nobody listens at."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(python, prefix, settings, database, workers):
    """The shop under gunicorn, started behind `prefix` with these variables of the environment: its port."""
    port = free_port()
    command = [*prefix, python, "-m", "gunicorn", "--chdir", HERE, "--bind", f"127.0.0.1:{port}"]
    command += ["--workers", str(workers), "--log-level", "error", "app:app"]
    environ = dict(os.environ, DATABASE=str(database), **settings)
    server = subprocess.Popen([str(word) for word in command], env=environ)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as probe:
                probe.request("GET", "/")
                if probe.getresponse().status == 200:
                    break
            if server.poll() is not None or time.monotonic() > deadline:
                raise Failed("gunicorn does not answer; what it said is above")
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(30)


def client(port, until, seed, outcomes, times):
    """Buys tickets until the time is up. Like a browser it opens a connection for each."""
    choice = random.Random(seed)
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        begun = time.monotonic()
        connection.request("POST", f"/buy/{choice.randint(1, SHOWS)}")
        answer = connection.getresponse()
        said = answer.read().decode()
        if said == "bought":
            times.append(time.monotonic() - begun)
        outcomes[said if answer.status in (200, 500) else f"{answer.status}"] += 1
        connection.close()


def trial(python, prefix, settings, arguments, seed):
    """What became of the requests, and how long those took that were served."""
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        database = Path(folder) / "shop.db"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.executescript(SCHEMA)
        outcomes, times = collections.Counter(), []
        with serving(python, prefix, settings, database, arguments.workers) as port:
            until = time.monotonic() + arguments.seconds
            clients = [
                threading.Thread(target=client, args=(port, until, seed + i, outcomes, times))
                for i in range(arguments.clients)
            ]
            for thread in clients:
                thread.start()
            for thread in clients:
                thread.join()
        verify(database, outcomes["bought"])
    return outcomes, times


def verify(database, bought):
    """Every ticket that was bought is in the file, and no seat was sold twice."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        (sales,) = connection.execute("SELECT count(*) FROM sales").fetchone()
        (seats,) = connection.execute("SELECT sum(seats) FROM shows").fetchone()
        (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
    if (sales, seats, sound) != (bought, SHOWS * SEATS - bought, "ok"):
        raise Failed(f"{bought} tickets were bought, and the file has {sales} sales, {seats} seats left; it is {sound}")


def percentile(times, part):
    """In milliseconds."""
    return sorted(times)[int(len(times) * part)] * 1000 if times else float("nan")


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8, help="processes of gunicorn (8)")
    parser.add_argument("--clients", type=int, default=16, help="clients at the same time (16)")
    parser.add_argument("--seconds", type=float, default=10, help="of each trial (10)")
    parser.add_argument("--trials", type=int, default=3, help="on each library, in turn (3)")
    arguments = parser.parse_args()
    if not PLAIT.exists():
        raise Failed(f"{PLAIT} is not there; run `make dist` first")
    python = environment()
    results = {name: (collections.Counter(), []) for name in SUBJECTS}
    for number in range(arguments.trials):
        for name, (prefix, settings) in SUBJECTS.items():
            outcomes, times = trial(python, prefix, settings, arguments, number * arguments.clients)
            results[name][0].update(outcomes)
            results[name][1].extend(times)
            print(f"trial {number + 1}, {name}: {dict(outcomes)}", file=sys.stderr)
    print("| | requests | failed | served a second | median of those | 99 % within |\n|---|---|---|---|---|---|")
    for name, (outcomes, times) in results.items():
        requests = sum(outcomes.values())
        failed = requests - outcomes["bought"]
        rate = outcomes["bought"] / (arguments.seconds * arguments.trials)
        print(
            f"| {name} | {requests:,} | {failed:,} ({failed / max(1, requests):.1%}) | {rate:,.0f} "
            f"| {percentile(times, 0.5):.0f} ms | {percentile(times, 0.99):.0f} ms |"
        )


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"measure.py: {why}")
