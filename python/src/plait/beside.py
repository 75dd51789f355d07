"""Keeps other copies of SQLite off files that this process has open here, and plait off files that others have open.

Locks of POSIX belong to a process: whoever closes a descriptor of a file takes the locks of all others in the process with it, and another process may
take the file for unused. Python's own sqlite3 brings another copy of SQLite. `descriptors.c` knows exactly which descriptors are ours. So a file is not opened
here while the process has another descriptor of it; `sqlite3.connect` of one that is open here is refused by an audit hook, with a text, and everything else that
the library of that module opens by the library itself, as a file that cannot be opened.
"""

import os
import sys
import threading
from urllib.parse import unquote, urlsplit

from . import _plait

_is_watching = False

# Whether the calling thread opens a connection of plait.sqlite3, which tells Python the same as the sqlite3 module does.
ours = threading.local()


def _guard():
    if "_sqlite3" in sys.modules:
        path = getattr(sys.modules["_sqlite3"], "__file__", None)
        _plait.guard(None if path is None else os.fsencode(path))


def file_of(name, uri=True):
    """The path that a name stands for, which may be a URI."""
    name = os.fsdecode(name)
    return unquote(urlsplit(name).path) if uri and name.startswith("file:") else name


def _watch(event, args):
    if event != "sqlite3.connect" or getattr(ours, "is_connecting", False):
        return
    _guard()
    try:
        name = os.fsdecode(args[0])
    except (TypeError, IndexError):
        return
    for candidate in {name, file_of(name)}:
        if "\0" not in candidate and _plait.is_open_here(os.fsencode(candidate)):
            raise _plait.Error(
                f"{name} is open in this process through plait: Python's sqlite3 has another copy of SQLite, whose close would drop"
                " the locks of this one; use execute() of the plait.Database, or close that first"
            )


def watch():
    """From now on the other copy is kept off what is open here; also one that comes later."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        sys.addaudithook(_watch)
    _guard()


def refuse_others(name, uri):
    """Before a database is opened: fails if this process has the file open in another way."""
    watch()
    path = file_of(name, uri)
    if "\0" not in path and _plait.is_open_elsewhere(os.fsencode(path)):
        raise _plait.Error(
            f"{path} is open in this process in another way (through another copy of SQLite, as that of Python's sqlite3, or as a plain file),"
            " and its close would drop the locks of this one: close it first"
        )
