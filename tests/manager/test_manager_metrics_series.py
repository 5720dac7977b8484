"""Series of the manager are written as prometheus_client writes its own."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest

from pykueue.manager.metrics.observer import BUCKETS_14
from pykueue.manager.metrics.series import Counters, Histograms

LABELS = ("cluster_queue", "priority_class")
SERIES = [("cq", ""), ("cq", "high"), ('with "quotes"', "\\")]


def test_the_text_is_that_of_prometheus_clients_own_counters_and_histograms() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    rng = random.Random(1)
    own, other = CollectorRegistry(), CollectorRegistry()
    counters = Counters("events_total", "Events.", LABELS, own)
    counter = Counter("events_total", "Events.", LABELS, registry=other)
    histograms = Histograms("wait_seconds", "Time.", LABELS, own, BUCKETS_14)
    histogram = Histogram("wait_seconds", "Time.", LABELS, buckets=BUCKETS_14, registry=other)
    assert generate_latest(own) == generate_latest(other)
    for _ in range(200):
        labels = rng.choice(SERIES)
        seconds = rng.choice([0.0, 1.0, 2.5, rng.random() * 20_000])
        counters.inc(labels, seconds)
        counter.labels(*labels).inc(seconds)
        histograms.observe(labels, seconds)
        histogram.labels(*labels).observe(seconds)
    assert generate_latest(own) == generate_latest(other)
