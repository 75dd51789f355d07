"""plait.dbm against CPython's own tests for modules of that kind, where they are installed, and what is ours."""

import importlib
import os
import shelve
import stat
import sys
import tempfile
import threading
import unittest
from unittest import mock

import plait.dbm
from place import Case


def imported(name, **stand_ins):
    """A module of CPython's tests, made anew with these modules in the place of others; the reason if it cannot be used."""
    try:
        importlib.import_module("test.support")
        with mock.patch.dict(sys.modules, stand_ins):
            sys.modules.pop(name, None)
            return importlib.import_module(name)
    except (ImportError, unittest.SkipTest) as e:
        return f"CPython's {name} cannot be used: {e}"


def whichdb(filename):
    try:
        return "plait.dbm" if os.stat(filename).st_size else ""
    except OSError:
        return None


class InAFolder:
    """Those tests work in the current folder."""

    def setUp(self):
        before = os.getcwd()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chdir(folder.name)
        self.addCleanup(os.chdir, before)
        super().setUp()


any_dbm = imported("test.test_dbm")
if isinstance(any_dbm, str):
    @unittest.skip(any_dbm)
    class AnyDbm(unittest.TestCase):
        def test_what_cpython_asks_of_any_dbm(self):
            """Its tests are missing."""
else:
    class AnyDbm(InAFolder, any_dbm.AnyDBMTestCase, unittest.TestCase):
        """dbm.open() with plait.dbm as the default module. whichdb() knows the modules of the standard library alone."""

        module = plait.dbm
        _dict = dict(any_dbm.AnyDBMTestCase._dict)

        def setUp(self):
            dbm = any_dbm.dbm
            for patch in (mock.patch.object(dbm, "whichdb", whichdb), mock.patch.dict(dbm._modules, {"plait.dbm": plait.dbm})):
                patch.start()
                self.addCleanup(patch.stop)
            super().setUp()


gnu = imported("test.test_dbm_gnu", **{"dbm.gnu": plait.dbm})
if isinstance(gnu, str):
    @unittest.skip(gnu)
    class Gnu(unittest.TestCase):
        def test_what_cpython_asks_of_dbm_gnu(self):
            """Its tests are missing."""
else:
    class Gnu(InAFolder, gnu.TestGdbm):
        """The tests of dbm.gnu, of which plait.dbm has the interface."""

        @unittest.skip("asks for a text that names GDBM")
        def test_context_manager(self):
            """Ours is test_a_closed_file_says_so."""

        @unittest.skip("asks for the size of the file while it is open, when newer pairs are beside it")
        def test_reorganize(self):
            """Ours is test_reorganize_gives_room_back."""


class Dbm(Case):
    def test_a_closed_file_says_so(self):
        with plait.dbm.open(self.path, "c") as db:
            db["a"] = "b"
        for attempt in (db.keys, lambda: db["a"], lambda: len(db), lambda: bool(db), db.firstkey, db.sync, lambda: iter(db)):
            with self.assertRaisesRegex(plait.dbm.error, "already been closed"):
                attempt()
        db.close()
        self.assertEqual(self.beside(), [])

    def test_reorganize_gives_room_back(self):
        with plait.dbm.open(self.path, "c") as db:
            db["x"] = bytes(1_000_000)
            del db["x"]
            db.reorganize()
        self.assertLess(os.path.getsize(self.path), 100_000)

    def test_n_begins_with_an_empty_file_whatever_is_there(self):
        with plait.dbm.open(self.path, "n") as db:
            db["a"] = "b"
        with plait.dbm.open(self.path, "n") as db:
            self.assertEqual((db.keys(), bool(db)), ([], False))
        with open(self.path, "wb") as f:
            f.write(b"something else, and long enough to be looked at" * 100)
        for flag in "rwc":
            with self.assertRaises(plait.dbm.error):
                plait.dbm.open(self.path, flag)
        with plait.dbm.open(self.path, "n") as db:
            db["a"] = "b"
            self.assertEqual(db["a"], b"b")

    def test_a_database_without_such_a_table_is_not_taken_for_a_dbm(self):
        self.open().execute("CREATE TABLE t(a)")
        for flag in "rw":
            with self.assertRaises(plait.dbm.error):
                plait.dbm.open(self.path, flag)
        with plait.dbm.open(self.path, "c") as db:
            self.assertEqual(db.keys(), [])

    def test_a_new_file_has_the_mode_that_was_asked_for(self):
        plait.dbm.open(self.path, "c", 0o600).close()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

    def test_keys_that_are_neither_bytes_nor_text_are_refused(self):
        with plait.dbm.open(self.path, "c") as db:
            for wrong in (None, 1, 1.5, object()):
                with self.assertRaises(TypeError):
                    db[wrong] = b"x"
                with self.assertRaises(TypeError):
                    db[b"x"] = wrong
                with self.assertRaises(TypeError):
                    wrong in db
            self.assertEqual(len(db), 0)

    def test_two_write_one_file_at_the_same_time(self):
        with plait.dbm.open(self.path, "cs") as one, plait.dbm.open(self.path, "w") as two:
            one["a"] = "1"
            two["b"] = "2"
            self.assertEqual((one.keys(), two.keys()), ([b"a", b"b"],) * 2)
            two.sync()

    def test_sync_waits_for_what_other_threads_and_processes_have_written(self):
        plait.dbm.open(self.path, "c").close()
        other = self.joined(synchronous="normal")
        with plait.dbm.open(self.path, "w") as db:
            db["a"] = "1"
            tickets, has_written, is_over = [], threading.Event(), threading.Event()

            def write():
                for i in range(50):
                    db[f"{i}"] = bytes(100)
                tickets.append(db._db.ticket())
                has_written.set()
                is_over.wait()

            thread = threading.Thread(target=write)
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(is_over.set)
            has_written.wait()
            db.sync()
            self.assertGreaterEqual(db._db._mine().conn.durable(), tickets[0])
            self.ends_well(self.python("""
                import sys, plait, plait.dbm
                db = plait.dbm.open(sys.argv[1], "w")
                db["of another process"] = "1"
            """, self.path))
            other.map("dbm", key=bytes, value=bytes)[b"of another object"] = b"1"
            db.sync()
            self.assertGreaterEqual(db._db._mine().conn.durable(), other.ticket())

    def test_a_shelf_whose_file_has_lost_its_name_is_closed(self):
        shelf = shelve.Shelf(plait.dbm.open(self.path, "c"))
        shelf["a"] = 1
        other = plait.dbm.open(self.path, "w")
        self.addCleanup(other.close)
        other["c"] = b"3"
        shelf.sync()
        os.rename(self.path, self.path + ".moved")
        shelf["b"] = 2
        shelf.sync()
        shelf.close()
        self.assertFalse(os.path.exists(self.path))

    def test_sync_works_beside_an_iteration_that_began_alone(self):
        with plait.dbm.open(self.path, "c") as db:
            db["a"] = "1"
            walk = iter(db)
            self.assertEqual(next(walk), b"a")
            db.sync()
            self.assertEqual(list(walk), [])

    def test_the_keys_come_one_behind_the_other(self):
        with plait.dbm.open(self.path, "c") as db:
            for key in (b"", b"b", b"\xff", b"a\0"):
                db[key] = b"x"
            found, key = [], db.firstkey()
            while key is not None:
                found.append(key)
                key = db.nextkey(key)
            self.assertEqual(found, [b"", b"a\0", b"b", b"\xff"])
            self.assertEqual(db.nextkey("aa"), b"b")

    def test_a_shelf_works_on_it(self):
        with plait.dbm.open(self.path, "c") as db, shelve.Shelf(db, writeback=True) as shelf:
            shelf["a"] = [1]
            shelf["a"].append(2)
            shelf.sync()
            self.assertEqual(shelf["a"], [1, 2])
