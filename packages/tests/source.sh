#!/bin/sh
# `make install` below an empty folder, what is built with it, an update that has lost a file, and `make uninstall`.
set -eu
export DESTDIR="$PWD/root"
(cd "$ROOT" && sh -eux -c "$(sh "$TESTS/block.sh" Source | sed '/uninstall/d')")
prefix=$DESTDIR/usr/local
bash -euc ". $prefix/share/bash-completion/completions/plait; complete -p plait"
MANPATH="$prefix/share/man" man --where plait-run
mkdir use programs
(cd use && sh "$TESTS/use.sh" "$prefix/bin/plait" python3 "$TESTS")
(cd programs && unset DESTDIR && sh "$TESTS/programs.sh" "$prefix")
echo lib/plait/of-an-older-version >>"$prefix/lib/plait/files"
touch "$prefix/lib/plait/of-an-older-version"
# As under sudo, where root has no cargo.
CARGO=no-such-cargo make -C "$ROOT" install
[ ! -e "$prefix/lib/plait/of-an-older-version" ]
# A neighbour's file stays; nothing else does.
touch "$prefix/lib/neighbour"
(cd "$ROOT" && sh -eux -c "$(sh "$TESTS/block.sh" Source | sed -n '/uninstall/p')")
[ "$(cd "$prefix" && find . -mindepth 1 | sort | tr '\n' ' ')" = "./lib ./lib/neighbour " ]
if make -C "$ROOT" uninstall 2>said; then exit 1; fi
grep -q "Plait is not installed below" said
# Without what it would copy.
if sh "$ROOT/packages/install.sh" "$PWD/no-tree" /usr/local "$DESTDIR" 2>said; then exit 1; fi
grep -q "make tree" said
