"""iterdump(), which is Python's own: the file sqlite3/dump.py of its library, which has nothing of its copy of SQLite in it."""

import importlib.util
import os

_of_python = None


def _module():
    global _of_python
    if _of_python is None:
        path = os.path.join(os.path.dirname(os.__file__), "sqlite3", "dump.py")
        spec = importlib.util.spec_from_file_location("plait.sqlite3._dump", path)
        _of_python = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_of_python)
    return _of_python


def iterdump(connection, **named):
    """The database as SQL text, statement by statement."""
    connection.in_transaction  # refuses a closed one now, not at the first statement
    return _module()._iterdump(connection, **named)


# The name that Python's has.
_iterdump = iterdump
