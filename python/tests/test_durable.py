"""Waiting for the disk: tickets, and `await db.durable()`."""

import asyncio
import gc
import os
import threading
from unittest import mock

import plait
from plait.durable import Durable as Waiters
from place import Case


class Durable(Case):
    def open(self, *args, **named):
        return super().open(*args, **{"synchronous": "normal", **named})

    def test_tickets_grow_and_a_wait_ends_when_the_commit_is_on_disk(self):
        db = self.open()
        map = db.map("m")
        tickets = []
        for i in range(5):
            map["a"] = i
            tickets.append(db.ticket())
        self.assertEqual(sorted(set(tickets)), tickets)
        self.assertTrue(db.wait())
        self.assertTrue(db.wait(tickets[0], timeout=0))
        with self.assertRaises(plait.Error):
            db.wait(tickets[-1] + 10**9)

    def test_durable_refuses_what_wait_refuses(self):
        db = self.open()
        db.map("m")["a"] = 1
        for wrong, kind in ((-1, plait.Error), (1.5, TypeError), ("1", TypeError), (2**70, OverflowError), (10**9, plait.Error)):
            with self.assertRaises(kind):
                db.wait(wrong)
            with self.assertRaises(kind):
                asyncio.run(db.durable(wrong))
        asyncio.run(db.durable(db.ticket()))

    def test_who_reads_alone_is_told_that_there_are_no_tickets_and_not_that_the_journal_mode_is_another(self):
        writer = self.open()
        writer.map("m")["a"] = 1
        writer.close()
        db = self.open(flag="r")
        for attempt in (db.ticket, db.wait, lambda: db.wait(1), lambda: asyncio.run(db.durable())):
            with self.assertRaisesRegex(plait.Error, "open for reading only") as refused:
                attempt()
            self.assertEqual(refused.exception.sqlite_errorname, "SQLITE_ERROR")

    def test_many_wait_at_once_and_each_is_answered(self):
        db = self.open()
        map = db.map("m", key=int)
        answered = []

        async def one(i):
            map[i] = i
            ticket = db.ticket()
            await db.durable()
            self.assertTrue(db.wait(ticket, timeout=0))
            answered.append(i)

        async def main():
            for round in range(3):
                await asyncio.gather(*(one(1000 * round + i) for i in range(200)))

        asyncio.run(main())
        self.assertEqual((len(answered), len(map)), (600, 600))

    def test_the_loop_goes_on_while_it_waits_and_nothing_watches_afterwards(self):
        db = self.open()
        map = db.map("m")

        async def main():
            map["a"] = 1
            await db.durable()
            loop = asyncio.get_running_loop()
            self.assertFalse(self.watching(loop, db))

        asyncio.run(main())

    @staticmethod
    def watching(loop, db):
        durable = db._mine().durable
        return durable is not None and (durable._watching or durable._waiting)

    def test_one_who_is_cancelled_is_not_in_the_way_of_the_others(self):
        db = self.open()
        map = db.map("m")

        async def main():
            map["a"] = 1
            tasks = [asyncio.ensure_future(db.durable()) for _ in range(10)]
            await asyncio.sleep(0)
            tasks[3].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertTrue(all(r is None for i, r in enumerate(results) if i != 3))

        asyncio.run(main())

    def test_one_loop_after_another_and_two_in_turns_are_served(self):
        db = self.open()
        map = db.map("m")

        async def write():
            map.add("n", 1)
            await db.durable()

        for _ in range(3):
            asyncio.run(write())
        one, two = asyncio.new_event_loop(), asyncio.new_event_loop()

        async def begin():
            map.add("n", 1)
            waiting = asyncio.ensure_future(db.durable())
            await asyncio.sleep(0)
            return waiting

        waiting = one.run_until_complete(begin())
        two.run_until_complete(write())
        one.run_until_complete(asyncio.wait_for(waiting, 60))
        one.close(), two.close()
        self.assertEqual(map["n"], 5)

    def test_a_loop_that_was_closed_with_somebody_waiting_is_in_nobodys_way(self):
        db = self.open()
        map = db.map("m")

        async def leave():
            map["a"] = 1
            asyncio.ensure_future(db.durable())
            await asyncio.sleep(0)

        async def write():
            map["b"] = 1
            await db.durable()

        left = asyncio.new_event_loop()
        left.set_exception_handler(lambda loop, context: None)
        left.run_until_complete(leave())
        for task in asyncio.all_tasks(left):
            task.cancel()
        left.close()
        asyncio.run(asyncio.wait_for(write(), 60))
        gc.collect()

    def test_who_leaves_concurrent_mode_and_comes_back_can_wait_again_and_who_waited_meanwhile_is_told(self):
        db = self.open()
        map = db.map("m")

        def leave_and_come_back():
            for mode in ("delete", "concurrent"):
                list(db.execute(f"PRAGMA journal_mode={mode}"))

        async def main():
            for i in range(3):
                map["a"] = i
                await asyncio.wait_for(db.durable(), 60)
                leave_and_come_back()
            map["a"] = 3
            waiting = asyncio.ensure_future(self.never(db))
            await asyncio.sleep(0)
            leave_and_come_back()
            with self.assertRaises(plait.Error):
                await asyncio.wait_for(waiting, 60)
            map["a"] = 4
            await asyncio.wait_for(db.durable(), 60)
            self.assertTrue(db.wait(timeout=0))

        asyncio.run(main())

    def test_a_time_to_wait_is_a_number(self):
        db = self.open()
        db.map("m")["a"] = 1
        self.assertTrue(db.wait(timeout=float("inf")))
        self.assertTrue(db.wait(timeout=2**70))
        self.assertIsInstance(db.wait(timeout=-1), bool)
        for wrong, kind in (("5", TypeError), (b"", TypeError), ([], TypeError), (float("nan"), ValueError)):
            with self.assertRaises(kind):
                db.wait(timeout=wrong)
            with self.assertRaises(kind):
                self.open(timeout=wrong)

    def test_loops_of_several_threads_wait_side_by_side(self):
        db = self.open()
        map = db.map("m", value=int)
        failures = []

        async def work():
            for _ in range(30):
                map.add("n", 1)
                await db.durable()

        def run():
            try:
                asyncio.run(work())
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual((failures, map["n"]), ([], 120))

    def test_close_tells_those_who_wait_and_gives_the_descriptor_back(self):
        db = self.open()
        map = db.map("m")

        async def main():
            map["a"] = 1
            waiting = asyncio.ensure_future(self.never(db))
            await asyncio.sleep(0)
            db.close()
            with self.assertRaisesRegex(plait.Error, "closed"):
                await asyncio.wait_for(waiting, 60)

        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(main())
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)

    def of_two_threads(self, db):
        """What this thread and another one, which lives until the test ends, have of a database."""
        both = [db._mine()]
        has_connection, is_over = threading.Event(), threading.Event()

        def work():
            both.append(db._mine())
            has_connection.set()
            is_over.wait()

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(is_over.set)
        has_connection.wait()
        return both

    def test_a_loop_that_ends_at_the_moment_of_a_close_is_in_nobodys_way(self):
        class Ending:
            """A loop that another thread closes between a look at it and a call."""

            def is_closed(self):
                return False

            def call_soon_threadsafe(self, *args):
                raise RuntimeError("Event loop is closed")

        db = self.open()
        both = self.of_two_threads(db)
        for one in both:
            one.durable = Waiters(one.conn)
            loop = Ending()
            one.durable._waiting, one.durable._watching = [(1, loop, None)], {loop: os.open(os.devnull, os.O_RDONLY)}
        before = len(os.listdir("/proc/self/fd"))
        db.close()
        self.assertEqual([one.conn.closed for one in both], [True, True])
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before - 2)

    def test_what_fails_in_one_connections_close_leaves_none_open(self):
        db = self.open()
        both = self.of_two_threads(db)
        for one in both:
            one.durable = mock.Mock()
            one.durable.close.side_effect = ZeroDivisionError
        with self.assertRaises(ZeroDivisionError):
            db.close()
        self.assertEqual([one.conn.closed for one in both], [True, True])
        for one in both:
            one.durable = None  # its end closes it again

    def test_a_close_by_another_thread_may_come_while_a_loop_is_let_go_of(self):
        db = self.open()
        waiters = Waiters(db._mine().conn)

        class Closing:
            def is_closed(self):
                waiters.close()
                return True

            def call_soon_threadsafe(self, *args):
                raise RuntimeError("Event loop is closed")

        waiters._watching = {Closing(): os.open(os.devnull, os.O_RDONLY)}
        waiters._stop_watching(set())
        self.assertEqual(waiters._watching, {})

    @staticmethod
    async def never(db):
        """Waits for a commit that is not made yet."""
        mine = db._mine()
        await db.durable()
        mine.durable = mine.durable or Waiters(mine.conn)
        await mine.durable.wait(db.ticket() + 1)

    def test_under_full_and_without_commits_there_is_nothing_to_wait_for(self):
        db = self.open(synchronous="full")
        map = db.map("m")

        async def main():
            await db.durable()
            map["a"] = 1
            await db.durable()

        asyncio.run(main())

    def test_in_other_journal_modes_it_fails_with_a_text(self):
        db = self.open(journal_mode="wal")
        with self.assertRaisesRegex(plait.Error, "journal_mode=concurrent only"):
            asyncio.run(db.durable())

    def test_the_failure_of_the_log_becomes_an_exception_of_all_who_wait(self):
        """The log is cut short under a process of its own, which it notices when it syncs."""
        program = """
            import asyncio, os, sys, plait
            db = plait.open(sys.argv[1], synchronous="normal")
            map = db.map("m", key=int)
            map[0] = 0
            db.wait()

            async def main():
                await db.durable()
                os.ftruncate(os.open(sys.argv[1] + "-plait", os.O_RDWR), 0)
                for i in range(1, 50):
                    map[i] = os.urandom(1000)
                await asyncio.wait_for(asyncio.gather(db.durable(), db.durable()), 60)

            try:
                asyncio.run(main())
            except plait.Error as e:
                print(e.sqlite_errorname, flush=True)
                os._exit(0)
            print("no failure", flush=True)
            os._exit(0)
        """
        self.assertIn("SQLITE_IOERR", self.ends_well(self.python(program, self.path)))
