#!/bin/sh
# npm-suite.sh CHECKOUT: better-sqlite3's own tests on better-sqlite3 as npm delivers it, on our npm package, and on ours with every WAL database in concurrent
# mode. What passes on the first passes on the second; of the third the differences are printed. The package that npm delivers has no tests: CHECKOUT is one of its
# repository. `make npm-suite CHECKOUT=...`
set -eu
checkout=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
driver=$(sed -n '/better-sqlite3/,/version/s/ *version: "\(.*\)",/\1/p' "$root/crates/xtask/src/dist/npm.rs")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund chai@4.5.0 mocha@11.7.5 fs-extra@11.3.2 "node-linux-$(node -p process.arch)@22"
node=$(echo "$PWD"/node_modules/node-linux-*/bin/node)
npm pack --silent "better-sqlite3@$driver" >/dev/null
cp "$root/dist/packages/plait-db-$version.tgz" .
mkdir stock ours
tar xzf better-sqlite3-*.tgz -C stock --strip-components=1
tar xzf plait-db-*.tgz -C ours --strip-components=1
for side in stock ours; do
    cp -R "$checkout/test" $side/test
    mkdir -p $side/build/Release
    cc -shared -fPIC -I stock/deps/sqlite3 "$checkout/deps/test_extension.c" -o $side/build/Release/test_extension.node
done
suite() { (cd "$1" && "$node" ../node_modules/mocha/bin/mocha.js --exit --timeout=20000 --reporter=json >"../$2.json" 2>"../$2.err" || true); }
suite stock stock
suite ours ours
export PLAIT_JOURNAL_MODE=concurrent
suite ours concurrent
python3 - <<'PYTHON'
import json, sys
told = {}
for side in ("stock", "ours", "concurrent"):
    with open(f"{side}.json") as file:
        text = file.read()
    told[side] = json.loads(text[text.index('{\n  "stats"'):])
    stats = told[side]["stats"]
    print(f"{side}: {stats['passes']} passed, {stats['failures']} failed, {stats['pending']} skipped")
passed = {side: {test["fullTitle"] for test in all["passes"]} for side, all in told.items()}
for side in ("ours", "concurrent"):
    why = {test["fullTitle"]: test["err"].get("message", "")[:200] for test in told[side]["failures"]}
    for title in sorted(passed["stock"] - passed[side]):
        print(f"{side}, not as on stock: {title}: {why.get(title, 'did not run')}")
sys.exit(bool(passed["stock"] - passed["ours"]) or not passed["stock"])
PYTHON
