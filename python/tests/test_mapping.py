"""A map against a dict: single operations, views, what is refused."""

import collections.abc
import copy
import gc
import pickle
import sqlite3
import threading
import weakref

import plait
from place import Case


class Model(Case):
    def steps(self, keys, values):
        rng = self.random()
        db = self.open(synchronous="off", journal_mode=self.mode)
        map, model = db.map("m", key=type(keys[0]), value=type(values[0])), {}
        for _ in range(1500):
            key, value = rng.choice(keys), rng.choice(values)
            step = rng.randrange(14)
            if step < 3:
                map[key] = model[key] = value
            elif step == 3:
                self.assertEqual(map.pop(key, None), model.pop(key, None))
            elif step == 4:
                self.assertEqual(map.setdefault(key, value), model.setdefault(key, value))
            elif step == 5:
                self.assertEqual(key in map, key in model)
            elif step == 6:
                self.assertEqual(map.get(key, None), model.get(key, None))
            elif step == 7 and key in model:
                del map[key], model[key]
            elif step == 7:
                with self.assertRaises(KeyError):
                    del map[key]
            elif step == 8:
                some = {rng.choice(keys): rng.choice(values) for _ in range(rng.randrange(5))}
                map.update(some)
                model.update(some)
            elif step == 9:
                self.ranges(rng, map, model, keys)
            elif step == 10:
                some = rng.choices(keys, k=3)
                self.assertEqual(map.get_many(some), [model.get(k) for k in some])
            elif step == 11 and rng.randrange(20) == 0:
                map.clear()
                model.clear()
            elif step == 12 and model:
                self.assertEqual(map.popitem(), (least := min(model), model.pop(least)))
            elif step == 13:
                expected = model.get(key, plait.ABSENT)
                self.assertTrue(map.compare_and_swap(key, expected, value))
                model[key] = value
            self.assertEqual(bool(map), bool(model))
        self.assertEqual(map, model)
        self.assertEqual(db.execute("SELECT k, v FROM m ORDER BY k").fetchall(), sorted(model.items()))

    def ranges(self, rng, map, model, keys):
        start, stop = rng.choice([None, *keys]), rng.choice([None, *keys])
        prefix = None
        if not isinstance(keys[0], int) and rng.randrange(2):
            prefix = rng.choice(keys)[:rng.randrange(3)]
        reverse = bool(rng.randrange(2))
        inside = [
            k for k in sorted(model, reverse=reverse)
            if (start is None or k >= start) and (stop is None or k < stop) and (prefix is None or k.startswith(prefix))
        ]
        asked = {"prefix": prefix, "start": start, "stop": stop, "reverse": reverse}
        self.assertEqual(list(map.keys(**asked)), inside, asked)
        self.assertEqual(list(map.values(**asked)), [model[k] for k in inside])
        self.assertEqual(list(map.items(**asked)), [(k, model[k]) for k in inside])
        self.assertEqual(list(reversed(map.keys(**asked))), inside[::-1])
        self.assertEqual(len(map.items(**asked)), len(inside))
        key = rng.choice(keys)
        self.assertEqual(key in map.keys(**asked), key in inside, (key, asked))
        ends = sorted(inside)
        del asked["reverse"]
        self.assertEqual(map.first(**asked), (ends[0], model[ends[0]]) if ends else None)
        self.assertEqual(map.last(**asked), (ends[-1], model[ends[-1]]) if ends else None)
        if rng.randrange(10) == 0:
            self.assertEqual(map.delete_range(**asked), len(ends))
            for k in ends:
                del model[k]


TEXTS = ["", "a", "ab", "abc", "b", "b\0", "b\0c", "zebra", "\ud7ff", "\ue000", "\U0010ffff", "\U0010ffffa", "Grün", "日本"]
BYTES = [b"", b"\0", b"\0\0", b"a", b"ab", b"\xff", b"\xff\xff", b"\xff\0", b"b", bytes(range(256))]
NUMBERS = [0, 1, -1, 7, 2**63 - 1, -(2**63), 1000, 999]


class Concurrent(Model):
    mode = "concurrent"

    def test_text_keys_do_what_a_dict_does(self):
        self.steps(TEXTS, [b"", b"x", b"y" * 5000])

    def test_byte_keys_do_what_a_dict_does(self):
        self.steps(BYTES, ["", "x", "\0", "y" * 5000])

    def test_integer_keys_do_what_a_dict_does(self):
        self.steps(NUMBERS, NUMBERS)


class Wal(Concurrent):
    mode = "wal"


class Views(Case):
    def test_a_map_and_its_views_are_what_collections_abc_says(self):
        map = self.open().map("m")
        map.update({"a": 1, "b": 2})
        self.assertIsInstance(map, collections.abc.MutableMapping)
        self.assertIsInstance(map.keys(), collections.abc.KeysView)
        self.assertEqual(map.keys() & {"a", "x"}, {"a"})
        self.assertEqual(map.keys(), {"a", "b"})
        self.assertIn(("a", 1), map.items())
        self.assertNotIn(("a", 2), map.items())
        self.assertNotIn(("x", None), map.items())
        self.assertIn(2, map.values())
        self.assertEqual({**map}, {"a": 1, "b": 2})
        self.assertEqual(list(reversed(map)), ["b", "a"])

    def test_a_view_shows_what_is_there_when_it_is_asked(self):
        map = self.open().map("m")
        keys = map.keys(prefix="a")
        self.assertEqual(len(keys), 0)
        map["a1"] = 1
        self.assertEqual(list(keys), ["a1"])

    def refused(self, map, text, **asked):
        before = list(map.items())
        for attempt in (map.keys, map.items, map.values, map.first, map.last, map.delete_range):
            with self.assertRaisesRegex(plait.Error, text):
                list(attempt(**asked) or ())
        self.assertEqual(list(map.items()), before)

    def test_bounds_beside_a_prefix_are_refused_where_the_prefix_alone_is(self):
        """Under such a collation what lies between two bounds need not begin with what they begin with."""
        db = self.open()
        columns = {"TEXT COLLATE NOCASE PRIMARY KEY": ["apple", "Avocado", "banana"], "TEXT COLLATE RTRIM PRIMARY KEY": ["a", "a b"],
                   "BLOB COLLATE NOCASE PRIMARY KEY": [b"a", b"A"], "INTEGER PRIMARY KEY": [1, 2]}
        for n, (declared, keys) in enumerate(columns.items()):
            db.execute(f"CREATE TABLE m{n}(k {declared}, v)")
            map = db.map(f"m{n}", key=type(keys[0]) if n < 2 else None)
            map.update(dict.fromkeys(keys, 1))
            prefix = b"a" if isinstance(keys[0], bytes) else "a"
            for bounds in ({}, {"start": prefix}, {"stop": prefix * 2}, {"start": prefix, "stop": prefix * 2}):
                with self.subTest(declared=declared, **bounds):
                    self.refused(map, "a prefix must be text or bytes, and the collation of the key BINARY", prefix=prefix, **bounds)

    def test_bounds_beside_a_prefix_of_text_are_refused_where_order_is_not_pythons(self):
        db = self.open()
        db.execute("CREATE TABLE n(k NUMERIC PRIMARY KEY, v)")
        map = db.map("n", key=None)
        map.update({"a": 1, "5": 2, b"a": 3, b"b": 4})
        self.assertEqual(list(map), [5, "a", b"a", b"b"])
        self.refused(map, "stored as a number", prefix="", start="5")
        self.refused(map, "stored as a number", prefix="/", stop="0")
        self.assertEqual(list(map.keys(prefix="", reverse=True)), ["a"])
        self.assertEqual(list(map.keys(prefix=b"", start=b"b")), [b"b"])
        other = self.open(self.path + "16", journal_mode="wal")
        other.execute("PRAGMA encoding='UTF-16le'")
        map = other.map("m")
        map.update(dict.fromkeys(["a", "\u0100", "a\u0100"], 1))
        self.refused(map, "UTF-16", prefix="a", start="a")
        self.assertEqual(list(map.keys(prefix="a")), ["a", "a\u0100"])

    def test_bounds_beside_a_prefix_take_no_keys_of_another_type(self):
        db = self.open(synchronous="off")
        keys = [5, 7.5, "", "x", "\U0010ffff", "\U0010ffffa", b"", b"x", b"\xff", b"\xffa"]
        map = db.map("m", key=None)
        for prefix in ["", "x", "\U0010ffff", b"", b"x", b"\xff"]:
            for start in [None, *keys]:
                for stop in [None, *keys]:
                    map.update(dict.fromkeys(keys, 1))
                    asked = {"prefix": prefix, "start": start, "stop": stop}
                    if not all(bound is None or type(bound) is type(prefix) for bound in (start, stop)):
                        with self.assertRaisesRegex(TypeError, "keys that begin with the prefix are"):
                            map.delete_range(**asked)
                        continue
                    inside = [
                        k for k in keys if type(k) is type(prefix) and k.startswith(prefix)
                        and (start is None or k >= start) and (stop is None or k < stop)
                    ]
                    self.assertEqual(list(map.keys(**asked)), inside, asked)
                    self.assertEqual(map.delete_range(**asked), len(inside), asked)
                    self.assertEqual(list(map), [k for k in keys if k not in inside], asked)
        texts = db.map("t")
        texts["a"] = 1
        db.execute("INSERT INTO t VALUES(x'61', 2)")
        self.assertEqual(list(texts.keys(prefix="", start="a")), ["a"])
        self.assertEqual(texts.delete_range(prefix="", start="a"), 1)
        self.assertEqual(db.execute("SELECT typeof(k), v FROM t").fetchall(), [("blob", 2)])

    def test_every_bound_beside_a_prefix_is_looked_at(self):
        map = self.open().map("m")
        for asked in ({"start": "\ud800"}, {"stop": "\ud800"}, {"start": "\udfff", "stop": "b"}):
            with self.assertRaises(UnicodeEncodeError):
                map.keys(prefix="a", **asked)
        bytes_of = self.open().map("b", key=bytes)
        bytes_of.update({b"a": 1, b"ab": 2, b"b": 3})
        self.assertEqual(list(bytes_of.keys(prefix=bytearray(b"a"), start=memoryview(b"ab"), stop=bytearray(b"b"))), [b"ab"])

    def test_rows_may_be_written_and_removed_while_they_are_walked_over(self):
        map = self.open().map("m", key=int)
        map.update({i: 0 for i in range(100)})
        seen = []
        for key in map:
            seen.append(key)
            del map[key]
            if key < 100:
                map[key + 1000] = 0
        self.assertEqual(seen, [*range(100), *range(1000, 1100)])
        self.assertEqual(len(map), 0)

    def test_an_iterator_that_is_dropped_or_closed_holds_no_snapshot(self):
        db = self.open()
        map = db.map("m", key=int)
        map.update({i: 0 for i in range(10)})
        walk = iter(map)
        next(walk)
        with self.assertRaisesRegex(plait.Error, "table is locked"):
            db.execute("DROP TABLE m")
        walk.close()
        self.assertEqual(list(walk), [])
        next(iter(map.items()))
        db.execute("DROP TABLE m")

    def test_update_is_all_or_nothing_also_for_many_and_for_a_generator_that_fails(self):
        map = self.open().map("m", key=int)
        map.update((i, i) for i in range(5000))
        self.assertEqual(len(map), 5000)

        def failing():
            yield from ((i, "new") for i in range(4000))
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            map.update(failing())
        with self.assertRaises(TypeError):
            map.update([(1, "new"), ("two", "new")])
        self.assertNotIn("new", map.values())
        map.update({7: "seven"})
        self.assertEqual(map[7], "seven")

    def test_update_takes_what_dict_takes(self):
        map = self.open().map("m")
        map.update({"a": 1}, b=2)
        map.update([("c", 3)])
        map.update(d=4)
        self.assertEqual(map, {"a": 1, "b": 2, "c": 3, "d": 4})


class Refused(Case):
    def test_keys_of_another_type_are_refused_and_nothing_is_written(self):
        db = self.open()
        text, data, number = db.map("t"), db.map("b", key=bytes), db.map("i", key=int)
        for map, wrong in ((text, (None, 1, 1.5, b"x", ())), (data, (None, 1, "x")), (number, (None, "1", b"1", 1.0))):
            for key in wrong:
                for attempt in (map.__getitem__, map.__contains__, map.get, lambda k: map.__setitem__(k, 1), map.pop):
                    with self.assertRaises(TypeError, msg=(map, key)):
                        attempt(key)
            self.assertEqual(len(map), 0)

    def test_a_key_of_any_type_is_still_none_of_none(self):
        map = self.open().map("m", key=None)
        for key in (None, ()):
            for attempt in (map.__getitem__, map.__contains__, map.get, lambda k: map.__setitem__(k, 1), lambda k: map.update([(k, 1)])):
                with self.assertRaisesRegex(TypeError, "a key must be int, float, str or bytes, not "):
                    attempt(key)
        map.update([(1, 1), (1.5, 2), ("a", 3), (b"a", 4)])
        self.assertEqual(map.get_many([1, 1.5, "a", b"a"]), [1, 2, 3, 4])

    def test_get_takes_the_names_that_mutable_mapping_has(self):
        map = self.open().map("m")
        map["a"] = 1
        self.assertEqual((map.get("x", default=5), map.get(default=5, key="a"), map.get(key="x"), map.get("x", 6)), (5, 1, None, 6))
        for attempt in (lambda: map.get(), lambda: map.get("a", 1, 2), lambda: map.get("a", key="a"), lambda: map.get("a", 1, default=2),
                        lambda: map.get("a", other=1), lambda: map.get(default=1)):
            with self.assertRaisesRegex(TypeError, "default=None"):
                attempt()

    def test_absent_is_itself_in_copies_and_pickles(self):
        for same in (copy.copy(plait.ABSENT), copy.deepcopy([plait.ABSENT])[0], pickle.loads(pickle.dumps(plait.ABSENT))):
            self.assertIs(same, plait.ABSENT)

    def test_integers_past_64_bits_are_an_overflow(self):
        map = self.open().map("m", key=int, value=int)
        for n in (2**63, -(2**63) - 1, 10**30):
            with self.assertRaises(OverflowError):
                map[n] = 1
            with self.assertRaises(OverflowError):
                map[1] = n
            with self.assertRaises(OverflowError):
                n in map
        map[1] = 2**63 - 1
        with self.assertRaisesRegex(plait.Error, "overflow"):
            map.add(1, 1)

    def test_lone_surrogates_are_refused_and_said_to_be(self):
        map = self.open().map("m")
        with self.assertRaisesRegex(UnicodeEncodeError, "surrogates not allowed"):
            map["\ud800"] = 1
        with self.assertRaisesRegex(UnicodeEncodeError, "surrogates not allowed"):
            map["a"] = "\udfff"

    def test_nan_is_refused_instead_of_becoming_null(self):
        map = self.open().map("m")
        with self.assertRaises(ValueError):
            map["a"] = float("nan")
        map["a"] = float("inf")
        self.assertEqual(map["a"], float("inf"))

    def test_values_of_another_type_say_what_is_possible(self):
        with self.assertRaisesRegex(TypeError, "None, int, float, str or bytes, not dict"):
            self.open().map("m")["a"] = {}

    def test_a_value_that_is_too_long_is_said_to_be_and_changes_nothing(self):
        db = self.open()
        map = db.map("m", value=bytes)
        map["a"] = b"short"
        with self.assertRaisesRegex(plait.Error, "too big"):
            map["a"] = bytes(1_000_000_001)
        self.assertEqual(map["a"], b"short")

    def test_tables_that_are_no_maps_are_refused_with_the_reason(self):
        db = self.open()
        db.execute("CREATE TABLE three(a PRIMARY KEY, b, c)")
        with self.assertRaises(plait.Error):
            db.map("three")
        with self.assertRaises(plait.Error):
            db.map("missing", create=False)
        with self.assertRaisesRegex(plait.Error, "cannot be a map: it is SQLite's own"):
            db.map("sqlite_schema")
        with self.assertRaisesRegex(plait.Error, "no such table: main.sqlite_mine"):
            db.map("sqlite_mine")
        db.execute("CREATE TABLE numbers(k INTEGER PRIMARY KEY, v)")
        with self.assertRaisesRegex(ValueError, "key="):
            db.map("numbers")
        self.assertEqual(list(db.map("numbers", key=int)), [])

    def test_a_kind_of_keys_is_refused_by_exactly_the_columns_that_turn_it_into_something_else(self):
        """A key of a map that is made is found again as it was."""
        db = self.open()
        keys = {str: ["5", "5.0", "x"], int: [5, 2**53, 2**53 + 1, -(2**63)], bytes: [b"5"]}
        free, text = [str, int, bytes], [str, bytes]
        columns = {
            "": free, "BLOB": free, "REALBLOB": free, "TEXT": text, "VARCHAR(9)": text, "REALCHAR": text, "INTEGER": [int], "INT": [int, bytes],
            "FLOATING POINT": [int, bytes], "CHARINT": [int, bytes], "NUMERIC": [int, bytes], "ANY": [int, bytes], "DATE": [int, bytes],
            "REAL": [bytes], "DOUBLE": [bytes], "float": [bytes],
        }
        strict = {"ANY": free, "TEXT": [str], "INT": [int], "REAL": [], "BLOB": [bytes]}
        for kind, all in (("", columns), ("STRICT", strict)):
            for n, (declared, possible) in enumerate(all.items()):
                table = f"t{n}{kind}"
                db.execute(f"CREATE TABLE {table}(k {declared} PRIMARY KEY, v) {kind}".replace(", v)", ", v ANY)"))
                for key, some in keys.items():
                    with self.subTest(declared=declared, kind=kind, key=key):
                        try:
                            map = db.map(table, key=key)
                            map.update(dict.fromkeys(some, 1))
                        except ValueError as e:
                            self.assertNotIn(key, possible, e)
                            self.assertIn(f"declared {declared.upper()}, as which SQLite stores {key.__name__} as ", str(e))
                            continue
                        except plait.Error as e:
                            self.assertNotIn(key, possible, e)
                            continue
                        self.assertIn(key, possible)
                        self.assertEqual(list(map), sorted(some))
                        map.clear()

    def test_a_table_that_is_made_anew_takes_the_keys_that_it_does_not_turn_into_something_else(self):
        db, other = self.open(), self.open()
        forms = {"(k TEXT PRIMARY KEY, v)": True, "(k INTEGER PRIMARY KEY, v)": False, "(v, k PRIMARY KEY)": True, "(name BLOB PRIMARY KEY, v) WITHOUT ROWID": True,
                 "(k NUMERIC PRIMARY KEY, v CHECK (v <> 'no'))": False, "(k ANY PRIMARY KEY, v ANY) STRICT": True, "(k ANY PRIMARY KEY, v)": False}
        writes = {
            "put": lambda map: map.__setitem__("12", "b"), "insert": lambda map: map.insert("13", "b"), "update": lambda map: map.update({"14": "b"}),
            "swap": lambda map: map.compare_and_swap("15", plait.ABSENT, "b"), "add": lambda map: map.add("16", 1), "delete": lambda map: map.pop("7", None),
            "delete_range": lambda map: map.delete_range(start="1", stop="2"),
        }
        for what, write in writes.items():
            for has_written in (True, False):
                table = f"{what}_{has_written}"
                map, every = db.map(table), db.map(table, key=None)
                if has_written:
                    map["1"], every[2] = "a", "a"
                for form, is_fit in forms.items():
                    with self.subTest(write=what, form=form, has_written=has_written):
                        other.script(f"DROP TABLE {table}; CREATE TABLE {table}{form}")
                        every[7] = 1  # through a handle of its own, which takes all keys
                        if is_fit:
                            write(map)
                            self.assertEqual(map.get("12"), "b" if what == "put" else None)
                            continue
                        for _ in range(2):
                            with self.assertRaisesRegex(ValueError, "as which SQLite stores str as"):
                                write(map)
                            with self.assertRaisesRegex(ValueError, "as which SQLite stores str as"), db.transaction():
                                write(map)
                        self.assertEqual(dict(every), {7: 1})
                        with self.assertRaisesRegex(ValueError, "as which SQLite stores str as"):
                            db.map(table)

    def test_triggers_may_read_rowids(self):
        """Which the library describes to an authorizer as keys."""
        db = self.open()
        db.script("""
            CREATE TABLE log(a);
            CREATE TABLE m(k TEXT PRIMARY KEY, v);
            CREATE VIRTUAL TABLE words USING fts5(v, content=m, content_rowid=rowid);
            CREATE TRIGGER mi AFTER INSERT ON m BEGIN
                INSERT INTO log SELECT v FROM m WHERE rowid = new.rowid;
                INSERT INTO words(rowid, v) VALUES (new.rowid, new.v);
            END;
            CREATE TRIGGER mu AFTER UPDATE ON m BEGIN
                INSERT INTO log VALUES (old.rowid);
                INSERT INTO words(words, rowid, v) VALUES ('delete', old.rowid, old.v);
                INSERT INTO words(rowid, v) VALUES (new.rowid, new.v);
            END;
            CREATE TRIGGER md AFTER DELETE ON m BEGIN
                INSERT INTO words(words, rowid, v) VALUES ('delete', old.rowid, old.v);
            END;
        """)
        for map in (db.map("m"), db.map("m", key=None)):
            map["a"] = "one two"
            map["a"] = "two three"
            map.update({"a": "three", "b": "four"})
            self.assertEqual(db.execute("SELECT rowid, v FROM words WHERE words MATCH 'three OR one'").fetchall(), [(1, "three")])
            self.assertEqual(map.pop("a"), "three")
            map.clear()
        self.assertEqual(db.execute("SELECT count(*) FROM words").fetchone(), (0,))

    def test_a_map_whose_table_was_dropped_is_made_anew(self):
        db = self.open()
        map = db.map("m")
        map["a"] = 1
        db.execute("DROP TABLE m")
        with self.assertRaisesRegex(plait.Error, "no such table"):
            db.map("m", create=False)["a"]
        again = db.map("m")
        again["b"] = 2
        self.assertEqual((dict(map), dict(again)), ({"b": 2},) * 2)

    def test_a_thread_that_comes_later_finds_the_table_that_is_there_then(self):
        db = self.open()
        map = db.map("m")
        map["12"] = 1
        db.script("DROP TABLE m; CREATE TABLE m(k INTEGER PRIMARY KEY, v)")
        failures = []

        def work():
            try:
                map["12"] = 1
            except ValueError as e:
                failures.append(str(e))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertRegex(failures[0], "declared INTEGER")
        db.script("DROP TABLE m; CREATE TABLE m(k TEXT PRIMARY KEY, v)")
        map["12"] = 2
        self.assertEqual(map, {"12": 2})

    def test_bounds_beside_a_prefix_ask_for_the_order_of_the_table_that_is_there(self):
        db, other = self.open(), self.open()
        map = db.map("m", key=None)
        map["a"] = 1
        self.assertEqual(list(map.keys(prefix="a", start="a")), ["a"])
        other.script("DROP TABLE m; CREATE TABLE m(k NUMERIC PRIMARY KEY, v)")
        with self.assertRaisesRegex(plait.Error, "stored as a number"):
            map.keys(prefix="a", start="a")
        other.script("DROP TABLE m; CREATE TABLE m(name TEXT PRIMARY KEY, v)")
        map["a"] = 1
        for _ in range(2):
            self.assertEqual(list(map.keys(prefix="a", start="a")), ["a"])

    def test_what_sql_has_stored_otherwise_is_said_and_not_converted(self):
        db = self.open()
        map = db.map("m", value=bytes)
        db.execute("INSERT INTO m VALUES ('a', 'text')")
        with self.assertRaisesRegex(TypeError, "value=None"):
            map["a"]
        self.assertEqual(db.map("m")["a"], "text")

    def test_nothing_is_pickled_or_copied(self):
        db = self.open()
        for thing in (db, db.map("m")):
            with self.assertRaises(TypeError):
                pickle.dumps(thing)
            with self.assertRaises(TypeError):
                copy.copy(thing)

    def test_weak_references_end_with_what_they_refer_to(self):
        db = self.open()
        map = db.map("m")
        gone = weakref.ref(map)
        map["a"] = 1
        del map
        gc.collect()
        self.assertIsNone(gone())

    def test_iterators_and_rows_keep_their_database_and_what_is_dropped_is_closed(self):
        self.open().map("m").update(a=1, b=2)
        self.assertEqual([k for k in plait.open(self.path).map("m")], ["a", "b"])
        self.assertEqual([r for r in plait.open(self.path).execute("SELECT k FROM m")], [("a",), ("b",)])
        self.assertEqual(list(plait.open(self.path).map("m").items(reverse=True)), [("b", 2), ("a", 1)])
        db = plait.open(self.path)
        db.rows = db.execute("SELECT k FROM m")
        db.walk = iter(db.map("m"))
        gone = weakref.ref(db)
        del db
        gc.collect()
        self.assertIsNone(gone())
        self.doCleanups()
        self.setUp()
        plait.open(self.path).map("m")["a"] = 1
        gc.collect()
        self.assertEqual(self.beside(), [])
        stock = sqlite3.connect(self.path)
        self.assertEqual(stock.execute("SELECT * FROM m").fetchall(), [("a", 1)])
        stock.close()

    def test_after_close_everything_says_so(self):
        db = self.open()
        map = db.map("m")
        map.update({"a": 1, "b": 2})
        walk, rows = iter(map), db.execute("SELECT 1 UNION ALL SELECT 2")
        next(walk), next(rows)
        db.close()
        db.close()
        for attempt in (lambda: map["a"], lambda: next(walk), lambda: next(rows), lambda: db.execute("SELECT 1"),
                        lambda: db.map("m"), lambda: map.update(a=2), db.transaction().__enter__):
            with self.assertRaisesRegex(plait.Error, "closed"):
                attempt()
        self.assertEqual(self.beside(), [])

    def test_a_read_only_database_is_read_and_not_written(self):
        self.open().map("m")["a"] = 1
        db = self.open(flag="r")
        map = db.map("m")
        self.assertEqual(map["a"], 1)
        with self.assertRaises(plait.Error) as refused:
            map["a"] = 2
        self.assertEqual(refused.exception.sqlite_errorname, "SQLITE_READONLY")
        with self.assertRaises(plait.Error):
            self.open(self.path + ".missing", "w")


class Codecs(Case):
    def test_the_types_of_sqlite_come_back_as_they_were(self):
        map = self.open().map("m")
        for value in (None, 0, -5, 2**62, 1.5, "", "a\0b", b"", b"\0\xff"):
            map["x"] = value
            self.assertEqual((type(map["x"]), map["x"]), (type(value), value))
        for like in (bytearray(b"abc"), memoryview(b"xabcx")[1:4]):
            map["x"] = like
            self.assertEqual(map["x"], b"abc")

    def test_json_is_stored_as_text_that_sql_reads(self):
        db = self.open()
        map = db.map("m", value="json")
        map["a"] = {"name": "Ada", "born": [1815, None, True], "ü": 1.5}
        self.assertEqual(map["a"], {"name": "Ada", "born": [1815, None, True], "ü": 1.5})
        self.assertEqual(db.execute("SELECT v->>'name', typeof(v) FROM m").fetchall(), [("Ada", "text")])
        self.assertEqual(map.get_many(["a", "b"], 3)[1], 3)
        self.assertEqual([v["name"] for v in map.values()], ["Ada"])
        self.assertEqual(map.first()[1]["name"], "Ada")
        with self.assertRaises(ValueError):
            map["a"] = float("nan")
        with self.assertRaises(TypeError):
            map["a"] = object()

    def test_pickle_is_there_for_those_who_ask_for_it(self):
        map = self.open().map("m", value="pickle")
        map["a"] = {1, 2, (3, 4)}
        self.assertEqual(map["a"], {1, 2, (3, 4)})
        self.assertEqual(map.setdefault("a", None), {1, 2, (3, 4)})
        with self.assertRaises(ValueError):
            self.open().map("x", value="marshal")

    def test_a_codec_of_the_program_may_use_the_database(self):
        db = self.open()
        names = db.map("names", key=int)
        codec = plait.Codec(lambda name: names.setdefault(len(name), name) and len(name), names.__getitem__)
        map = db.map("m", value=codec)
        map["a"] = "four"
        self.assertEqual((map["a"], list(map.items())), ("four", [("a", "four")]))

    def test_what_a_codec_raises_passes(self):
        def refuse(value):
            raise ZeroDivisionError

        map = self.open().map("m", value=plait.Codec(refuse, refuse))
        with self.assertRaises(ZeroDivisionError):
            map["a"] = 1
        map.db.execute("INSERT INTO m VALUES ('a', 1)")
        for attempt in (lambda: map["a"], lambda: list(map.values()), lambda: map.get_many(["a"]), map.first):
            with self.assertRaises(ZeroDivisionError):
                attempt()


del Model
