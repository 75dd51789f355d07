"""Dialects for SQLAlchemy 2: create_engine("sqlite+plait:///app.db"), and "sqlite+plait_aiosqlite" for create_async_engine.

They are SQLAlchemy's for SQLite, with plait.sqlite3 beneath. A file becomes concurrent when it is first connected to, and stays that. Transactions begin with
BEGIN CONCURRENT, in the last run of plait.retry with BEGIN IMMEDIATE; create_engine(..., begin="IMMEDIATE") has all of them begin so. The isolation level AUTOCOMMIT
begins none.
"""

from sqlalchemy.dialects.sqlite.aiosqlite import AsyncAdapt_aiosqlite_dbapi, SQLiteDialect_aiosqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from .mode import make_concurrent
from .retrying import begin, retry

_BEGINS = ("CONCURRENT", "DEFERRED", "EXCLUSIVE", "IMMEDIATE")


class _Beginning:
    """What both dialects have beyond those of SQLAlchemy."""

    def __init__(self, begin="CONCURRENT", **named):
        super().__init__(**named)
        if begin not in _BEGINS:
            raise ValueError(f"begin is one of {', '.join(_BEGINS)}, not {begin!r}")
        self.begin = begin

    def on_connect(self):
        other = super().on_connect()

        def connect(connection):
            make_concurrent(connection)
            if other is not None:
                other(connection)

        return connect

    def do_begin(self, dbapi_connection):
        if dbapi_connection.isolation_level is None:
            return
        cursor = dbapi_connection.cursor()
        cursor.execute(begin() if self.begin == "CONCURRENT" else f"BEGIN {self.begin}")
        cursor.close()


class Dialect(_Beginning, SQLiteDialect_pysqlite):
    driver = "plait"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls):
        from .sqlite3 import dbapi2

        return dbapi2


class AsyncDialect(_Beginning, SQLiteDialect_aiosqlite):
    driver = "plait_aiosqlite"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls):
        from . import aiosqlite, sqlite3

        return AsyncAdapt_aiosqlite_dbapi(aiosqlite, sqlite3)


def run(maker, function, *, attempts=10):
    """Calls function(session) in a transaction, again in a new one when that is refused; its result. maker: a sessionmaker, or an Engine for connections."""

    @retry(attempts=attempts)
    def once():
        with maker.begin() as session:
            return function(session)

    return once()


async def run_async(maker, function, *, attempts=10):
    """The same for an async_sessionmaker or AsyncEngine, and a coroutine function."""

    @retry(attempts=attempts)
    async def once():
        async with maker.begin() as session:
            return await function(session)

    return await once()
