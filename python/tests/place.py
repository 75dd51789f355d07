"""Where a test works: a folder of its own, with databases that are closed at its end."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import plait


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "app.db")

    def open(self, path=None, *args, **named):
        db = plait.open(path or self.path, *args, **named)
        self.addCleanup(db.close)
        return db

    def joined(self, **named):
        """A database whose connection is not alone: that takes more descriptors, and others are seen to wait for it."""
        db = self.open(**named)
        list(db.execute("SELECT * FROM plait_status"))
        return db

    def beside(self):
        """The files beside the database."""
        return sorted(set(os.listdir(self.folder)) - {"app.db"})

    def random(self):
        seed = int(os.environ.get("PLAIT_SEED") or random.randrange(1 << 32))
        print(f"{self.id()}: PLAIT_SEED={seed}", file=sys.stderr)
        return random.Random(seed)

    def python(self, program, *args, env=None, sigint=signal.SIG_DFL, **named):
        """Starts a program in a process of its own; it finds its arguments in sys.argv. Python handles SIGINT there, unless it is to be ignored."""
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *args],
            env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, sigint), **named,
        )

    def ends_well(self, process, timeout=60):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, 0, f"{out}\n{err}")
        return out
