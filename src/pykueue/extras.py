"""Optional parts of an installation (extras of the package), and the message where one is missing."""

from __future__ import annotations

from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: Extra of the package -> the modules that it installs and that its part cannot do without.
EXTRAS: Final = {
    "cel": ("cel_expr_python",),
    "cluster": ("cel_expr_python", "uvloop", "websockets"),
    "reports": ("jinja2", "plotly", "polars"),
}


@cache
def installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported."""
    return not missing(extra)


def missing(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def how_to_install(extra: str) -> str:
    """The commands that install an extra."""
    return f"install it with: pip install 'pykueue[{extra}]' (or pipx install --force 'pykueue[{extra}]')"


def cel_missing() -> str:
    """Why no CEL expression can be compiled here; empty where the library for CEL is installed."""
    return "" if installed("cel") else f"the library for CEL is missing; {how_to_install('cel')}"


def engine_is_compiled() -> bool:
    """Whether the decision engine is compiled here (docs/decisions/0022-compiled-engine.md)."""
    folder = Path(__file__).parent / "engine"
    return any((folder / f"engine{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
