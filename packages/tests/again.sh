#!/bin/sh
# The same commit, built again in another folder, has the same bytes.
set -eu
[ -z "$(git -C "$ROOT" status --porcelain)" ] || { echo "there are uncommitted changes, which no other folder has"; exit 77; }
git clone --quiet "$ROOT" again
unset CARGO_TARGET_DIR
make -C again packages TARGET="$TARGET"
for archive in "again/dist/packages"/*; do
    cmp "$archive" "$PACKAGES/${archive##*/}"
    echo "the same: ${archive##*/}"
done
