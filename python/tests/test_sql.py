"""SQL beside maps: parameters, rows, transactions, conflicts."""

import os
import re

import plait
from place import Case


class Statements(Case):
    def test_all_types_go_in_and_come_out_by_place_and_by_name(self):
        db = self.open()
        values = (None, 1, -(2**63), 1.5, "text\0with", b"\0bytes", "")
        self.assertEqual(db.execute("SELECT ?,?,?,?,?,?,?", values).fetchone(), values)
        self.assertEqual(db.execute("SELECT :b, @a, $b", {"a": 1, "b": "x"}).fetchall(), [("x", 1, "x")])
        self.assertEqual(db.execute("SELECT 1 AS one, 2 AS two").columns, ("one", "two"))
        self.assertEqual(db.execute("SELECT ?", [bytearray(b"x")]).fetchone(), (b"x",))

    def test_wrong_parameters_are_refused(self):
        db = self.open()
        for parameters in ((), (1, 2), "x", {"a": 1}):
            with self.assertRaises((ValueError, TypeError), msg=parameters):
                db.execute("SELECT ?", parameters)
        with self.assertRaisesRegex(ValueError, "named :missing"):
            db.execute("SELECT :missing", {})
        with self.assertRaisesRegex(OverflowError, "parameter 2"):
            db.execute("SELECT ?, ?", (1, 2**64))
        with self.assertRaisesRegex(TypeError, "parameter 1"):
            db.execute("SELECT ?", (object(),))
        for sql in ("", "  -- nothing", "SELECT 1; SELECT 2", "SELECT '\0'"):
            with self.assertRaises(ValueError, msg=sql):
                db.execute(sql)
        self.assertEqual(db.execute("SELECT 1; -- and no more\n /* here */ ;").fetchall(), [(1,)])

    def test_errors_carry_the_code_and_the_text_of_sqlite(self):
        db = self.open()
        with self.assertRaises(plait.Error) as failed:
            db.execute("SELECT * FROM missing")
        self.assertEqual((failed.exception.sqlite_errorcode, failed.exception.sqlite_errorname), (1, "SQLITE_ERROR"))
        self.assertEqual(str(failed.exception), "no such table: missing")
        db.execute("CREATE TABLE t(a UNIQUE)")
        db.execute("INSERT INTO t VALUES (1)")
        with self.assertRaisesRegex(plait.ConstraintError, "UNIQUE constraint failed: t.a"):
            db.execute("INSERT INTO t VALUES (1)")

    def test_rows_are_stepped_through_and_a_statement_that_writes_is_done_when_it_returns(self):
        db = self.open()
        db.script("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2), (3); -- end")
        rows = db.execute("SELECT a FROM t ORDER BY a")
        self.assertEqual((next(rows), rows.fetchone(), list(rows), rows.fetchone()), ((1,), (2,), [(3,)], None))
        written = db.execute("INSERT INTO t VALUES (4), (5) RETURNING a")
        self.assertFalse(db.in_transaction)
        self.assertEqual(self.open().execute("SELECT count(*) FROM t").fetchone(), (5,))
        self.assertEqual((list(written), db.changes, db.last_insert_rowid), ([(4,), (5,)], 2, 5))

    def test_a_write_that_returns_what_is_no_text_is_undone_in_a_transaction_alone(self):
        db = self.open()
        db.execute("CREATE TABLE t(a)")
        sql = "INSERT INTO t VALUES (CAST(x'ff' AS TEXT)), ('second') RETURNING a"
        with self.assertRaises(UnicodeDecodeError), db.transaction():
            db.execute(sql)
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (0,))
        with self.assertRaises(UnicodeDecodeError):
            db.execute(sql)
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (2,))

    def test_columns_are_those_of_the_rows_when_the_schema_has_changed_since(self):
        db = self.open()
        db.script("CREATE TABLE s(a); INSERT INTO s VALUES (1)")
        texts = ("SELECT * FROM s", "SELECT * FROM s WHERE a > 5", "UPDATE s SET a = a RETURNING *")
        for change, columns, row in (
            (None, ("a",), (1,)),
            ("ALTER TABLE s ADD COLUMN b DEFAULT 2", ("a", "b"), (1, 2)),
            ("ALTER TABLE s RENAME COLUMN b TO c", ("a", "c"), (1, 2)),
            ("ALTER TABLE s DROP COLUMN c", ("a",), (1,)),
        ):
            if change:
                self.open().execute(change)
            for text, rows in zip(texts, ([row], [], [row])):
                answer = db.execute(text)
                self.assertEqual((answer.columns, answer.fetchall()), (columns, rows), (change, text))

    def test_the_same_text_may_be_in_use_twice(self):
        db = self.open()
        db.script("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2)")
        pairs = [(a, b) for (a,) in db.execute("SELECT a FROM t") for (b,) in db.execute("SELECT a FROM t")]
        self.assertEqual(len(pairs), 4)
        for i in range(200):
            self.assertEqual(db.execute(f"SELECT {i}").fetchone(), (i,))

    def test_a_script_stops_where_it_fails(self):
        db = self.open()
        with self.assertRaises(plait.Error):
            db.script("CREATE TABLE a(x); CREATE TABLE a(x); CREATE TABLE b(x)")
        self.assertEqual(db.execute("SELECT name FROM sqlite_schema").fetchall(), [("a",)])

    def test_parameters_that_use_the_database_are_told_that_they_may_not(self):
        db = self.open()

        class Meddling(list):
            def __getitem__(self, i):
                return db.execute("SELECT 1")

        with self.assertRaisesRegex(plait.Error, "in the middle of another call"):
            db.execute("SELECT ?", Meddling([1]))
        self.assertEqual(db.execute("SELECT 2").fetchone(), (2,))

    def test_executemany_is_one_transaction(self):
        db = self.open()
        db.execute("CREATE TABLE t(a UNIQUE)")
        with self.assertRaises(plait.ConstraintError):
            db.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (1,)])
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (0,))
        db.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(10)))
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (10,))


class Transactions(Case):
    def test_maps_and_sql_are_in_one_transaction(self):
        db = self.open()
        map = db.map("m")
        with db.transaction():
            map["a"] = 1
            db.execute("UPDATE m SET v = v + 1")
            self.assertEqual(map["a"], 2)
            map["b"] = 5
        self.assertEqual(map, {"a": 2, "b": 5})
        with self.assertRaises(ZeroDivisionError):
            with db.transaction():
                map["a"] = 100
                db.execute("DELETE FROM m WHERE k = 'b'")
                self.assertEqual(map, {"a": 100})
                1 / 0
        self.assertEqual(map, {"a": 2, "b": 5})
        self.assertFalse(db.in_transaction)

    def test_one_inside_of_another_is_a_savepoint(self):
        db = self.open()
        map = db.map("m")
        with db.transaction("concurrent"):
            map["a"] = 1
            with self.assertRaises(ZeroDivisionError):
                with db.transaction():
                    map["a"] = 2
                    with db.transaction():
                        map["b"] = 2
                    1 / 0
            self.assertEqual(map, {"a": 1})
            with db.transaction():
                map["c"] = 3
        self.assertEqual(map, {"a": 1, "c": 3})

    def test_what_is_ended_inside_is_not_said_to_be_committed(self):
        db = self.open()
        map = db.map("m")
        with self.assertRaisesRegex(plait.Error, "nothing to commit"):
            with db.transaction():
                map["a"] = 1
                db.execute("ROLLBACK")
        with self.assertRaisesRegex(plait.Error, "closed"):
            with db.transaction():
                map["a"] = 1
                db.close()
        self.assertEqual(self.open().map("m"), {})

    def conflicting(self):
        """Two connections of two Database objects, and a transaction of the first that the second makes fail."""
        first, second = self.open(), self.open()
        a, b = first.map("m"), second.map("m")
        a["n"] = 0
        return first, a, second, b

    def test_a_conflict_is_an_exception_of_its_own_and_leaves_nothing(self):
        first, a, _, b = self.conflicting()
        with self.assertRaises(plait.Conflict) as conflict:
            with first.transaction("concurrent"):
                a["n"] = a["n"] + 1
                b["n"] = 10
        self.assertEqual(conflict.exception.sqlite_errorname, "SQLITE_BUSY_SNAPSHOT")
        self.assertIsInstance(conflict.exception, plait.Error)
        self.assertFalse(first.in_transaction)
        self.assertEqual(a["n"], 10)

    def test_run_makes_it_again_until_it_commits_and_answers_what_the_function_does(self):
        first, a, _, b = self.conflicting()
        attempts = []

        def add():
            attempts.append(first.in_transaction)
            value = a["n"]
            if len(attempts) < 4:
                b["n"] = value + 100
            a["n"] = value + 1
            return value

        self.assertEqual(first.run(add), 300)
        self.assertEqual((attempts, b["n"]), ([True] * 4, 301))

    def test_the_last_attempt_of_run_waits_its_turn_and_so_meets_no_conflict(self):
        first, a, second, b = self.conflicting()
        second.execute("PRAGMA busy_timeout=0")
        outcomes = []

        def add():
            value = a["n"]
            try:
                b["n"] = value + 100
                outcomes.append("written")
            except plait.Busy:
                outcomes.append("busy")
            a["n"] = value + 1

        first.run(add, attempts=3)
        self.assertEqual((outcomes, b["n"]), (["written", "written", "busy"], 201))

    def test_run_inside_of_a_transaction_leaves_the_conflict_to_it(self):
        first, a, _, b = self.conflicting()
        calls = []

        def add():
            calls.append(1)
            a["n"] = a["n"] + 1

        with self.assertRaises(plait.Conflict):
            with first.transaction("concurrent"):
                first.run(add)
                b["n"] = 5
        self.assertEqual((len(calls), a["n"]), (1, 5))

    def test_what_the_function_raises_ends_run(self):
        db = self.open()
        map = db.map("m")

        def fail():
            map["a"] = 1
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            db.run(fail)
        self.assertEqual(map, {})

    def test_a_wait_past_the_timeout_is_busy_and_changes_nothing(self):
        first, a, second, b = self.conflicting()
        second.execute("PRAGMA busy_timeout=50")
        with first.transaction():
            with self.assertRaises(plait.Busy):
                b["n"] = 1
            with self.assertRaises(plait.Busy):
                second.transaction().__enter__()
            a["n"] = 2
        self.assertEqual(b["n"], 2)

    def test_what_is_locked_by_the_threads_own_iterator_is_no_wait_and_not_tried_again(self):
        db = self.open()
        map = db.map("m")
        map.update(a=1, b=2)
        walk = iter(map)
        next(walk)
        calls = []

        @plait.retry
        def drop():
            calls.append(1)
            db.execute("DROP TABLE m")

        with self.assertRaises(plait.Error) as failed:
            drop()
        self.assertIs(type(failed.exception), plait.Error)
        self.assertEqual((failed.exception.sqlite_errorname, len(calls)), ("SQLITE_LOCKED", 1))
        walk.close()
        drop()

    def test_a_map_made_in_a_transaction_that_is_rolled_back_is_not_there(self):
        db = self.open()
        with self.assertRaises(ZeroDivisionError):
            with db.transaction():
                map = db.map("m")
                map["a"] = 1
                1 / 0
        with self.assertRaisesRegex(plait.Error, "no such table"):
            map["a"]
        db.execute("CREATE TABLE m(k TEXT PRIMARY KEY, v)")
        map["a"] = 2
        self.assertEqual(db.execute("SELECT * FROM m").fetchall(), [("a", 2)])


class Opening(Case):
    def test_a_new_database_is_concurrent_and_another_one_stays_as_it_is(self):
        self.assertEqual(self.open().execute("PRAGMA journal_mode").fetchone(), ("concurrent",))
        empty = self.open(self.path + "1", journal_mode="wal")
        self.assertEqual(empty.execute("PRAGMA journal_mode").fetchone(), ("wal",))
        self.assertEqual(self.open(self.path + "1").execute("PRAGMA journal_mode").fetchone(), ("concurrent",))
        # The pragma answers what the connection knows: it looks at the file with its next read.
        self.assertEqual(empty.execute("SELECT count(*) FROM sqlite_schema").fetchone(), (0,))
        self.assertEqual(empty.execute("PRAGMA journal_mode").fetchone(), ("concurrent",))
        other = self.open(self.path + "2", journal_mode="wal")
        other.map("m")["a"] = 1
        other.close()
        self.assertEqual(self.open(self.path + "2").execute("PRAGMA journal_mode").fetchone(), ("wal",))

    def test_settings_hold_and_wrong_ones_are_refused(self):
        db = self.open(synchronous="normal", cache_mib=4)
        self.assertEqual(db.execute("PRAGMA synchronous").fetchone(), (1,))
        self.assertEqual(db.execute("PRAGMA cache_size").fetchone(), (-4096,))
        for wrong in ({"flag": "x"}, {"synchronous": "perhaps"}, {"journal_mode": "paper"}):
            with self.assertRaises(ValueError):
                plait.open(self.path, **wrong)
        with self.assertRaises(ValueError):
            plait.open(self.path + "\0")
        with self.assertRaises(ValueError):
            db.transaction("soon")

    def test_what_cannot_be_opened_is_named_with_what_to_do(self):
        folder, text = self.path + ".folder", self.path + ".txt"
        os.mkdir(folder)
        with open(text, "w") as file:
            file.write("no database " * 1000)
        missing = self.path + ".missing"
        cases = (
            (missing, "w", "SQLITE_CANTOPEN", "no such file; flag 'c' creates it"), (missing, "r", "SQLITE_CANTOPEN", "no such file"),
            (folder, "c", "SQLITE_CANTOPEN", "is a folder"), (missing + "/x.db", "c", "SQLITE_CANTOPEN", "there is no folder .*missing; make it first"),
            (text, "c", "SQLITE_NOTADB", "no SQLite database"), (text, "r", "SQLITE_NOTADB", "give the name of another file"),
        )
        for path, flag, name, what in cases:
            for uri in (False, True):
                with self.assertRaisesRegex(plait.Error, re.escape(path) + ": .*" + what) as failed:
                    plait.open(f"file:{path}" if uri else path, flag, uri=uri)
                self.assertEqual(failed.exception.sqlite_errorname, name)
        self.assertFalse(os.path.exists(missing))
        with open(text) as file:
            self.assertEqual(file.read(), "no database " * 1000)

    def test_databases_in_memory_have_maps_too(self):
        for path in (":memory:", ""):
            db = plait.open(path)
            map = db.map("m")
            map["a"] = 1
            with db.transaction():
                map.add("a", 1)
            self.assertEqual(map, {"a": 2})
            db.close()

    def test_paths_may_be_bytes_and_may_have_any_name(self):
        for path in (self.path.encode() + b"\xff", self.path + "?#%20 file:"):
            db = self.open(path)
            db.map("m")["a"] = 1
            db.close()
            self.assertEqual(self.open(path, "w").map("m")["a"], 1)

    def test_in_other_journal_modes_tickets_are_refused_with_a_text(self):
        db = self.open(journal_mode="wal")
        with self.assertRaisesRegex(plait.Error, "journal_mode=concurrent only"):
            db.ticket()
