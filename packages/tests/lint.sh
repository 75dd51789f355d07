#!/bin/sh
# What lintian says of the Debian package. The authors have no mail address, which it calls an error.
set -eu
command -v lintian >/dev/null || { echo "needs lintian"; exit 77; }
lintian --allow-root --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog \
    --fail-on error,warning "$DEB"
