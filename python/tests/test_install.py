"""plait.install(), `python -m plait`, and what they refuse."""

import os

from place import Case

WRITER = """
    import sqlite3, sys
    import sqlite3.dbapi2
    db = sqlite3.connect(sys.argv[1])
    print(sqlite3.__name__, sqlite3.dbapi2.__name__, "_sqlite3" in sys.modules, db.execute("PRAGMA journal_mode=wal").fetchone()[0])
    db.close()
"""


class Install(Case):
    def test_import_means_ours(self):
        program = "import plait; plait.install(); plait.install()\n" + _plain(WRITER)
        self.assertEqual(self.ends_well(self.python(program, self.path)).split(), ["plait.sqlite3", "plait.sqlite3.dbapi2", "False", "wal"])

    def test_who_asks_for_wal_gets_concurrent_mode_on_request(self):
        program = "import plait; plait.install(concurrent=True)\n" + _plain(WRITER)
        self.assertEqual(self.ends_well(self.python(program, self.path)).split()[-1], "concurrent")

    def test_it_refuses_when_pythons_was_imported(self):
        program = """
            import sqlite3, plait
            try:
                plait.install()
            except RuntimeError as e:
                print(e)
            import sqlite3 as again
            assert again is sqlite3
        """
        self.assertRegex(self.ends_well(self.python(program)), r"imported before plait.install\(\) \(by __main__\).*call plait.install\(\) before")

    def test_late_goes_on_and_guards_the_files(self):
        program = """
            import sqlite3 as before, plait, sys
            theirs = before.connect(sys.argv[1])
            theirs.execute("CREATE TABLE t(n)")
            plait.install(late=True)
            import sqlite3
            assert sqlite3.__name__ == "plait.sqlite3"
            for _ in range(2):
                try:
                    sqlite3.connect(sys.argv[1]).close()
                    print("opened")
                except sqlite3.OperationalError as e:
                    print("refused")
                theirs.close()
        """
        self.assertEqual(self.ends_well(self.python(program, self.path)).split(), ["refused", "opened"])

    def test_a_program_is_run_unchanged(self):
        path = os.path.join(self.folder, "program.py")
        with open(path, "w") as file:
            file.write(_plain(WRITER))
        for arguments in ([path, self.path], ["--concurrent", path, self.path]):
            out = self.ends_well(self.python("import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'plait', *sys.argv[1:]])", *arguments))
            self.assertEqual(out.split()[:2], ["plait.sqlite3", "plait.sqlite3.dbapi2"])
        self.assertEqual(out.split()[-1], "concurrent")

    def test_a_module_is_run_too(self):
        with open(os.path.join(self.folder, "named.py"), "w") as file:
            file.write(_plain(WRITER))
        program = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'plait', '-m', 'named', sys.argv[1]])"
        out = self.ends_well(self.python(program, self.path, cwd=self.folder))
        self.assertEqual(out.split()[0], "plait.sqlite3")


def _plain(text):
    return "\n".join(line[4:] for line in text.splitlines())


class Package(Case):
    def test_it_carries_the_licence(self):
        import importlib.metadata

        (licence,) = [f for f in importlib.metadata.files("plait") if f.name == "LICENSE"]
        self.assertIn("Permission is hereby granted", licence.read_text())


class Typing(Case):
    def test_the_stubs_name_what_the_package_has(self):
        import ast

        import plait

        folder = os.path.dirname(plait.__file__)
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))
        with open(os.path.join(folder, "__init__.pyi")) as file:
            tree = ast.parse(file.read())
        named = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        named |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
        self.assertEqual(set(plait.__all__) - named, set())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and hasattr(plait, node.name):
                methods = {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
                self.assertEqual(methods - set(dir(getattr(plait, node.name))), set(), node.name)
