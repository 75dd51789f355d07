#!/bin/sh
# The archive, unpacked in an empty folder, moved, and called through a link.
set -eu
cp "$ARCHIVE" .
sh -eux -c "$(sh "$TESTS/block.sh" Archive)"
folder=$(find . -maxdepth 1 -type d -name 'plait-*')
mkdir "moved here"
mv "$folder" "moved here/plait"
ln -s "$PWD/moved here/plait/bin/plait" linked
mkdir use
cd use
sh "$TESTS/use.sh" "$PWD/../linked" python3 "$TESTS"
cd ..
# Stock SQLite, which it measures beside, is there too.
./linked demo --dir . --seconds 1 --writers 2
# What it says of itself when a part is missing.
mv "moved here/plait/lib" "moved here/plait/library"
if ./linked run -- true 2>said; then exit 1; fi
grep -q "cannot find our library at .*/moved here/plait/lib/plait/libsqlite3.so.0" said
