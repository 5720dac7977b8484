"""The published OpenAPI definitions of the built-in kinds of one Kubernetes version, as they come.

The package kubernetes-validate carries them as JSON Schema. They are read when first needed (5 ms, 7 MB).
Source: docs/reference/kubernetes-api-machinery.md, section 22.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

#: The version whose kinds are served; the newest older one where the package no longer carries it.
KUBERNETES_VERSION: Final = "1.36"

_VERSION_FOLDER = re.compile(r"v(\d+)\.(\d+)\.\d+-local")


@cache
def definitions() -> Mapping[str, Any]:
    """The published definitions by full name."""
    # Found, not imported: the package's own code would load a second validator.
    package = find_spec("kubernetes_validate")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the package kubernetes-validate carries the schemas of built-in kinds")
    root = Path(package.submodule_search_locations[0]) / "kubernetes-json-schema"
    wanted = tuple(int(part) for part in KUBERNETES_VERSION.split("."))
    found = {
        (int(match[1]), int(match[2])): folder
        for folder in root.iterdir()
        if (match := _VERSION_FOLDER.fullmatch(folder.name))
    }
    usable = [version for version in found if version <= wanted] or [min(found)]
    text = (found[max(usable)] / "_definitions.json").read_bytes()
    loaded: Mapping[str, Any] = orjson.loads(text)["$defs"]
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
