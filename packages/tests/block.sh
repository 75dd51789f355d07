#!/bin/sh
# block.sh HEADING [LANGUAGE]: prints the first block of commands (or code) below a heading of docs/install.md, for a test to run.
set -eu
page=$(cd "$(dirname "$0")/../.." && pwd)/docs/install.md
awk -v heading="## $1" -v fence="\`\`\`${2:-sh}" '
    /^## / { inside = $0 == heading; next }
    inside && !open && $0 == fence { open = 1; next }
    open && $0 == "```" { found = 1; exit }
    open { print }
    END { exit !found }
' "$page"
