#!/bin/sh
# run.sh quick|all [TARGET]: tests what `make packages` has made, and for this machine `make install`. Each test is a file here, and
# runs in an empty folder.
#
# quick leaves out the container, lintian, and the second build. A test that cannot run here says why, and counts as skipped.
set -eu
how=$1
TARGET=${2:-$(uname -m)-unknown-linux-gnu}
MACHINE=${TARGET%%-*}
LABEL=$MACHINE
case $TARGET in *-musl) LABEL=$MACHINE-musl ;; esac
TESTS=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$TESTS/../.." && pwd)
PACKAGES=$ROOT/dist/packages
VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
# The packages, and what they were made with.
NAME=plait-$VERSION-linux-$LABEL
ARCHIVE=$PACKAGES/$NAME.tar.gz
AMALGAMATION=$PACKAGES/$NAME-amalgamation.tar.gz
case $MACHINE in x86_64) DEBIAN=amd64 ;; aarch64) DEBIAN=arm64 ;; *) DEBIAN=$MACHINE ;; esac
DEB=$PACKAGES/plait-db_${VERSION}_$DEBIAN.deb
MADE=$ROOT/target/packages/$LABEL
export TESTS ROOT PACKAGES VERSION TARGET MACHINE LABEL NAME ARCHIVE AMALGAMATION DEB MADE
unset PLAIT_LIB PLAIT_STOCK_LIB LD_LIBRARY_PATH LD_PRELOAD MAKEFLAGS MAKELEVEL

# need COMMAND:PACKAGE ...: what the tests start. On Debian root gets it; elsewhere a test says what it lacks.
need() {
    lacking=
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || lacking="$lacking ${pair##*:}"
    done
    if [ -n "$lacking" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        # shellcheck disable=SC2086  # Names are words.
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $lacking >/dev/null
    fi
}
need cmake:cmake pkg-config:pkg-config man:man-db python3:python3
[ "$how" = quick ] || need debootstrap:debootstrap unshare:util-linux lintian:lintian git:git
case $TARGET in
"$(uname -m)-unknown-linux-musl") need qemu-img:qemu-utils debugfs:e2fsprogs unshare:util-linux ;;
aarch64-*) [ "$how" = quick ] || need qemu-system-aarch64:qemu-system-arm cpio:cpio ;;
esac

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
passed=0 failed=0 skipped=0

# try NAME SECONDS FILE
try() {
    mkdir "$place/$1"
    begun=$(date +%s)
    code=0
    (cd "$place/$1" && timeout --kill-after=10 "$2" sh "$TESTS/$3" </dev/null) >"$place/said" 2>&1 || code=$?
    spent="$(($(date +%s) - begun)) s"
    case $code in
    0) passed=$((passed + 1)) && echo "ok      $1 ($spent)" ;;
    77) skipped=$((skipped + 1)) && echo "skipped $1: $(tail -n 1 "$place/said")" ;;
    *) failed=$((failed + 1)) && echo "FAILED  $1 (exit $code, $spent)" && tail -n 40 "$place/said" ;;
    esac
    rm -rf "${place:?}/$1"
}

case $TARGET in
"$(uname -m)-unknown-linux-gnu")
    try archive 200 archive.sh
    # It builds the libraries, from nothing in a new clone.
    try source 1800 source.sh
    try amalgamation 400 amalgamation.sh
    if [ "$how" = all ]; then
        try go 900 go.sh
        try npm 600 npm.sh
        for RELEASE in ${RELEASES:-bullseye bookworm}; do
            export RELEASE
            try "debian-$RELEASE" 900 debian.sh
        done
        try lint 200 lint.sh
    fi
    ;;
"$(uname -m)-unknown-linux-musl")
    for SYSTEM in oldest alpine; do
        export SYSTEM
        try "musl-$SYSTEM" 600 musl.sh
    done
    ;;
*)
    try foreign 1200 foreign.sh
    if [ "$how" = all ]; then
        case $TARGET in *-gnu) try lint 200 lint.sh ;; esac
        try machine 3600 machine.sh
    fi
    ;;
esac
if [ "$how" = all ]; then
    try again 3600 again.sh
fi
echo "packages: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
