"""Runs a page of the documentation: its blocks, in order, in one folder.

A block whose name stands alone on the line before is a file. A block of shell commands is run as one script. `# -> TEXT` behind a command
is what the script prints. A block of `text` is for readers alone.
"""

import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def blocks(name):
    """(language, name of the file or None, text) of each block of the page, named below docs/."""
    with open(os.path.join(ROOT, "docs", name)) as file:
        text = file.read()
    for found in re.finditer(r"(?:^`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield found[2], found[1], found[3]


def run(name, folder):
    """Runs the page in this folder. Returns how many scripts it has; fails with what a script printed."""
    scripts = 0
    for language, file, text in blocks(name):
        if file:
            path = os.path.join(folder, file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as out:
                out.write(text)
            continue
        if language == "text":
            continue
        assert language == "sh", f"{name}: a block of {language} is no file and no script"
        scripts += 1
        done = subprocess.run(["sh", "-eu", "-c", text], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
        assert done.returncode == 0, f"{name}:\n{text}\nended with {done.returncode}:\n{done.stdout}"
        for expected in re.findall(r"# -> (.+)$", text, re.MULTILINE):
            assert expected in done.stdout, f"{name}:\n{text}\nprinted\n{done.stdout}"
    return scripts
