"""A database for all threads of a process: a connection for each that uses it, transactions, SQL.

- A thread's connection is opened when it first uses the database, and closed when the thread ends or the database is closed. Its
  open transaction is rolled back then. Transactions, iterators and rows belong to their thread.
- A database in memory, or a temporary one, is the connection that made it, and belongs to that thread alone.
- After fork() the child has to open the database itself; what it has inherited refuses every call.
"""

import atexit
import contextlib
import os
import threading
import time
import weakref

from . import _plait, beside
from .durable import Durable
from .mapping import Map

_CREATES = 0x4
_FLAGS = {"r": 0x1, "w": 0x2, "c": 0x2 | _CREATES}
_URI = 0x40
_SYNCHRONOUS = ("off", "normal", "full", "extra")
_JOURNAL_MODES = ("concurrent", "wal", "delete", "truncate", "persist", "memory", "off")
# Affinities by what is in the declared type, the first that fits; which turn a kind of key into something else.
_AFFINITIES = (("integer", ("INT",)), ("text", ("CHAR", "CLOB", "TEXT")), ("none", ("BLOB",)), ("real", ("REAL", "FLOA", "DOUB")))
_CONVERTING = {"str": ("integer", "real", "numeric"), "int": ("text", "real"), "bytes": (), "any": ()}

# Those whose connections are not all known to be closed.
_open = weakref.WeakSet()
_is_ending = False

# In seconds: how long the end of the process waits for calls of daemon threads, and when it begins to interrupt them.
_END_WAIT, _END_INTERRUPT = 5.0, 3.0
# When a close interrupts calls that may wait for a transaction of the thread that closes, at the latest.
_OWN_INTERRUPT = 10.0


def _is_daemon():
    """Whether the calling thread is one that the end of the interpreter does not wait for, of Python's own."""
    thread = threading.current_thread()
    return thread.daemon and not isinstance(thread, threading._DummyThread)


def _refuse_closed(why="the database is closed"):
    if _is_ending and _is_daemon():
        # As what is written in C does (csrc/module.c).
        raise SystemExit
    raise _plait.Error(why)


@atexit.register
def _close_all():
    """The last close of a database leaves one plain file: not to be left to the end of the process. Daemon threads are still running."""
    global _is_ending
    _is_ending = True
    _plait.ends(_is_daemon)
    every = [db for db in list(_open) if db._pid == os.getpid()]
    left, failures = [], []
    for db in every:
        connections, failure = db._begin_close()
        left.append((db, connections))
        failures.append(failure)
    began = time.monotonic()
    for db, connections in left:
        db._wait_until_closed(connections, began + _END_INTERRUPT, began + _END_WAIT)
    for failure in failures:
        if failure is not None and not isinstance(failure, _plait.Error):
            raise failure


class _Mine:
    """What a thread has of a database."""

    def __init__(self, conn):
        self.conn = conn
        self.handles = {}
        self.durable = None

    def close(self):
        try:
            if self.durable is not None:
                self.durable.close()
        finally:
            self.handles.clear()
            self.conn.close()

    def __del__(self):
        try:
            self.close()
        except _plait.Error:
            pass


def _again(e, text):
    """The same error with another text."""
    other = type(e)(text)
    other.sqlite_errorcode, other.sqlite_errorname = e.sqlite_errorcode, e.sqlite_errorname
    return other


def _milliseconds(seconds):
    """As the library takes them. None: as good as without end."""
    return 0x7FFFFFFF if seconds is None else int(min(max(seconds, 0) * 1000, 0x7FFFFFFF))


class Database:
    """A database; open() makes it. Any thread may use it."""

    def __init__(self, path, flag="c", *, timeout=10.0, synchronous="full", journal_mode=None, cache_mib=16, uri=False):
        if flag not in _FLAGS:
            raise ValueError(f"flag is 'r', 'w' or 'c', not {flag!r}")
        if synchronous not in _SYNCHRONOUS:
            raise ValueError(f"synchronous is one of {', '.join(_SYNCHRONOUS)}, not {synchronous!r}")
        if journal_mode is not None and journal_mode not in _JOURNAL_MODES:
            raise ValueError(f"journal_mode is one of {', '.join(_JOURNAL_MODES)}, not {journal_mode!r}")
        name = os.fsencode(path)
        self._private = name in (b"", b":memory:") or uri and (b":memory:" in name or b"mode=memory" in name)
        # Threads open it later, perhaps from another directory.
        self._path = name if self._private or uri and name.startswith(b"file:") else os.path.abspath(name)
        self._flags = _FLAGS[flag] | (_URI if uri else 0)
        self._timeout = _milliseconds(timeout) / 1000
        self._pragmas = f"PRAGMA synchronous={synchronous}; PRAGMA cache_size={-1024 * int(cache_mib)}"
        self._pid = os.getpid()
        self._owner = threading.get_ident()
        self._local = threading.local()
        # Taken again by a close() that a signal handler or __del__ makes in between.
        self._lock = threading.RLock()
        self._all = weakref.WeakSet()
        self._opening = []  # threads
        self._closed = False
        self.readonly = flag == "r"
        if not self._private:
            beside.refuse_others(self._path, uri)
        _open.add(self)
        try:
            self._set_journal_mode(self._mine().conn, journal_mode)
        except BaseException:
            self.close()
            raise

    # ---- connections ----

    def _mine(self):
        """What the calling thread has of this database; opens its connection."""
        try:
            return self._local.mine
        except AttributeError:
            pass
        if self._closed:
            _refuse_closed()
        if self._pid != os.getpid():
            raise _plait.Error("this database was opened before fork(), by the parent of this process: open it again here")
        if self._private and self._owner != threading.get_ident():
            raise _plait.Error("a database in memory belongs to the thread that has opened it")
        if _is_ending and threading.current_thread() is not threading.main_thread():
            _refuse_closed("the interpreter is ending")
        with self._while_opening():
            mine = self._connect(self._flags)
        self._local.mine = mine
        return mine

    @contextlib.contextmanager
    def _while_opening(self):
        """What close() waits for."""
        me = threading.get_ident()
        try:
            with self._lock:
                if self._closed:
                    _refuse_closed()
                self._opening.append(me)
            yield
        finally:
            with self._lock:
                if me in self._opening:
                    self._opening.remove(me)

    def _connect(self, flags):
        mine = None
        try:
            mine = _Mine(_plait.Connection(self._path, flags, int(self._timeout * 1000)))
            mine.conn.script(self._pragmas)
            with self._lock:
                self._all.add(mine)
            if self._closed:
                _refuse_closed()
            return mine
        except BaseException as e:
            if mine is not None:
                mine.close()
            if not isinstance(e, _plait.Error) or (what := self._cannot_be_opened(getattr(e, "sqlite_errorname", ""))) is None:
                raise
            raise _again(e, f"{os.fsdecode(self._path)}: {e}: {what}") from None

    def _cannot_be_opened(self, name):
        """What is wrong with the file, and what to do; None if that is not the matter."""
        if self._private or not name.startswith(("SQLITE_CANTOPEN", "SQLITE_NOTADB")):
            return None
        path = beside.file_of(self._path, self._flags & _URI)
        folder = os.path.dirname(path) or "."
        if name == "SQLITE_NOTADB":
            return "it is no SQLite database, or an encrypted one; give the name of another file"
        if os.path.isdir(path):
            return "this is a folder; give the name of a file in it"
        if not os.path.isdir(folder):
            return f"there is no folder {folder}; make it first"
        if _plait.is_open_elsewhere(os.fsencode(path)):
            return "this process has it open in another way, through another copy of SQLite or as a plain file; close that first"
        if os.path.exists(path):
            wanted = os.R_OK if self.readonly else os.R_OK | os.W_OK
            return None if os.access(path, wanted) else f"this user may not {'read' if self.readonly else 'read and write'} it; change its permissions"
        if not self._flags & _FLAGS["c"] & ~_FLAGS["w"]:
            return "there is no such file; flag 'c' creates it"
        return f"it is not there and cannot be made; look at the permissions of {folder}"

    def _conn(self):
        """The connection of the calling thread, for C."""
        return self._mine().conn

    def _set_journal_mode(self, conn, asked):
        """A database without tables becomes concurrent, another one stays as it is, unless it is said otherwise.

        Not one without pages: on its way to concurrent mode a new one is in WAL mode for a moment, and who came then would take that for what is meant.
        """
        if asked is None:
            if self.readonly or self._private or conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0:
                return
            asked = "concurrent"
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answer = conn.execute(f"PRAGMA journal_mode={asked}").fetchone()[0]
                break
            except _plait.Busy:
                # Others who open the new file at the same time do this too.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
        # PRAGMA journal_mode=wal leaves a concurrent database as it is.
        if answer != asked and not self._private:
            raise _plait.Error(f"the database is in journal mode {answer} and cannot be brought into {asked}")

    def _column(self, schema, table):
        """The name of a map's key, its declared type, and its affinity as SQLite has it; none: what is written stays as it is."""
        rows = self.execute("SELECT name, upper(type) FROM pragma_table_xinfo(?, ?) WHERE pk = 1", (table, schema)).fetchall()
        name, declared = rows[0] if rows else ("", "")
        if declared == "ANY" and (1,) in self.execute("SELECT strict FROM pragma_table_list(?) WHERE schema = ? COLLATE NOCASE", (table, schema)).fetchall():
            return name, declared, "none"
        for affinity, words in _AFFINITIES:
            if any(word in declared for word in words):
                return name, declared, affinity
        return name, declared, "numeric" if declared else "none"

    def _check_key(self, schema, table, kind):
        """A key that the column's affinity turns into another type could be written, and not be read. The name and the declared type of a column that does not."""
        name, declared, affinity = self._column(schema, table)
        if affinity in _CONVERTING[kind]:
            raise ValueError(
                f"the keys of {table} are declared {declared or 'without a type'}, as which SQLite stores {kind} as {affinity}"
                f"{' where it looks like a number' if kind == 'str' else ''}: say key= of that type, or key=None"
            )
        return name, declared

    def close(self):
        """Closes the connections of all threads; calls in progress end first, and it waits for them. Open transactions are rolled back.

        From within a call of its own thread (a signal handler, __del__) it does not wait: then the calls close behind themselves.
        """
        if self._pid != os.getpid():
            if self._closed:
                return
            raise _plait.Error("this database was opened before fork(), by the parent of this process: open it again here")
        connections, failure = self._begin_close()
        self._end_close(connections)
        if failure is not None:
            raise failure

    def _end_close(self, connections):
        """Waits for the calls that go on, if they can end."""
        mine = [(db, own.conn) for db in {self, *_open} if (own := getattr(db._local, "mine", None)) is not None]
        if any(conn.is_busy for _, conn in mine) or any(threading.get_ident() in db._opening for db in {self, *_open}):
            return
        # Calls may wait for a transaction that this thread has in another database object, and with it for this thread.
        holds = any(conn.in_transaction for _, conn in mine)
        self._wait_until_closed(connections, time.monotonic() + min(self._timeout, _OWN_INTERRUPT) if holds else None, None)

    def _begin_close(self):
        """Closes the connections that are idle; the others will close behind their calls. All of them, and the last failure or None."""
        with self._lock:
            self._closed = True
            everybody = list(self._all)
        failure = None
        for mine in everybody:
            try:
                mine.close()
            except BaseException as e:  # of a signal handler, say
                failure = e
        return [mine.conn for mine in everybody], failure

    def _wait_until_closed(self, connections, interrupt_at, deadline):
        """Waits, also for those that are being opened, which find the database closed. Times are those of monotonic(), or None."""
        me, pause = threading.get_ident(), 0.0005
        while any(thread != me for thread in self._opening) or not all(conn.is_gone for conn in connections):
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            if interrupt_at is not None and now >= interrupt_at:
                for conn in connections:
                    conn.interrupt()
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        _open.discard(self)

    @property
    def closed(self):
        return self._closed

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        return f"<plait.Database {os.fsdecode(self._path)!r}{' (closed)' if self._closed else ''}>"

    def __reduce__(self):
        raise TypeError("a plait.Database cannot be pickled or copied: open it again by its name")

    # ---- maps ----

    def map(self, table, key=str, value=None, *, schema="main", create=True):
        """A table as a mapping; it is created if it is not there.

        key: str, bytes, int, or None for any of SQLite's types.
        value: None (None, int, float, str and bytes as they are), bytes, str, int, float, 'json', 'pickle', or an object with
        encode() and decode().
        """
        return Map(self, table, key, value, schema, create and not self.readonly)

    # ---- transactions ----

    def transaction(self, kind="immediate"):
        """A transaction of the calling thread, for a with statement.

        immediate: waits its turn before it begins, and meets no conflict. concurrent: runs beside others, and COMMIT raises Conflict
        if what it has read was changed; see run(). deferred: reads one snapshot. exclusive: alone.
        """
        return _plait.Transaction(self, kind)

    def run(self, function, attempts=10):
        """Calls function() in a transaction, and again in a new one when that meets a conflict; its result.

        All attempts but the last run beside other transactions; the last one waits its turn, and meets none. Inside of a transaction the
        function is called once, in a savepoint, since it is the outer one that has to be run again.
        """
        if attempts < 1:
            raise ValueError("at least one attempt is needed")
        if self._mine().conn.in_transaction:
            attempts = 1
        for _ in range(attempts - 1):
            try:
                with _plait.Transaction(self, "concurrent"):
                    return function()
            except _plait.Conflict:
                pass
        with _plait.Transaction(self, "immediate"):
            return function()

    @property
    def in_transaction(self):
        return self._mine().conn.in_transaction

    # ---- SQL ----

    def execute(self, sql, parameters=()):
        """Runs one statement; its rows as an iterator of tuples. parameters: a sequence for ?, a dict for :name."""
        return self._mine().conn.execute(sql, parameters, self)

    def executemany(self, sql, many):
        """Runs a statement once for each of many parameters, in one transaction."""
        with self.transaction():
            conn = self._mine().conn
            for parameters in many:
                conn.execute(sql, parameters)

    def script(self, sql):
        """Runs the statements of a text; each is its own transaction unless the text says otherwise."""
        self._mine().conn.script(sql)

    @property
    def changes(self):
        """Rows that the last statement of this thread has changed."""
        return self._mine().conn.changes

    @property
    def total_changes(self):
        return self._mine().conn.total_changes

    @property
    def last_insert_rowid(self):
        return self._mine().conn.last_insert_rowid

    def interrupt(self):
        """Ends what the other threads are doing, as far as it waits or runs in SQL: they get Interrupted."""
        if self._pid != os.getpid():
            return
        with self._lock:
            everybody = list(self._all)
        for mine in everybody:
            mine.conn.interrupt()

    # ---- what is on disk ----

    def _of_tickets(self, call, *args):
        try:
            return call(*args)
        except _plait.Error as e:
            # Who cannot write does not become a member of a session: the text of the library is of other journal modes.
            if not self.readonly or e.sqlite_errorname != "SQLITE_ERROR" or self.execute("PRAGMA journal_mode").fetchone()[0] != "concurrent":
                raise
            text = "this database is open for reading only and nobody else has it open: there are no commits to wait for, and no tickets"
            raise _again(e, text) from None

    def ticket(self):
        """The ticket of this thread's last commit, for wait() and durable()."""
        return self._of_tickets(self._mine().conn.ticket)

    def wait(self, ticket=None, timeout=None):
        """Waits until a commit, by default the last one of this thread, is on disk, and all before it; whether it is. timeout in seconds.

        What other threads have committed since is not waited for: see durable().
        """
        conn = self._mine().conn
        if ticket is None:
            ticket = self.ticket()
        return self._of_tickets(conn.wait, ticket, -1 if timeout is None else _milliseconds(timeout))

    def _wait_for_all(self):
        """Waits until the commits of all threads and processes are on disk. The ticket of a new connection stands for what was there when it came."""
        with self._while_opening():
            try:
                mine = self._connect(self._flags & ~_CREATES)
            except _plait.Error as e:
                if not getattr(e, "sqlite_errorname", "").startswith("SQLITE_CANTOPEN"):
                    raise
                # The file has lost its name, and nobody comes to it any more.
                mine = None
            if mine is None:
                self.wait()
                return
            try:
                mine.conn.wait(mine.conn.ticket(), -1)
            finally:
                mine.close()

    async def durable(self, ticket=None):
        """Waits in asyncio's way until a commit, by default the last one of this thread, is on disk, and all before it. Error: the log has failed.

        Commits of other threads may come after it: each waits for its own, or for the ticket that another one has handed over.
        """
        mine = self._mine()
        if ticket is None:
            ticket = self.ticket()
        if self._of_tickets(mine.conn.wait, ticket, 0):
            return
        if mine.durable is None:
            mine.durable = Durable(mine.conn)
        await mine.durable.wait(ticket)


def open(path, flag="c", *, timeout=10.0, synchronous="full", journal_mode=None, cache_mib=16, uri=False):
    """Opens a database.

    flag: 'r' to read only, 'w' if it is there, 'c' creates it if it is not. timeout: how long to wait for others, in seconds; None: without end.
    synchronous: 'full' (a commit is on disk when it returns), 'normal', 'extra' or 'off'. journal_mode: by default a database without tables
    becomes concurrent, and another one stays as it is. cache_mib: pages of the file that each thread's connection keeps in memory, at most. uri: path may be a URI, file:...
    """
    return Database(path, flag, timeout=timeout, synchronous=synchronous, journal_mode=journal_mode, cache_mib=cache_mib, uri=uri)
