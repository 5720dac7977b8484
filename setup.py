"""The engine and parts of the manager as C extensions, with `PYKUEUE_COMPILE=1` (`make wheel-compiled`).

Without the variable this adds nothing to pyproject.toml: the same modules are installed as Python, without a
compiler. See docs/decisions/0022-compiled-engine.md.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

ROOT = Path(__file__).parent
#: Files of C that are compiled at the same time; calls between them cost no more than within one.
GROUPS = 4
#: Passes of gcc that take a third of the time of a build, and gain nothing here.
LEFT_OUT = ("dominator-opts", "fre", "pta", "sra")


def extensions() -> list[Extension]:
    """The modules that pyproject.toml lists, compiled by mypyc."""
    from mypyc.build import mypycify  # of mypy, which only this needs

    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pykueue"]["compiled"]
    paths = [f"src/{name.replace('.', '/')}.py" for name in names]
    size = -(-len(paths) // GROUPS)
    groups = [(paths[at : at + size], f"pykueue_engine_{at // size}") for at in range(0, len(paths), size)]
    found: list[Extension] = mypycify(
        ["--cache-dir=build/compiled/cache", *paths],
        opt_level="1",  # 2 takes half as long again, and is no faster
        debug_level="0",
        separate=groups,
        target_dir="build/compiled/c",
    )
    for extension in found:
        extension.extra_compile_args += [f"-fno-tree-{name}" for name in LEFT_OUT]
    return found


options: dict[str, Any] = {}
# pip asks for the metadata first, which do not depend on what is compiled.
if os.environ.get("PYKUEUE_COMPILE") == "1" and "dist_info" not in sys.argv:
    options = {"ext_modules": extensions(), "options": {"build_ext": {"parallel": os.cpu_count() or 1}}}
setup(**options)
