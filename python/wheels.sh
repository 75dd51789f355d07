#!/bin/sh
# Builds the wheels that are given away: wheels.sh TARGET PYTHON ...
#
# Library and extension are compiled against Debian 11's C library, by the compiler that `make packages` has left in target/packages. auditwheel then says which
# systems each wheel runs on.
set -eu
target=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
machine=${target%%-*}
label=$machine
prefix=
kind=manylinux
allowed='*-manylinux_2_[12][0-9]_* *-manylinux_2_3[01]_*'
case $target in
*-musl)
    label=$machine-musl
    kind=musllinux
    allowed='*-musllinux_1_2_*'
    ;;
esac
[ "$machine" = "$(uname -m)" ] || prefix=$machine-linux-gnu-
made=$root/target/packages/$label
[ -x "$made/cc" ] && [ -f "$made/dist/lib/libsqlite3.a" ] || {
    echo "there is no library for $target in target/packages: run \`make wheels TARGET=$target\`, and not with NATIVE=1" >&2
    exit 1
}
mkdir -p dist/wheels
# Wheels of older versions would be taken for what was made now.
rm -f dist/wheels/*-"$kind"_*_"$machine".whl
for python in "$@"; do
    "$python" python/pysqlite3.py target/python
    rm -rf python/build target/python/wheel
    # The extension's name ends as every CPython takes it: that of this machine's would say this machine.
    PLAIT_DIST=$made/dist PLAIT_SOURCES=$root/target/python PLAIT_TARGET=$target PLAIT_STRIP=${prefix}strip \
        CC=$made/cc LDSHARED="$made/cc -shared" SETUPTOOLS_EXT_SUFFIX=.so \
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir target/python/wheel ./python
    wheel=$(echo target/python/wheel/*.whl)
    is_given=
    for pattern in $allowed; do
        # shellcheck disable=SC2254  # It is a pattern.
        case $wheel in $pattern) is_given=yes ;; esac
    done
    [ -n "$is_given" ] || {
        echo "$wheel asks for more than Debian 11 has" >&2
        exit 1
    }
    mv "$wheel" dist/wheels
done
rm -rf python/build target/python/wheel
tools=target/python/auditwheel
[ -d "$tools" ] || {
    "$1" -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel==6.4.2
}
for wheel in dist/wheels/*-"$kind"_*_"$machine".whl; do
    "$tools/bin/python" -m auditwheel show "$wheel"
done
