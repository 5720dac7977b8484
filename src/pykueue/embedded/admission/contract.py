"""What the steps of built-in admission share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import forbidden_request
from pykueue.kube.errors import ApiError


class Lookup(Protocol):
    """What a step may see of the other objects."""

    def find(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """A stored object, or None."""
        ...

    def all(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        """Stored objects of a resource, of one namespace if given."""
        ...


def pod_refused(pod: Object, detail: str) -> ApiError:
    """403 for a pod about to be created."""
    meta = pod["metadata"]
    return forbidden_request("", "pods", meta.get("name") or meta.get("generateName") or "", detail)
