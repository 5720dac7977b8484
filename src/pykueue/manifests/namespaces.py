"""Namespaces that manifests take for granted."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.core import Namespace
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import Model


def missing_namespaces(objects: Iterable[Model], named: Iterable[str]) -> list[Namespace]:
    """The namespaces with these names that are not among the objects, labelled as a server does."""
    known = {obj.metadata.name for obj in objects if isinstance(obj, Namespace)}
    return [
        Namespace(metadata=ObjectMeta(name=name, labels={"kubernetes.io/metadata.name": name}))
        for name in dict.fromkeys(named)
        if name and name not in known
    ]
