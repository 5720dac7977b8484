"""The CustomResourceDefinition of JobSet: generated from the types, kept as package data.

`python -m pykueue.embedded.jobset --write` generates it, `--check` fails when it is stale.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from pykueue import package_data

#: The package's data file.
DATA: Final = "crd.json"


@cache
def definition() -> dict[str, Any]:
    """The definition. Shared: do not change it."""
    return msgspec.json.decode(package_data.read(__package__, DATA), type=dict[str, Any])
