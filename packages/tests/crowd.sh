#!/bin/sh
# crowd.sh COMMAND...: eight processes of app.c, which COMMAND starts, write one file in this folder. Then some are killed beside others,
# and in the end all: what was acknowledged is there, and the rows are sound.
set -eu
app() { timeout 200 "$@"; }
count() { app "$@" crowd.db 0 | sed 's/ .*//'; }
app "$@" crowd.db 0 >/dev/null
writers=
for writer in 1 2 3 4 5 6 7 8; do
    app "$@" crowd.db 100 "book-$writer" >/dev/null &
    writers="$writers $!"
done
for writer in $writers; do wait "$writer"; done
[ "$(count "$@")" = 800 ]

# Processes that write until they are killed, each with a book of its own, up to the number `most`. Nothing stands between them and the kill.
victim=0
start_victims() {
    killed=
    while [ $victim -lt "$most" ]; do
        victim=$((victim + 1))
        "$@" crowd.db 10000000 "book-victim-$victim" >/dev/null &
        killed="$killed $!"
    done
}
most=4
start_victims "$@"
survivors=
for survivor in 1 2 3 4; do
    app "$@" crowd.db 300 "book-survivor-$survivor" >/dev/null &
    survivors="$survivors $!"
done
sleep 1
# shellcheck disable=SC2086  # Numbers are words.
kill -9 $killed
for survivor in $survivors; do wait "$survivor"; done
most=8
start_victims "$@"
sleep 1
# shellcheck disable=SC2086
kill -9 $killed
for one in $killed; do wait "$one" 2>/dev/null || true; done

acknowledged=$(cat book-* | wc -c)
found=$(count "$@")
# Each that was killed may have committed once more than it could tell.
[ "$found" -ge "$acknowledged" ]
[ "$found" -le $((acknowledged + 8)) ]
# The four that wrote alone have come to something.
[ "$(cat book-victim-5 book-victim-6 book-victim-7 book-victim-8 | wc -c)" -gt 0 ]
echo "eight processes: $found commits, $acknowledged acknowledged, 8 processes killed"
