"""All built-in kinds."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from pykueue.embedded.kinds.base import Kind

_MODULES = ("core", "events", "pod", "node", "apps", "job", "others", "reviews", "crd")


def builtin_kinds() -> list[Kind]:
    """One instance of every kind that the modules of this room define."""
    kinds: list[Kind] = []
    for name in _MODULES:
        path = f"pykueue.embedded.kinds.{name}"
        if find_spec(path) is None:
            continue
        for found in vars(import_module(path)).values():
            if (
                isinstance(found, type)
                and issubclass(found, Kind)
                and found.__module__ == path
                and found.plural
            ):
                kinds.append(found())
    return kinds
