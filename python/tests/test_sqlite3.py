"""plait.sqlite3 is Python's sqlite3 module, on our library."""

import datetime
import os
import sqlite3 as of_python
import sys
import threading
import unittest
import weakref

import plait
from place import Case
from plait import sqlite3

# What Python's module has and ours has not, and why.
NOT_THERE = {
    # Names of CPython 3.12 and 3.13 that are there to warn of others.
    "_deprecated_names", "_deprecated_version", "_deprecated_version_info",
    # Submodules, and what a module has from its imports.
    "dbapi2", "dump", "collections", "datetime", "time", "warnings",
}


class Module(Case):
    def test_every_name_of_pythons_module_is_there(self):
        self.assertEqual({n for n in dir(of_python) if not n.startswith("__")} - set(dir(sqlite3)) - NOT_THERE, set())

    def test_every_method_of_its_classes_is_there(self):
        for name in ("Connection", "Cursor", "Row", "Blob", "PrepareProtocol"):
            if hasattr(of_python, name):
                missing = set(dir(getattr(of_python, name))) - set(dir(getattr(sqlite3, name)))
                self.assertEqual(missing - {"__del__", "__module__", "__text_signature__"}, set(), name)

    def test_constants_have_the_values_of_pythons(self):
        for name in dir(of_python):
            if name.startswith("SQLITE_"):
                self.assertEqual(getattr(sqlite3, name), getattr(of_python, name), name)

    def test_it_is_the_library_of_the_maps(self):
        self.assertEqual(sqlite3.sqlite_version, plait.sqlite_version)
        self.assertIn("plait", sqlite3.Connection.__module__)


class Connections(Case):
    def connect(self, path=None, **named):
        db = sqlite3.connect(path or self.path, **named)
        self.addCleanup(db.close)
        return db

    def concurrent(self, **named):
        db = self.connect(isolation_level=None, **named)
        self.assertEqual(db.execute("PRAGMA journal_mode=concurrent").fetchone(), ("concurrent",))
        return db

    def conflicting(self):
        """Two connections of which the second will be refused."""
        first, second = self.concurrent(), self.concurrent()
        first.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n)")
        first.execute("INSERT INTO t VALUES (1, 0)")
        for db in (first, second):
            db.execute("BEGIN CONCURRENT")
            db.execute("UPDATE t SET n = n + 1 WHERE id = 1")
        first.execute("COMMIT")
        return second

    def test_a_conflict_has_the_code_of_sqlite(self):
        with self.assertRaises(sqlite3.OperationalError) as caught:
            self.conflicting().execute("COMMIT")
        self.assertEqual((caught.exception.sqlite_errorcode, caught.exception.sqlite_errorname), (517, "SQLITE_BUSY_SNAPSHOT"))

    def test_a_with_block_whose_commit_is_refused_leaves_no_transaction(self):
        db = self.conflicting()
        with self.assertRaises(sqlite3.OperationalError), db:
            pass
        self.assertFalse(db.in_transaction)

    def test_isolation_level_may_be_concurrent(self):
        other = self.concurrent()
        other.execute("CREATE TABLE t(n)")
        db = self.connect(isolation_level="CONCURRENT")
        seen = []
        db.set_trace_callback(seen.append)
        db.execute("INSERT INTO t VALUES (1)")
        other.execute("INSERT INTO t VALUES (2)")  # the writer's right is free
        db.commit()
        self.assertIn("BEGIN CONCURRENT", seen)
        self.assertEqual(other.execute("SELECT count(*) FROM t").fetchone(), (2,))

    def test_maps_and_sql_share_one_file(self):
        words = self.open().map("words")
        words["a"] = "1"
        db = self.concurrent()
        self.assertEqual(db.execute("SELECT * FROM words").fetchall(), [("a", "1")])
        db.execute("INSERT INTO words VALUES ('b', '2')")
        self.assertEqual(words["b"], "2")

    def test_tickets(self):
        db = self.concurrent()
        db.execute("PRAGMA synchronous=normal")
        db.execute("CREATE TABLE t(n)")
        db.execute("SELECT * FROM plait_status").fetchall()
        db.execute("INSERT INTO t VALUES (1)")
        (ticket,) = db.execute("SELECT plait_ticket()").fetchone()
        db.execute("SELECT plait_wait(?)", (ticket,)).fetchone()
        self.assertGreaterEqual(db.execute("SELECT plait_durable()").fetchone()[0], ticket)

    def test_adapters_converters_and_row_factories(self):
        db = self.connect(detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
        db.row_factory = sqlite3.Row
        day, moment = datetime.date(1815, 12, 10), datetime.datetime(1852, 11, 27, 1, 2, 3, 4)
        db.execute("CREATE TABLE t(day date, moment timestamp)")
        db.execute("INSERT INTO t VALUES (?, ?)", (day, moment))
        row = db.execute("SELECT * FROM t").fetchone()
        self.assertEqual((row["day"], row["MOMENT"], row.keys()), (day, moment, ["day", "moment"]))

    def test_text_with_a_nul_is_whole(self):
        db = self.connect()
        db.create_function("same", 1, lambda text: text)
        self.assertEqual(db.execute("SELECT same(?)", ("a\0b",)).fetchone(), ("a\0b",))
        with self.assertRaises(ValueError):
            db.executescript("SELECT 1;\0 SELECT 2")

    def test_backup_serialize_and_iterdump(self):
        db = self.concurrent()
        db.executescript("CREATE TABLE t(n); INSERT INTO t VALUES (7);")
        copy = self.connect(os.path.join(self.folder, "copy.db"))
        db.backup(copy)
        self.assertEqual(copy.execute("SELECT n FROM t").fetchall(), [(7,)])
        copy.execute("PRAGMA journal_mode=delete")  # SQLite has no database in WAL mode in memory, nor a concurrent one
        memory = self.connect(":memory:")
        memory.deserialize(copy.serialize())
        self.assertEqual(memory.execute("SELECT n FROM t").fetchall(), [(7,)])
        self.assertIn('INSERT INTO "t" VALUES(7);', list(db.iterdump()))

    def test_blobs_as_files_and_as_sequences(self):
        db = self.connect()
        db.execute("CREATE TABLE t(b)")
        db.execute("INSERT INTO t VALUES (zeroblob(10))")
        with db.blobopen("t", "b", 1) as blob:
            blob.write(b"hello")
            blob[5:7] = b"ab"
            blob[-1] = ord("z")
            self.assertEqual((blob[0], blob[0:7], blob[6:3:-1], len(blob)), (ord("h"), b"helloab", b"bao", 10))
            with self.assertRaises(IndexError):
                blob[10]
        with self.assertRaises(sqlite3.OperationalError), db.blobopen("t", "b", 1, readonly=True) as blob:
            blob.write(b"x")

    def test_blobs_that_are_closed_or_dropped_are_gone(self):
        db = self.connect()
        db.execute("CREATE TABLE t(b)")
        db.execute("INSERT INTO t VALUES (zeroblob(10))")
        for drop in (lambda blob: blob.close(), lambda blob: None):
            blob = db.blobopen("t", "b", 1)
            gone = weakref.ref(blob)
            drop(blob)
            del blob
            self.assertIsNone(gone())
        kept = [db.blobopen("t", "b", 1) for _ in range(4)]
        del kept[1]
        db.close()
        with self.assertRaises(sqlite3.ProgrammingError):
            kept[0].read()
        self.assertNotIn(os.path.realpath(self.path), [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")])

    def test_limits_and_settings(self):
        db = self.connect()
        before = db.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100)
        self.assertEqual(db.getlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH), 100)
        self.assertGreater(before, 100)
        db.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_FKEY, True)
        self.assertTrue(db.getconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_FKEY))
        with self.assertRaises(ValueError):
            db.getconfig(-1)

    def test_autocommit_false_has_a_transaction_always_open(self):
        db = self.connect(autocommit=False)
        self.assertTrue(db.in_transaction)
        db.execute("CREATE TABLE t(n)")
        db.executescript("INSERT INTO t VALUES (1)")
        db.rollback()
        self.assertTrue(db.in_transaction)
        self.assertEqual(db.execute("SELECT count(*) FROM sqlite_schema").fetchone(), (0,))
        db.autocommit = True
        self.assertFalse(db.in_transaction)
        db.execute("CREATE TABLE t(n)")
        db.execute("INSERT INTO t VALUES (1)")
        self.assertFalse(db.in_transaction)
        with self.assertRaises(ValueError):
            db.autocommit = 3
        db.autocommit = False
        db.close()
        db.close()

    def test_a_closed_connection_and_a_used_up_object_say_so(self):
        db = self.connect()
        db.close()
        for call in (db.cursor, db.commit, lambda: db.blobopen("t", "b", 1), lambda: db.backup(self.connect(":memory:")), lambda: db.isolation_level):
            with self.assertRaises(sqlite3.ProgrammingError):
                call()
        with self.assertRaises(sqlite3.ProgrammingError):
            sqlite3.Connection.__new__(sqlite3.Connection).close()

    def test_a_converter_may_not_close_its_cursor(self):
        db = self.connect(detect_types=sqlite3.PARSE_COLNAMES)
        cursor = db.cursor()
        sqlite3.register_converter("closing", lambda text: cursor.close())
        cursor.execute("SELECT 1 AS 'x [other]' UNION SELECT 2")
        with self.assertRaises(sqlite3.ProgrammingError):
            cursor.execute("SELECT 1 AS 'x [closing]'")

    def test_an_adapter_may_shorten_the_parameters(self):
        class Shortening:
            def __conform__(self, protocol):
                del parameters[:]
                return 1

        parameters = [Shortening(), 2]
        with self.assertRaises(IndexError):
            self.connect().execute("SELECT ?, ?", parameters)

    def test_threads_share_a_connection(self):
        db = self.connect(check_same_thread=False, isolation_level=None)
        db.execute("CREATE TABLE t(n)")

        def add():
            for _ in range(50):
                db.execute("INSERT INTO t VALUES (1)")

        threads = [threading.Thread(target=add) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(db.execute("SELECT sum(n) FROM t").fetchone(), (200,))

    def test_the_last_close_leaves_one_file(self):
        db, other = self.concurrent(), self.concurrent()
        db.execute("CREATE TABLE t(n)")
        other.execute("INSERT INTO t VALUES (1)")
        db.close()
        other.close()
        self.assertEqual(self.beside(), [])


class TwoCopies(Case):
    """Python's own sqlite3 has another SQLite: the two must not have one file open in one process."""

    def test_ours_refuses_a_file_that_pythons_has_open(self):
        theirs = of_python.connect(self.path)
        theirs.execute("CREATE TABLE t(n)")
        with self.assertRaisesRegex(sqlite3.OperationalError, "close it first"):
            sqlite3.connect(self.path)
        theirs.close()
        sqlite3.connect(self.path).close()

    def test_pythons_is_refused_a_file_that_ours_has_open(self):
        ours = sqlite3.connect(self.path)
        ours.execute("CREATE TABLE t(n)")
        with self.assertRaisesRegex(plait.Error, "another copy of SQLite"):
            of_python.connect(self.path)
        again = sqlite3.connect(self.path)  # ours is not
        again.close()
        ours.close()
        of_python.connect(self.path).close()


@unittest.skipUnless(sys.version_info >= (3, 12), "the attribute is CPython 3.12's")
class OfTwelve(Case):
    def test_the_constant_is_pythons(self):
        self.assertEqual(sqlite3.LEGACY_TRANSACTION_CONTROL, of_python.LEGACY_TRANSACTION_CONTROL)
