#!/bin/sh
# The archive for musl in a root folder, $SYSTEM: Alpine 3.23, or musl 1.2.2 and busybox alone. Unpacked by the commands of the page, used, and made
# the system's libsqlite3. C programs are built with it outside, by pkg-config, and run there, eight at a time, some of them killed.
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root, to enter a root folder"; exit 77; }
command -v unshare >/dev/null || { echo "needs unshare"; exit 77; }
sh "$TESTS/musl-root.sh" "$SYSTEM" root || exit $?
mkdir -p root/use root/opt
cp "$ARCHIVE" root/opt
cp "$TESTS"/*.sh root/use
inside() {
    timeout 300 unshare --mount --pid --fork --kill-child --mount-proc="$PWD/root/proc" chroot root \
        env -i HOME=/ PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"
}
page() { sh "$TESTS/block.sh" "$1"; }
inside sh -eux -c "cd /opt; $(page Alpine)"
plait=/opt/$NAME/bin/plait

# Programs that are built with it; `cc` is the compiler that the archive was made with.
PATH=$MADE:$PATH
export PKG_CONFIG_PATH="$PWD/root/opt/$NAME/lib/pkgconfig"
cp "$TESTS/app.c" "$TESTS/stack.c" .
sh -eux -c "$(page 'C programs')"
# shellcheck disable=SC2046  # Flags are words.
cc -pthread stack.c $(pkg-config --cflags --libs plait) -o stack
# They look for the library where it was outside. In the root it is the loader's business.
for program in app stack; do
    cc -pthread "$program.c" -I"root/opt/$NAME/include/plait" "root/opt/$NAME/lib/plait/libsqlite3.so.0" -o "root/use/$program"
done
cp app-static root/use
if readelf -d app-static | grep -q NEEDED; then exit 1; fi

# Alone they find no library.
if inside /use/app /use/app.db 0 2>said; then exit 1; fi
grep -q "libsqlite3.so.0" said
inside sh -eux -c "cd /use; sh crowd.sh $plait run -- ./app"
inside sh -eux -c "cd /use; mkdir static; cd static; sh ../crowd.sh ../app-static"
inside sh -eux -c "cd /use; $plait run -- ./stack stack.db" | tee stack
grep -q "bytes of stack" stack
inside sh -eux -c "
    cd /use
    $plait status crowd.db
    $plait check crowd.db
    $plait doctor crowd.db
    $plait backup crowd.db copy.db
    $plait restore copy.db restored.db
    $plait check restored.db
    [ \"\$(${plait}-sqlite3 restored.db 'PRAGMA integrity_check')\" = ok ]
    $plait metrics crowd.db | grep -q plait_
    $plait disable crowd.db
    [ \"\$(ls -d crowd.db*)\" = crowd.db ]
    $plait demo --dir . --seconds 1 --writers 2
"
inside sh -eux -c "/opt/$NAME/sbin/plait-system-sqlite enable; /use/app /use/app.db 0; /opt/$NAME/sbin/plait-system-sqlite status" | tee said
grep -q "^enabled: /opt/$NAME/lib/plait/libsqlite3.so.0" said
inside "/opt/$NAME/sbin/plait-system-sqlite" disable
if inside /use/app /use/app.db 0 2>/dev/null; then exit 1; fi
[ -z "$(find root/etc -name '*ld-musl*')" ]

# The steps of the image for Alpine.
if [ "$SYSTEM" = alpine ]; then
    mkdir root/packages
    cp "$ARCHIVE" root/packages
    inside sh -eux -c "$(sh "$TESTS/image.sh" alpine)"
    inside /usr/local/bin/plait --version
    inside /usr/local/bin/plait-system-sqlite status
fi
