"""Runs a Python program for which `import sqlite3` means plait.sqlite3:

    python3 -m plait [--concurrent] PROGRAM.py [ARGUMENTS]
    python3 -m plait [--concurrent] -m MODULE [ARGUMENTS]

--concurrent is for programs that know nothing of Plait and ask for WAL: they get concurrent mode.
"""

import os
import runpy
import sys

from .installing import install


def main():
    arguments = sys.argv[1:]
    is_concurrent = arguments[:1] == ["--concurrent"]
    if is_concurrent:
        del arguments[0]
    is_module = arguments[:1] == ["-m"]
    if is_module:
        del arguments[0]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__.strip())
    install(concurrent=is_concurrent)
    sys.argv = arguments
    if is_module:
        sys.path[0] = ""
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


main()
