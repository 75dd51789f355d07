"""The `testfixture` of SQLite's own tests, built around an amalgamation of this project.

SQLite's tests are Tcl scripts, run by a Tcl interpreter that has SQLite inside and some fifty C files that look into it. Those
files and the scripts come from Debian's source package of SQLite; headers for them are cut out of the amalgamation
that is tested, since `struct Btree` and its like must be the same on both sides.
"""

import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import debian
from debian import run

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "target" / "suites"

# Debian's source package: its version, the releases that have it, and the digest of the sources in it.
PACKAGE_VERSION = "3.53.4-2"
RELEASES = ["forky", "sid"]
ARCHIVE = "sqlite3_3.53.4.orig.tar.xz"
ARCHIVE_SHA256 = "05366adc8ee80c6b1faa71285b49d133c2121238ca58934b077fdeb95934abd4"
SOURCE = CACHE / "tcl" / "sqlite3-3.53.4"

# What SQLite's own makefile defines for a testfixture.
TEST_DEFINES = """
    SQLITE_TEST=1 SQLITE_CRASH_TEST=1 SQLITE_SERVER=1 SQLITE_PRIVATE= SQLITE_CORE BUILD_sqlite SQLITE_NO_SYNC=1
    TCLSH_INIT_PROC=sqlite3TestInit SQLITE_SERIES_CONSTRAINT_VERIFY=1 SQLITE_DEFAULT_PAGE_SIZE=1024
    SQLITE_ENABLE_BYTECODE_VTAB SQLITE_ENABLE_CARRAY SQLITE_ENABLE_PERCENTILE SQLITE_CKSUMVFS_STATIC
    SQLITE_STATIC_RANDOMJSON SQLITE_STRICT_SUBTYPE=1
""".split()

# Names of the package's version that the amalgamation has no more.
GONE = ["SQLITE_FactorOutConst=0", "getVarint=sqlite3GetVarint", "putVarint=sqlite3PutVarint"]


def options():
    """The definitions that both libraries of `make dist` are compiled with, from the one list of them."""
    text = (ROOT / "crates/sqlite/build/flags.rs").read_text()
    listed = text[text.index("pub const DEFINES"):text.index("];", text.index("pub const DEFINES"))]
    found = re.findall(r'\("(\w+)", (?:None|Some\("((?:[^"\\]|\\.)*)"\))\)', listed)
    assert len(found) == listed.count('("') - listed.count('Some("'), "an entry of flags.rs was not understood"
    return [name + (f"={value}" if value else "") for name, value in found if name != "SQLITE_API"]


def spliced():
    """The spliced amalgamation of this tree, and the archive with the rest of the library, as cargo makes them."""
    lines = run(["cargo", "build", "--release", "--package", "plait-sqlite", "--message-format=json"], cwd=ROOT)
    messages = [json.loads(line) for line in lines.splitlines()]
    out = [m["out_dir"] for m in messages
           if m["reason"] == "build-script-executed" and "/crates/sqlite#" in m["package_id"]]
    return Path(out[-1]) / "sqlite3.c", ROOT / "target/release/libplait_sqlite.a"


def stock():
    """The amalgamation as it was published."""
    manifest = ROOT / "crates/sqlite/upstream/amalgamation/Cargo.toml"
    data = json.loads(run(["cargo", "metadata", "--format-version=1", "--locked", "--manifest-path", str(manifest)]))
    package = next(p for p in data["packages"] if p["name"] == "libsqlite3-sys")
    return Path(package["manifest_path"]).parent / "sqlite3" / "sqlite3.c"


def headers(amalgamation, into):
    """Cuts the headers out of an amalgamation, each with those that it was the first to include."""
    begin = re.compile(r"^/\*+ Begin file (\S+\.h) \*+/$")
    into.mkdir(parents=True)
    lines = amalgamation.read_text().splitlines(keepends=True)
    starts = {m.group(1): number for number, line in enumerate(lines) if (m := begin.match(line))}
    for name, start in starts.items():
        end = next((n for n in range(start, len(lines)) if re.match(rf"^/\*+ End of {re.escape(name)} \*+/", lines[n])), None)
        if end is not None:
            text = "".join(lines[start:end])
            # Of the public header the amalgamation has an edition that defines.
            public = r"/\*+ Begin file sqlite3\.h \*.*?/\*+ End of sqlite3\.h \*"
            text = re.sub(public, '#include "sqlite3.h"\n/*', text, flags=re.DOTALL)
            if name in ("btreeInt.h", "vdbeInt.h"):
                text = '#include "sqliteInt.h"\n' + text  # commented out there, having been included before
            # Where the amalgamation may define, a header that many files include declares.
            (into / name).write_text(re.sub(r"^SQLITE_PRIVATE (?=[^(]*;)", "extern ", text, flags=re.MULTILINE))


def test_sources():
    """What the makefile lists as the C side of the tests."""
    text = (SOURCE / "main.mk").read_text().replace("\\\n", " ")
    lists = re.findall(r"^TESTSRC \+?= (.*)$", text, re.MULTILINE)
    files = [word.replace("$(TOP)", str(SOURCE)) for part in lists for word in part.split()]
    return [Path(file) for file in files] + [SOURCE / "src/tclsqlite.c"]


def build(name, amalgamation, archive, includes):
    """Compiles and links one testfixture; what has not changed is not compiled again."""
    out = CACHE / "tcl" / name
    stamp = out / "made-of"
    times = [made.stat().st_mtime_ns for made in (amalgamation, archive) if made]
    made_of = f"{amalgamation} {times} {options()} {TEST_DEFINES} {GONE}"
    program = out / "testfixture"
    if not (stamp.exists() and stamp.read_text() == made_of):
        shutil.rmtree(out, ignore_errors=True)
        headers(amalgamation, out / "include")
        for public in ("sqlite3.h", "sqlite3ext.h"):
            shutil.copy(stock().with_name(public), out / "include")
        stamp.write_text(made_of)
    if program.exists():
        return program
    defines = ["-D" + define for define in options() + TEST_DEFINES + GONE]
    tcl = subprocess.run(["pkg-config", "--cflags", "tcl"], capture_output=True, text=True).stdout.split()
    tcl = tcl or ["-I/usr/include/tcl8.6"]
    places = [f"-I{out / 'include'}", *(f"-I{place}" for place in includes)]
    folders = ("src", *(f"ext/{name}" for name in ("fts3", "session", "rtree", "misc", "recover", "intck", "rbu")))
    places += [f"-I{SOURCE / folder}" for folder in folders]
    flags = ["-O1", "-w", "-pthread", "-fno-strict-aliasing", *defines, *places, *tcl]

    # Beside their own folders, where they would find the package's headers instead of those of the amalgamation.
    copies = out / "sources"
    copies.mkdir(exist_ok=True)

    def compiled(source):
        if source.parent == SOURCE / "src":
            source = Path(shutil.copy(source, copies))
        target = out / (source.stem + ".o")
        if not target.exists():
            run(["cc", "-c", *flags, "-o", str(target), str(source)])
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, [amalgamation, *test_sources()]))
    rest = []
    if archive:
        others = out / "librest.a"
        shutil.copy(archive, others)
        members = run(["ar", "t", str(others)]).split()
        run(["ar", "d", str(others), *(member for member in members if member.endswith("-sqlite3.o"))])
        rest = ["-Wl,--whole-archive", str(others), "-Wl,--no-whole-archive"]
    run(["cc", "-o", str(program), *objects, *rest, "-ltcl8.6", "-lz", "-lm", "-ldl", "-lpthread", "-lgcc_s"])
    return program


def both():
    """The two programs: stock SQLite, and this tree's library."""
    fetch()
    source, rest = spliced()
    return {"stock": build("stock", stock(), None, []),
            "plait": build("plait", source, rest, [source.parent, ROOT / "crates/sqlite/csrc"])}


def fetch():
    """Unpacks Debian's source package of SQLite."""
    if not (SOURCE / "main.mk").exists():
        debian.unpack("sqlite3", PACKAGE_VERSION, ARCHIVE, ARCHIVE_SHA256, RELEASES, CACHE / "tcl")


if __name__ == "__main__":
    print(*both().values(), sep="\n")
