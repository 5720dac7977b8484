"""What follows from a pod's spec alone, found out once for all pods of a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import orjson

from pykueue.api.json_bytes import exact
from pykueue.api.objects import Object

Result = TypeVar("Result")

#: Specs of which the result is kept, and bytes of the longest of them.
ENTRIES: Final = 256
LONGEST: Final = 8 * 1024
#: What each pod of a template has for itself: the hostname of an index, and its node.
_OWN: Final[tuple[str, ...]] = ("hostname", "nodeName")


class OncePerTemplate(Generic[Result]):
    """A function of a pod's spec. Pods with equal specs share the result, which must never be changed."""

    def __init__(self, function: Callable[[Object], Result]) -> None:
        self._function = function
        self._known: dict[bytes, Result] = {}

    def __call__(self, spec: Object) -> Result:
        try:
            text = orjson.dumps(spec)
        except TypeError:
            return self._function(spec)  # it is no JSON, and whatever is said of it must not be kept
        found = self._known.get(text)
        if found is None:
            found = self._function(spec)
            if len(text) <= LONGEST:
                if len(self._known) >= ENTRIES:
                    self._known.clear()
                self._known[exact(text)] = found
        return found


def without_own(spec: Object) -> Object:
    """The spec as all pods of a template share it."""
    if "hostname" not in spec and "nodeName" not in spec:
        return spec
    return {field: value for field, value in spec.items() if field not in _OWN}


def with_own(shared: Object, spec: Object) -> Object:
    """What was made of the shared part of a spec, with the rest of it."""
    own = {field: spec[field] for field in _OWN if field in spec}
    return {**shared, **own} if own else shared
