"""One copy of SQLite for one file: others in the process are kept off, and ourselves we do not take for others."""

import gc
import os
import shutil
import sqlite3
import threading

import plait
import plait.dbm
from place import Case


class Ourselves(Case):
    # holds FD-1
    def test_threads_that_open_and_close_one_file_at_once_are_not_taken_for_another_copy(self):
        failures, opened = [], []

        def work():
            try:
                for _ in range(60):
                    with plait.open(self.path, synchronous="off", timeout=60) as db:
                        db.map("m").add("n", 1)
                        opened.append(db)
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual((failures, len(opened)), ([], 240))
        self.assertEqual(self.open().map("m")["n"], 240)

    def test_what_iterators_keep_open_is_ours(self):
        db = plait.open(self.path)
        db.map("m").update(a=1, b=2)
        walk = iter(db.map("m"))
        next(walk)
        del db
        gc.collect()
        self.assertEqual(self.open().map("m"), {"a": 1, "b": 2})
        self.assertEqual(list(walk), ["b"])

    def test_a_second_database_beside_a_thread_that_reads_is_let_in(self):
        db = self.open()
        map = db.map("m")
        map.update(a=1, b=2)
        inside, done = threading.Event(), threading.Event()

        def read():
            walk = iter(map)
            next(walk)
            inside.set()
            done.wait(60)

        thread = threading.Thread(target=read)
        thread.start()
        self.assertTrue(inside.wait(60))
        try:
            self.assertEqual(self.open().map("m"), {"a": 1, "b": 2})
        finally:
            done.set()
            thread.join()


class Others(Case):
    def stock(self, path=":memory:", **named):
        stock = sqlite3.connect(path, **named)
        self.addCleanup(stock.close)
        return stock

    def test_a_file_that_the_sqlite3_module_has_open_is_refused_until_it_is_closed(self):
        """Its descriptor is there from connect() on, whatever the journal mode, and before the first statement."""
        plait.open(self.path, journal_mode="delete").close()
        link = os.path.join(self.folder, "link.db")
        os.symlink(self.path, link)
        stock = self.stock(self.path)
        for name, uri in ((self.path, False), (link, False), (f"file:{self.path}?cache=private", True)):
            with self.assertRaisesRegex(plait.Error, "app.db|link.db.*another copy of SQLite.*close it first"):
                plait.open(name, uri=uri)
        stock.execute("CREATE TABLE t(a)")
        stock.close()
        self.assertEqual(self.open().execute("SELECT count(*) FROM t").fetchone(), (0,))

    def test_attach_and_vacuum_into_of_the_sqlite3_module_do_not_reach_a_file_that_is_open_here(self):
        early = self.stock()
        db = self.open()
        map = db.map("m", key=int)
        map[1] = 1
        for stock in (early, self.stock()):
            for sql in ("ATTACH ? AS other", "VACUUM INTO ?"):
                with self.assertRaises(sqlite3.OperationalError):
                    stock.execute(sql, (self.path,))
        held = self.locks()
        self.assertNotEqual(held, [])
        with self.assertRaises(sqlite3.OperationalError):
            early.execute("ATTACH ? AS other", (self.path,))
        self.assertEqual(self.locks(), held)
        program = "import sys, plait; map = plait.open(sys.argv[1]).map('m', key=int); map[2] = 2; print(sorted(map))"
        self.assertEqual(self.ends_well(self.python(program, self.path)), "[1, 2]\n")
        map[3] = 3
        self.assertEqual(sorted(map), [1, 2, 3])
        db.close()
        early.execute("ATTACH ? AS other", (self.path,))
        self.assertEqual(early.execute("SELECT count(*) FROM other.m").fetchone(), (3,))

    def test_a_file_that_our_sql_has_attached_is_open_here_too(self):
        db = self.open()
        second = self.path + "2"
        db.execute("ATTACH ? AS second", (second,))
        db.execute("CREATE TABLE second.t(a)")
        with self.assertRaisesRegex(plait.Error, "another copy of SQLite"):
            sqlite3.connect(second)
        db.execute("DETACH second")
        self.assertEqual(self.stock(second).execute("SELECT count(*) FROM t").fetchone(), (0,))

    def test_our_sql_attaches_no_file_that_the_sqlite3_module_has_open(self):
        second = self.path + "2"
        stock = self.stock(second)
        stock.execute("CREATE TABLE t(a)")
        db = self.open()
        with self.assertRaises(plait.Error) as refused:
            db.execute("ATTACH ? AS second", (second,))
        self.assertEqual(refused.exception.sqlite_errorname, "SQLITE_CANTOPEN")
        with self.assertRaises(plait.Error):
            db.execute("VACUUM INTO ?", (second,))
        stock.execute("INSERT INTO t VALUES (1)")
        stock.commit()
        stock.close()
        db.execute("ATTACH ? AS second", (second,))
        self.assertEqual(db.execute("SELECT a FROM second.t").fetchall(), [(1,)])

    def test_of_two_copies_that_open_a_file_at_once_one_is_refused(self):
        plait.open(self.path).map("m")["a"] = 1
        self.stock()
        plait.open(self.path).close()
        both = []
        for _ in range(100):
            barrier, opened = threading.Barrier(2), []

            def through(open, failure):
                barrier.wait(60)
                try:
                    opened.append(open(self.path))
                except failure:
                    pass
                barrier.wait(60)  # the connection of a thread ends with it

            stock = lambda path: sqlite3.connect(path, check_same_thread=False)
            threads = [threading.Thread(target=through, args=(plait.open, plait.Error)),
                       threading.Thread(target=through, args=(stock, (plait.Error, sqlite3.Error)))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            both.append(len(opened))
            for one in opened:
                one.close()
        self.assertNotIn(2, both)
        self.assertIn(1, both)

    def test_a_plain_descriptor_of_the_file_is_refused_and_one_of_its_name_is_not(self):
        plait.open(self.path).map("m")["a"] = 1
        with open(self.path, "rb"):
            with self.assertRaisesRegex(plait.Error, "plain file.*close it first"):
                plait.open(self.path)
        fd = os.open(self.path, os.O_PATH)
        self.addCleanup(os.close, fd)
        self.assertEqual(self.open().map("m"), {"a": 1})

    def test_other_files_and_copies_are_nobodys_business(self):
        db = self.open()
        db.map("m")["a"] = 1
        other = self.path + ".other"
        stock = self.stock(other)
        stock.execute("CREATE TABLE t(a)")
        stock.execute("ATTACH ':memory:' AS x")
        db.close()
        shutil.copy(self.path, self.path + ".copy")
        self.assertEqual(self.stock(self.path + ".copy").execute("SELECT v FROM m").fetchone(), (1,))

    # holds FD-2
    def test_what_a_child_has_from_its_parent_is_neither_in_use_there_nor_in_the_way(self):
        program = """
            import os, sqlite3, sys, plait
            db = plait.open(sys.argv[1])
            db.map("m")["a"] = 1
            child = os.fork()
            if child == 0:
                mine = plait.open(sys.argv[1])
                mine.map("m")["b"] = 2
                try:
                    sqlite3.connect(sys.argv[1])
                    os._exit(1)
                except plait.Error:
                    pass
                mine.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert db.map("m") == {"a": 1, "b": 2}
        """
        self.ends_well(self.python(program, self.path))

    def test_dbm_open_of_a_file_that_is_open_already_drops_no_lock(self):
        first = plait.dbm.open(self.path, "c")
        self.addCleanup(first.close)
        first["a"] = "1"
        held = self.locks()
        self.assertNotEqual(held, [])
        second = plait.dbm.open(self.path, "c")
        self.assertEqual(second["a"], b"1")
        self.assertGreaterEqual(set(self.locks()), set(held))
        second.close()
        self.assertGreaterEqual(set(self.locks()), set(held))
        with self.assertRaises(plait.dbm.error):
            plait.dbm.open(self.folder, "c")

    def locks(self):
        """Those of this process on the database, or on a file beside it that is shared.

        But for the byte that says that the WAL-index is in use: its lock becomes one of the open file, which nothing drops.
        """
        inodes = {str(os.stat(os.path.join(self.folder, name)).st_ino) for name in os.listdir(self.folder)}
        with open("/proc/locks") as lines:
            fields = [line.split()[1:] for line in lines]
        # Each once: a line comes twice when others take locks while the list is read.
        return sorted(
            {" ".join(f) for f in fields if f[0] == "POSIX" and f[3] == str(os.getpid()) and f[4].split(":")[-1] in inodes and f[5:] != ["128", "128"]}
        )
