"""Data files of the package."""

from __future__ import annotations

from pkgutil import get_data


def read(package: str, name: str) -> bytes:
    """The bytes of a data file of a package. Raises FileNotFoundError if there is none.

    `importlib.resources` would do the same, but loads modules for archives and temporary files, which takes
    a twentieth of the start of a command.
    """
    data = get_data(package, name)
    if data is None:
        raise FileNotFoundError(f"{package} has no data file {name}")
    return data
