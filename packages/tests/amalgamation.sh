#!/bin/sh
# SQLite's source with Plait's, compiled into a program.
set -eu
cp "$AMALGAMATION" .
# The last command compiles app.c, which the user brings.
sh -eux -c "$(sh "$TESTS/block.sh" Amalgamation | sed "/^cd /a cp '$TESTS/app.c' .")"
cd plait-*-amalgamation
env -i ./app app.db 0 >/dev/null
timeout 120 env -i ./app app.db 200 >one &
one=$!
timeout 120 env -i ./app app.db 200 >two &
two=$!
wait $one
wait $two
case $(env -i ./app app.db 0) in
"400 plait "[0-9]*) ;;
*) exit 1 ;;
esac
if readelf -d ./app | grep -q libsqlite3; then exit 1; fi
# README.md in it gives the same line.
grep -qxF "$(sh "$TESTS/block.sh" Amalgamation | tail -n 1)" README.md
