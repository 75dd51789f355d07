#!/bin/sh
# The packages for another processor on Debian's kernel for it, in a machine that qemu emulates: what qemu-user keeps from the kernel is there, robust futexes
# among it. Eight processes write, some are killed; the Debian package is installed and removed; Python uses the library, and the
# wheel where there is one.
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root, to unpack Debian's packages"; exit 77; }
[ "$TARGET" = aarch64-unknown-linux-gnu ] || { echo "for aarch64 and glibc alone"; exit 77; }
for tool in debootstrap cpio qemu-system-aarch64; do
    command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
# The first stage alone, which starts no program of it; all that it has fetched is unpacked.
timeout 400 debootstrap --foreign --arch=arm64 --variant=minbase --include=python3,busybox-static,linux-image-arm64 bookworm root "$mirror" \
    >debootstrap.log 2>&1 || { tail -n 20 debootstrap.log; exit 1; }
# What the kernel needs here is built into it.
dpkg-deb --fsys-tarfile root/var/cache/apt/archives/linux-image-[0-9]*.deb | tar x --wildcards --to-stdout './boot/vmlinuz-*' >kernel
rm root/var/cache/apt/archives/linux-*.deb root/var/cache/apt/archives/initramfs-*.deb
for package in root/var/cache/apt/archives/*.deb; do dpkg-deb --extract "$package" root; done
rm -rf root/boot root/var/cache/apt root/usr/share/locale root/usr/share/doc root/debootstrap
: >root/var/lib/dpkg/status
mkdir -p root/packages root/opt root/proc root/sys root/dev root/tmp root/root
cp "$DEB" root/packages
tar xf "$ARCHIVE" -C root/opt
cp -R "$TESTS" root/tests
PKG_CONFIG_PATH="$PWD/root/opt/$NAME/lib/pkgconfig"
export PKG_CONFIG_PATH
for program in app stack; do
    # shellcheck disable=SC2046  # Flags are words.
    "$MADE/cc" -pthread "$TESTS/$program.c" $(pkg-config --cflags plait) "root/opt/$NAME/lib/plait/libsqlite3.so.0" \
        -Wl,-rpath,"/opt/$NAME/lib/plait" -o root/$program
done
# The wheel for the Python of this Debian, where `make wheels` has made one.
for wheel in "$ROOT"/dist/wheels/plait-*-cp311-cp311-manylinux_*_aarch64.whl; do
    [ ! -e "$wheel" ] || python3 -m zipfile --extract "$wheel" root/site
done
cp -R "$ROOT/python/tests" root/python-tests
cat >root/init <<'INIT'
#!/bin/busybox sh
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
busybox mount -t tmpfs none /tmp
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
# Not the shell of busybox, which has a dpkg of its own.
/bin/sh -eux /steps && echo "machine: all passed"
busybox poweroff -f
INIT
cat >root/steps <<STEPS
uname -m -r
cd /tmp
sh /tests/crowd.sh /app
/stack stack.db
mkdir use
cd use
sh /tests/use.sh /opt/$NAME/bin/plait python3 /tests
cd ..
dpkg --force-depends --install /packages/*.deb
plait --version
plait status crowd.db
plait check crowd.db
plait-system-sqlite enable
python3 -c 'import sqlite3; print(sqlite3.connect(":memory:").execute("SELECT plait_version()").fetchone())'
dpkg --force-depends --purge plait-db
[ ! -e /usr/lib/plait ]
if [ -d /site ]; then
    PYTHONPATH=/site:/python-tests python3 -m unittest test_sql test_transactions test_threads test_mapping
    echo "the wheel works"
fi
STEPS
chmod 755 root/init
(cd root && find . | cpio --quiet --create --format=newc) | gzip -1 >memory
rm -rf root
timeout 3000 qemu-system-aarch64 -machine virt -cpu max -smp 2 -m 3000 -nographic -no-reboot -nic none \
    -kernel kernel -initrd memory -append "console=ttyAMA0 quiet panic=-1" </dev/null | tee said
grep -q "^machine: all passed" said
