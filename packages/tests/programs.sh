#!/bin/sh
# programs.sh PREFIX: C programs built with what is installed below PREFIX, by pkg-config and by CMake, shared and static; each
# is run without an environment, two processes at a time.
set -eu
prefix=$1
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
cp "$TESTS/app.c" .
sh -eux -c "$(sh "$TESTS/block.sh" 'C programs')"
own=$(PKG_CONFIG_PATH="$prefix/lib/plait/pkgconfig" pkg-config --cflags --libs sqlite3)
# shellcheck disable=SC2086  # Flags are words.
cc app.c $own -o by-the-name-of-sqlite3
mkdir cmake
(sh "$TESTS/block.sh" 'C programs' cmake && cat <<'C'
add_executable(static app.c)
target_link_libraries(static Plait::sqlite3_static)
C
) >CMakeLists.txt
cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build cmake >/dev/null

works() {
    rm -f app.db*
    # The mode is entered once, by one process.
    env -i "$1" app.db 0 >/dev/null
    timeout 120 env -i "$1" app.db 200 >one &
    one=$!
    timeout 120 env -i "$1" app.db 200 >two &
    two=$!
    wait $one
    wait $two
    case $(env -i "$1" app.db 0) in
    "400 plait "[0-9]*) echo "works: $1" ;;
    *) exit 1 ;;
    esac
}
for shared in ./app ./by-the-name-of-sqlite3 cmake/app; do
    works "$shared"
    ldd "$shared" | grep -q "lib/plait/libsqlite3.so.0"
done
for static in ./app-static cmake/static; do
    works "$static"
    if readelf -d "$static" | grep -q libsqlite3; then exit 1; fi
done
if readelf -d ./app-static | grep -q NEEDED; then exit 1; fi
# A version that there is not.
sed -i 's/find_package(Plait[^)]*)/find_package(Plait 99 REQUIRED)/' CMakeLists.txt
if cmake -S . -B other -DCMAKE_PREFIX_PATH="$prefix" >said 2>&1; then exit 1; fi
grep -q 'requested version "99"' said
