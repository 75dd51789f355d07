"""Builds the extension with libsqlite3.a of dist/ inside, and names the wheel after what it needs.

The library is linked in and none of its symbols is visible: a process may have another libsqlite3 as well, that of Python's own
sqlite3 module, and neither must bind to the other. (A shared one beside the extension would go by the name libsqlite3.so.0, under which the loader
gives whatever has been loaded before.)
"""

import glob
import os
import re
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
DIST = HERE.parent / "dist"
# The stable ABI of this version and all later ones.
ABI = (3, 10)
# What the manylinux policies let a wheel expect of every system.
EXPECTED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"}


def version():
    """That of the workspace: tomllib is not in every Python that can build this."""
    text = (HERE.parent / "Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\][^\[]*?^version = "([^"]*)"', text, re.MULTILINE).group(1)


def platform_of(library):
    """manylinux_2_Y: the newest version of glibc that a symbol is asked of; linux: it needs something else than that."""
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    dynamic = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    needed = {n for n in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) if not n.startswith("ld-linux")}
    versions = subprocess.run(["readelf", "-VW", library], check=True, capture_output=True, text=True).stdout
    glibc = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", versions)]
    if needed - EXPECTED or not glibc or max(glibc)[0] != 2:
        print(f"not a manylinux wheel: needs {sorted(needed - EXPECTED)}")
        return machine
    return machine.replace("linux", f"manylinux_2_{max(glibc)[1]}", 1)


class BuildExt(build_ext):
    def build_extension(self, ext):
        super().build_extension(ext)
        # Symbols and debug information of the library, three quarters of its size.
        subprocess.run(["strip", "--strip-unneeded", self.get_ext_fullpath(ext.name)], check=True)


class BdistWheel(bdist_wheel):
    def get_tag(self):
        python, abi, _ = super().get_tag()
        (built,) = glob.glob(os.path.join(self.bdist_dir, "plait", "_plait.*.so"))
        return python, abi, platform_of(built)


setup(
    version=version(),
    ext_modules=[
        Extension(
            "plait._plait",
            sorted(glob.glob("csrc/*.c")),
            depends=[*glob.glob("csrc/*.h"), str(DIST / "lib/libsqlite3.a")],
            include_dirs=[str(DIST / "include")],
            define_macros=[("Py_LIMITED_API", f"0x{ABI[0]:02X}{ABI[1]:02X}0000")],
            extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-cast-function-type"],
            extra_objects=[str(DIST / "lib/libsqlite3.a")],
            extra_link_args=["-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic", "-Wl,--gc-sections", "-lgcc_s", "-lpthread", "-ldl", "-lm"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": f"cp{ABI[0]}{ABI[1]}"}},
    cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel},
)
