#!/bin/sh
# Tests the wheel in dist/ with Django, SQLAlchemy and aiosqlite, and the page docs/adopt/python.md: run.sh PYTHON [ARGUMENTS OF unittest]
#
# They are in a virtual environment of their own, below target/python, for which pip fetches what requirements.txt names.
set -eu
python=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=$root/target/python/adopt-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed.txt"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$root"/dist/plait-*.whl
[ $# -gt 0 ] || set -- discover --start-directory "$here"
PYTHONPATH="$here:$root/python/tests:$root/adopt" PLAIT_WHEELS="$root/dist" "$venv/bin/python" -m unittest "$@"
