#!/bin/sh
# install.sh TREE PREFIX [DESTDIR]: copies what `make tree` has laid out. Needs no cargo, so that root can run it.
set -eu
tree=$1
prefix=$2
destdir=${3-}
fail() {
    printf 'error: %s\n  try: %s\n' "$1" "$2" >&2
    exit 1
}
[ -f "$tree/lib/plait/files" ] || fail "nothing to install: $tree is not there" "run \`make tree\` first, as a user who has cargo"
case $prefix in
/*) ;;
*) fail "PREFIX is not an absolute path: $prefix" "make install PREFIX=/usr/local" ;;
esac
to=$destdir$prefix
# What an older version has put there and this one has not is removed.
if [ -f "$to/lib/plait/files" ]; then
    while IFS= read -r file; do
        grep -qxF -e "$file" "$tree/lib/plait/files" || rm -f "$to/$file"
    done <"$to/lib/plait/files"
fi
while IFS= read -r file; do
    mkdir -p "$to/$(dirname "$file")"
    # A program that runs keeps the file that it has: the new one gets the name by a rename.
    cp -P "$tree/$file" "$to/$file.new"
    mv -f "$to/$file.new" "$to/$file"
done <"$tree/lib/plait/files"
echo "Installed below $to. \`make uninstall\` with the same PREFIX and DESTDIR removes it."
