"""The DB-API 2.0 of Python's sqlite3, version for version: connections, cursors, adapters and converters.

What is in C are the sources of pysqlite3, from which CPython's own module comes; here is what CPython has gained since. A connection refuses a file
that the process has open through another copy of SQLite, that of Python's own module among them (beside.py).
"""

import collections.abc
import datetime
import importlib.machinery
import importlib.util
import os
import sys
import time

from .. import _plait, beside
from .dump import iterdump


def _load():
    """The module in C, which lies in the same extension as plait._plait: the library must not be in the process twice."""
    name = "plait._sqlite3"
    loader = importlib.machinery.ExtensionFileLoader(name, _plait.__file__)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, _plait.__file__, loader=loader))
    loader.exec_module(module)
    sys.modules[name] = module
    return module


_c = _load()
globals().update({name: value for name, value in vars(_c).items() if not name.startswith("_") and name not in ("Cache", "Statement", "OptimizedUnicode")})

apilevel = "2.0"
paramstyle = "qmark"
# The library serializes calls on a connection: threads may share it.
threadsafety = 3
LEGACY_TRANSACTION_CONTROL = -1

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = memoryview

version_info = tuple(int(part) for part in _c.version.split("."))
sqlite_version_info = tuple(int(part) for part in _c.sqlite_version.split("."))

collections.abc.Sequence.register(_c.Row)


def DateFromTicks(ticks):
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks):
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks):
    return Timestamp(*time.localtime(ticks)[:6])


class Connection(_c.Connection):
    """A connection to an SQLite database; connect() makes it."""

    def __init__(
        self, database, timeout=5.0, detect_types=0, isolation_level="", check_same_thread=True, factory=None, cached_statements=128, uri=False,
        *, autocommit=LEGACY_TRANSACTION_CONTROL,
    ):
        name = os.fsencode(database)
        _check_autocommit(autocommit)
        sys_audit(database)
        if name and not name.startswith(b":memory:"):
            try:
                beside.refuse_others(name, True)
            except _plait.Error as e:
                raise _c.OperationalError(str(e)) from None
        super().__init__(
            database, timeout=timeout, detect_types=detect_types, check_same_thread=check_same_thread, cached_statements=cached_statements, uri=uri,
            isolation_level=isolation_level,
        )
        sys.audit("sqlite3.connect/handle", self)
        if autocommit != LEGACY_TRANSACTION_CONTROL:
            self.autocommit = autocommit

    # ---- transactions, as since CPython 3.12 ----

    @property
    def autocommit(self):
        """True: no transactions but those that are begun in SQL; False: one is always open; LEGACY_TRANSACTION_CONTROL: as isolation_level says."""
        mode = self._autocommit
        return mode if mode == LEGACY_TRANSACTION_CONTROL else bool(mode)

    @autocommit.setter
    def autocommit(self, mode):
        _check_autocommit(mode)
        before = self._autocommit
        if mode is True and before == 0:
            super().commit()
        self._autocommit = int(mode)
        if mode is False and not self.in_transaction:
            self._begin()

    def _begin(self):
        # Not through a cursor of the program's.
        _c.Connection.cursor(self).execute("BEGIN")

    def commit(self):
        """Commits the transaction that is open."""
        if self._autocommit == 1:
            self.in_transaction  # refuses a closed connection
            return
        super().commit()
        if self._autocommit == 0:
            self._begin()

    def rollback(self):
        """Rolls the transaction that is open back."""
        if self._autocommit == 1:
            self.in_transaction
            return
        super().rollback()
        if self._autocommit == 0:
            self._begin()

    def close(self):
        """Closes the connection; what is not committed is rolled back."""
        if self._autocommit == 0:
            try:
                is_open = self.in_transaction
            except _c.ProgrammingError:
                is_open = False  # closed already
            if is_open:
                super().rollback()
        super().close()

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.rollback()
            return False
        try:
            self.commit()
        except BaseException:
            # A COMMIT that is refused, for a conflict say, leaves its transaction open.
            self.rollback()
            raise
        return False

    # ---- names of CPython's ----

    def blobopen(self, table, column, row, /, *, readonly=False, name="main"):
        """Opens a blob as a file."""
        return self.open_blob(table, column, row, readonly, name)

    iterdump = iterdump


def sys_audit(database):
    """The event of CPython's, which our own hook has to take for ours."""
    beside.ours.is_connecting = True
    try:
        sys.audit("sqlite3.connect", database)
    finally:
        beside.ours.is_connecting = False


def _check_autocommit(mode):
    if mode is not True and mode is not False and mode != LEGACY_TRANSACTION_CONTROL:
        raise ValueError("autocommit must be True, False, or sqlite3.LEGACY_TRANSACTION_CONTROL")


def connect(database, *args, **named):
    """Opens a connection to a database file, or to ":memory:". The arguments are those of Connection."""
    factory = args[4] if len(args) > 4 else named.get("factory", Connection)
    return factory(database, *args, **named)


def _adapt_datetime(moment):
    return moment.isoformat(" ")


def _convert_date(text):
    return datetime.date(*map(int, text.split(b"-")))


def _convert_timestamp(text):
    day, clock = text.split(b" ")
    whole, _, part = clock.partition(b".")
    microseconds = int(part[:6].ljust(6, b"0")) if part else 0
    return datetime.datetime(*map(int, day.split(b"-")), *map(int, whole.split(b":")), microseconds)


register_adapter = _c.register_adapter
register_converter = _c.register_converter
register_adapter(datetime.date, datetime.date.isoformat)
register_adapter(datetime.datetime, _adapt_datetime)
register_converter("date", _convert_date)
register_converter("timestamp", _convert_timestamp)

__all__ = [
    name for name in dict(globals())
    if not name.startswith("_") and name not in ("annotations", "beside", "collections", "datetime", "importlib", "iterdump", "os", "sys", "sys_audit", "time")
]
