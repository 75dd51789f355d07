"""What is done again and again takes no more memory, and no more descriptors, than once."""

import asyncio
import gc
import os
import resource
import tracemalloc

import plait
from place import Case


class Leaks(Case):
    def again(self, work, rounds=300, bytes_max=20_000):
        """Objects of Python by tracemalloc; what C has allocated shows in the size of the process, if it is much."""
        for _ in range(50):
            work()
        gc.collect()
        descriptors = len(os.listdir("/proc/self/fd"))
        tracemalloc.start()
        try:
            work()
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(rounds):
                work()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(after - before, bytes_max)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), descriptors)

    def test_of_operations_on_a_map(self):
        db = self.joined(synchronous="off")
        json, map = db.map("j", value="json"), db.map("m")

        def work():
            map["a"] = "value" * 10
            map["b"] = b"value"
            map["a"], map.get("b"), map.get("none", 1), "a" in map
            map.get_many(["a", "none"], object())
            map.insert("a", 1), map.add("n", 1)
            map.compare_and_swap("a", "other", "x")
            list(map.items()), list(map.keys(prefix="a")), list(map.values(reverse=True)), map.first(), map.last()
            walk = iter(map.items())
            next(walk)
            map.update({"x": 1, "y": "z" * 100})
            map.pop("x"), map.setdefault("d", "e"), map.popitem(), len(map), map.delete_range(prefix="y")
            json["a"] = {"x": [1, 2]}
            json["a"], json.first(), json.get_many(["a"]), list(json.items())

        self.again(work)

    def test_of_what_fails(self):
        db = self.joined(synchronous="off")
        map = db.map("m")
        map["a"] = "text"

        def work():
            for attempt in (
                lambda: map["none"], lambda: map[1], lambda: map.__setitem__("x", object()), lambda: map.__setitem__("x", 2**70),
                lambda: map.add("a", 1), lambda: map.update([("x", 1), (2, 3)]), lambda: map.get_many(["a", 5]),
                lambda: map.keys(prefix=5), lambda: db.execute("SELECT"), lambda: db.execute("SELECT ?", (object(),)),
                lambda: db.execute("SELECT :a", {}), lambda: db.execute("SELECT 1; SELECT 2"), lambda: db.map("a b", create=False),
            ):
                try:
                    attempt()
                except (KeyError, TypeError, ValueError, OverflowError, plait.Error):
                    continue
                self.fail("it did not fail")

        self.again(work)

    def test_of_statements_and_transactions(self):
        db = self.joined(synchronous="off")
        db.execute("CREATE TABLE t(a)")
        count = iter(range(10**9))

        def work():
            with db.transaction():
                db.execute(f"INSERT INTO t VALUES ({next(count)})")
                db.execute("DELETE FROM t RETURNING a")
            rows = db.execute("SELECT ?, ? UNION ALL SELECT 3, 4", ("x" * 100, b"y"))
            rows.columns, next(rows)
            db.execute("SELECT :a", {"a": 1.5}).fetchall()

        self.again(work)

    def test_of_databases_maps_and_loops(self):
        def work():
            db = plait.open(self.path, synchronous="normal")
            map = db.map("m")
            map["a"] = 1
            asyncio.run(db.durable())
            walk = iter(map)
            next(walk)
            db.execute("SELECT 1")
            db.close()

        self.again(work, rounds=30)

    def test_large_values_are_let_go_of(self):
        db = self.joined(synchronous="off")
        map = db.map("m", value=bytes)
        value = bytes(4_000_000)
        for _ in range(10):
            map["a"] = value
            map["a"]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100):
            map["a"] = value
            map["a"], map.get_many(["a"]), map.first(), list(map.items())
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 100_000, "KiB more for 2 GB that went through")
