"""Several processes: counting together, fork, kills, Ctrl-C, the end of the interpreter, other copies of SQLite."""

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
import unittest

import plait
from plait import _plait
from place import Case


class Processes(Case):
    def test_processes_count_together_and_create_the_database_together(self):
        program = """
            import sys, plait
            db = plait.open(sys.argv[1], synchronous="normal", timeout=60)
            map = db.map("m", value=int)
            for _ in range(100):
                map.add("n", 1)
                def more():
                    map["run"] = map.get("run", 0) + 1
                db.run(more)
        """
        running = [self.python(program, self.path) for _ in range(4)]
        for process in running:
            self.ends_well(process)
        self.assertEqual(self.open().map("m"), {"n": 400, "run": 400})

    def test_a_child_of_fork_that_opens_the_database_anew_has_none_of_its_parents_locks(self):
        # Of a transaction of another thread, which is alone with the file; and beside threads that begin, write and close.
        program = """
            import os, sys, threading, time, plait
            path = sys.argv[1]

            def child():
                pid = os.fork()
                if pid == 0:
                    mine = plait.open(path, timeout=60)
                    mine.map("m")[f"child {os.getpid()}"] = 1
                    mine.close()
                    os._exit(0)
                return pid

            db = plait.open(path)
            map = db.map("m")
            map["a"] = 1
            inside, go_on = threading.Event(), threading.Event()

            def hold():
                with db.transaction():
                    map["thread"] = 1
                    inside.set()
                    go_on.wait(60)

            thread = threading.Thread(target=hold)
            thread.start()
            inside.wait(60)
            pids = [child()]
            time.sleep(0.2)
            assert os.waitpid(pids[0], os.WNOHANG) == (0, 0), "it waits as any other process"
            go_on.set()
            thread.join()
            assert os.waitpid(pids[0], 0)[1] == 0
            assert sorted(map)[0] == "a" and len(map) == 3, dict(map)

            def write():
                try:
                    while True:
                        map["b"] = 1
                except plait.Error:
                    pass

            for _ in range(10):
                writers = [threading.Thread(target=write) for _ in range(3)]
                for writer in writers:
                    writer.start()
                some = [child() for _ in range(3)]
                db.close()
                for writer in writers:
                    writer.join()
                assert [os.waitpid(pid, 0)[1] for pid in some] == [0, 0, 0]
                pids += some
                db = plait.open(path)
                map = db.map("m")
                assert all(f"child {pid}" in map for pid in pids), dict(map)
            db.close()
            assert os.listdir(os.path.dirname(path)) == ["app.db"], os.listdir(os.path.dirname(path))
        """
        self.ends_well(self.python(program, self.path), timeout=120)

    def test_a_child_of_fork_is_told_to_open_the_database_itself_and_can(self):
        program = """
            import os, sqlite3, sys, plait
            db = plait.open(sys.argv[1])
            map = db.map("m")
            map["a"] = 1
            walk, rows = iter(map.items()), db.execute("SELECT 1 UNION SELECT 2")
            next(rows)
            transaction = db.transaction()
            child = os.fork()
            if child == 0:
                for attempt in (lambda: map["a"], lambda: map.update(a=2), lambda: next(walk), lambda: next(rows), db.close,
                                transaction.__enter__, lambda: db.execute("SELECT 1"), db.ticket, db.interrupt):
                    try:
                        attempt()
                        assert attempt == db.interrupt, attempt
                    except plait.Error as e:
                        assert "fork" in str(e), str(e)
                del walk, rows, map
                sqlite3.connect(sys.argv[1]).close()
                mine = plait.open(sys.argv[1])
                mine.map("m")["child"] = 2
                mine.close()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert map == {"a": 1, "child": 2}, dict(map)
            map["b"] = 3
            assert list(walk), "the walk goes on"
        """
        self.ends_well(self.python(program, self.path))
        self.assertEqual(self.open().map("m"), {"a": 1, "b": 3, "child": 2})
        self.assertEqual(sorted(self.open().map("m")), ["a", "b", "child"])

    def test_multiprocessing_works_in_each_of_its_ways_of_starting(self):
        program = """
            import multiprocessing, sys, plait

            def work(path, n):
                with plait.open(path) as db:
                    map = db.map("m", value=int)
                    for _ in range(20):
                        map.add("n", 1)

            if __name__ == "__main__":
                for how in ("fork", "spawn", "forkserver"):
                    context = multiprocessing.get_context(how)
                    some = [context.Process(target=work, args=(sys.argv[1], i)) for i in range(3)]
                    for p in some: p.start()
                    for p in some: p.join()
                    assert all(p.exitcode == 0 for p in some), (how, [p.exitcode for p in some])
        """
        script = os.path.join(self.folder, "program.py")
        with open(script, "w") as f:
            f.write(textwrap.dedent(program))
        self.ends_well(subprocess.Popen(
            [sys.executable, script, self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        os.unlink(script)
        self.assertEqual(self.open().map("m"), {"n": 180})

    def test_the_end_of_the_interpreter_closes_what_is_open(self):
        program = """
            import sys, threading, plait
            db = plait.open(sys.argv[1])
            map = db.map("m")
            map["a"] = 1
            other = threading.Thread(target=map.update, kwargs={"b": 2})
            other.start()
            other.join()
            forever = threading.Event()
            inside = threading.Event()
            def stay():
                map["c"] = 3
                inside.set()
                forever.wait()
            threading.Thread(target=stay, daemon=True).start()
            inside.wait()
            transaction = db.transaction()
            transaction.__enter__()
            map["lost"] = 1
            walk = iter(map)
            next(walk)
        """
        self.ends_well(self.python(program, self.path))
        self.assertEqual(self.beside(), [])
        self.assertEqual(self.open().map("m"), {"a": 1, "b": 2, "c": 3})

    def test_the_end_of_the_interpreter_closes_what_daemon_threads_are_writing(self):
        program = """
            import sys, threading, plait
            db = plait.open(sys.argv[1], synchronous="normal")
            map = db.map("m")
            started = threading.Barrier(4)
            def write(i):
                map.add(i, 1)
                started.wait()
                while True:
                    map.add(i, 1)
                    if i == "again":
                        with plait.open(sys.argv[1]) as another:
                            another.map("m").add("another", 1)
            for i in ("a", "b", "again"):
                threading.Thread(target=write, args=(i,), daemon=True).start()
            started.wait()
        """
        for _ in range(5):
            self.ends_well(self.python(program, self.path))
            self.assertEqual(self.beside(), [])
            stock = sqlite3.connect(self.path)
            self.assertGreaterEqual(stock.execute("SELECT count(*) FROM m").fetchone()[0], 3)
            stock.close()

    def test_daemon_threads_end_with_the_interpreter_without_a_word(self):
        """A traceback that meets the end of sys.stderr is fatal to CPython."""
        program = """
            import atexit, sys, threading, time
            ended = []
            def tell():
                for thread in threads: thread.join(20)
                print(sorted(ended))
                try:
                    map["late"] = 1
                except plait.Error as e:
                    print(e)
            atexit.register(tell)  # and so after what plait has registered
            import plait
            db = plait.open(sys.argv[1], timeout=None)
            map = db.map("m")
            map["a"] = 1
            def use(): map.get("a")
            def open_again(): plait.open(sys.argv[1]).close()
            def walk(): list(map)
            def transaction():
                with db.transaction(): map["b"] = 1
            def execute(): db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100000) SELECT count(*) FROM n").fetchone()
            def run():
                db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n").fetchone()
            def first():  # its connection is not there yet
                while not plait.database._is_ending: time.sleep(0.001)
                map.get("a")
            started = threading.Barrier(8)
            def forever(what):
                started.wait()
                try:
                    while True: what()
                finally:
                    ended.append(what.__name__)
            threads = [threading.Thread(target=forever, args=(what,), daemon=True) for what in (use, open_again, walk, transaction, execute, run, first)]
            for thread in threads: thread.start()
            started.wait()
            time.sleep(0.1)
        """
        out, err = self.python(program, self.path).communicate(timeout=60)
        self.assertEqual(err, "")
        self.assertEqual(out.splitlines(), ["['execute', 'first', 'open_again', 'run', 'transaction', 'use', 'walk']", "the database is closed"])
        self.assertEqual(self.beside(), [])

    def test_the_end_of_the_interpreter_is_not_held_up_by_daemon_threads(self):
        """What the library runs or waits for is interrupted; for Python inside of a call there is a limit."""
        program = """
            import sys, threading, time, plait
            db = plait.open(sys.argv[1], timeout=None)
            map = db.map("m")
            if sys.argv[2] != "wait":
                map["a"] = 1
            started = threading.Event()
            class Slow:
                def __len__(self):
                    return 1
                def __getitem__(self, i):
                    started.set()
                    time.sleep(3600)
            def run():
                started.set()
                db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n")
            def wait():
                started.set()
                map["a"] = 2
            def sleep():
                db.execute("SELECT ?", Slow())
            threading.Thread(target={"run": run, "wait": wait, "sleep": sleep}[sys.argv[2]], daemon=True).start()
            started.wait()
            time.sleep(0.3)
        """
        self.ends_well(self.python(program, self.path, "run"), 30)
        self.assertEqual(self.beside(), [])
        self.ends_well(self.python(program, self.path, "sleep"), 30)
        db = self.open()
        with db.transaction():
            db.map("m")["held"] = 1
            self.ends_well(self.python(program, self.path, "wait"), 30)
        self.assertEqual(db.map("m"), {"a": 1, "held": 1})
        db.close()
        self.assertEqual(self.beside(), [])

    def test_what_was_reported_durable_outlives_kill_9(self):
        program = """
            import asyncio, sys, plait
            db = plait.open(sys.argv[1], synchronous="normal")
            map = db.map("m", key=int, value=int)
            async def one(i):
                map[i] = i
                await db.durable()
                print(i, flush=True)
            async def main():
                i = 0
                while True:
                    await asyncio.gather(*(one(i + j) for j in range(20)))
                    i += 20
            asyncio.run(main())
        """
        for wanted in (1, 50, 333):
            process = self.python(program, self.path)
            reported = [int(process.stdout.readline()) for _ in range(wanted)]
            process.kill()
            reported += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            process.communicate()
            db = self.open()
            map = db.map("m", key=int, value=int)
            self.assertEqual([i for i in reported if map.get(i) != i], [])
            self.assertTrue(all(k == v for k, v in map.items()))
            map.clear()
            db.close()

    def test_ctrl_c_ends_a_wait_with_keyboard_interrupt(self):
        db = self.joined()
        db.map("m")
        program = """
            import sys, plait
            db = plait.open(sys.argv[1], timeout=600)
            map = db.map("m")
            print("ready", flush=True)
            waits = {
                "put": lambda: map.__setitem__("a", 1),
                "statement": lambda: db.execute("DELETE FROM m"),
                "transaction": lambda: db.transaction().__enter__(),
            }
            try:
                waits[sys.argv[2]]()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            sys.stdin.read()
            assert not db.in_transaction
            map["after"] = 1
        """
        for what in ("put", "statement", "transaction"):
            with self.subTest(what):
                hold = db.transaction()
                hold.__enter__()
                db.execute("INSERT INTO m VALUES (?, 1)", (what,))
                process = self.python(program, self.path, what, stdin=-1)
                self.assertEqual(process.stdout.readline(), "ready\n")
                self.until_somebody_waits(db)
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.stdout.readline(), "interrupted\n")
                hold.__exit__(None, None, None)
                self.ends_well(process)

    def test_ctrl_c_ends_a_statement_and_an_iteration_that_run_long(self):
        program = """
            import sys, plait
            db = plait.open(":memory:")
            endless = "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n)"
            def iterate():
                for row in db.execute("SELECT 1 UNION ALL " + endless):
                    pass
            runs = {"first": lambda: db.execute(endless), "next": iterate, "script": lambda: db.script(endless)}
            print("ready", flush=True)
            try:
                runs[sys.argv[1]]()
            except KeyboardInterrupt:
                assert db.execute("SELECT 1").fetchone() == (1,)
                print("interrupted", flush=True)
        """
        for what in ("first", "next", "script"):
            with self.subTest(what):
                process = self.python(program, what)
                self.assertEqual(process.stdout.readline(), "ready\n")
                time.sleep(0.1)  # so that it is in the statement, mostly; it ends well if it is not
                process.send_signal(signal.SIGINT)
                self.assertEqual(self.ends_well(process), "interrupted\n")

    def test_a_signal_whose_handler_lets_the_program_go_on_lets_the_wait_go_on(self):
        db = self.joined()
        map = db.map("m")
        program = """
            import signal, sys, plait
            seen = []
            signal.signal(signal.SIGINT, lambda *_: (seen.append(1), print("seen", flush=True)))
            db = plait.open(sys.argv[1], timeout=600)
            map = db.map("m")
            print("ready", flush=True)
            map["a"] = 1
            assert seen == [1]
        """
        # As a shell starts it in the foreground, and in the background.
        for begins_with in (signal.SIG_DFL, signal.SIG_IGN):
            with self.subTest(begins_with):
                with db.transaction():
                    map["a"] = 0
                    process = self.python(program, self.path, sigint=begins_with)
                    self.assertEqual(process.stdout.readline(), "ready\n")
                    self.until_somebody_waits(db)
                    process.send_signal(signal.SIGINT)
                    self.assertEqual(process.stdout.readline(), "seen\n")
                    self.until_somebody_waits(db)
                self.ends_well(process)
                self.assertEqual(map["a"], 1)

    def test_a_script_runs_each_of_its_statements_once_whatever_signals_come(self):
        program = """
            import os, signal, threading, time, plait
            signal.signal(signal.SIGINT, lambda *_: None)
            db = plait.open(":memory:")
            db.script("CREATE TABLE t(a)")
            is_over = threading.Event()

            def storm():
                while not is_over.is_set():
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.0003)

            thread = threading.Thread(target=storm)
            thread.start()
            try:
                for _ in range(60):
                    db.script("DELETE FROM t;" + "INSERT INTO t SELECT 1;" * 1500)
                    assert db.execute("SELECT count(*) FROM t").fetchone() == (1500,)
            finally:
                is_over.set()
                thread.join()
        """
        self.ends_well(self.python(program))

    def until_somebody_waits(self, db):
        for _ in range(6000):
            if db.execute("SELECT count(*) FROM plait_transactions WHERE state LIKE 'waiting%'").fetchone() == (1,):
                return
            time.sleep(0.01)
        self.fail("nobody waits")


class OtherCopies(Case):
    def test_the_module_shows_none_of_the_librarys_symbols(self):
        library = ctypes.CDLL(_plait.__file__)
        self.assertTrue(library.PyInit__plait)
        for name in ("sqlite3_open", "plait_get", "rust_eh_personality"):
            # Those of a library that Python's own sqlite3 has loaded are not found here either: only of what this one needs.
            with self.assertRaises(AttributeError):
                getattr(library, name)

    def test_the_sqlite_of_python_and_ours_stay_apart(self):
        stock = sqlite3.connect(":memory:")
        self.addCleanup(stock.close)
        self.assertEqual(plait.open(":memory:").execute("SELECT sqlite_version()").fetchone()[0], plait.sqlite_version)
        with self.assertRaises(sqlite3.OperationalError):
            stock.execute("SELECT plait_version()")

    def test_stock_sqlite_reads_the_file_at_rest_and_is_kept_out_while_it_is_in_use(self):
        db = self.open()
        map = db.map("m")
        map["a"] = 1
        db.ticket()
        map["b"] = 2
        program = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT * FROM m').fetchall())"
        process = self.python(program, self.path)
        process.communicate()
        self.assertNotEqual(process.returncode, 0)
        db.close()
        self.assertEqual(self.ends_well(self.python(program, self.path)), "[('a', 1), ('b', 2)]\n")

    def test_pythons_sqlite3_is_kept_off_a_file_that_this_process_has_open_here(self):
        """Its close would drop the locks of ours, as POSIX has it: another process could take the file for unused."""
        db = self.open()
        map = db.map("m", key=int)
        link = os.path.join(self.folder, "link.db")
        os.symlink(self.path, link)
        for name in (self.path, self.path.encode(), link, f"file:{self.path}?mode=ro"):
            with self.assertRaisesRegex(plait.Error, "another copy of SQLite"):
                sqlite3.connect(name, uri=True)
        for i in range(100):
            map[i] = i
        for name in (":memory:", self.path + ".other"):
            stock = sqlite3.connect(name)
            self.assertEqual(stock.execute("SELECT 1").fetchone(), (1,))
            stock.close()
        second = self.open()
        db.close()
        with self.assertRaises(plait.Error):
            sqlite3.connect(self.path)
        second.close()
        stock = sqlite3.connect(self.path)
        self.assertEqual(stock.execute("SELECT count(*) FROM m").fetchone(), (100,))
        with self.assertRaisesRegex(plait.Error, "another copy of SQLite"):
            self.open()
        stock.close()

    @unittest.skipUnless(os.environ.get("PLAIT_LIB"), "PLAIT_LIB names no second copy of the library")
    def test_a_second_copy_of_plait_in_the_process_is_refused(self):
        program = """
            import sqlite3, sys, plait
            assert "plait" in sqlite3.connect(":memory:").execute("SELECT plait_version()").fetchone()[0]
            other = sqlite3.connect(sys.argv[1], isolation_level=None)
            other.execute("PRAGMA journal_mode=concurrent")
            other.execute("CREATE TABLE m(k TEXT PRIMARY KEY, v)")
            other.execute("SELECT plait_ticket()").fetchone()
            plait.beside._guard = lambda: None  # what the engine refuses by itself
            try:
                plait.open(sys.argv[1]).map("m")["a"] = 1
                raise SystemExit("a second copy was let in")
            except plait.Error as e:
                assert "another copy of" in str(e), str(e)
            plait.beside.refuse_others = lambda name, uri: None
            try:
                plait.open(sys.argv[1]).map("m")["a"] = 1
                raise SystemExit("a second copy was let in")
            except plait.Error as e:
                assert "another copy of the library" in str(e), str(e)
            other.close()
            plait.open(sys.argv[1]).map("m")["a"] = 1
        """
        self.ends_well(self.python(program, self.path, env={"LD_PRELOAD": os.environ["PLAIT_LIB"]}))
        self.assertEqual(self.open().map("m"), {"a": 1})


class Interpreters(unittest.TestCase):
    def test_subinterpreters_are_refused_with_the_reason(self):
        try:
            import _interpreters as interpreters
        except ImportError:
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                self.skipTest("this Python has no subinterpreters")
        other = interpreters.create()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            "try:\n import plait\nexcept ImportError as e:\n assert 'interpreter' in str(e), str(e)\n"
            "else:\n raise AssertionError('it was let in')\n"
        )
        failed = getattr(interpreters, "run_string")(other, program)
        interpreters.destroy(other)
        self.assertIsNone(failed)
        with plait.open(":memory:") as db:
            self.assertEqual(db.execute("SELECT 1").fetchone(), (1,))
