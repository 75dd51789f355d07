"""SQLAlchemy by sqlite+plait:// and sqlite+plait_aiosqlite://, and aiosqlite alone."""

import asyncio
import os

import plait
import sqlalchemy as sa
from place import Case
from plait import aiosqlite, sqlite3
from plait.sqlalchemy import run
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    money: Mapped[int]


PROGRAM = """
    import sys
    from plait.sqlalchemy import run
    from sqlalchemy import create_engine, text
    engine = create_engine("sqlite+plait:///" + sys.argv[1], connect_args={"timeout": 20})

    def count(connection):
        (n,) = connection.execute(text("SELECT money FROM account WHERE id = 1")).one()
        connection.execute(text("UPDATE account SET money = :n WHERE id = 1"), {"n": n + 1})
        connection.execute(text("INSERT INTO account(money) VALUES (0)"))

    for _ in range(20):
        run(engine, count)
    engine.dispose()
"""
PROGRAM_OF_A_LOOP = """
    import asyncio, sys
    from plait.sqlalchemy import run_async
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def count(connection):
        (n,) = (await connection.execute(text("SELECT money FROM account WHERE id = 1"))).one()
        await connection.execute(text("UPDATE account SET money = :n WHERE id = 1"), {"n": n + 1})

    async def main():
        engine = create_async_engine("sqlite+plait_aiosqlite:///" + sys.argv[1], connect_args={"timeout": 20})
        for _ in range(20):
            await run_async(engine, count)
        await engine.dispose()

    asyncio.run(main())
"""


class SQLAlchemy(Case):
    def engine(self, **named):
        engine = sa.create_engine(f"sqlite+plait:///{self.path}", connect_args={"timeout": 10}, **named)
        self.addCleanup(engine.dispose)
        return engine

    def filled(self, **named):
        engine = self.engine(**named)
        Base.metadata.create_all(engine)
        with sessionmaker(engine).begin() as session:
            session.add(Account(id=1, money=0))
        return engine

    def test_eight_processes_count_on_one_row_two_of_them_in_loops(self):
        self.filled().dispose()
        programs = [PROGRAM] * 6 + [PROGRAM_OF_A_LOOP] * 2
        for process in [self.python(program, self.path) for program in programs]:
            self.ends_well(process)
        engine = self.engine()
        with engine.connect() as connection:
            self.assertEqual(connection.scalar(sa.text("SELECT money FROM account WHERE id = 1")), 160)
            self.assertEqual(connection.scalar(sa.text("SELECT count(*) FROM account")), 121)
            self.assertEqual(connection.scalar(sa.text("PRAGMA journal_mode")), "concurrent")
        engine.dispose()
        self.assertEqual(os.listdir(self.folder), ["app.db"])

    def test_a_conflict_is_run_again(self):
        engine = self.filled()
        calls = []

        def change(session):
            account = session.get(Account, 1)
            calls.append(account.money)
            if len(calls) == 1:
                with engine.begin() as other:
                    other.execute(sa.text("UPDATE account SET money = 10 WHERE id = 1"))
            account.money += 1

        run(sessionmaker(engine), change)
        self.assertEqual(calls, [0, 10])
        calls.clear()
        with self.assertRaises(OperationalError) as caught, sessionmaker(engine).begin() as session:
            change(session)
        self.assertTrue(plait.is_retryable(caught.exception))

    def begins(self, engine):
        seen = []
        with engine.connect() as connection:
            connection.connection.driver_connection.set_trace_callback(seen.append)
            connection.execute(sa.text("SELECT 1"))
            connection.commit()
        return [text for text in seen if text.startswith("BEGIN")]

    def test_transactions_begin_as_the_engine_says(self):
        self.assertEqual(self.begins(self.engine()), ["BEGIN CONCURRENT"])
        self.assertEqual(self.begins(self.engine(begin="IMMEDIATE")), ["BEGIN IMMEDIATE"])
        self.assertEqual(self.begins(self.engine(isolation_level="AUTOCOMMIT")), [])
        with self.assertRaises(ValueError):
            self.engine(begin="SOMETIME")

    def test_savepoints_and_schema_in_a_transaction(self):
        engine = self.filled()
        with engine.connect() as connection:
            connection.execute(sa.text("CREATE TABLE t(n)"))
            with connection.begin_nested() as inner:
                connection.execute(sa.text("INSERT INTO t VALUES (1)"))
                inner.rollback()
            self.assertEqual(connection.scalar(sa.text("SELECT count(*) FROM t")), 0)
            connection.rollback()
        self.assertEqual(sa.inspect(engine).get_table_names(), ["account"])

    def test_a_database_in_memory(self):
        engine = sa.create_engine("sqlite+plait://")
        Base.metadata.create_all(engine)
        with sessionmaker(engine).begin() as session:
            session.add(Account(id=1, money=3))
        with engine.connect() as connection:
            self.assertEqual(connection.scalar(sa.text("SELECT money FROM account")), 3)
        engine.dispose()


class AioSqlite(Case):
    def test_two_connections_of_a_loop_meet_and_are_run_again(self):
        async def main():
            async with aiosqlite.connect(self.path, isolation_level=None) as db, aiosqlite.connect(self.path, isolation_level=None, timeout=10) as other:
                await db.execute("PRAGMA journal_mode=concurrent")
                await db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n)")
                await db.execute("INSERT INTO t VALUES (1, 0)")

                @plait.retry
                async def count(connection):
                    await connection.execute(plait.begin())
                    try:
                        async with connection.execute("SELECT n FROM t WHERE id = 1") as cursor:
                            (n,) = await cursor.fetchone()
                        await connection.execute("UPDATE t SET n = ? WHERE id = 1", (n + 1,))
                        await connection.execute("COMMIT")
                    except BaseException:
                        await connection.rollback()
                        raise

                async def many(connection):
                    for _ in range(25):
                        await count(connection)

                await asyncio.gather(many(db), many(other))
                async with db.execute("SELECT n FROM t") as cursor:
                    return await cursor.fetchone()

        self.assertEqual(asyncio.run(main()), (50,))

    def test_its_errors_are_ours(self):
        async def main():
            async with aiosqlite.connect(self.path) as db:
                await db.execute("SELECT nonsense")

        with self.assertRaises(sqlite3.OperationalError):
            asyncio.run(main())

    def test_the_package_itself_is_ours_after_install(self):
        program = """
            import plait
            plait.install()
            import aiosqlite, asyncio, sys

            async def main():
                async with aiosqlite.connect(sys.argv[1]) as db:
                    await db.execute("PRAGMA journal_mode=concurrent")
                    async with db.execute("SELECT plait_version()") as cursor:
                        print((await cursor.fetchone())[0] == plait.__version__)

            asyncio.run(main())
        """
        self.assertEqual(self.ends_well(self.python(program, self.path)).split(), ["True"])
