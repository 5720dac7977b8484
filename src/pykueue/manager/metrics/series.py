"""Counters and histograms that are updated at every event of a Workload.

A series is a few numbers in a dict, by the values of its labels. Those of prometheus_client check the labels
at each update: an observation takes 1.6 us there and 0.2 us here, a histogram of 14 buckets 3.9 and 0.4 KB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

#: The values of the labels of one series, in the order of their names.
Labels = tuple[str, ...]


class Counters(Collector):
    """The counters of one name, which ends in `_total`."""

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._values: dict[Labels, float] = {}
        registry.register(self)

    def inc(self, labels: Labels, amount: float = 1.0) -> None:
        """Add to the counter with these labels."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        """The counters as they are now."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Histograms(Collector):
    """The histograms of one name, with these upper bounds of their buckets, in ascending order."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        buckets: Sequence[float],
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = tuple(buckets)
        self._les = [str(floatToGoString(bound)) for bound in (*buckets, float("inf"))]  # type: ignore[no-untyped-call]
        #: Observations by bucket, beginning with that of the lowest bound; their sum is the last.
        self._values: dict[Labels, list[float]] = {}
        registry.register(self)

    def observe(self, labels: Labels, amount: float) -> None:
        """Add an observation to the histogram with these labels."""
        values = self._values.get(labels)
        if values is None:
            values = self._values[labels] = [0.0] * (len(self._bounds) + 2)
        values[bisect_left(self._bounds, amount)] += 1.0
        values[-1] += amount

    def collect(self) -> Iterator[Metric]:
        """The histograms as they are now."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, values in self._values.items():
            count = 0.0
            buckets = []
            for le, each in zip(self._les, values, strict=False):
                count += each
                buckets.append((le, count))
            family.add_metric(labels, buckets, values[-1])
        yield family
