#!/bin/sh
# systemd.sh ROOT: starts Debian in this folder with its systemd, in namespaces of its own, with the package installed, plait-metrics enabled and
# its database written in /use/numbers.db. The unit has to serve it, and to be restarted by an installation.
set -eu
root=$1
mountpoint -q /sys/fs/cgroup || { echo "needs control groups: /sys/fs/cgroup"; exit 77; }
mkdir -p "$root/run"
cat >"$root/etc/systemd/system/plait-test.service" <<UNIT
[Unit]
After=plait-metrics.service
Wants=plait-metrics.service
[Service]
Type=oneshot
ExecStart=/bin/sh -ex /plait-test
StandardOutput=file:/plait-test.said
StandardError=inherit
ExecStopPost=/bin/systemctl --no-block poweroff
UNIT
cat >"$root/plait-test" <<'STEPS'
. /etc/default/plait-metrics
systemctl is-active plait-metrics
python3 /tests/ask.py http://$LISTEN/metrics plait_up
first=$(systemctl show --property=MainPID --value plait-metrics)
# It is nobody, and may read what others wrote.
[ "$(stat --format=%u /proc/$first)" != 0 ]
dpkg --install /packages/*.deb
systemctl is-active plait-metrics
second=$(systemctl show --property=MainPID --value plait-metrics)
[ "$first" != "$second" ]
python3 /tests/ask.py http://$LISTEN/metrics plait_up
systemd-analyze security --no-pager plait-metrics | tail -n 1
echo "systemd: all passed"
STEPS
rm -f "$root/plait-test.said"
timeout 120 unshare --mount --pid --cgroup --ipc --uts --net --fork --kill-child sh -eu -c '
    mount --make-rprivate /
    mount --bind "$1" "$1"
    mount -t proc proc "$1/proc"
    # The kernel is that of this machine: nothing in the folder settles its variables.
    mount --bind "$1/proc/sys" "$1/proc/sys"
    mount -o remount,bind,ro "$1/proc/sys"
    mount -t sysfs -o ro sysfs "$1/sys"
    mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
    mount -t tmpfs tmpfs "$1/run"
    mount -t tmpfs tmpfs "$1/tmp"
    exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1" /lib/systemd/systemd --unit=plait-test.service --log-target=null
' sh "$(realpath "$root")" </dev/null >"$root/systemd.log" 2>&1 || true
cat "$root/plait-test.said" || { tail -n 20 "$root/systemd.log"; exit 1; }
grep -q "^systemd: all passed" "$root/plait-test.said"
rm -f "$root/etc/systemd/system/plait-test.service"
