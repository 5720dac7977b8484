"""The engine and parts of the manager as C extensions, with `PYKUEUE_COMPILE=1` (`make wheel-compiled`).

Without the variable this adds nothing to pyproject.toml: the same modules are installed as Python, without a
compiler. See docs/decisions/0022-compiled-engine.md.
"""

from __future__ import annotations

import os
import platform
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

ROOT = Path(__file__).parent
#: Libraries that the modules of a part of the package become, compiled at the same time. Constants and types
#: are made for a whole library: hence a manager loads none of the cluster's, or of the simulator's. Calls
#: between them cost no more than calls within one.
LIBRARIES = {
    "pykueue_embedded": (2, ("pykueue.embedded.",)),
    "pykueue_driver": (1, ("pykueue.engine.driver", "pykueue.engine.lifecycle")),
    "pykueue": (3, ("pykueue.",)),
}
#: Passes of gcc that take a third of the time of a build, and gain nothing here.
LEFT_OUT = ("dominator-opts", "fre", "pta", "sra")
#: What mypyc's C calls where something has failed. What leads there is a third of all code; it is put apart
#: from the rest, so that less is read into memory.
RARE = (
    "void CPy_AddTraceback(const char *, const char *, int, PyObject *)",
    "void CPy_AttributeError(const char *, const char *, const char *, const char *, int, PyObject *)",
    "void CPy_TypeError(const char *, PyObject *)",
    "void CPy_TypeErrorTraceback(const char *, const char *, int, PyObject *, const char *, PyObject *)",
)


def libraries(names: list[str]) -> Iterator[tuple[list[str], str]]:
    """The files of each library, and its name."""
    left = list(names)
    for name, (count, parts) in LIBRARIES.items():
        those = [each for each in left if each.startswith(parts)]
        left = [each for each in left if each not in those]
        size = -(-len(those) // count)
        for at in range(0, len(those), size):
            paths = [f"src/{each.replace('.', '/')}.py" for each in those[at : at + size]]
            yield paths, f"{name}_{at // size}"


def rare(header: Path) -> str:
    """The header that says which functions are rarely called, for all files to include."""
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text("#include <Python.h>\n" + "".join(f"{each} __attribute__((cold));\n" for each in RARE))
    return str(header)


def packs_relocations() -> bool:
    """Whether the dynamic linker of this machine reads tables of relocations that are a tenth as long."""
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(map(int, version.split("."))) >= (2, 36)


def extensions() -> list[Extension]:
    """The modules that pyproject.toml lists, compiled by mypyc, and what has to be C."""
    from mypyc.build import mypycify  # of mypy, which only this needs

    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pykueue"]["compiled"]
    paths = [f"src/{name.replace('.', '/')}.py" for name in names]
    groups = list(libraries(names))
    found: list[Extension] = mypycify(
        ["--cache-dir=build/compiled/cache", *paths],
        opt_level="1",  # 2 takes half as long again, and is no faster
        debug_level="0",
        separate=groups,
        target_dir="build/compiled/c",
    )
    flags = [f"-fno-tree-{name}" for name in LEFT_OUT]
    flags += [
        "-include",
        rare(ROOT / "build/compiled/rare.h"),
        "-freorder-blocks-and-partition",
        "-fcrossjumping",
    ]
    flags.append("-fvisibility=hidden")  # only Python looks names up
    link_flags = ["-Wl,-z,pack-relative-relocs"] if packs_relocations() else []
    for extension in found:
        extension.extra_compile_args += flags
        extension.extra_link_args += link_flags
    if sys.platform == "linux":
        found.append(Extension("pykueue.cli._arenas", ["src/pykueue/cli/_arenas.c"]))
    return found


options: dict[str, Any] = {}
# pip asks for the metadata first, which do not depend on what is compiled.
if os.environ.get("PYKUEUE_COMPILE") == "1" and "dist_info" not in sys.argv:
    options = {"ext_modules": extensions(), "options": {"build_ext": {"parallel": os.cpu_count() or 1}}}
setup(**options)
