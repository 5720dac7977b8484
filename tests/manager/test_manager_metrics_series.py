"""Metrics are written as the Prometheus client for Python writes them."""

from __future__ import annotations

import random
from math import inf, nan

import pytest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from pykueue import process_metrics
from pykueue.manager.metrics.observer import BUCKETS_14
from pykueue.process_metrics import GarbageMetrics, ProcessMetrics
from pykueue.prometheus import Counters, Gauges, Histograms, Registry, number

LABELS = ("cluster_queue", "priority_class")
SERIES = [("cq", ""), ("cq", "high"), ('with "quotes"', "\\"), ("two\nlines", "ä")]


def test_the_text_is_that_of_the_client() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    rng = random.Random(1)
    own, other = Registry(), CollectorRegistry()
    counters = Counters("events_total", "Events.", LABELS, own)
    counter = Counter("events_total", "Events.", LABELS, registry=other)
    histograms = Histograms("wait_seconds", "Time,\nwith a \\.", LABELS, own, BUCKETS_14)
    histogram = Histogram("wait_seconds", "Time,\nwith a \\.", LABELS, buckets=BUCKETS_14, registry=other)
    gauges = Gauges("queued", "Now.", LABELS, own)
    gauge = Gauge("queued", "Now.", LABELS, registry=other)
    Counters("errors_total", "Errors.", (), own)
    Counter("errors_total", "Errors.", registry=other)
    assert own.text() == generate_latest(other)
    for _ in range(200):
        labels = rng.choice(SERIES)
        seconds = rng.choice([0.0, 1.0, 2.5, rng.random() * 20_000])
        counters.inc(labels, seconds)
        counter.labels(*labels).inc(seconds)
        histograms.observe(labels, seconds)
        histogram.labels(*labels).observe(seconds)
        gauges.set(-seconds, labels)
        gauge.labels(*labels).set(-seconds)
    assert own.text() == generate_latest(other)
    assert own.value("events_total", dict(zip(LABELS, SERIES[0], strict=True))) is not None
    assert own.value("events_total", {"cluster_queue": "none"}) is None


@pytest.mark.parametrize(
    "value",
    [0, 1, 12.5, 999_999, 1_000_000, 1_234_567.5, 123e8, 1e16, 1e300, 1e-9, -1.0, -1e7, inf, -inf, nan],
)
def test_numbers_are_those_of_the_client(value: float) -> None:
    assert number(value) == floatToGoString(value).replace("e+010", "e+10")  # type: ignore[no-untyped-call]


def test_metrics_of_the_process_have_the_names_and_labels_of_the_client() -> None:
    own, other = Registry(), CollectorRegistry()
    own.register(ProcessMetrics())
    own.register(GarbageMetrics())
    ProcessCollector(registry=other)
    PlatformCollector(registry=other)
    GCCollector(registry=other)

    def described(text: bytes) -> set[tuple[object, ...]]:
        return {
            (family.name, family.type, family.documentation, tuple(sorted(sample.labels.items())))
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }

    assert described(own.text()) == described(generate_latest(other))
    for name in ("process_resident_memory_bytes", "process_start_time_seconds", "process_max_fds"):
        mine, theirs = own.value(name), other.get_sample_value(name)
        assert mine is not None
        assert theirs is not None
        assert mine == pytest.approx(theirs, rel=0.1)


def test_a_system_that_does_not_tell_when_it_started_leaves_that_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "_boot_time", lambda: None)
    names = {family.name for family in ProcessMetrics().collect()}
    assert "process_start_time_seconds" not in names
    assert {"process_cpu_seconds", "process_open_fds", "python_info"} <= names
