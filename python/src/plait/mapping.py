"""The mapping: what C does for single keys, and in Python what is made of several calls, and views over ranges."""

from collections.abc import ItemsView, KeysView, MutableMapping, ValuesView
from itertools import islice

from . import _plait
from .codecs import key_kind, value_kind

# Flags of plait.h.
_READONLY = 0x01
_CREATE = {"int": 0x10, "bytes": 0x20, "any": 0x20, "str": 0x40}
_HI_OPEN = 0x2
_PREFIX = 0x4
# One of map.c: up to the end of all texts, behind which bytes begin.
_IN_TEXT = 0x100

_NO_BOUND = ...
_KEYS, _VALUES, _ITEMS = 0, 1, 2

# How many pairs update() writes in one call.
_BATCH = 1000


class _Absent:
    """Stands for a key that is not there, in compare_and_swap()."""

    def __repr__(self):
        return "plait.ABSENT"

    def __reduce__(self):
        """Copies, and what comes out of a pickle, are this one: it is compared by `is`."""
        return "ABSENT"


ABSENT = _Absent()


def _after_prefix(prefix):
    """The least key that is greater than all with this prefix; None if there is none."""
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)


def _bytes(o):
    return bytes(o) if isinstance(o, (bytearray, memoryview)) else o


def _range(mapping, prefix, start, stop):
    """(low, high, flags) for C."""
    if prefix is None:
        return (_NO_BOUND if start is None else start, _NO_BOUND if stop is None else stop, _HI_OPEN)
    prefix = _bytes(prefix)
    if not isinstance(prefix, (str, bytes)):
        raise TypeError(f"a prefix is str or bytes, not {type(prefix).__name__}")
    if start is None and stop is None:
        return (prefix, _NO_BOUND, _PREFIX)
    return _range_within(mapping, prefix, _bytes(start), _bytes(stop))


def _range_within(mapping, prefix, start, stop):
    """The bounds of what begins with prefix and lies in a range: in Python's order, which has to be that of the keys."""
    kind = str if isinstance(prefix, str) else bytes
    for name, bound in (("start", start), ("stop", stop)):
        if bound is not None and not isinstance(bound, kind):
            raise TypeError(f"{name} is {type(bound).__name__}, and keys that begin with the prefix are {kind.__name__}")
        if isinstance(bound, str):
            bound.encode()  # a lone surrogate is refused also where the other bound is taken
    mapping._has(prefix, _NO_BOUND, _PREFIX, prefix)  # refuses where the prefix alone is refused
    if kind is str:
        mapping._check_text_order()
    high = _after_prefix(prefix)
    if stop is not None:
        high = stop if high is None else min(high, stop)
    low = prefix if start is None else max(prefix, start)
    if high is None:
        return (low, _NO_BOUND, _IN_TEXT if kind is str else 0)
    return (low, high, _HI_OPEN)


class _View:
    """What the three views share: the rows of a range, in one direction. They show what is there when they are asked."""

    __slots__ = ()

    def __init__(self, mapping, prefix=None, start=None, stop=None, reverse=False):
        super().__init__(mapping)
        self._bounds = _range(mapping, prefix, start, stop)
        self._reverse = bool(reverse)

    def __len__(self):
        return self._mapping._count(*self._bounds)

    def __iter__(self):
        return self._mapping._cursor(*self._bounds, self._what, self._reverse)

    def __reversed__(self):
        return self._mapping._cursor(*self._bounds, self._what, not self._reverse)

    def __repr__(self):
        return f"<{type(self).__name__} of {self._mapping!r}>"


class Keys(_View, KeysView):
    """Keys of a range."""

    __slots__ = ("_bounds", "_reverse")
    _what = _KEYS

    def __contains__(self, key):
        return self._mapping._has(*self._bounds, key)


class Values(_View, ValuesView):
    """Values of a range."""

    __slots__ = ("_bounds", "_reverse")
    _what = _VALUES

    def __contains__(self, value):
        return any(v is value or v == value for v in self)


class Items(_View, ItemsView):
    """Pairs of a range."""

    __slots__ = ("_bounds", "_reverse")
    _what = _ITEMS

    def __contains__(self, item):
        key, value = item
        return self._mapping._has(*self._bounds, key) and self._mapping.get(key, ABSENT) == value


class Map(_plait.Map, MutableMapping):
    """A table of one key and one value as a mapping. Made by Database.map(); any thread may use it."""

    # The declared type of the key when its texts were found to be in Python's order.
    _in_text_order = None

    def __init__(self, db, table, key, value, schema, create):
        kind = key_kind(key)
        value, codec = value_kind(value)
        self._setup(kind, value, codec and codec.encode, codec and codec.decode)
        self._db = db
        # No table of such a name can be made: those that SQLite has may be read.
        create = create and not str(table).lower().startswith("sqlite_")
        self._place = (schema, table, (_CREATE[kind] if create else 0) | (_READONLY if db.readonly else 0))
        self._kind = kind
        handles, place = db._mine().handles, (kind, *self._place)
        if place in handles and not self._check(handles[place]) and create:
            # The table was dropped.
            del handles[place]
        self._bind()

    @property
    def db(self):
        return self._db

    @property
    def name(self):
        """The name of the table."""
        return self._place[1]

    def _bind(self):
        """The open map of the calling thread, for C."""
        mine = self._db._mine()
        place = (self._kind, *self._place)
        handle = mine.handles.get(place)
        if handle is None:
            handle = _plait.Handle(mine.conn, *self._place)
            self._check(handle)
            mine.handles[place] = handle
        return handle

    def _check(self, handle):
        """Before its first use, and for C where its table has another key by now than at the last look. Whether there is a table with a key."""
        schema, table, _ = self._place
        name, declared = self._db._check_key(schema, table, self._kind)
        handle.checked(name, declared)
        return name != ""

    def _check_text_order(self):
        """Python has texts in the order of UTF-8, and a bound may be stored as a number."""
        if self._in_text_order is not None and self._in_text_order == self._key_type():
            return
        schema, table, _ = self._place
        _, declared, affinity = self._db._column(schema, table)
        if affinity not in ("none", "text"):
            raise _plait.Error(f"the keys of {table} are declared {declared}, where a text may be stored as a number: prefix= goes without start= and stop= there")
        if self._db.execute("PRAGMA encoding").fetchone() != ("UTF-8",):
            raise _plait.Error("the database has its texts in UTF-16, in another order than Python's: prefix= goes without start= and stop= there")
        self._in_text_order = self._key_type()

    def __repr__(self):
        return f"<plait.Map {self.name!r} of {self._db!r}>"

    def __reduce__(self):
        raise TypeError("a plait.Map cannot be pickled or copied: open the database and its map again")

    def __len__(self):
        return self._count(_NO_BOUND, _NO_BOUND, 0)

    def __bool__(self):
        return self._end(_NO_BOUND, _NO_BOUND, 0, False) is not None

    def __iter__(self):
        return self._cursor(_NO_BOUND, _NO_BOUND, 0, _KEYS, False)

    def __reversed__(self):
        return self._cursor(_NO_BOUND, _NO_BOUND, 0, _KEYS, True)

    def keys(self, prefix=None, start=None, stop=None, reverse=False):
        """The keys that begin with prefix, from start on, before stop; in descending order if reverse."""
        return Keys(self, prefix, start, stop, reverse)

    def values(self, prefix=None, start=None, stop=None, reverse=False):
        """The values of such keys, in the order of keys."""
        return Values(self, prefix, start, stop, reverse)

    def items(self, prefix=None, start=None, stop=None, reverse=False):
        """Such keys with their values."""
        return Items(self, prefix, start, stop, reverse)

    def first(self, prefix=None, start=None, stop=None):
        """The pair with the least of these keys, or None."""
        return self._end(*_range(self, prefix, start, stop), False)

    def last(self, prefix=None, start=None, stop=None):
        """The pair with the greatest of these keys, or None."""
        return self._end(*_range(self, prefix, start, stop), True)

    def get_many(self, keys, default=None):
        """The values of several keys, in one snapshot: a list."""
        return self._get_many(list(keys), default)

    def setdefault(self, key, default=None):
        while True:
            value = self.get(key, ABSENT)
            if value is not ABSENT:
                return value
            if self.insert(key, default):
                return default

    def pop(self, key, default=ABSENT):
        with self._db.transaction():
            value = self.get(key, ABSENT)
            if value is not ABSENT:
                del self[key]
                return value
        if default is ABSENT:
            raise KeyError(key)
        return default

    def popitem(self):
        """Removes the first pair and returns it."""
        with self._db.transaction():
            pair = self._end(_NO_BOUND, _NO_BOUND, 0, False)
            if pair is None:
                raise KeyError("popitem(): the map is empty")
            del self[pair[0]]
            return pair

    def update(self, other=(), /, **named):
        """Puts all pairs, all or nothing."""
        if hasattr(other, "items"):
            pairs = iter(other.items())
        elif hasattr(other, "keys"):
            pairs = ((key, other[key]) for key in other.keys())
        else:
            pairs = ((key, value) for key, value in other)
        batch = list(islice(pairs, _BATCH))
        if len(batch) < _BATCH:
            batch.extend(named.items())
            self._put_many(batch)
            return
        with self._db.transaction():
            while batch:
                self._put_many(batch)
                batch = list(islice(pairs, _BATCH))
            self._put_many(list(named.items()))

    def clear(self):
        self._delete_range(_NO_BOUND, _NO_BOUND, 0)

    def delete_range(self, prefix=None, start=None, stop=None):
        """Removes the rows of a range, all or nothing; how many they were."""
        return self._delete_range(*_range(self, prefix, start, stop))

    def compare_and_swap(self, key, expected, value):
        """Writes value if the stored one is expected, and says whether. ABSENT as expected: no such key; as value: removes it.

        With a codec the stored forms are compared.
        """
        absent = _NO_BOUND
        return self._swap(key, absent if expected is ABSENT else expected, absent if value is ABSENT else value)
