"""The published OpenAPI definitions of the built-in kinds of one Kubernetes version, as they come.

They are a file of this package (`python -m pykueue.embedded.schema`), read when first needed (20 ms, 7 MB).
Source: docs/reference/kubernetes-api-machinery.md, section 22.5.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import orjson

from pykueue import package_data

#: The version whose kinds are served.
KUBERNETES_VERSION: Final = "1.36"

#: File of the definitions beside this module, compressed: JSON, definitions by full name.
DATA: Final = f"kubernetes-{KUBERNETES_VERSION}.json.gz"


@cache
def definitions() -> Mapping[str, Any]:
    """The published definitions by full name."""
    compressed = package_data.read(__package__, DATA)
    loaded: Mapping[str, Any] = orjson.loads(gzip.decompress(compressed))
    return loaded


@cache
def _by_kind() -> Mapping[tuple[str, str, str], str]:
    names: dict[tuple[str, str, str], str] = {}
    for name, schema in definitions().items():
        for one in schema.get("x-kubernetes-group-version-kind") or ():
            names.setdefault((one["group"], one["version"], one["kind"]), name)
    return names


def published_kinds() -> Iterable[tuple[str, str, str]]:
    """Group, version and kind of everything that is published."""
    return _by_kind().keys()


def definition_name(group: str, version: str, kind: str) -> str:
    """`io.k8s.api.batch.v1.Job`. KeyError when nothing is published for the kind."""
    return _by_kind()[group, version, kind]


def referenced(schema: Mapping[str, Any]) -> str | None:
    """The name of the definition a schema stands for, if it is a reference."""
    target = schema.get("$ref")
    return target.rsplit("/", 1)[1] if isinstance(target, str) else None


def definition_closure(root: str) -> list[str]:
    """Names of all definitions a definition leads to, itself first."""
    found: dict[str, None] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = None
        waiting.extend(reversed(list(_references(definitions()[name]))))
    return list(found)


def _references(schema: Mapping[str, Any]) -> list[str]:
    """References of one definition. `$ref` is the name of a property too: only known places are looked at."""
    name = referenced(schema)
    if name is not None:
        return [name]
    names: list[str] = []
    for inner in (schema.get("properties") or {}).values():
        names.extend(_references(inner))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            names.extend(_references(schema[key]))
    return names
