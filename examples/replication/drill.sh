#!/bin/sh
# A disaster drill: processes write to a database while a sidecar ships it, and a follower elsewhere
# keeps a replica of it. Then the machine is lost, the database is restored from what was shipped, and
# compared with what was committed, and with the replica.
#
#   examples/replication/drill.sh [SECONDS]
#
# PLAIT_BIN: the folder with plait, plait-replicate and sqlite3; dist/bin if it is not set. URL: where
# the replica is; a folder of the drill's own if it is not set. The exit code is 0 only if the restored
# database is sound, and has of each writer every commit up to some moment and nothing else.
set -eu

seconds=${1:-5}
bin=${PLAIT_BIN:-$(dirname "$0")/../../dist/bin}
work=$(mktemp -d)
url=${URL:-$work/replica}
machine=$work/machine
running=
follower=
trap 'kill -9 $running $follower 2>/dev/null || true; rm -rf "$work"' EXIT

say() { echo "drill: $*"; }
query() { "$bin/sqlite3" "$1" "$2"; }

mkdir "$machine" "$work/elsewhere"
query "$machine/app.db" "PRAGMA journal_mode=concurrent;
    CREATE TABLE orders(writer INTEGER, number INTEGER, item TEXT, PRIMARY KEY(writer, number));" >"$work/said"

"$bin/plait-replicate" run "$url" "$machine/app.db" --interval 200ms >"$work/sidecar" 2>&1 &
running=$!
tries=0
until "$bin/plait" replicas "$url" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { say "the sidecar ships nothing:"; cat "$work/sidecar"; exit 1; }
    sleep 0.1
done

"$bin/plait-replicate" follow "$url" "$work/elsewhere/replica.db" --interval 200ms >"$work/follower" 2>&1 &
follower=$!

# Each writer commits numbers in their order, one in each transaction.
for writer in 1 2 3; do
    (
        echo ".timeout 10000"
        number=0
        while :; do
            number=$((number + 1))
            echo "INSERT INTO orders VALUES($writer, $number, hex(randomblob(100)));"
        done
    ) 2>"$work/writer" | "$bin/sqlite3" "$machine/app.db" >>"$work/said" 2>&1 &
    running="$running $!"
done
say "three writers, a sidecar and a follower for $seconds seconds"
sleep "$seconds"

# All processes at once, as in a loss of power; then the disk.
kill -9 $running 2>/dev/null || true
wait $running 2>/dev/null || true
running=
mv "$machine" "$work/lost"
say "the machine is lost"

"$bin/plait" restore "$url" -o "$work/elsewhere/app.db" --verify

# The lost disk is found again, for once, to see what was committed on it.
had=$(query "$work/lost/app.db" "SELECT count(*) FROM orders")
for writer in 1 2 3; do
    restored=$(query "$work/elsewhere/app.db" "SELECT count(*)||' '||coalesce(max(number), 0) FROM orders WHERE writer=$writer")
    lost=$(query "$work/lost/app.db" "SELECT coalesce(max(number), 0) FROM orders WHERE writer=$writer")
    if [ "${restored% *}" != "${restored#* }" ] || [ "${restored#* }" -gt "$lost" ]; then
        say "writer $writer has committed 1 to $lost, and the restored database has ${restored% *} up to ${restored#* }"
        exit 1
    fi
done
wrong=$(query "$work/elsewhere/app.db" "ATTACH '$work/lost/app.db' AS lost;
    SELECT count(*) FROM (SELECT * FROM orders EXCEPT SELECT * FROM lost.orders)")
has=$(query "$work/elsewhere/app.db" "SELECT count(*) FROM orders")
if [ "$wrong" != 0 ] || [ "$has" = 0 ]; then
    say "$wrong of $has rows are others than were committed"
    exit 1
fi
say "restored $has of $had commits, each writer's without a gap; the last $((had - has)) were not shipped yet"

# The follower has nothing else to follow, and has what was restored as soon as it has read the rest.
tries=0
until [ "$(query "$work/elsewhere/replica.db" "SELECT count(*) FROM orders" 2>/dev/null)" = "$has" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 150 ] || { say "the replica is not what was restored:"; cat "$work/follower"; exit 1; }
    sleep 0.1
done
wrong=$(query "$work/elsewhere/app.db" "ATTACH '$work/elsewhere/replica.db' AS replica;
    SELECT count(*) FROM (SELECT * FROM orders EXCEPT SELECT * FROM replica.orders)")
kill "$follower"
wait "$follower" || { say "the follower ended with $?:"; cat "$work/follower"; exit 1; }
follower=
if [ "$wrong" != 0 ]; then
    say "$wrong rows of the replica are others than were restored"
    exit 1
fi
say "the replica has the same $has"
