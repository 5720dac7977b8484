"""What the scheduler asks of an API for groups of pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pykueue.api.objects import Object, controller_of
from pykueue.api.resources import Resource
from pykueue.embedded.podscheduler.gangs import Gang, Terms
from pykueue.embedded.podscheduler.podinfo import PodInfo


class GangMode(Protocol):
    """One such API."""

    #: The PodGroup kind of the API; its name is the mode's.
    resource: Resource

    def group_of(self, pod: Object) -> str:
        """The name of the pod's group in its namespace, "" when it has none in this API."""
        ...

    def task_of(self, pod: Object) -> str:
        """The task of the group the pod belongs to, "" when tasks play no part."""
        ...

    def terms(self, group: Object) -> Terms:
        """What a PodGroup object asks for. Raises QuantityError."""
        ...

    def objection(self, gang: Gang, pods: Iterable[PodInfo]) -> str:
        """Why the members `pods` may not be placed now although nodes may have room, or ""."""
        ...

    def made_for(self, pod: Object, owner: Object | None) -> Object | None:
        """The PodGroup to create for a pod that has none; `owner` is the pod's controller as it is stored.

        None where groups are the user's to create.
        """
        ...

    def status(self, gang: Gang, now: float, session: str) -> Object | None:
        """The status the PodGroup should have, None when it is as it should be.

        `session` names the occasion; `now` is in seconds since 1970.
        """
        ...


def owned_by(pod: Object) -> list[Object]:
    """Owner references for what is made for the pod: its controller's, else its own."""
    metadata = pod["metadata"]
    reference = controller_of(pod) or {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return [{**reference, "blockOwnerDeletion": False}]
