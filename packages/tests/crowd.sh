#!/bin/sh
# crowd.sh COMMAND...: eight processes of app.c, which COMMAND starts, write one file in this folder. Then four are killed beside four
# others, and four more that nobody outlives: what was acknowledged is there.
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
# Until each of the last four has committed something, for 100 seconds at most.
all_write() {
    for second in $(seq 100); do
        idle=
        for number in $((most - 3)) $((most - 2)) $((most - 1)) $most; do
            [ -s "book-victim-$number" ] || idle=yes
        done
        [ -n "$idle" ] || return 0
        sleep 1
    done
    echo "after $second seconds not all processes had written" >&2
    return 1
}
most=4
start_victims "$@"
survivors=
for survivor in 1 2 3 4; do
    app "$@" crowd.db 300 "book-survivor-$survivor" >/dev/null &
    survivors="$survivors $!"
done
all_write
# shellcheck disable=SC2086  # Numbers are words.
kill -9 $killed
for survivor in $survivors; do wait "$survivor"; done
most=8
start_victims "$@"
all_write
# shellcheck disable=SC2086
kill -9 $killed
for one in $killed; do wait "$one" 2>/dev/null || true; done

acknowledged=$(cat book-* | wc -c)
found=$(count "$@")
# Each that was killed may have committed once more than it could tell.
[ "$found" -ge "$acknowledged" ]
[ "$found" -le $((acknowledged + 8)) ]
echo "eight processes: $found commits, $acknowledged acknowledged, 8 processes killed"
