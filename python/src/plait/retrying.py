"""Running a transaction again: retry, for every way to write that this package has.

Beside other writers a COMMIT may be refused, because somebody has changed meanwhile what the transaction has read (SQLITE_BUSY_SNAPSHOT), or because a wait was longer
than the timeout (SQLITE_BUSY). Nothing of it has happened then, and the whole of it can be run again. In the last run `begin` answers BEGIN IMMEDIATE, which
waits its turn and meets no conflict.

What such a function starts, a task or a call in another thread, inherits its context. A task is a part of the call as long as that lasts, for the call may await it, and they share
the thread's connection. In another thread, and once the call is over, a retried function has runs of its own.
"""

import asyncio
import contextvars
import functools
import inspect
import random
import sys
import threading
import time

from . import _plait

BUSY, BUSY_SNAPSHOT = 5, 517
# Seconds: how long it waits after the first conflict at most, and after the last.
_FIRST_PAUSE, _LAST_PAUSE = 0.002, 0.25

# The runs of the innermost call; None outside of retry. Whoever has inherited them finds them over, perhaps.
_run = contextvars.ContextVar("plait.retry", default=None)


def code_of(error):
    """The code of SQLite that an error has, or the one that it was raised for; None if there is none."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None:
            return code
        if type(error).__name__ == "OperationalError" and str(error).startswith("database is locked"):
            return BUSY  # of the sqlite3 module before CPython 3.11, which has no codes
        # SQLAlchemy keeps what it wraps in orig, Django in __cause__.
        error = getattr(error, "orig", None) or error.__cause__
    return None


def is_retryable(error):
    """Whether the transaction that has failed so may succeed when it is run again."""
    if isinstance(error, (_plait.Conflict, _plait.Busy)):
        return True
    code = code_of(error)
    return code is not None and code & 0xFF == BUSY


def begin(default="BEGIN CONCURRENT"):
    """The statement that begins a transaction: `default`, and BEGIN IMMEDIATE in the last run of retry."""
    runs = _run.get()
    return "BEGIN IMMEDIATE" if runs is not None and runs.is_last() else default


def _is_inside():
    """Whether the calling thread is in a transaction that somebody else has begun and has to begin again, as far as can be seen: Django's atomic."""
    db = sys.modules.get("django.db")
    if db is None:
        return False
    try:
        return any(connection.in_atomic_block for connection in db.connections.all(initialized_only=True))
    except (TypeError, AttributeError):
        return False  # a Django that is not set up, or too old to say so


def _pause(run):
    return random.uniform(0, min(_FIRST_PAUSE * 2**run, _LAST_PAUSE))


class _Runs:
    """The runs of one call: which begins, and whether another follows."""

    def __init__(self, attempts):
        self.attempts = attempts
        self.number = 0
        self.is_running = False
        self.thread = threading.get_ident()

    def __enter__(self):
        self.number += 1
        self.is_running = True
        self.token = _run.set(self)
        return self

    def __exit__(self, kind, error, trace):
        self.is_running = False
        _run.reset(self.token)
        return error is not None and self.number < self.attempts and is_retryable(error) and not _is_inside()

    def is_last(self):
        return self.is_running and self.number == self.attempts

    def is_here(self):
        """Whether the caller is a part of the call, which lasts."""
        return self.is_running and self.thread == threading.get_ident()


def _is_retried():
    runs = _run.get()
    return runs is not None and runs.is_here()


def _retrying(function, attempts):
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run(*args, **named):
            if _is_retried():
                return await function(*args, **named)
            runs = _Runs(attempts)
            while True:
                with runs:
                    return await function(*args, **named)
                await asyncio.sleep(_pause(runs.number))
    else:

        @functools.wraps(function)
        def run(*args, **named):
            if _is_retried():
                return function(*args, **named)
            runs = _Runs(attempts)
            while True:
                with runs:
                    return function(*args, **named)
                time.sleep(_pause(runs.number))

    return run


def retry(function=None, *, attempts=10):
    """A decorator: the function, which makes one transaction, is called again when that is refused for a conflict or a wait that was too long.

        @plait.retry
        @transaction.atomic
        def sell(show): ...

    It belongs outside of what begins and commits. Within another function that is retried it calls through, so that the outermost one runs all again; in a thread that
    such a function has started, and in a task that outlives it, it does not. After
    `attempts` calls the error goes to the caller. The function must not have done by then what cannot be done twice: send a mail, say.
    """
    if not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"attempts is a whole number of calls, at least 1, not {attempts!r}")
    if function is None:
        return lambda later: _retrying(later, attempts)
    return _retrying(function, attempts)
