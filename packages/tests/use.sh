#!/bin/sh
# use.sh PLAIT PYTHON FOLDER: the first steps of a user, in an empty folder: enable, two writers, check. FOLDER holds writer.py.
set -eu
plait=$1
python=$2
folder=$3
version=$("$plait" --version | head -n 1)
[ "${version#plait }" != "$version" ]
writer() { timeout 120 "$plait" run -- "$python" "$folder/writer.py" app.db "$1"; }
writer 0
[ "$("$plait" enable app.db >/dev/null && writer 0)" = "0 $version" ]
writer 200 >one &
one=$!
writer 200 >two &
two=$!
wait $one
wait $two
[ "$(writer 0)" = "400 $version" ]
# SQLite's shell beside a program that has the database open.
shell=$(dirname "$(readlink -f "$(command -v "$plait")")")/plait-sqlite3
mkfifo hold
"$plait" run -- "$python" -c "
import sqlite3
db = sqlite3.connect('app.db')
db.execute('SELECT 1 FROM sqlite_schema').fetchone()
open('hold').read()" &
open=$!
exec 9>hold
[ "$("$shell" app.db 'SELECT plait_version()')" = "$version" ]
"$shell" app.db '.backup copy.db'
[ "$("$shell" copy.db 'PRAGMA integrity_check')" = ok ]
exec 9>&-
wait $open
rm hold copy.db
"$plait" check app.db
"$plait" probe replica | grep -q "fit for replicas"
[ ! -e replica ]
"$plait" disable app.db
[ "$(find . -name 'app.db*' | wc -l)" = 1 ]
