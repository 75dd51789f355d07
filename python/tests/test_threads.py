"""One Database for many threads: a connection for each, the GIL, closing."""

import gc
import os
import sqlite3
import threading
from unittest import mock

import plait
from place import Case


class Threads(Case):
    def all(self, *functions):
        """Runs them in threads, and fails with the first that fails."""
        failures = []

        def guarded(function):
            try:
                function()
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive())
        if failures:
            raise failures[0]

    def test_no_addition_is_lost_in_any_of_the_ways_to_add(self):
        db = self.open(synchronous="normal")
        map = db.map("m", value=int)
        map.update(add=0, immediate=0, run=0, swap=0)

        def immediate():
            with db.transaction():
                map["immediate"] += 1

        def run():
            map["run"] += 1

        def swap():
            while not map.compare_and_swap("swap", n := map["swap"], n + 1):
                pass

        def work():
            for _ in range(50):
                map.add("add", 1)
                immediate()
                db.run(run)
                swap()

        self.all(*[work] * 6)
        self.assertEqual(dict(map), dict.fromkeys(["add", "immediate", "run", "swap"], 300))

    def test_setdefault_and_pop_give_each_value_to_one_thread(self):
        db = self.open(synchronous="off")
        map = db.map("m", key=int)
        taken, given = [], []

        def work():
            me = threading.get_ident()
            for i in range(100):
                if map.setdefault(i, me) == me:
                    given.append(i)
            barrier.wait()
            for i in range(100):
                if map.pop(i, None) is not None:
                    taken.append(i)

        barrier = threading.Barrier(4)
        self.all(*[work] * 4)
        self.assertEqual((sorted(given), sorted(taken)), (list(range(100)), list(range(100))))

    def test_a_transaction_is_its_threads_alone(self):
        db = self.open()
        map = db.map("m")
        seen = []
        with db.transaction("concurrent"):
            map["a"] = 1
            self.all(lambda: seen.append((db.in_transaction, dict(map))))
        self.assertEqual(seen, [(False, {})])
        self.assertEqual(map, {"a": 1})

    def test_iterators_rows_and_transactions_of_another_thread_are_refused(self):
        db = self.open()
        map = db.map("m")
        map.update(a=1, b=2)
        walk, rows, transaction = iter(map), db.execute("SELECT 1 UNION SELECT 2"), db.transaction()
        next(rows)

        def use():
            for thing in (walk, rows):
                with self.assertRaisesRegex(plait.Error, "another thread"):
                    next(thing)

        self.all(use)
        with transaction:
            with self.assertRaisesRegex(plait.Error, "another thread"):
                self.all(lambda: transaction.__exit__(None, None, None))
            map["c"] = 3
        self.assertEqual((list(walk), list(rows), len(map)), (["a", "b", "c"], [(2,)], 3))

    def test_a_database_in_memory_says_that_it_belongs_to_one_thread(self):
        db = self.open(":memory:")
        with self.assertRaisesRegex(plait.Error, "in memory"):
            self.all(lambda: db.execute("SELECT 1"))

    def descriptors(self):
        return sum(1 for fd in os.listdir("/proc/self/fd") if self.link(fd).startswith(self.path))

    @staticmethod
    def link(fd):
        try:
            return os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return ""

    def test_the_connection_of_a_thread_ends_with_it_and_rolls_back(self):
        db = self.open()
        map = db.map("m")
        map["a"] = 1
        left = []

        def work():
            left.append(db.transaction())
            left[0].__enter__()
            map["a"] = 2
            left.append(iter(map.items()))
            next(left[1])

        before = self.descriptors()
        self.all(work)
        self.assertEqual(map["a"], 1)
        with db.transaction():
            map["a"] = 3
        with self.assertRaisesRegex(plait.Error, "closed"):
            next(left[1])
        for _ in range(50):
            self.all(lambda: map.get("a"))
        self.assertLessEqual(self.descriptors(), before + 2)

    # holds GIL-3
    def test_what_another_thread_drops_is_closed_when_its_own_comes_by(self):
        db = self.open()
        map = db.map("m")
        map.update({str(i): i for i in range(10)})
        walks = [iter(map)]
        next(walks[0])
        self.all(walks.clear)
        gc.collect()
        db.execute("DROP TABLE m")

    def test_close_ends_the_connections_of_all_threads(self):
        db = self.open()
        map = db.map("m")
        inside, go_on, told = threading.Barrier(4), threading.Event(), []

        def work():
            map["a"] = threading.get_ident()
            inside.wait(60)
            go_on.wait(60)
            try:
                map["a"]
            except plait.Error as e:
                told.append(str(e))

        def close():
            inside.wait(60)
            db.close()
            go_on.set()

        self.all(work, work, work, close)
        self.assertEqual(told, ["the database is closed"] * 3)
        self.assertEqual(self.beside(), [])

    def test_after_close_the_file_is_plain_though_other_threads_were_writing(self):
        for _ in range(5):
            db = self.open(synchronous="normal")
            map = db.map("m")
            counts, started = [map.get(str(i), 0) for i in range(3)], threading.Barrier(4)

            def work(i):
                try:
                    while True:
                        counts[i] = map.add(str(i), 1)
                        if counts[i] % 100 == 1:
                            started.wait(60)
                except (plait.Error, threading.BrokenBarrierError):
                    pass

            threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            started.wait(60)
            db.close()
            left, acknowledged = self.beside(), list(counts)
            started.abort()
            stock = sqlite3.connect(self.path)
            stored = dict(stock.execute("SELECT k, v FROM m"))
            stock.close()
            for thread in threads:
                thread.join(60)
            self.assertEqual(left, [])
            self.assertTrue(all(stored[str(i)] >= n for i, n in enumerate(acknowledged)), (stored, acknowledged))
            self.assertEqual(stored, {str(i): n for i, n in enumerate(counts)})

    def test_every_close_waits_also_beside_another_and_beside_threads_that_begin(self):
        for _ in range(20):
            db = self.open(synchronous="off")
            map = db.map("m")
            map["a"] = 1
            together, left = threading.Barrier(5), []

            def close():
                together.wait(60)
                db.close()
                left.append(self.beside())

            def begin():
                together.wait(60)
                self.refused(map, [])

            self.all(close, close, begin, begin, begin)
            self.assertEqual(left, [[], []])

    def waiting(self, map, *others):
        """A thread whose write waits for a transaction that another database object, in a session, has, and what became of it."""
        failed = []
        thread = threading.Thread(target=self.refused, args=(map, failed))
        thread.start()
        self.until(lambda: self.is_waiting(*others))
        return thread, failed

    def test_close_waits_for_a_call_that_waits_for_a_lock(self):
        db, other = self.open(), self.open()
        map = db.map("m")
        held, go_on = threading.Event(), threading.Event()

        def hold():
            self.is_waiting(other)
            with other.transaction():
                held.set()
                go_on.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        waiting, failed = self.waiting(map, other)
        closing = threading.Thread(target=db.close)
        closing.start()
        closing.join(0.3)
        self.assertEqual((closing.is_alive(), failed), (True, []))
        with self.assertRaisesRegex(plait.Error, "closed"):
            map["a"]
        go_on.set()
        closing.join(60)
        self.assertEqual((closing.is_alive(), failed), (False, [None]))
        for thread in (holder, waiting):
            thread.join(60)
        self.assertEqual(other.map("m")["a"], 1)
        other.close()
        self.assertEqual(self.beside(), [])

    def test_close_does_not_wait_without_end_for_a_call_that_waits_for_its_own_thread(self):
        for timeout, seen in ((0.5, plait.Busy), (None, plait.Interrupted)):
            db, other = self.open(timeout=timeout), self.open()
            map = db.map("m")
            self.is_waiting(other)
            with other.transaction():
                waiting, failed = self.waiting(map, other)
                with mock.patch("plait.database._OWN_INTERRUPT", 1.0):
                    db.close()
                self.until(lambda: failed)
                self.assertIn(failed, [[seen], [plait.Interrupted]])
            waiting.join(60)
            other.close()
            self.assertEqual(self.beside(), [])

    # holds GIL-1
    def test_close_within_a_call_of_its_own_thread_does_not_wait(self):
        """Else two threads could wait for each other's calls."""
        db, other = self.open(), self.open()
        map = db.map("m")

        class Closing:
            def __del__(self):
                db.close()

        class Parameters:
            def __len__(self):
                return 1

            def __getitem__(self, i):
                Closing()
                return 1

        self.is_waiting(other)
        with other.transaction():
            waiting, failed = self.waiting(map, other)
            with self.assertRaises(plait.Error):
                db.execute("SELECT ?", Parameters()).fetchall(), db.execute("SELECT 1")
            self.assertEqual((failed, waiting.is_alive(), db.closed), ([], True, True))
        waiting.join(60)
        self.assertEqual(failed, [None])
        other.close()
        self.assertEqual(self.beside(), [])

    def test_close_within_a_generator_whose_pairs_are_being_written_ends_it(self):
        def pairs(closes):
            for i in range(5000):
                if i == 3000:
                    closes()
                yield str(i), i

        db = self.open()
        map = db.map("m")
        with self.assertRaisesRegex(plait.Error, "closed"):
            map.update(pairs(db.close))
        self.assertEqual(self.beside(), [])
        self.assertEqual(len(self.open().map("m")), 0)

    @staticmethod
    def refused(map, failed):
        try:
            map["a"] = 1
            failed.append(None)
        except plait.Error as e:
            failed.append(type(e))

    @staticmethod
    def is_waiting(db):
        """From then on, what the connection of this thread begins is seen too."""
        return db.execute("SELECT count(*) FROM plait_transactions WHERE state LIKE 'waiting%'").fetchone() == (1,)

    def until(self, true):
        deadline = threading.Event()
        for _ in range(6000):
            if true():
                return
            deadline.wait(0.01)
        self.fail("it did not come to that")

    def test_other_threads_run_python_while_one_waits_for_a_lock(self):
        """If the waiting thread kept the GIL this thread could not end the transaction that it waits for."""
        db, waiter = self.open(timeout=60), self.open(timeout=60)
        map, same = db.map("m"), waiter.map("m")
        waits = {
            "put": lambda: same.__setitem__("a", 1),
            "delete": lambda: same.pop("a", None),
            "add": lambda: same.add("n", 1),
            "insert": lambda: same.insert("i", 1),
            "swap": lambda: same.compare_and_swap("s", plait.ABSENT, 1),
            "batch": lambda: same.update(x=1),
            "range": lambda: same.delete_range(prefix="x"),
            "statement": lambda: waiter.execute("UPDATE m SET v = 0"),
            "script": lambda: waiter.script("BEGIN IMMEDIATE; COMMIT"),
            "transaction": lambda: waiter.transaction().__enter__(),
        }
        for name, wait in waits.items():
            with self.subTest(name):
                hold = db.transaction()
                hold.__enter__()
                map["held"] = name
                done = threading.Event()
                thread = threading.Thread(target=lambda: (wait(), done.set()))
                thread.start()
                self.until(lambda: self.is_waiting(db))
                self.assertFalse(done.is_set())
                hold.__exit__(None, None, None)
                self.assertTrue(done.wait(60))
                thread.join()

    def test_interrupt_ends_what_other_threads_run(self):
        db = self.open()
        failed = []
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
        started = threading.Event()

        def run():
            try:
                started.set()
                db.execute(endless)
            except plait.Interrupted as e:
                failed.append(e.sqlite_errorname)

        thread = threading.Thread(target=run)
        thread.start()
        started.wait(60)
        while thread.is_alive():
            db.interrupt()
            thread.join(0.01)
        self.assertEqual(failed, ["SQLITE_INTERRUPT"])
