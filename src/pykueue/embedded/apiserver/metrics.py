"""`/metrics`: requests, watches, stored objects and the process, under the names dashboards know.

Counting is on every request's path: it adds to plain numbers, and labels are attached when metrics are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.apiserver.registry.endpoints import Endpoint, Registry
from pykueue.embedded.store.memory import MemoryStore

#: Upper bounds of the latency histogram, in seconds.
BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5),
    *(2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)

_Key = tuple[str, Endpoint, str, str]
_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")


class _Latency:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0


class Metrics:
    """Counts what the server does."""

    def __init__(self, registry: Registry, store: MemoryStore) -> None:
        self._requests: dict[tuple[_Key, int], int] = {}
        self._latencies: dict[_Key, _Latency] = {}
        self._collected = CollectorRegistry()
        self._collected.register(_Collector(self, registry, store))
        ProcessCollector(registry=self._collected)
        PlatformCollector(registry=self._collected)

    def include(self, registry: CollectorRegistry) -> None:
        """Show the series of another registry of this process too. Its names must differ from those here."""
        self._collected.register(_Included(registry))

    def request(self, call: Call, verb: str, code: int, seconds: float) -> None:
        """Count one request that was answered after `seconds`."""
        target = call.target
        scope = "resource" if target.name else ("namespace" if target.namespace else "cluster")
        key = (verb, target.endpoint, target.subresource, scope)
        counted = (key, code)
        self._requests[counted] = self._requests.get(counted, 0) + 1
        latency = self._latencies.get(key)
        if latency is None:
            latency = self._latencies[key] = _Latency()
        latency.counts[bisect_left(BUCKETS, seconds)] += 1
        latency.total += seconds

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._collected)

    def requests(self) -> Iterator[Metric]:
        """The families about requests."""
        total = CounterMetricFamily(
            "apiserver_request",
            "Number of requests by verb, resource and status code.",
            labels=(*_LABELS, "code"),
        )
        for (key, code), count in self._requests.items():
            total.add_metric((*_labels(key), str(code)), count)
        yield total
        duration = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Response latency in seconds.", labels=_LABELS
        )
        for key, latency in self._latencies.items():
            buckets, reached = [], 0
            for bound, count in zip((*BUCKETS, float("inf")), latency.counts, strict=True):
                reached += count
                buckets.append(("+Inf" if bound == float("inf") else str(bound), float(reached)))
            duration.add_metric(_labels(key), buckets, latency.total)
        yield duration


def _labels(key: _Key) -> tuple[str, ...]:
    verb, endpoint, subresource, scope = key
    return (
        verb.upper(),
        endpoint.group,
        endpoint.version,
        endpoint.plural,
        subresource,
        scope,
        "apiserver",
    )


class _Included(Collector):
    """The series of another registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()


class _Collector(Collector):
    """What is true at the moment it is asked for."""

    def __init__(self, metrics: Metrics, registry: Registry, store: MemoryStore) -> None:
        self._metrics = metrics
        self._registry = registry
        self._store = store

    def collect(self) -> Iterable[Metric]:
        yield from self._metrics.requests()
        objects = GaugeMetricFamily("apiserver_storage_objects", "Stored objects.", labels=("resource",))
        watches = GaugeMetricFamily(
            "apiserver_longrunning_requests", "Number of open watches.", labels=("verb", "group", "resource")
        )
        for endpoint in sorted(self._registry, key=lambda one: one.qualified):
            if endpoint.stored:
                objects.add_metric((endpoint.qualified,), endpoint.table.count)
                if endpoint.table.watchers:
                    labels = ("WATCH", endpoint.group, endpoint.plural)
                    watches.add_metric(labels, endpoint.table.watchers)
        yield objects
        yield watches
        revision = CounterMetricFamily("apiserver_storage_revision", "Current revision of the store.")
        revision.add_metric((), self._store.revision)
        yield revision
