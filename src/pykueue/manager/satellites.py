"""Names and rights of the controllers beside the manager, for their components and for installations.

They run in the manager (`pykueue manager --populator`), or in a separate process with a Lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykueue.api.resources import (
    CLUSTER_QUEUES,
    EVENTS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKLOADS,
    Resource,
)
from pykueue.manager.rights import READ, Rule, allow


@dataclass(frozen=True)
class Satellite:
    """A controller beside the manager."""

    command: str
    """The command of `pykueue` that runs it."""
    watches: tuple[Resource, ...]
    writes: tuple[Rule, ...]

    @property
    def name(self) -> str:
        """The name of its Lease, its installed objects, and the source of its events."""
        return f"kueue-{self.command}"

    @property
    def rules(self) -> list[Rule]:
        """All rights of a separate process, including those to its Lease."""
        watched = [allow(resource, *READ) for resource in self.watches]
        return [*watched, *self.writes, allow(LEASES, "get", "create", "update")]


POPULATOR: Final = Satellite(
    "populator",
    (NAMESPACES, CLUSTER_QUEUES),
    (allow(LOCAL_QUEUES, "get", "create"), allow(EVENTS, "create", "patch")),
)
PRIORITY_BOOSTER: Final = Satellite(
    "priority-booster", (WORKLOADS,), (allow(WORKLOADS, "patch"), allow(EVENTS, "create", "patch"))
)
