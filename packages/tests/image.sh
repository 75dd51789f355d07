#!/bin/sh
# image.sh NAME: prints the commands that packages/oci/Containerfile.NAME runs, for a test to run in a root folder with the packages in /packages: where no
# engine for containers is. The page shows the same file.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
file=$root/packages/oci/Containerfile.$1
shown=$(grep -v '^#' "$file")
case $(cat "$root/docs/install.md") in
*"$shown"*) ;;
*)
    echo "docs/install.md does not show $file" >&2
    exit 1
    ;;
esac
printf '%s\n' "$shown" | awk '
    { line = line $0 }
    sub(/\\$/, "", line) { next }
    sub(/^RUN /, "", line) { sub(/--mount=[^ ]* /, "", line); print line; found = 1 }
    { line = "" }
    END { exit !found }
'
