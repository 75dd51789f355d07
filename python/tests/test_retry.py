"""plait.retry: a transaction that was refused is run again."""

import asyncio
import os

import plait
from place import Case
from plait import sqlite3


def refusal(code=517):
    e = sqlite3.OperationalError("database is locked")
    e.sqlite_errorcode = code
    return e


class Retry(Case):
    def failing(self, times, error):
        """A function that fails so often, and a list of how it began each time."""
        began = []

        def call():
            began.append(plait.begin())
            if len(began) <= times:
                raise error
            return "done"

        return call, began

    def test_it_is_run_again_after_a_conflict_and_after_a_wait(self):
        for error in (refusal(517), refusal(5), plait.Conflict("x"), plait.Busy("x")):
            call, began = self.failing(2, error)
            self.assertEqual(plait.retry(call)(), "done")
            self.assertEqual(began, ["BEGIN CONCURRENT"] * 3)

    def test_the_last_run_waits_its_turn(self):
        call, began = self.failing(2, refusal())
        self.assertEqual(plait.retry(attempts=3)(call)(), "done")
        self.assertEqual(began, ["BEGIN CONCURRENT"] * 2 + ["BEGIN IMMEDIATE"])
        self.assertEqual(plait.begin(), "BEGIN CONCURRENT")

    def test_the_error_goes_to_the_caller_in_the_end(self):
        call, began = self.failing(9, refusal())
        with self.assertRaises(sqlite3.OperationalError):
            plait.retry(attempts=3)(call)()
        self.assertEqual(len(began), 3)

    def test_other_errors_go_to_the_caller_at_once(self):
        for error in (refusal(1), refusal(19), ValueError(), KeyboardInterrupt()):
            call, began = self.failing(1, error)
            with self.assertRaises(type(error)):
                plait.retry(call)()
            self.assertEqual(len(began), 1)

    def test_what_others_wrap_is_found(self):
        wrapped = RuntimeError("of another library")
        wrapped.__cause__ = refusal()
        self.assertTrue(plait.is_retryable(wrapped))
        kept = RuntimeError("of another library")
        kept.orig = refusal()
        self.assertTrue(plait.is_retryable(kept))
        self.assertFalse(plait.is_retryable(RuntimeError()))

    def test_within_another_one_the_outer_is_run_again(self):
        inner, began = self.failing(1, refusal())
        calls = []

        @plait.retry
        def outer():
            calls.append(1)
            return plait.retry(inner)()

        self.assertEqual(outer(), "done")
        self.assertEqual((len(calls), len(began)), (2, 2))

    def test_coroutines(self):
        call, began = self.failing(2, refusal())

        @plait.retry
        async def run():
            await asyncio.sleep(0)
            return call()

        self.assertEqual(asyncio.run(run()), "done")
        self.assertEqual(len(began), 3)

    def test_what_a_retried_coroutine_has_started_is_run_again_by_itself(self):
        async def in_a_task(call):
            return await asyncio.create_task(call())

        async def in_a_thread(call):
            return await asyncio.to_thread(lambda: asyncio.run(call()))

        async def later(call):
            await asyncio.sleep(0.05)  # what has started it has long returned
            return await call()

        for start in (in_a_task, in_a_thread, later):
            with self.subTest(start.__name__):
                call, began = self.failing(2, refusal())

                @plait.retry
                async def job():
                    return call()

                @plait.retry
                async def handler():
                    return asyncio.create_task(start(job))

                async def main():
                    return await (await handler())

                self.assertEqual(asyncio.run(main()), "done")
                self.assertEqual(len(began), 3)

    def test_what_begins_in_a_thread_waits_its_turn_in_the_last_run_and_only_as_long_as_that_lasts(self):
        began, left = [], []

        @plait.retry(attempts=2)
        async def run():
            began.append(await asyncio.to_thread(plait.begin))
            left[:] = [asyncio.create_task(later())]
            if len(began) < 2:
                raise refusal()

        async def later():
            await asyncio.sleep(0.05)
            return plait.begin()

        async def main():
            await run()
            return await left[0]

        self.assertEqual((asyncio.run(main()), began), ("BEGIN CONCURRENT", ["BEGIN CONCURRENT", "BEGIN IMMEDIATE"]))

    def test_coroutines_within_another_one_leave_it_to_that(self):
        async def directly(call):
            return await call

        async def in_time(call):
            return await asyncio.wait_for(call, 60)  # in a task, before Python 3.12

        async def together(call):
            return (await asyncio.gather(call, asyncio.sleep(0)))[0]

        for how in (directly, in_time, together):
            with self.subTest(how.__name__):
                inner, began = self.failing(1, refusal())
                calls = []

                @plait.retry
                async def part():
                    await asyncio.sleep(0)
                    return inner()

                @plait.retry
                async def outer():
                    calls.append(1)
                    return await how(part())

                self.assertEqual(asyncio.run(outer()), "done")
                self.assertEqual((len(calls), len(began)), (2, 2))

    def test_a_number_that_makes_no_sense_is_refused(self):
        for attempts in (0, -1, 1.5, "many"):
            with self.assertRaises(ValueError):
                plait.retry(attempts=attempts)

    def test_eight_processes_count_on_one_row(self):
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("PRAGMA journal_mode=concurrent")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n)")
        db.execute("INSERT INTO t VALUES (1, 0)")
        program = """
            import sys, plait
            from plait import sqlite3
            db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)

            @plait.retry
            def count():
                db.execute(plait.begin())
                with db:
                    (n,) = db.execute("SELECT n FROM t WHERE id = 1").fetchone()
                    db.execute("UPDATE t SET n = ? WHERE id = 1", (n + 1,))
                    db.execute("INSERT INTO t(n) VALUES (0)")

            for _ in range(25):
                count()
        """
        processes = [self.python(program, self.path) for _ in range(8)]
        for process in processes:
            self.ends_well(process)
        self.assertEqual(db.execute("SELECT n FROM t WHERE id = 1").fetchone(), (200,))
        self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone(), (201,))
        db.close()
        self.assertEqual(os.listdir(self.folder), ["app.db"])
