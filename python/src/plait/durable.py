"""Waiting for the disk in an event loop: `await db.durable()`.

One for each connection, made when it first has to wait. The library's thread syncs what is committed and makes an eventfd readable; whichever loop
of this thread sees that first answers all whose commits are on disk. A loop watches a descriptor of its own while somebody waits in it.
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
        self._is_closed = False
        self._waiting = []  # (ticket, loop, future)
        self._watching = {}  # loop: descriptor

    async def wait(self, ticket):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if all(other is not loop for _, other, _ in self._waiting):
            self._watch(loop)
        self._waiting.append((ticket, loop, future))
        if self._is_closed:
            self.close()  # it came in between
        else:
            # What is waited for may have come before the loop was watching.
            self._look(self._watching.get(loop, -1))
        await future

    def _watch(self, loop):
        """By a new descriptor: an old one is dead if the database has left concurrent mode and come back."""
        if loop in self._watching:
            self._stop(loop)
        fd = self._conn.notify_fd()
        loop.add_reader(fd, self._look, fd)
        self._watching[loop] = fd

    def _look(self, fd):
        try:
            os.read(fd, 8)
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
        _tell(loop, _finish, future, error)

    def _stop_watching(self, still_needed):
        running = asyncio._get_running_loop()
        for loop in list(self._watching):
            if loop not in still_needed and (loop is running or loop.is_closed()):
                self._stop(loop)

    def _stop(self, loop):
        fd = self._watching.pop(loop, None)
        if fd is not None:  # else another thread has closed the database
            _forget(loop, fd)

    def close(self):
        """Whoever waits gets an error. From any thread."""
        self._is_closed = True
        error = _plait.Error("the database was closed before the commit was known to be on disk")
        waiting, self._waiting = self._waiting, []
        for _, loop, future in waiting:
            self._answer(loop, future, error)
        watching, self._watching = self._watching, {}
        for loop, fd in watching.items():
            if not _tell(loop, _forget, loop, fd):
                os.close(fd)


def _tell(loop, call, *args):
    """Has a loop make a call: also another loop of this thread, or at the close by another thread. Whether it can: it may be closed at any moment."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True


def _forget(loop, fd):
    """The number may be somebody else's once it is closed: the loop may not watch it by then."""
    if not loop.is_closed():
        loop.remove_reader(fd)
    os.close(fd)
