"""Blocks: no signal leaves a thread in a transaction that nobody ends, and what was rolled back is not continued row by row."""

import contextlib
import gc
import signal
import threading
import time

import plait
from place import Case


class Stop(BaseException):
    pass


class Signals(Case):
    # holds BLOCK-1
    def test_no_exception_of_a_signal_leaves_a_transaction_behind(self):
        """SIGALRM comes at random moments of everything that makes a transaction; its handler raises."""
        db = self.open(synchronous="off")
        map = db.map("m")
        map.update((str(i), i) for i in range(50))
        db.execute("CREATE TABLE t(a)")

        def block():
            with db.transaction():
                map["a"] = 1

        def nested():
            with db.transaction("concurrent"), db.transaction():
                map["a"] = 2

        def loop():
            with db.transaction():
                map["inside"] = 1
                end = time.monotonic() + 0.001
                while time.monotonic() < end:
                    pass

        works = {
            "block": block,
            "loop": loop,
            "nested": nested,
            "run": lambda: db.run(lambda: map.add("n", 1)),
            "update": lambda: map.update((str(i), i) for i in range(1100)),
            "executemany": lambda: db.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(5)]),
            "pop": lambda: (map.pop("49", None), map.setdefault("49", 1)),
            "popitem": lambda: (map.setdefault("0", 1), map.popitem()),
            "script": lambda: db.script("BEGIN; INSERT INTO t VALUES (1); COMMIT"),
        }
        rng = self.random()
        ended = dict.fromkeys(works, 0)

        def stop(*_):
            raise Stop

        def again(work):
            """In a function of its own: in some versions of CPython the jump at the end of a loop is not inside of the `try` around it."""
            end = time.monotonic() + 10  # an exception that comes in a finalizer is ignored
            while time.monotonic() < end:
                work()

        before = signal.signal(signal.SIGALRM, stop)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        for name, work in works.items():
            for _ in range(250):
                kept = None
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.0006))
                    again(work)
                except Stop as e:
                    kept = e  # with the frames that it came through
                self.assertFalse(db.in_transaction, name)
                ended[name] += kept is not None
        self.assertGreater(min(ended.values()), 200, ended)

    def test_what_is_written_after_ctrl_c_is_there_for_others_at_once(self):
        program = """
            import os, signal, sys, threading, plait
            db, other = plait.open(sys.argv[1], synchronous="off"), plait.open(sys.argv[1], synchronous="off", timeout=0)
            map, seen = db.map("m", key=int), other.map("m", key=int)
            map[0] = 0
            go = threading.Event()

            def count():
                while True:
                    with db.transaction():
                        map[0] = map[0] + 1

            def interrupt():
                for i in range(60):
                    go.wait()
                    go.clear()
                    threading.Event().wait(0.001 + i % 7 * 0.0007)
                    os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt, daemon=True).start()
            for i in range(1, 61):
                try:
                    go.set()
                    count()
                except KeyboardInterrupt:
                    map[i] = i
                    assert seen.get(i) == i, i
                    seen[-i] = i
            print("well")
        """
        self.assertEqual(self.ends_well(self.python(program, self.path), timeout=120), "well\n")

    def test_a_signal_during_the_wait_for_commit_or_begin_rolls_back(self):
        db, other = self.open(timeout=60), self.open()
        map = db.map("m")

        def stop(*_):
            raise Stop

        before = signal.signal(signal.SIGINT, stop)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with other.transaction():
            other.execute("INSERT INTO m VALUES ('a', 1)")
            main = threading.main_thread().ident
            timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
            timer.start()
            with self.assertRaises(Stop):
                with db.transaction():
                    self.fail("two have the writer's right")
            timer.join()
            self.assertFalse(db.in_transaction)
        map["b"] = 2
        self.assertEqual(other.map("m"), {"a": 1, "b": 2})


class Dropped(Case):
    # holds BLOCK-4
    def test_a_transaction_whose_object_is_dropped_is_rolled_back_and_the_next_call_says_so(self):
        db = self.open()
        map = db.map("m")
        db.transaction().__enter__()
        self.assertFalse(db.in_transaction)
        with self.assertRaisesRegex(plait.Error, "dropped without its end"):
            map["outside"] = 1
        map["a"] = 1
        self.assertEqual(self.open().map("m"), {"a": 1})

    def test_one_that_an_exception_drops_is_rolled_back_and_nothing_is_in_the_way(self):
        db = self.open()
        map = db.map("m")

        def begin():
            transaction = db.transaction()
            transaction.__enter__()
            map["inside"] = 1
            raise ZeroDivisionError

        with contextlib.suppress(ZeroDivisionError):
            begin()
        gc.collect()
        self.assertFalse(db.in_transaction)
        with contextlib.suppress(plait.Error):
            map["told"] = 1
        map["a"] = 1
        self.assertNotIn("inside", self.open().map("m"))
        self.assertEqual(self.open().map("m")["a"], 1)

    # holds BLOCK-5
    def test_one_that_another_thread_drops_is_rolled_back_before_the_next_call(self):
        db = self.open()
        map = db.map("m")
        held = [db.transaction()]
        held[0].__enter__()
        map["inside"] = 1
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        self.assertFalse(db.in_transaction)
        with self.assertRaisesRegex(plait.Error, "dropped without its end"):
            map["b"] = 1
        map["a"] = 1
        self.assertEqual(self.open().map("m"), {"a": 1})

    # holds BLOCK-1
    def test_one_inside_of_another_takes_that_with_it(self):
        db = self.open()
        map = db.map("m")
        with self.assertRaisesRegex(plait.Error, "nothing to commit"):
            with db.transaction():
                map["a"] = 1
                db.transaction().__enter__()
                with self.assertRaisesRegex(plait.Error, "dropped"):
                    map["b"] = 1
        self.assertEqual(map, {})

    def test_a_generator_that_is_dropped_rolls_its_block_back(self):
        db = self.open()
        map = db.map("m")

        def walk():
            with db.transaction():
                map["a"] = 1
                yield

        steps = walk()
        next(steps)
        self.assertTrue(db.in_transaction)
        del steps
        self.assertFalse(db.in_transaction)
        self.assertEqual(map, {})


class RolledBack(Case):
    """After a failure that took the transaction with it everything is refused until the block is left."""

    def refused(self, db, map, fail, block):
        other = self.open()
        try:
            with block(db):
                map["before"] = 1
                with self.assertRaises(plait.Error):
                    fail()
                for attempt in (lambda: map.__setitem__("after", 1), lambda: db.execute("INSERT INTO m VALUES ('after', 1)"),
                                lambda: map.get("before"), lambda: db.script("BEGIN; INSERT INTO m VALUES ('after', 1)"),
                                lambda: map.pop("before"), lambda: map.update(after=1), lambda: db.run(lambda: map.update(after=1)),
                                lambda: db.execute("COMMIT"), lambda: db.execute("BEGIN"), db.transaction().__enter__):
                    with self.assertRaisesRegex(plait.Error, "leave the block"):
                        attempt()
        except plait.Error as e:
            self.assertIn("nothing to commit", str(e))
            self.assertEqual(e.sqlite_errorname, "SQLITE_ABORT")
        else:
            self.fail("it was said to be committed")
        self.assertEqual(other.map("m"), {"taken": 1})
        map["later"] = 1
        del map["later"]

    # holds BLOCK-2
    def test_by_sql_a_trigger_or_a_statement_of_the_program(self):
        db = self.open()
        map = db.map("m")
        map["taken"] = 1
        db.execute("CREATE TRIGGER no BEFORE INSERT ON m WHEN new.k = 'no' BEGIN SELECT RAISE(ROLLBACK, 'not that one'); END")

        def by_program():
            db.execute("ROLLBACK")
            map["after"] = 1

        def by_script():
            db.script("ROLLBACK; BEGIN; INSERT INTO m VALUES ('after', 1)")

        fails = (lambda: db.execute("INSERT OR ROLLBACK INTO m VALUES ('taken', 2)"), lambda: map.__setitem__("no", 1), by_program, by_script)
        for fail in fails:
            for block in (plait.Database.transaction, lambda db: db.transaction("concurrent")):
                self.refused(db, map, fail, block)

    def test_the_refusal_names_the_failure(self):
        db = self.open()
        map = db.map("m")
        map["taken"] = 1
        with self.assertRaisesRegex(plait.Error, r"nothing to commit: .*UNIQUE constraint failed: m\.k"):
            with db.transaction():
                with self.assertRaises(plait.ConstraintError):
                    db.execute("INSERT OR ROLLBACK INTO m VALUES ('taken', 2)")
                with self.assertRaisesRegex(plait.Error, r"UNIQUE constraint failed: m\.k.*leave the block"):
                    map["after"] = 1
        with db.transaction():
            map["a"] = 1
        self.assertEqual(map, {"a": 1, "taken": 1})

    def test_by_an_interrupt_of_another_thread(self):
        db = self.open()
        map = db.map("m")
        map["taken"] = 1

        def endless():
            done = threading.Event()

            def interrupt():
                while not done.wait(0.05):
                    db.interrupt()

            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) INSERT INTO m SELECT i, i FROM n")
            finally:
                done.set()
                thread.join()

        self.refused(db, map, endless, plait.Database.transaction)

    def test_in_run_it_is_neither_committed_nor_said_to_be(self):
        db = self.open()
        map = db.map("m")
        map["taken"] = 1

        def work():
            map["before"] = 1
            with contextlib.suppress(plait.ConstraintError):
                db.execute("INSERT OR ROLLBACK INTO m VALUES ('taken', 2)")
            with contextlib.suppress(plait.Error):
                map["after"] = 1

        with self.assertRaisesRegex(plait.Error, "nothing to commit"):
            db.run(work)
        self.assertEqual(map, {"taken": 1})

    # holds BLOCK-2
    def test_it_holds_for_all_blocks_around(self):
        db = self.open()
        map = db.map("m")
        map["taken"] = 1
        with self.assertRaises(KeyError):
            with db.transaction():
                with self.assertRaisesRegex(plait.Error, "nothing to commit"):
                    with db.transaction():
                        with contextlib.suppress(plait.ConstraintError):
                            db.execute("INSERT OR ROLLBACK INTO m VALUES ('taken', 2)")
                with self.assertRaisesRegex(plait.Error, "leave the block"):
                    map["after"] = 1
                raise KeyError
        self.assertEqual(map, {"taken": 1})

    def test_an_iterator_that_was_interrupted_does_not_keep_the_transaction(self):
        """While something is being read an interrupt lasts, and meets the ROLLBACK too."""
        db = self.open()
        map = db.map("m", key=int)
        map.update((i, i) for i in range(10))
        walk, rows = iter(map), db.execute("SELECT k FROM m")
        next(walk), next(rows)
        with self.assertRaises(KeyError):
            with db.transaction():
                map[1] = map[2] = "inside"
                db.interrupt()
                raise KeyError
        self.assertFalse(db.in_transaction)
        map[3] = "after"
        for reader in (walk, rows):
            with self.assertRaisesRegex(plait.Error, "begin it again"):
                next(reader)
        self.assertEqual(self.open().map("m", key=int).get_many([1, 2, 3]), [1, 2, "after"])


class Order(Case):
    # holds BLOCK-3
    def test_blocks_that_are_left_in_another_order_commit_nothing(self):
        db = self.open()
        map = db.map("m")
        for error in (None, ValueError):
            outer, inner = db.transaction(), db.transaction()
            outer.__enter__()
            map["a"] = 1
            inner.__enter__()
            map["b"] = 1
            with self.assertRaisesRegex(plait.Error, "reverse order"):
                outer.__exit__(None, None, None)
            with self.assertRaisesRegex(plait.Error, "leave the block"):
                map["c"] = 1
            if error:
                inner.__exit__(error, error(), None)
            else:
                with self.assertRaisesRegex(plait.Error, "nothing to commit"):
                    inner.__exit__(None, None, None)
            self.assertEqual(map, {})
            map["after"] = 1
            del map["after"]

    def test_what_has_not_begun_or_has_ended_cannot_be_ended(self):
        db = self.open()
        transaction = db.transaction()
        with self.assertRaisesRegex(plait.Error, "has not begun"):
            transaction.__exit__(None, None, None)
        with transaction:
            with self.assertRaisesRegex(plait.Error, "begun already"):
                transaction.__enter__()
        with self.assertRaisesRegex(plait.Error, "ended already"):
            transaction.__exit__(None, None, None)
        with self.assertRaisesRegex(plait.Error, "begun already"):
            transaction.__enter__()

    def test_a_transaction_that_sql_began_has_savepoints_in_it(self):
        db = self.open()
        map = db.map("m")
        db.execute("BEGIN")
        with contextlib.suppress(KeyError), db.transaction():
            map["a"] = 1
            with db.transaction():
                map["b"] = 1
            raise KeyError
        with db.transaction():
            map["c"] = 1
        self.assertTrue(db.in_transaction)
        db.execute("COMMIT")
        self.assertEqual(map, {"c": 1})

    def test_a_script_that_fails_in_a_transaction_of_its_own_rolls_it_back(self):
        db = self.open()
        db.script("CREATE TABLE t(a UNIQUE)")
        with self.assertRaises(plait.ConstraintError):
            db.script("BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (1); COMMIT")
        self.assertFalse(db.in_transaction)
        db.execute("BEGIN")
        with self.assertRaises(plait.ConstraintError):
            db.script("INSERT INTO t VALUES (2); INSERT INTO t VALUES (2)")
        db.execute("COMMIT")
        self.assertEqual(db.execute("SELECT a FROM t").fetchall(), [(2,)])
