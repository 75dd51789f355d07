"""install(): `import sqlite3` means plait.sqlite3 from then on, in this process."""

import os
import sys

_NAMES = ("sqlite3", "sqlite3.dbapi2", "sqlite3.dump")


def _holders(module):
    """The names of modules that have the module in a variable."""
    found = []
    for name, other in list(sys.modules.items()):
        if other is None or name.partition(".")[0] in ("sqlite3", "plait"):
            continue
        try:
            if any(value is module for value in vars(other).values()):
                found.append(name)
        except TypeError:
            pass  # something that is no module has put itself there
    return sorted(found)


def _of_python():
    """The sqlite3 module of Python if it has been imported, or its part in C if that alone has."""
    for name in ("sqlite3.dbapi2", "sqlite3", "_sqlite3"):
        module = sys.modules.get(name)
        if module is not None and not getattr(module, "__name__", "").startswith("plait."):
            return module
    return None


def install(*, concurrent=False, late=False):
    """From now on `import sqlite3` gives plait.sqlite3.

    Call it first, before anything imports sqlite3: whoever has imported it keeps Python's, with a copy of SQLite of its own, and the two must not have one file open
    in one process. So it raises RuntimeError then. With late=True it goes on, for what is imported from now on: a file that is open through one of the copies is
    refused to the other.

    concurrent=True is for programs that know nothing of Plait: whoever asks for WAL gets concurrent mode, and a plain BEGIN is adaptive, as behind
    `plait run --concurrent`. It sets PLAIT_JOURNAL_MODE, for the processes too that this one starts.
    """
    from . import beside, sqlite3
    from .sqlite3 import dbapi2, dump

    if concurrent:
        os.environ["PLAIT_JOURNAL_MODE"] = "concurrent"
    theirs = _of_python()
    if theirs is not None and not late:
        holders = [name for each in ("sqlite3", "sqlite3.dbapi2") if each in sys.modules for name in _holders(sys.modules[each])]
        by = f" (by {', '.join(dict.fromkeys(holders))})" if holders else ""
        raise RuntimeError(
            f"Python's own sqlite3 was imported before plait.install(){by}, and whoever has it keeps it, with another copy of SQLite: call plait.install()"
            " before those imports, or plait.install(late=True) if they open other files"
        )
    beside.watch()
    for name, module in zip(_NAMES, (sqlite3, dbapi2, dump)):
        sys.modules[name] = module
