#!/bin/sh
# run.sh quick|all: tests what `make packages` has made, and `make install`. Each test is a file here, and runs in an empty folder.
#
# quick leaves out the container, lintian, and the second build. A test that cannot run here says why, and counts as skipped.
set -eu
how=$1
TESTS=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$TESTS/../.." && pwd)
PACKAGES=$ROOT/dist/packages
export TESTS ROOT PACKAGES
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

try archive 200 archive.sh
try source 600 source.sh
try amalgamation 400 amalgamation.sh
if [ "$how" = all ]; then
    for RELEASE in ${RELEASES:-bullseye bookworm}; do
        export RELEASE
        try "debian-$RELEASE" 900 debian.sh
    done
    try lint 200 lint.sh
    try again 3600 again.sh
fi
echo "packages: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
