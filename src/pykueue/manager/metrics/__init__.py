"""Prometheus metrics under the reference's names and labels (docs/reference/kueue-api.md 6).

Counters and histograms follow what happens (`observer`), gauges are computed at each scrape (`gauges`).
"""

from __future__ import annotations

from pykueue.api.decoding import decode_as
from pykueue.api.meta import LabelSelector
from pykueue.api.objects import labels_of
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.jobs.pod import POD
from pykueue.manager.cluster import Cluster
from pykueue.process_metrics import GarbageMetrics, ProcessMetrics
from pykueue.prometheus import Registry

from .gauges import Gauges
from .labels import CustomLabels
from .observer import Observer

__all__ = ["Metrics"]


class Metrics:
    """All metrics of one manager."""

    def __init__(self, cluster: Cluster, engine: Engine, clock: Clock) -> None:
        self._cluster = cluster
        configuration = cluster.configuration
        chosen = configuration.metrics.local_queue_metrics
        self._local = chosen.enable and configuration.gates["LocalQueueMetrics"]
        self._selector = decode_as(LabelSelector, chosen.local_queue_selector or {}).selector()
        #: The label replica_role: leader, follower or standalone.
        self.role = "follower"
        #: The manager's own series, without those of the process.
        self.registry = Registry()
        custom = CustomLabels(cluster)
        self.observer = Observer(self.registry, cluster, clock, self._role, self._wants, custom)
        gauges = Gauges(cluster, engine, self._role, self._wants, custom)
        gauges.skipped = self.observer.skipped
        self.registry.register(gauges)
        # Those of every Python process, under the names that dashboards know.
        self._process = Registry()
        self._process.register(ProcessMetrics())
        self._process.register(GarbageMetrics())
        self.observer.observe(cluster.workloads)
        if POD.framework in cluster.jobs:
            self.observer.observe_pods(cluster.jobs[POD.framework])

    def _role(self) -> str:
        return self.role

    def _wants(self, namespace: str, name: str) -> bool:
        """Whether metrics of this LocalQueue are wanted."""
        if not self._local:
            return False
        queue = self._cluster.local_queues.get(namespace, name)
        return queue is not None and self._selector.matches(labels_of(queue))

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return self.registry.text() + self._process.text()
