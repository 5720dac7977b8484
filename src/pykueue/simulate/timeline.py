"""What happens to the first workloads of one run, with the reasons, for a report."""

from __future__ import annotations

from typing import Final, NamedTuple

from pykueue.engine import Admit, Evict, Preempt, Requeue
from pykueue.engine.explain.render import message

#: Entries that are kept.
ENTRIES_MAX: Final = 4000


class Entry(NamedTuple):
    """One thing that happened to a workload."""

    at: float
    """Seconds from the start."""
    what: str
    """Created, Pending, Admitted, Preempted, Evicted, Nodes lost, Moved or the way it ended."""
    workload: str
    """`namespace/name`."""
    cluster_queue: str = ""
    text: str = ""
    """The explanation of a decision; the class of a workload that is created."""
    preemptor: str = ""


class Timeline:
    """The entries of a run up to a number of them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        #: Entries that were left out.
        self.omitted = 0
        #: Last reason for which each workload is known to be pending.
        self._reasons: dict[str, str] = {}

    def created(self, at: float, key: str, cluster_queue: str, job_class: str) -> None:
        """A workload was created."""
        self._add(at, "Created", key, cluster_queue, job_class)

    def decided(self, at: float, decision: Admit | Preempt | Requeue | Evict) -> None:
        """A decision was made; one that leaves a workload pending counts when its reason changes."""
        if len(self.entries) >= ENTRIES_MAX:
            self.omitted += not isinstance(decision, Requeue)
            return
        key, queue = decision.key, decision.cluster_queue
        match decision:
            case Admit():
                self._reasons.pop(key, None)
                self._add(at, "Admitted", key, queue, message(decision))
            case Preempt():
                self._add(at, "Preempted", key, queue, message(decision), decision.preemptor)
            case Evict():
                self._add(at, "Evicted", key, queue, decision.message)
            case Requeue() if self._reasons.get(key) != decision.reason:
                self._reasons[key] = decision.reason
                self._add(at, "Pending", key, queue, message(decision))

    def evicted(self, at: float, key: str, reason: str) -> None:
        """A workload was evicted by something else than a decision."""
        self._add(at, "Evicted", key, "", reason)

    def nodes_lost(self, at: float, key: str, hosts: list[str]) -> None:
        """A workload stopped because hosts of its pods failed or were drained."""
        self._add(at, "Nodes lost", key, "", ", ".join(hosts))

    def moved(self, at: float, key: str, hosts: list[str]) -> None:
        """A workload got other hosts in place of lost ones."""
        self._add(at, "Moved", key, "", ", ".join(hosts))

    def over(self, at: float, key: str, how: str) -> None:
        """A workload came to its end: finished, failed or stopped."""
        self._reasons.pop(key, None)
        self._add(at, how.capitalize(), key)

    def _add(
        self, at: float, what: str, key: str, cluster_queue: str = "", text: str = "", preemptor: str = ""
    ) -> None:
        if len(self.entries) >= ENTRIES_MAX:
            self.omitted += 1
        else:
            self.entries.append(Entry(at, what, key, cluster_queue, text, preemptor))
