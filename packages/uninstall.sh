#!/bin/sh
# uninstall.sh PREFIX [DESTDIR]: removes what install.sh has put there, and the folders that are empty then.
set -eu
prefix=$1
to=${2-}$prefix
list=$to/lib/plait/files
if [ ! -f "$list" ]; then
    printf 'error: Plait is not installed below %s: there is no lib/plait/files\n  try: make uninstall with the PREFIX and DESTDIR of the installation\n' "$to" >&2
    exit 1
fi
setting=/etc/ld.so.conf.d/00-plait.conf
# Programs would look for the library in a directory that is gone.
if [ -z "${2-}" ] && [ -f "$setting" ] && grep -qxF -e "$prefix/lib/plait" "$setting"; then
    "$to/sbin/plait-system-sqlite" disable
fi
files=$(cat "$list")
printf '%s\n' "$files" | while IFS= read -r file; do
    rm -f "$to/$file"
done
# The deepest first. A folder that holds something else stays, and so does the prefix.
printf '%s\n' "$files" | while IFS= read -r file; do
    folder=$(dirname "$file")
    while [ "$folder" != . ]; do
        printf '%s\n' "$folder"
        folder=$(dirname "$folder")
    done
done | sort -ru | while IFS= read -r folder; do
    rmdir "$to/$folder" 2>/dev/null || true
done
echo "Removed from $to."
