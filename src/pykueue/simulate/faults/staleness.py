"""Which writes of the manager may rest on what was before an edit by hand.

A request that was sent before the manager's cache had the edit may arrive long after it: requests are slow,
and are sent again when the server asks for patience. What is sent afterwards has to take the edit into
account; no time is allowed beyond that.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from pykueue.api.objects import Object
from pykueue.api.resources import Resource

from .writers import sent_at


class Staleness:
    """When the manager's cache had each edit by hand.

    `knows` returns whether it has this version of an object by now, or has learnt that the object is gone.
    """

    def __init__(self) -> None:
        self.knows: Callable[[Resource, Object, bool], bool] = lambda resource, obj, gone: True
        #: When it was first seen to have the last edit of an object, by uid; never yet: infinity.
        self._known: dict[str, float] = {}
        self._unknown: dict[str, tuple[Resource, Object, bool]] = {}

    def note(self, resource: Resource, obj: Object, gone: bool = False) -> None:
        """The object was edited, and is this now; or it was removed, and was this last."""
        uid = obj["metadata"]["uid"]
        self._known[uid] = inf
        self._unknown[uid] = (resource, obj, gone)

    def observe(self, now: float) -> None:
        """Look what the manager has learnt; to be called before each of its requests."""
        for uid, edit in list(self._unknown.items()):
            if self.knows(*edit):
                self._known[uid] = now
                del self._unknown[uid]

    def excuses(self, uid: str, now: float) -> bool:
        """Whether the write that is being stored may rest on what the object was before it was edited."""
        known = self._known.get(uid)
        return known is not None and sent_at(now) <= known
