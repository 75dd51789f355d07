#!/bin/sh
# Tests the wheels for musl in dist/wheels as they are installed, in Alpine's root folder: musl.sh PYTHON ...
#
# No registry has a CPython for musl, so it is built from Debian's source of the same minor version, with the compiler that `make packages` has left, and kept
# in target/packages. Its own sqlite3 module gets stock SQLite's library, as Alpine's does. PYTHON says which version. One whose source Debian does not have is left
# out, and said. It takes Debian's package musl, whose loader starts what is built.
set -eu
tests=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$tests/../.." && pwd)
MACHINE=$(uname -m)
LABEL=$MACHINE-musl
MADE=$ROOT/target/packages/$LABEL
export ROOT MACHINE MADE
mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# source_of NAME RELEASE FOLDER: unpacks Debian's source of NAME.
source_of() {
    mkdir -p apt/lists/partial apt/archives/partial
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $2 main" >apt/sources
    cat >apt/conf <<CONF
Dir::Etc::sourcelist "$PWD/apt/sources"; Dir::Etc::sourceparts "-"; Dir::State::lists "$PWD/apt/lists"; Dir::Cache "$PWD/apt"; APT::Sandbox::User "root";
CONF
    (export APT_CONFIG="$PWD/apt/conf" && apt-get update -qq && apt-get source -qq --download-only "$1") >/dev/null
    mkdir "$3"
    tar xf "$1"_*.orig.tar.*z -C "$3" --strip-components=1
}

# build VERSION: CPython for musl into $MADE/python$VERSION.
build() (
    rm -rf "$place/build"
    mkdir "$place/build"
    cd "$place/build"
    case $1 in
    3.11) source_of python3.11 bookworm source ;;
    3.13) source_of python3.13 trixie source ;;
    *) exit 77 ;;
    esac
    source_of libffi bookworm libffi
    # CPython wants a compiler that names the platform in one way only.
    printf '#!/bin/sh\n[ "$1" != --print-multiarch ] || exec echo %s-linux-musl\nexec "%s/cc" "$@"\n' "$MACHINE" "$MADE" >compiler
    chmod +x compiler
    # What its modules are linked with, in one folder, by the names that its configure asks for.
    mkdir -p needed made
    said() { "$@" >said 2>&1 || { tail -n 20 said; exit 1; }; }
    (cd libffi && said ./configure --prefix="$place/build/needed" --libdir="$place/build/needed" --disable-docs --disable-multi-os-directory \
        --disable-exec-static-tramp CC="$PWD/../compiler" && said make install) || exit 1
    cp "$MADE/tree/lib/plait/stock/libsqlite3.so.0" needed
    ln -s libsqlite3.so.0 needed/libsqlite3.so
    needed=$PWD/needed
    cd made
    export LD_LIBRARY_PATH="$needed" PKG_CONFIG_LIBDIR=/nonexistent
    said env LIBSQLITE3_CFLAGS="-I$MADE/tree/include/plait" LIBSQLITE3_LIBS="-L$needed -lsqlite3" \
        LIBFFI_CFLAGS="-I$needed/include" LIBFFI_LIBS="-L$needed -lffi" \
        ../source/configure --prefix=/usr/local --without-ensurepip --disable-test-modules CC="$PWD/../compiler" OPT=-O1
    said make -j"${JOBS:-2}"
    said make install DESTDIR="$MADE/python$1.new"
    for module in _sqlite3 _ctypes; do
        ls "$MADE/python$1.new/usr/local/lib/python$1/lib-dynload/$module".*.so >/dev/null || exit 1
    done
    mkdir -p "$MADE/python$1.new/usr/lib"
    cp -a "$needed"/lib*.so.* "$MADE/python$1.new/usr/lib"
    mv "$MADE/python$1.new" "$MADE/python$1"
)

failed=
for python in "$@"; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ ! -d "$MADE/python$version" ]; then
        code=0
        build "$version" || code=$?
        if [ $code = 77 ]; then
            echo "CPython $version is left out: Debian has no source of it"
            continue
        fi
        [ $code = 0 ] || exit $code
    fi
    rm -rf "$place/root"
    (cd "$place" && sh "$ROOT/packages/tests/musl-root.sh" alpine root)
    cp -a "$MADE/python$version/." "$place/root"
    tags=cp$(echo "$version" | tr -d .)
    python3 -m zipfile --extract "$ROOT"/dist/wheels/plait-*-"$tags-$tags-musllinux_1_2_$MACHINE.whl" "$place/root/site"
    cp -R "$tests" "$ROOT/packages/tests/use.sh" "$ROOT/packages/tests/writer.py" "$place/root"
    cp -a "$MADE/tree" "$place/root/plait"
    inside() {
        timeout 900 unshare --mount --pid --fork --kill-child --mount-proc="$place/root/proc" chroot "$place/root" \
            env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin PYTHONPATH=/site:/tests PLAIT_LIB=/plait/lib/plait/libsqlite3.so.0 "$@"
    }
    inside "python$version" -c 'import sys, platform, sysconfig; print(sys.version, sysconfig.get_config_var("SOABI"))'
    inside "python$version" -m unittest discover --start-directory /tests || failed=yes
    # Its own sqlite3 module on Plait, as a user of Alpine's Python begins.
    inside sh -eux -c "mkdir /use; cd /use; sh /use.sh /plait/bin/plait python$version /" || failed=yes
done
[ -z "$failed" ]
