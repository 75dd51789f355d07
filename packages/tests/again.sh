#!/bin/sh
# The same commit, built again in another folder, has the same bytes.
set -eu
[ -z "$(git -C "$ROOT" status --porcelain)" ] || { echo "there are uncommitted changes, which no other folder has"; exit 77; }
git clone --quiet "$ROOT" again
unset CARGO_TARGET_DIR
make -C again packages
for archive in "$PACKAGES"/*; do
    cmp "$archive" "again/dist/packages/${archive##*/}"
    echo "the same: ${archive##*/}"
done
