#!/usr/bin/env python3
"""Plait's sidecar beside Litestream: the same load, the same store, trials in turn.

Litestream ships a WAL database of stock SQLite, Plait's sidecar a concurrent one, each with an interval of one second, to versitygw on
this machine. One connection commits at a fixed rate under synchronous=FULL. Meanwhile the whole bucket is copied at random moments:
what can be restored out of such a copy is what was left had the machine been lost then. The lag of such a moment is the age of the
oldest commit that would be missing, 0 if none. In the middle the shipping program is killed (SIGKILL) and started again three seconds
later, while commits go on. At the end the writer stops, the shipping program is told to end (SIGTERM), and the database is restored
and compared with what was committed.

    crates/replicate/against_litestream.py [--rate 1000] [--seconds 60] [--trials 2] [--json FILE]

Needs go and `make dist`; versitygw and Litestream are installed below target/stores/bin.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
BIN = ROOT / "target" / "stores" / "bin"
PEERS = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    "litestream": "github.com/benbjohnson/litestream/cmd/litestream@v0.5.18",
}
PORT = 7089
# Seconds without samples behind each start of the shipping program, which begins with a snapshot.
SETTLES = 5
AWAY = 3


def writer(path, rate, seconds, said):
    """Commits number after number, at `rate` a second, and appends the time of each acknowledgment to `said`."""
    db = sqlite3.connect(path, isolation_level=None, timeout=20)
    db.execute("PRAGMA synchronous=FULL")
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start = time.time()
    number = 0
    while True:
        due = start + number / rate
        now = time.time()
        if now >= start + seconds:
            break
        if due > now:
            time.sleep(due - now)
        number += 1
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO event VALUES(?, ?, ?)", (number, number % 97, random.randbytes(100)))
        db.execute("UPDATE account SET newest = ? WHERE id = ?", (number, number % 1000))
        db.execute("COMMIT")
        os.write(out, b"%.6f\n" % time.time())
    db.close()


class Store:
    """A versitygw over a folder; a bucket is a folder in it, a copy of one is another bucket."""

    def __init__(self, home):
        self.data = home / "data"
        (self.data / "live").mkdir(parents=True)
        self.log = home / "access.log"
        command = [BIN / "versitygw", "--quiet", "--access", "replica", "--secret", "not-a-secret", "--port", f"127.0.0.1:{PORT}"]
        command += ["--access-log", self.log, "posix", self.data]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)

    def copy(self, name):
        """How the bucket is now, as another one."""
        subprocess.run(["cp", "-a", self.data / "live", self.data / name], check=False, stderr=subprocess.DEVNULL)

    def requests(self):
        """Requests so far to the live bucket that are billed as writes (PUT, LIST), as reads, and the bytes that were put."""
        writes = reads = put = 0
        for line in self.log.read_text().splitlines():
            fields = line.split("] ", 1)[-1].split()
            if len(fields) < 10 or not fields[5].startswith(("/live", "live")):
                continue
            action = fields[3]
            if action.startswith(("s3_Put", "s3_List", "s3_Create", "s3_Upload", "s3_Complete", "s3_Copy")):
                writes += 1
                put += int(fields[9]) if action.startswith(("s3_Put", "s3_Upload")) and fields[6] == "200" else 0
            elif not action.startswith("s3_Delete"):
                reads += 1
        return writes, reads, put

    def end(self):
        self.process.kill()
        self.process.wait()


class Litestream:
    name = "Litestream"
    library = DIST / "stock" / "lib"
    mode = "wal"

    def ship(self, home, database):
        config = home / "litestream.yml"
        config.write_text(
            f"dbs:\n  - path: {database}\n    replica:\n      type: s3\n      bucket: live\n      path: app\n"
            f"      endpoint: http://127.0.0.1:{PORT}\n      region: us-east-1\n      force-path-style: true\n      sync-interval: 1s\n"
        )
        return [BIN / "litestream", "replicate", "-config", config]

    def restore(self, bucket, to):
        url = f"s3://{bucket}/app?endpoint=http://127.0.0.1:{PORT}&region=us-east-1&forcePathStyle=true"
        return [BIN / "litestream", "restore", "-o", to, url]


class Plait:
    name = "Plait"
    library = DIST / "lib"
    mode = "concurrent"

    def ship(self, _home, database):
        return [DIST / "bin" / "plait-replicate", "run", "--interval", "1s", "s3://live/app", database]

    def restore(self, bucket, to):
        return [DIST / "bin" / "plait", "restore", f"s3://{bucket}/app", "-o", to]


def environment(library=None):
    keys = {"ACCESS_KEY_ID": "replica", "SECRET_ACCESS_KEY": "not-a-secret", "REGION": "us-east-1", "ALLOW_HTTP": "true"}
    keys |= {"ENDPOINT_URL": f"http://127.0.0.1:{PORT}"}
    added = {f"AWS_{key}": value for key, value in keys.items()}
    added |= {"LITESTREAM_ACCESS_KEY_ID": "replica", "LITESTREAM_SECRET_ACCESS_KEY": "not-a-secret"}
    if library:
        added["LD_LIBRARY_PATH"] = str(library)
    # Settings of the caller's own store are none of these programs.
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | added


def restored(side, bucket, to):
    """The newest commit that comes back, or None, if nothing does. A hole, or half a commit, ends all."""
    to.unlink(missing_ok=True)
    done = subprocess.run(side.restore(bucket, to), env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]
    db = sqlite3.connect(to)
    newest, count = db.execute("SELECT coalesce(max(number), 0), count(*) FROM event").fetchone()
    updated = db.execute("SELECT max(newest) FROM account").fetchone()[0]
    sound = db.execute("PRAGMA integrity_check").fetchone()[0]
    db.close()
    if not (newest == count == updated and sound == "ok"):
        sys.exit(f"{side.name}: restored {count} commits through {newest}, {updated}; integrity_check: {sound}")
    return newest, None


def trial(side, rate, seconds, samples):
    """One run; what was measured."""
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        home = Path(folder)
        store = Store(home)
        try:
            return run_in(side, home, store, rate, seconds, samples)
        finally:
            store.end()


def run_in(side, home, store, rate, seconds, samples):
    database, said = home / "app.db", home / "said"
    schema = f"""PRAGMA journal_mode={side.mode};
        CREATE TABLE event(number INTEGER PRIMARY KEY, kind, body); CREATE INDEX by_kind ON event(kind);
        CREATE TABLE account(id INTEGER PRIMARY KEY, newest);
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<999) INSERT INTO account SELECT i, 0 FROM n;"""
    shell = DIST / "bin" / "sqlite3"
    subprocess.run([shell, database, schema], env=environment(side.library), check=True, stdout=subprocess.DEVNULL)
    command, used = side.ship(home, database), []

    def start():
        return subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=open(home / "shipper", "ab"))

    def end(process, how):
        os.kill(process.pid, how)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        used.append(usage.ru_utime + usage.ru_stime)
        if process.returncode not in (0, -how):
            sys.exit(f"{side.name} ended with {process.returncode}: {(home / 'shipper').read_text()[-2000:]}")

    shipper = start()
    time.sleep(SETTLES)
    before = store.requests()
    began = time.time()
    arguments = [sys.executable, __file__, "--write", database, str(rate), str(seconds), said]
    writes = subprocess.Popen(arguments, env=environment(side.library))
    half = seconds / 2
    moments = []

    def sample(until):
        while time.time() < until:
            name = f"copy{len(moments)}"
            moments.append((time.time(), name))
            store.copy(name)
            time.sleep(random.uniform(0.2, 1.8) * (seconds - AWAY - SETTLES) / samples)

    sample(began + half)
    end(shipper, signal.SIGKILL)
    time.sleep(AWAY)
    shipper = start()
    time.sleep(SETTLES)
    sample(began + seconds)
    writes.wait()
    end(shipper, signal.SIGTERM)
    after = store.requests()

    acknowledged = [float(line) for line in said.read_text().split()]
    lags, unusable = [], []
    for moment, name in moments:
        newest, why = restored(side, name, home / "restored.db")
        shutil.rmtree(store.data / name)
        if newest is None:
            unusable.append(why)
        elif newest < len(acknowledged) and acknowledged[newest] < moment:
            lags.append(moment - acknowledged[newest])
        else:
            lags.append(0.0)
    newest, why = restored(side, "live", home / "restored.db")
    if newest is None:
        sys.exit(f"{side.name}: nothing is restored at the end: {why}")
    writes_, reads, put = (b - a for a, b in zip(before, after))
    return {
        "side": side.name, "rate": rate, "seconds": seconds, "commits": len(acknowledged), "missing": len(acknowledged) - newest,
        "lags": lags, "unusable": unusable, "write_requests": writes_, "read_requests": reads, "bytes_put": put, "cpu_seconds": sum(used),
    }  # fmt: skip


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def line(side, trials):
    lags = [lag for trial in trials for lag in trial["lags"]]
    commits = sum(trial["commits"] for trial in trials)
    minutes = sum(trial["seconds"] for trial in trials) / 60
    cells = [
        side, f"{statistics.median(lags):.2f} s", f"{quantile(lags, 0.99):.2f} s", f"{len(lags)}",
        f"{sum(len(trial['unusable']) for trial in trials)}", f"{sum(trial['missing'] for trial in trials)} of {commits:,}",
        f"{sum(trial['bytes_put'] for trial in trials) / commits:,.0f}",
        f"{sum(trial['write_requests'] for trial in trials) / minutes:.0f}", f"{sum(trial['read_requests'] for trial in trials) / minutes:.0f}",
        f"{1e6 * sum(trial['cpu_seconds'] for trial in trials) / commits:.0f} µs",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1000, help="commits a second")
    parser.add_argument("--seconds", type=int, default=60, help="of each trial")
    parser.add_argument("--trials", type=int, default=2, help="of each side, in turn")
    parser.add_argument("--samples", type=int, default=100, help="moments of each trial")
    parser.add_argument("--json", type=Path, help="every trial, in a file")
    options = parser.parse_args()
    for name, source in PEERS.items():
        if not (BIN / name).exists():
            subprocess.run(["go", "install", source], env=os.environ | {"GOBIN": str(BIN)}, check=True)
    trials = []
    for number in range(options.trials):
        for side in (Litestream(), Plait()):
            trials.append(trial(side, options.rate, options.seconds, options.samples))
            print(f"trial {number + 1}: {side.name} done", file=sys.stderr, flush=True)
    print("| | lag, median | p99 | moments | not restorable | missing at the end | bytes a commit | writes a minute | reads a minute | CPU a commit |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in ("Litestream", "Plait"):
        print(line(name, [trial for trial in trials if trial["side"] == name]))
    for why in sorted({str(why) for trial in trials for why in trial["unusable"]}):
        print(f"not restorable: {why}")
    if options.json:
        options.json.write_text(json.dumps(trials, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        writer(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main()
