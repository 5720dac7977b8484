"""The CustomResourceDefinition of JobSet: generated from the types, kept as package data.

`python -m pykueue.embedded.jobset --write` generates it, `--check` fails when it is stale.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

#: The package's data file.
DATA: Final = "crd.json"


@cache
def definition() -> dict[str, Any]:
    """The definition. Shared: do not change it."""
    data = resources.files(__package__).joinpath(DATA).read_bytes()
    return msgspec.json.decode(data, type=dict[str, Any])
