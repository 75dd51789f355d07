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
# The native part of Java's driver finds the library beside it, before any other; there is none where it was made without a JDK.
native="moved here/plait/lib/plait/jdbc/libsqlitejdbc.so"
if command -v javac >/dev/null && command -v mvn >/dev/null; then
    found=$(LD_LIBRARY_PATH="moved here/plait/lib/plait/stock" ldd "$native" | sed -n 's/.*libsqlite3.so.0 => \(.*\) (.*/\1/p')
    [ "$(readlink -f "$found")" = "$(readlink -f "moved here/plait/lib/plait/libsqlite3.so.0")" ]
fi
# What it says of itself when a part is missing.
mv "moved here/plait/lib" "moved here/plait/library"
if ./linked run -- true 2>said; then exit 1; fi
grep -q "cannot find our library at .*/moved here/plait/lib/plait/libsqlite3.so.0" said
