#!/bin/sh
# The npm package as its users have it: installed where no compiler is, without the network; the page's eight processes on each version of Node; under
# the name of better-sqlite3; and what it shows of itself to the rest of the process. npm fetches the other versions of Node.
set -eu
package=$PACKAGES/plait-db-$VERSION.tgz
[ -e "$package" ] || { echo "there is no npm package: \`make packages\` makes it where npm is"; exit 77; }
for tool in npm node nm python3; do
    command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
npm=$(command -v npm)
# Programs that an installation may start: no compiler, no Python.
mkdir bin
for tool in node sh env timeout; do ln -s "$(command -v $tool)" bin/$tool; done
installed() { (cd "$1" && env -i HOME="$PWD/../home" PATH="$PWD/../bin" node "$npm" install --offline --ignore-scripts=false --no-audit --no-fund --loglevel=error >&2); }
mkdir app home
cp "$package" .
echo '{ "dependencies": { "plait-db": "file:../plait-db-'"$VERSION"'.tgz" } }' >app/package.json
installed app
[ "$(ls app/node_modules)" = plait-db ]
addon=$(echo app/node_modules/plait-db/prebuilds/*.node)
# It shows what Node asks for, and nothing of SQLite.
[ "$(nm -D --defined-only "$addon" | sed 's/.* //; s/@.*//' | sort | tr '\n' ' ')" = "napi_register_module_v1 node_api_module_get_api_version_v1 " ]

# The page's program.
python3 - "$ROOT" <<'PYTHON' >app/bank.js
import sys
sys.path.insert(0, sys.argv[1] + "/adopt")
import page
print(next(text for _, name, text in page.blocks("adopt/node.md") if name == "bank.js"))
PYTHON
cat >app/more.js <<'JS'
const assert = require('node:assert');
const fs = require('node:fs');
const { Worker, isMainThread } = require('node:worker_threads');
const Database = require('plait-db');

const open = () => new Database('more.db', { timeout: 10000 });
if (!isMainThread) {
  const db = open();
  for (let i = 0; i < 50; i++) db.prepare('INSERT INTO t VALUES (?)').run(i);
  db.close();
  return;
}
const db = open();
// As better-sqlite3 has them.
const ask = (name) => db.pragma(name, { simple: true });
assert.strictEqual(ask('foreign_keys'), 1);
assert.strictEqual(ask('cache_size'), -16000);
assert.throws(() => db.prepare('SELECT "no such column"'), /no such column/);
assert.strictEqual(ask('journal_mode = wal'), 'wal');
db.exec('CREATE TABLE t(a)');
assert.strictEqual(ask('synchronous'), 1);
assert.strictEqual(ask('journal_mode = concurrent'), 'concurrent');
assert.strictEqual(open().pragma('synchronous', { simple: true }), 1);
// A database by its descriptors.
const [file, journalFd] = ['fd.db', 'fd.db-journal'].map((name) => {
  fs.writeFileSync(name, '');
  return fs.openSync(name, 'r+');
});
const own = new Database(file, { journalFd });
own.exec('CREATE TABLE u(a); INSERT INTO u VALUES (1)');
assert.throws(() => own.pragma('journal_mode = concurrent'), /needs the default VFS/);
assert.strictEqual(own.prepare('SELECT a FROM u').pluck().get(), 1);
own.close();
const threads = [1, 2, 3, 4].map(() => new Promise((done, failed) => {
  new Worker(__filename).on('exit', (code) => code === 0 ? done() : failed(code));
}));
Promise.all(threads).then(async () => {
  assert.strictEqual(db.prepare('SELECT count(*) FROM t').pluck().get(), 200);
  await db.backup('copy.db');
  assert.strictEqual(new Database('copy.db').pragma('integrity_check', { simple: true }), 'ok');
  const serialized = new Database(db.serialize());
  assert.strictEqual(serialized.prepare('SELECT count(*) FROM t').pluck().get(), 200);
  db.close();
  console.log(process.version, 'works');
});
JS

# Versions of Node that npm has: that of this machine may be older than what the package needs.
kept=$ROOT/target/packages/node
mkdir -p "$kept"
for major in ${NODES-22 24 26}; do
    [ -x "$kept/$major/bin/node" ] || {
        rm -rf "$kept/new"
        npm install --silent --no-audit --no-fund --prefix "$kept/new" "node-linux-$(node -p process.arch)@$major"
        mv "$kept"/new/node_modules/node-linux-* "$kept/$major"
    }
done
within() { (cd app && env -i PATH="$PWD/../bin" timeout 120 "$node" "$1.js"); }
for major in ${NODES-22 24 26}; do
    node=$kept/$major/bin/node
    rm -f app/*.db*
    [ "$(within bank)" = "50 5000" ]
    within more | grep works
    # Each has closed it.
    [ "$(cd app && echo bank.db*)" = bank.db ]
done

# One that is too old is refused, before the addon would crash.
(cd app && env -i PATH="$PWD/../bin" "$node" -e '
    Object.defineProperty(process, "versions", { value: { node: "22.13.1" } });
    let said = "";
    try { require("plait-db"); } catch (error) { said = error.message; }
    if (!said.includes("needs Node 22.14 or newer; this is 22.13.1")) throw new Error(`it says: ${said}`);
')

# Under the name that programs ask for, and for what they use besides.
mkdir -p shop
echo '{ "dependencies": { "better-sqlite3": "file:../plait-db-'"$VERSION"'.tgz" } }' >shop/package.json
installed shop
(cd shop && env -i PATH="$PWD/../bin" "$node" -e '
    const db = require("better-sqlite3")("shop.db");
    if (!db.prepare("SELECT plait_version()").pluck().get()) throw new Error("it is another SQLite");
')
