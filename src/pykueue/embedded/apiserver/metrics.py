"""`/metrics`: requests, watches, stored objects and the process, under the names dashboards know.

Counting is on every request's path: it adds to plain numbers, and labels are attached when metrics are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.apiserver.registry.endpoints import Endpoint, Registry
from pykueue.embedded.store.memory import MemoryStore
from pykueue.process_metrics import ProcessMetrics
from pykueue.prometheus import Family
from pykueue.prometheus import Registry as MetricsRegistry

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
        self._collected = MetricsRegistry()
        self._collected.register(_Collector(self, registry, store))
        self._collected.register(ProcessMetrics())

    def include(self, registry: MetricsRegistry) -> None:
        """Show the series of another registry of this process too. Its names must differ from those here."""
        self._collected.register(registry)

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
        return self._collected.text()

    def requests(self) -> Iterator[Family]:
        """The families about requests."""
        total = Family(
            "counter",
            "apiserver_request",
            "Number of requests by verb, resource and status code.",
            (*_LABELS, "code"),
        )
        for (key, code), count in self._requests.items():
            total.add((*_labels(key), str(code)), count)
        yield total
        duration = Family(
            "histogram", "apiserver_request_duration_seconds", "Response latency in seconds.", _LABELS
        )
        for key, latency in self._latencies.items():
            duration.add_histogram(_labels(key), BUCKETS, (*latency.counts, latency.total))
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


class _Collector:
    """What is true at the moment it is asked for."""

    def __init__(self, metrics: Metrics, registry: Registry, store: MemoryStore) -> None:
        self._metrics = metrics
        self._registry = registry
        self._store = store

    def collect(self) -> Iterable[Family]:
        yield from self._metrics.requests()
        objects = Family("gauge", "apiserver_storage_objects", "Stored objects.", ("resource",))
        watches = Family(
            "gauge",
            "apiserver_longrunning_requests",
            "Number of open watches.",
            ("verb", "group", "resource"),
        )
        for endpoint in sorted(self._registry, key=lambda one: one.qualified):
            if endpoint.stored:
                objects.add((endpoint.qualified,), endpoint.table.count)
                if endpoint.table.watchers:
                    labels = ("WATCH", endpoint.group, endpoint.plural)
                    watches.add(labels, endpoint.table.watchers)
        yield objects
        yield watches
        revision = Family("counter", "apiserver_storage_revision", "Current revision of the store.")
        revision.add((), self._store.revision)
        yield revision
