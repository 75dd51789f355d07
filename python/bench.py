"""The mapping beside sqlitedict and dbm.gnu: gets and sets of small values, interleaved.

    python3 python/bench.py [--rows 20000] [--rounds 9] [--seed 1]

Needs the package plait; measures beside sqlitedict (`pip install sqlitedict`) and dbm.gnu (Debian: python3-gdbm) if they are there. Keys are
text of 13 characters, values 100 bytes, and nothing is synced to disk on the way: sqlitedict runs with synchronous=OFF by itself and gets codecs that
do nothing, dbm.gnu has its fast mode, and plait runs with synchronous=normal, where a set outlives the death of the process, which the others' sets in one
transaction do not. Each round does the same work on all, in another order; the figures are medians over the rounds, of microseconds
for one operation, and of the ratio within a round (how many times as fast plait is). Every value that is read is compared.
"""

import argparse
import os
import random
import statistics
import tempfile
import time

import plait

VALUE = bytes(range(100))


class Plait:
    def __init__(self, folder):
        self.db = plait.open(os.path.join(folder, "plait.db"), synchronous="normal")
        self.map = self.db.map("m", key=str, value=bytes)

    def get(self, keys):
        return read(self.map, keys)

    def get_in_transaction(self, keys):
        with self.db.transaction("deferred"):
            return read(self.map, keys)

    def get_many(self, keys):
        total = 0
        for i in range(0, len(keys), 100):
            total += sum(v == VALUE for v in self.map.get_many(keys[i:i + 100]))
        return total

    def set(self, keys):
        return write(self.map, keys)

    def set_in_transaction(self, keys):
        with self.db.transaction():
            return write(self.map, keys)

    def update(self, keys):
        self.map.update((k, VALUE) for k in keys)
        return len(keys)


class SqliteDict:
    def __init__(self, folder):
        import sqlitedict

        def same(value):
            return value

        def opened(name, autocommit):
            return sqlitedict.SqliteDict(
                os.path.join(folder, name), autocommit=autocommit, journal_mode="WAL", encode=bytes, decode=same)

        self.each, self.one = opened("each.sqlite", True), opened("one.sqlite", False)

    def get(self, keys):
        return read(self.one, keys)

    def set(self, keys):
        written = write(self.each, keys)
        self.each.commit()  # its thread has the work still to do
        return written

    def set_in_transaction(self, keys):
        written = write(self.one, keys)
        self.one.commit()
        return written


class Gnu:
    def __init__(self, folder):
        import dbm.gnu

        self.map = dbm.gnu.open(os.path.join(folder, "gnu.dbm"), "nf")

    def get(self, keys):
        return read(self.map, keys)

    def set(self, keys):
        return write(self.map, keys)


def read(map, keys):
    right = 0
    for key in keys:
        right += map[key] == VALUE
    return right


def write(map, keys):
    for key in keys:
        map[key] = VALUE
    return len(keys)


# What is done, by plait, by each of the others.
CASES = [
    ("set, each its own transaction", "set", {"sqlitedict": "set", "dbm.gnu": "set"}),
    ("set, in one transaction", "set_in_transaction", {"sqlitedict": "set_in_transaction", "dbm.gnu": "set"}),
    ("update() of all", "update", {"sqlitedict": "set_in_transaction", "dbm.gnu": "set"}),
    ("get", "get", {"sqlitedict": "get", "dbm.gnu": "get"}),
    ("get, in one read transaction", "get_in_transaction", {"sqlitedict": "get", "dbm.gnu": "get"}),
    ("get_many() of 100", "get_many", {"sqlitedict": "get", "dbm.gnu": "get"}),
]


def opened(folder):
    stores = {"plait": Plait(folder)}
    for name, store in (("sqlitedict", SqliteDict), ("dbm.gnu", Gnu)):
        try:
            stores[name] = store(folder)
        except ImportError as e:
            print(f"without {name}: {e}")
    return stores


def microseconds(store, what, keys):
    begun = time.perf_counter()
    right = getattr(store, what)(keys)
    taken = time.perf_counter() - begun
    if right != len(keys):
        raise SystemExit(f"{type(store).__name__}.{what}: {len(keys) - right} values are not what was written")
    return taken / len(keys) * 1e6


def measure(stores, rows, rounds, rng):
    keys = [f"user:{i:08d}" for i in range(rows)]
    for name, store in stores.items():
        rng.shuffle(keys)
        for what in ("set", "set_in_transaction"):
            if hasattr(store, what):
                microseconds(store, what, keys)
    print(f"{rows} rows, {rounds} rounds; microseconds for one, and how many times as fast plait is")
    for title, ours, theirs in CASES:
        times = {name: [] for name in stores}
        for _ in range(rounds):
            rng.shuffle(keys)
            order = list(stores)
            rng.shuffle(order)
            for name in order:
                times[name].append(microseconds(stores[name], ours if name == "plait" else theirs[name], keys))
        line = f"{title:32} plait {statistics.median(times['plait']):8.2f}"
        for name in theirs:
            if name in times:
                ratio = statistics.median(other / own for own, other in zip(times["plait"], times[name]))
                line += f"   {name} {statistics.median(times[name]):8.2f} ({ratio:.2f} x)"
        print(line, flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = opened(folder)
        try:
            measure(stores, asked.rows, asked.rounds, random.Random(asked.seed))
        finally:
            stores["plait"].db.close()


if __name__ == "__main__":
    main()
