#!/bin/sh
# Tests the wheel in dist/ as it is installed: installed.sh PYTHON [ARGUMENTS OF unittest]
#
# The virtual environment is new and empty, its pip has no index, and PATH leads to nothing but it: no compiler, no
# other Python.
set -eu
python=$1
shift
tests=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$tests/../.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
cd "$place"
env -i HOME="$place" PATH="$place/venv/bin" "$place/venv/bin/python" -m pip install --quiet --no-index --no-deps \
    --disable-pip-version-check "$root"/dist/plait-*.whl
[ $# -gt 0 ] || set -- discover --start-directory "$tests"
env -i HOME="$place" PATH="$place/venv/bin" PLAIT_LIB="$root/dist/lib/libsqlite3.so.0" PYTHONPATH="$tests" \
    ${PLAIT_SEED+PLAIT_SEED="$PLAIT_SEED"} "$place/venv/bin/python" -m unittest "$@"
