#!/bin/sh
# Builds the wheels that are given away: wheels.sh PYTHON ...
#
# Library and extension are compiled against Debian 11's glibc, which `make packages` has fetched into target/packages. auditwheel then says which systems each
# wheel runs on.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
sysroot=$root/target/packages/sysroot
tuple=$(cc -print-multiarch)
[ -d "$sysroot" ] && [ -f target/packages/dist/lib/libsqlite3.a ] || {
    echo "there is no library for Debian 11's glibc in target/packages: run \`make wheels\`, and not with NATIVE=1" >&2
    exit 1
}
rm -rf dist/wheels
mkdir -p dist/wheels
for python in "$@"; do
    "$python" python/pysqlite3.py target/python
    rm -rf python/build
    PLAIT_DIST=$root/target/packages/dist PLAIT_SOURCES=$root/target/python \
        PLAIT_SYSROOT="--sysroot=$sysroot -B$sysroot/usr/lib/$tuple -B$sysroot/lib/$tuple" \
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/wheels ./python
done
rm -rf python/build
tools=target/python/auditwheel
[ -d "$tools" ] || {
    "$1" -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel==6.4.2
}
for wheel in dist/wheels/*.whl; do
    "$tools/bin/python" -m auditwheel show "$wheel"
    case $(basename "$wheel") in
        *-manylinux_2_[12][0-9]_* | *-manylinux_2_3[01]_*) ;;
        *)
            echo "$wheel asks for a newer glibc than Debian 11's" >&2
            exit 1
            ;;
    esac
done
