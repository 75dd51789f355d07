"""The interface of dbm.gnu on a table: bytes to bytes, str as its UTF-8.

    import plait.dbm

    with plait.dbm.open("cache", "c") as db:
        db["k"] = "v"
        db["k"]                     # b'v'

A file is a database with a table named dbm. Any number of threads and processes may have it open, writers beside readers and writers:
there is no lock over the whole file. Each write is a transaction that survives the death of the process at once; sync() waits until everything is
on disk, and with the flag 's' every write does. Keys are in the order of their bytes.
"""

import errno
import functools
import os
from collections.abc import MutableMapping

from . import _plait
from .database import Database

__all__ = ["error", "open", "open_flags"]

open_flags = "rwcnfsu"

_TABLE = "dbm"
_LO_OPEN = 0x1


class error(OSError):
    """What the database says when something fails; a missing key is a KeyError."""


def _translated(method):
    @functools.wraps(method)
    def call(self, *args):
        if self._map is None:
            raise error("the dbm object has already been closed")
        try:
            return method(self, *args)
        except _plait.Error as e:
            raise error(str(e)) from e

    return call


def _bytes(o):
    return o.encode() if isinstance(o, str) else o


class dbm(MutableMapping):
    """An open file; open() makes it."""

    _map = None

    def __new__(cls, *args, **named):
        raise TypeError(f"cannot create '{cls.__module__}.{cls.__name__}' instances: say open()")

    @_translated
    def __getitem__(self, key):
        return self._map[_bytes(key)]

    @_translated
    def __setitem__(self, key, value):
        self._map[_bytes(key)] = _bytes(value)

    @_translated
    def __delitem__(self, key):
        if self._db.readonly:
            raise error(errno.EPERM, "the file is open for reading only")
        del self._map[_bytes(key)]

    @_translated
    def __contains__(self, key):
        return _bytes(key) in self._map

    @_translated
    def get(self, key, default=None):
        return self._map.get(_bytes(key), default)

    @_translated
    def setdefault(self, key, default=b""):
        return self._map.setdefault(_bytes(key), _bytes(default))

    @_translated
    def keys(self):
        return list(self._map)

    @_translated
    def __iter__(self):
        return iter(self._map)

    @_translated
    def __len__(self):
        return len(self._map)

    @_translated
    def __bool__(self):
        return bool(self._map)

    @_translated
    def clear(self):
        self._map.clear()

    @_translated
    def firstkey(self):
        """The first key, or None."""
        first = self._map.first()
        return first and first[0]

    @_translated
    def nextkey(self, key):
        """The key behind this one, which need not be there, or None."""
        following = self._map._end(_bytes(key), ..., _LO_OPEN, False)
        return following and following[0]

    @_translated
    def reorganize(self):
        """Gives the room of deleted pairs back."""
        self._db.execute("VACUUM")

    @_translated
    def sync(self):
        """Waits until everything that was written is on disk, whichever thread or process has written it."""
        if self._db.readonly:
            return
        (mode,) = self._db.execute("PRAGMA journal_mode").fetchone()
        if mode == "concurrent":
            self._db._wait_for_all()
        elif mode == "wal":
            self._db.execute("PRAGMA wal_checkpoint")

    def close(self):
        if self._map is not None:
            self._map = None
            self._db.close()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


def _is_missing(path):
    try:
        return os.stat(path).st_size == 0
    except FileNotFoundError:
        return True


def _create(path, mode):
    """A file that is there is not opened here: the close would drop the locks that this process may have on it."""
    if not os.path.exists(path):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
            return
        except FileExistsError:
            if os.path.islink(path) and not os.path.exists(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode))
                return
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _database(path, kind, synchronous):
    if kind in "rw" and _is_missing(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return Database(path, "r" if kind == "r" else "w", synchronous=synchronous)


def _open(path, kind, synchronous):
    db = _database(path, kind, synchronous)
    try:
        if kind == "n":
            db.execute(f"DROP TABLE IF EXISTS {_TABLE}")
        return db, db.map(_TABLE, key=bytes, value=bytes, create=kind in "cn")
    except BaseException:
        db.close()
        raise


def open(filename, flag="r", mode=0o666):
    """Opens a file.

    flag: 'r' reads only, 'w' reads and writes, 'c' creates the file if it is not there, 'n' always begins with an empty one. After it 's':
    each write is on disk when it returns; 'f' and 'u', which ask dbm.gnu for less, change nothing. mode: of a new file.
    """
    path = os.fspath(filename)
    kind, more = flag[:1], flag[1:]
    if kind not in ("r", "w", "c", "n") or set(more) - set("fsu"):
        raise error(f"flag {flag!r} is none of 'r', 'w', 'c', 'n', with 'f', 's' or 'u' behind it")
    synchronous = "full" if "s" in more else "normal"
    try:
        if kind in "cn":
            _create(path, mode)
        try:
            db, table = _open(path, kind, synchronous)
        except _plait.Error as e:
            if kind != "n" or e.sqlite_errorname != "SQLITE_NOTADB":
                raise
            # Something else is there: 'n' puts an empty database in its place.
            os.truncate(path, 0)
            db, table = _open(path, kind, synchronous)
    except _plait.Error as e:
        raise error(str(e)) from e
    except OSError as e:
        raise error(e.errno, e.strerror, filename) from e
    opened = object.__new__(dbm)
    opened._db = db
    opened._map = table
    return opened
