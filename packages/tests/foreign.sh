#!/bin/sh
# The packages for another processor, under qemu-user and with the C library that they were built against: the archive, C programs that are built with it
# by pkg-config, and the amalgamation; eight processes at a time, some of them killed. The Debian package holds the same.
set -eu
sysroot=$MADE/sysroot
command -v "qemu-$MACHINE" >/dev/null || { echo "needs qemu-$MACHINE: Debian's qemu-user"; exit 77; }
emulated() { timeout 300 "qemu-$MACHINE" -L "$sysroot" "$@"; }
tar xf "$ARCHIVE"
plait=$PWD/$NAME/bin/plait
# `cc` is the compiler that the archive was made with.
PATH=$MADE:$PATH
export PKG_CONFIG_PATH="$PWD/$NAME/lib/pkgconfig"
cp "$TESTS/app.c" "$TESTS/stack.c" .
page() { sh "$TESTS/block.sh" "$@"; }
static=app-static
case $TARGET in
*-gnu)
    # gcc's own library for static programs may need a newer glibc than Debian 11's.
    static=
    ;;
esac
sh -eux -c "$(page 'C programs' | if [ -n "$static" ]; then cat; else sed /-static/d; fi)"
# shellcheck disable=SC2046  # Flags are words.
cc -pthread stack.c $(pkg-config --cflags --libs plait) -o stack
for program in app $static; do
    readelf -h $program | grep -qi "machine:.*$(echo "$MACHINE" | sed 's/x86_64/X86-64/')"
    mkdir "use-$program"
    (cd "use-$program" && sh "$TESTS/crowd.sh" "qemu-$MACHINE" -L "$sysroot" "$PWD/../$program")
done
emulated ./stack stack.db | grep "bytes of stack"
cd use-app
emulated "$plait" --version
emulated "$plait" status crowd.db
emulated "$plait" check crowd.db
emulated "$plait" backup crowd.db copy.db
emulated "$plait" check copy.db
[ "$(emulated "${plait}-sqlite3" copy.db "PRAGMA integrity_check")" = ok ]
emulated "$plait" metrics crowd.db | grep -q plait_
emulated "$plait" disable crowd.db
[ "$(echo crowd.db*)" = crowd.db ]
cd ..

cp "$AMALGAMATION" .
sh -eux -c "$(page Amalgamation | sed "s/linux-[a-z0-9_]*-amal/linux-$LABEL-amal/; /^cd /a cp '$TESTS/app.c' .")"
emulated "$NAME-amalgamation/app" amalgamated.db 20 | grep -q '^20 plait '

case $TARGET in *-musl) exit 0 ;; esac
dpkg-deb --fsys-tarfile "$DEB" | tar t | sed 's,^\./,,' | grep -v '/$' >listed
for file in usr/bin/plait usr/bin/plait-replicate usr/bin/plait-sqlite3 usr/lib/plait/libsqlite3.so.0 usr/lib/plait/libsqlite3.a usr/share/man/man1/plait-metrics.1.gz \
    usr/share/bash-completion/completions/plait usr/lib/systemd/system/plait-metrics.service etc/default/plait-metrics \
    "usr/lib/$MACHINE-linux-gnu/pkgconfig/plait.pc"; do
    grep -qxF "$file" listed
done
dpkg-deb --extract "$DEB" package
cmp package/usr/lib/plait/libsqlite3.so.0 "$NAME/lib/plait/libsqlite3.so.0"
