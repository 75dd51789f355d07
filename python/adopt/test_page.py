"""docs/adopt/python.md does what it says: its blocks are run, in order, in one folder."""

import glob
import os
import shutil
import subprocess
import sys
import time

import page
from place import Case

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Page(Case):
    def run_block(self, command, named=None):
        cache = os.path.join(ROOT, "target", "python", "pip")
        env = {"PIP_CACHE_DIR": cache, "PATH": os.path.join(self.folder, "venv", "bin") + ":/usr/bin:/bin", "HOME": self.folder, **(named or {})}
        done = subprocess.run(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
        return done.stdout

    def shell(self, line):
        command, _, expected = line.partition("#")
        command = command.replace("python3 -m venv", f"{sys.executable} -m venv")
        # The network is what pip needs, however it is set up here.
        out = self.run_block(["sh", "-c", command], {k: v for k, v in os.environ.items() if k.lower().startswith("pip_") or k.lower().endswith("_proxy")})
        if expected:
            self.assertIn(expected.strip(), out)

    def python_block(self, name, text):
        if "Show.objects" in text:
            return compile(text, "django", "exec")  # test_django.py runs it
        path = os.path.join(self.folder, name or "block.py")
        with open(path, "w") as file:
            file.write(text)
        return name or self.run_block(["venv/bin/python", path])

    def test_every_block_runs(self):
        for wheel in glob.glob(os.path.join(os.environ["PLAIT_WHEELS"], "plait-*.whl")):
            shutil.copy(wheel, self.folder)
        count = 0
        for language, name, text in page.blocks("adopt/python.md"):
            count += 1
            if language == "sh":
                for line in text.splitlines():
                    self.shell(line)
            else:
                self.python_block(name, text)
        self.assertGreater(count, 12)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "bank.db")))
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("bank.db")], ["bank.db"])


class FirstCommit(Case):
    PROGRAM = (
        "from plait import sqlite3; db = sqlite3.connect('new.db', isolation_level=None); db.execute('PRAGMA journal_mode=concurrent');"
        "db.execute('CREATE TABLE t(n)'); db.execute('BEGIN CONCURRENT'); db.execute('INSERT INTO t VALUES (1)'); db.execute('COMMIT')"
    )

    def test_from_pip_install_to_the_first_concurrent_commit_in_ten_seconds(self):
        (wheel,) = glob.glob(os.path.join(os.environ["PLAIT_WHEELS"], "plait-*.whl"))
        venv = os.path.join(self.folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        alone = {"PATH": os.path.join(venv, "bin"), "HOME": self.folder}  # no compiler, and no variable of ours
        began = time.monotonic()
        subprocess.run([f"{venv}/bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel], check=True, env=alone)
        subprocess.run([f"{venv}/bin/python", "-c", self.PROGRAM], check=True, env=alone, cwd=self.folder)
        seconds = time.monotonic() - began
        print(f"from pip install to the first concurrent commit: {seconds:.1f} s", file=sys.stderr)
        self.assertLess(seconds, 10)
