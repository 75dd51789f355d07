#!/bin/sh
# The Debian package in a container that holds Debian $RELEASE, Python and systemd alone: installed, used, made the system's libsqlite3, removed; then the
# steps of the image for Debian.
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root, to make a container"; exit 77; }
for tool in debootstrap unshare; do
    command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
timeout 400 debootstrap --variant=minbase --include=python3,systemd "$RELEASE" root "$mirror" >debootstrap.log 2>&1 ||
    { tail -n 20 debootstrap.log; exit 1; }
mkdir root/tests root/packages root/use
cp "$TESTS"/* root/tests
cp "$DEB" root/packages
inside() {
    # Processes of its own, and an end with it. systemd 247 verifies no unit where it finds no control groups.
    timeout 200 unshare --mount --pid --fork --kill-child --mount-proc="$PWD/root/proc" \
        sh -c 'mount --rbind /sys root/sys && exec chroot root "$@"' sh \
        env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}
libraries() { inside ldconfig -p | grep libsqlite3 || true; }
before=$(libraries)
commands() { sh "$TESTS/block.sh" "$1"; }
inside sh -eux -c "cd /packages; $(commands 'Debian package' | sed 's/^apt install/& --yes/')"
inside sh -eux -c "cd /use; sh /tests/use.sh plait python3 /tests"
# The service is off, and its unit is in order. systemd does not run here: its command is run with its settings.
[ "$(inside systemctl is-enabled plait-metrics || true)" = disabled ]
# There is no man here.
inside systemd-analyze verify --man=no plait-metrics.service
inside plait run -- python3 /tests/writer.py /use/numbers.db 5
sed -i 's,^DATABASES=.*,DATABASES="/use/numbers.db",' root/etc/default/plait-metrics
start=$(sed -n 's/^ExecStart=//p' root/usr/lib/systemd/system/plait-metrics.service)
inside sh -eux -c "
    . /etc/default/plait-metrics
    $start &
    python3 /tests/ask.py http://\$LISTEN/metrics plait_up
    kill \$!
"
# It is beside the system's, which programs still load.
[ "$(libraries)" = "$before" ]
ask='import sqlite3; print(sqlite3.connect(":memory:").execute("SELECT plait_version()").fetchone())'
if inside python3 -c "$ask" 2>/dev/null; then exit 1; fi
inside sh -eux -c "$(commands 'All programs of a machine' | sed '/disable/d')" | tee said
grep -q "^enabled: /usr/lib/plait/libsqlite3.so.0" said
inside python3 -c "$ask"
inside sh -eux -c "$(commands 'All programs of a machine' | sed -n '/disable/p')"
if inside python3 -c "$ask" 2>/dev/null; then exit 1; fi
# Removed while it is the system's: programs have the other one again, and nothing is left.
inside plait-system-sqlite enable
inside systemctl enable plait-metrics
inside apt-get remove --yes --purge plait-db
if inside python3 -c "$ask" 2>/dev/null; then exit 1; fi
inside python3 -c 'import sqlite3; print(sqlite3.sqlite_version)'
[ "$(libraries)" = "$before" ]
[ -z "$(find root/usr root/etc -name '*plait*')" ]

# An upgrade, from a package that differs in its version alone: what the administrator has settled stays, and so it does when the package is removed.
dpkg-deb --raw-extract "$DEB" older
sed -i 's/^Version: .*/Version: 0.0.1/' older/DEBIAN/control
dpkg-deb --root-owner-group --build older root/older.deb >/dev/null
inside apt-get install --yes /older.deb
[ "$(inside dpkg-query --show --showformat='${Version}' plait-db)" = 0.0.1 ]
inside plait-system-sqlite enable
inside systemctl enable plait-metrics
sed -i 's,^DATABASES=.*,DATABASES="/use/numbers.db",' root/etc/default/plait-metrics
inside sh -eux -c "cd /packages; $(commands 'Debian package' | sed 's/^apt install/& --yes/')"
[ "$(inside dpkg-query --show --showformat='${Version}' plait-db)" = "$VERSION" ]
[ "$(inside systemctl is-enabled plait-metrics)" = enabled ]
grep -qx 'DATABASES="/use/numbers.db"' root/etc/default/plait-metrics
inside python3 -c "$ask"
# In a systemd of its own, with the processes of this folder alone, the unit serves the database, and a new package restarts it.
sh "$TESTS/systemd.sh" root || [ $? = 77 ]
inside apt-get remove --yes plait-db
if inside python3 -c "$ask" 2>/dev/null; then exit 1; fi
[ -e root/etc/default/plait-metrics ]
inside apt-get purge --yes plait-db
[ -z "$(find root/usr root/etc -name '*plait*')" ]

inside sh -eux -c "$(sh "$TESTS/image.sh" debian)"
inside plait --version
