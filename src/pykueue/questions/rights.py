"""What the user may see: names of workloads in other namespaces, and of other queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


def _everything(namespace: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights as far as answers depend on them."""

    may_list_workloads: Callable[[str], bool] = _everything
    """Whether the Workloads of a namespace may be listed."""
    may_list_queues: bool = True
    """Whether ClusterQueues may be listed: without that, no other queue is named."""

    def names(self, keys: Iterable[str]) -> tuple[list[str], int]:
        """The keys (`namespace/name`) that may be named, and how many may not."""
        shown, hidden = [], 0
        for key in keys:
            if self.may_list_workloads(key.partition("/")[0]):
                shown.append(key)
            else:
                hidden += 1
        return shown, hidden


#: Of an administrator.
EVERYTHING = Rights()
