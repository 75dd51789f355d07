"""Waiting for the disk in an event loop: `await db.durable()`.

One for each connection, made when it first has to wait. The library's thread syncs what is committed and makes an eventfd readable; whichever loop
of this thread sees that first answers all whose commits are on disk. A loop watches the descriptor while somebody waits in it.
"""

import asyncio
import os

from . import _plait


def _finish(future, error):
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class Durable:
    def __init__(self, conn):
        self._conn = conn
        self._fd = conn.notify_fd()
        self._waiting = []  # (ticket, loop, future)
        self._loops = set()

    async def wait(self, ticket):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if loop not in self._loops:
            loop.add_reader(self._fd, self._look)
            self._loops.add(loop)
        self._waiting.append((ticket, loop, future))
        # It may have come before the loop was watching.
        self._look()
        await future

    def _look(self):
        try:
            os.read(self._fd, 8)
        except OSError:
            pass  # nothing new, or another thread closes the database
        error, durable = None, 0
        try:
            durable = self._conn.durable()
            least = min((ticket for ticket, _, _ in self._waiting), default=0)
            if least > durable:
                self._conn.wait(least, 0)  # says so if the log has failed
        except _plait.Error as e:
            error = e
        left = []
        for waiter in self._waiting:
            ticket, loop, future = waiter
            if error is not None or ticket <= durable:
                self._answer(loop, future, error)
            elif not future.done() and not loop.is_closed():
                left.append(waiter)
        self._waiting = left
        self._stop_watching({loop for _, loop, _ in left})

    @staticmethod
    def _answer(loop, future, error):
        if not loop.is_closed():
            # Also from another loop of this thread, or at the close by another thread.
            loop.call_soon_threadsafe(_finish, future, error)

    def _stop_watching(self, still_needed):
        running = asyncio._get_running_loop()
        for loop in self._loops - still_needed:
            if loop.is_closed():
                self._loops.discard(loop)
            elif loop is running:
                loop.remove_reader(self._fd)
                self._loops.discard(loop)

    def close(self):
        """Whoever waits gets an error. From any thread."""
        error = _plait.Error("the database was closed before the commit was known to be on disk")
        waiting, self._waiting = self._waiting, []
        for _, loop, future in waiting:
            self._answer(loop, future, error)
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        watching = [loop for loop in self._loops if not loop.is_closed()]
        self._loops = set()
        for loop in watching:
            loop.call_soon_threadsafe(_forget, loop, fd, watching)
        if not watching:
            os.close(fd)


def _forget(loop, fd, watching):
    """The number may be somebody else's once it is closed: no loop may watch it by then."""
    loop.remove_reader(fd)
    watching.remove(loop)
    watching[:] = [other for other in watching if not other.is_closed()]
    if not watching:
        os.close(fd)
