"""Builds the extension with libsqlite3.a of dist/ inside, and names the wheel after what it needs.

The library is linked in and none of its symbols is visible: a process may have another libsqlite3 as well, that of Python's own
sqlite3 module, and neither must bind to the other. (A shared one beside the extension would go by the name libsqlite3.so.0, under which the loader
gives whatever has been loaded before.)

plait.sqlite3 is in the same extension, for the same reason: a second one would bring the library a second time. Its sources, of pysqlite3, have static types, which the
stable ABI does not know. So there is a wheel for each CPython.

PLAIT_DIST names another folder than dist/ with the library, and PLAIT_SOURCES that of the archive of pysqlite3. PLAIT_TARGET is what is built for, as Rust names it; CC and
LDSHARED then build for it, and PLAIT_STRIP strips what they have built. `make wheel` and `make wheels` set them. A CPython for another system is not needed: an extension takes
headers alone, and what they say is the same on every 64-bit Linux.
"""

import glob
import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pysqlite3  # noqa: E402

DIST = Path(os.environ.get("PLAIT_DIST") or HERE.parent / "dist")
SOURCES = Path(os.environ.get("PLAIT_SOURCES") or HERE.parent / "target" / "python")
TARGET = os.environ.get("PLAIT_TARGET")
STRIP = os.environ.get("PLAIT_STRIP", "strip")
# What the manylinux policies let a wheel expect of every system.
EXPECTED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
# The series of musl that Debian 11 and all since Alpine 3.13 are of.
MUSL = "musllinux_1_2"


def version():
    """That of the workspace: tomllib is not in every Python that can build this."""
    text = (HERE.parent / "Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\][^\[]*?^version = "([^"]*)"', text, re.MULTILINE).group(1)


def platform_of(library):
    """manylinux_2_Y: the newest version of glibc that a symbol is asked of; musllinux_1_2: it needs musl; linux: something else than that."""
    machine = TARGET.split("-")[0] if TARGET else os.uname().machine
    dynamic = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    needed = {n for n in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) if not n.startswith("ld-linux")}
    if needed == {f"libc.musl-{machine}.so.1"}:
        return f"{MUSL}_{machine}"
    versions = subprocess.run(["readelf", "-VW", library], check=True, capture_output=True, text=True).stdout
    glibc = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", versions)]
    if needed - EXPECTED or not glibc or max(glibc)[0] != 2:
        print(f"neither a manylinux nor a musllinux wheel: needs {sorted(needed - EXPECTED)}")
        return f"linux_{machine}"
    return f"manylinux_2_{max(glibc)[1]}_{machine}"


class BuildExt(build_ext):
    def build_extension(self, ext):
        made = Path(self.build_temp) / "pysqlite3"
        ext.sources += pysqlite3.unpack(SOURCES / pysqlite3.ARCHIVE, made)
        (made / "constants.h").write_text(pysqlite3.constants(DIST / "include" / "sqlite3.h"))
        ext.include_dirs += [str(made), "csrc"]
        super().build_extension(ext)
        # Symbols and debug information of the library, three quarters of its size.
        subprocess.run([STRIP, "--strip-unneeded", self.get_ext_fullpath(ext.name)], check=True)


class BdistWheel(bdist_wheel):
    def get_tag(self):
        python, abi, _ = super().get_tag()
        (built,) = glob.glob(os.path.join(self.bdist_dir, "plait", "_plait*.so"))
        return python, abi, platform_of(built)


setup(
    version=version(),
    ext_modules=[
        Extension(
            "plait._plait",
            sorted(glob.glob("csrc/*.c")),
            depends=[*glob.glob("csrc/*.h"), "pysqlite3.py", str(DIST / "lib/libsqlite3.a")],
            include_dirs=[str(DIST / "include")],
            define_macros=[("MODULE_NAME", '"plait.sqlite3"')],
            # The last three: pysqlite3 is written so.
            extra_compile_args=[
                *("-std=gnu11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-cast-function-type"),
                *("-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-unused-function"),
            ],
            extra_objects=[str(DIST / "lib/libsqlite3.a")],
            extra_link_args=[
                *("-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic", "-Wl,--gc-sections"),
                *("-lgcc_s", "-lpthread", "-ldl", "-lm"),
            ],
        )
    ],
    cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel},
)
