"""What must hold of pods that lose their topology gate, whatever they are assigned to: hosts, or flavors."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.objects import Key, Object, annotations_of, key_of
from pykueue.api.pods import has_gate, is_terminal
from pykueue.api.resources import PODS, WORKLOADS
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.manager.configuration import Configuration

from .causes import Causes
from .invariants import Invariants
from .priority_order import AnyOrder
from .scenario import NAMESPACE
from .trace import Trace

#: Seconds for which a pod may still be ungated by an earlier assignment: the write was under way.
MEMORY = 60.0


class Ungating(Invariants):
    """No place has more ungated pods of a Workload than the Workload is assigned there."""

    def __init__(
        self, server: Server, clock: Clock, trace: Trace, causes: Causes, configuration: Configuration
    ) -> None:
        super().__init__(server, clock, trace, causes, configuration)
        self._order = AnyOrder(self, configuration)
        #: Pods by place that Workloads were assigned, and when that ended, newest last.
        self._before: dict[Key, list[tuple[float, Counter[str]]]] = {}

    @abstractmethod
    def _assigned(self, workload: Mapping[str, Any] | None) -> Counter[str]:
        """Pods by place that a Workload with quota is assigned."""

    @abstractmethod
    def _place(self, pod: Object) -> str:
        """The place of a pod; empty: none yet."""

    def _reassigned(self, workload: Object | None, old: Counter[str], new: Counter[str]) -> None:
        """A Workload (None: deleted) is assigned other places than before."""

    def _workload(self, before: Object | None, after: Object | None) -> None:
        super()._workload(before, after)
        old, new = self._assigned(before), self._assigned(after)
        if old == new:
            return
        if old and before is not None:
            self._before.setdefault(key_of(before), []).append((self._clock.time(), old))
        self._reassigned(after, old, new)

    def _pod(self, before: Object | None, after: Object | None) -> None:
        super()._pod(before, after)
        gated = before is not None and has_gate(before, names.TOPOLOGY_GATE)
        if gated and after is not None and not has_gate(after, names.TOPOLOGY_GATE):
            self._ungated(after)

    def _ungated(self, pod: Object) -> None:
        """A pod has lost its gate."""
        place = self._place(pod)
        if not place:
            return
        key = (NAMESPACE, annotations_of(pod).get(names.WORKLOAD_ANNOTATION, ""))
        now = self._clock.time()
        known = [each for until, each in self._before.get(key, ()) if now < until + MEMORY]
        known.append(self._assigned(self.find(WORKLOADS, *key)))
        there = sum(
            not is_terminal(other)
            and annotations_of(other).get(names.WORKLOAD_ANNOTATION) == key[1]
            and self._place(other) == place
            for other in self.objects(PODS)
        )
        most = max(each[place] for each in known)
        if there > most:
            self._violate(pod, f"is one of {there} ungated pods for {place}, {most} are assigned")
