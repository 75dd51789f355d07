"""docs/migrate.md, docs/adopt/go.md, node.md and rust.md do what they say, with the archives in dist/packages. A page whose tools are
not installed is left out, and says so."""

import contextlib
import glob
import os
import platform
import shutil
import sqlite3
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
        for archive in glob.glob(os.path.join(page.ROOT, "dist", "packages", "*.tar.gz")):
            shutil.copy(archive, self.folder)

    def adopt(self, name, needs):
        if not all(shutil.which(tool) for tool in needs):
            self.skipTest(f"needs {' and '.join(needs)}")
        self.assertGreater(page.run(f"adopt/{name}", self.folder), 1)
        # At rest: every process has closed the database.
        self.assertEqual([file for file in os.listdir(self.folder) if file.startswith("bank.db")], ["bank.db"])

    def test_go(self):
        self.adopt("go.md", ["go", "cc"])

    def test_node(self):
        self.adopt("node.md", ["npm", "node", "c++"])

    def test_rust(self):
        self.adopt("rust.md", ["cargo", "pkg-config", "cc"])

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
