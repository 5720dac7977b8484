"""Metrics in Prometheus' text format (version 0.0.4).

The Prometheus client for Python loads the HTTP servers of the standard library with it: 3 MB in a process
that counts by itself and serves its own pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import ClassVar, Literal, NamedTuple, Protocol

Kind = Literal["counter", "gauge", "histogram"]
#: The values of the labels of one series, in the order of their names.
Labels = tuple[str, ...]

#: From this number of digits before the point on, numbers have an exponent.
_MANY_DIGITS = 7
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Sample(NamedTuple):
    """One line: a number."""

    name: str
    labels: Mapping[str, str]
    value: float


class Family:
    """The series of one name at the time of a scrape; that of a counter is without its ending `_total`."""

    __slots__ = ("kind", "label_names", "name", "samples", "text")

    def __init__(self, kind: Kind, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.kind = kind
        self.name = name.removesuffix("_total") if kind == "counter" else name
        self.text = text
        self.label_names = tuple(labels)
        self.samples: list[Sample] = []

    def add(self, labels: Iterable[str], value: float) -> None:
        """A series of a counter or gauge."""
        self.samples.append(Sample(self.full_name, dict(zip(self.label_names, labels, strict=True)), value))

    def add_histogram(self, labels: Iterable[str], bounds: Sequence[float], values: Sequence[float]) -> None:
        """A series of a histogram: observations by bucket, the lowest first; last their sum."""
        named = dict(zip(self.label_names, labels, strict=True))
        count = 0.0
        for bound, each in zip((*bounds, inf), values, strict=False):
            count += each
            self.samples.append(Sample(f"{self.name}_bucket", {**named, "le": number(bound)}, count))
        self.samples.append(Sample(f"{self.name}_count", named, count))
        self.samples.append(Sample(f"{self.name}_sum", named, values[-1]))

    @property
    def full_name(self) -> str:
        """The name as a scrape shows it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class Collector(Protocol):
    """Has metrics."""

    def collect(self) -> Iterable[Family]:
        """The metrics as they are now."""


class Registry:
    """All metrics that are shown together."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Show its metrics too. Their names must differ from those here."""
        self._collectors.append(collector)

    def collect(self) -> Iterator[Family]:
        """The metrics as they are now."""
        for collector in self._collectors:
            yield from collector.collect()

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """The number of the series with exactly these labels; None where there is none."""
        for family in self.collect():
            for sample in family.samples:
                if sample.name == name and sample.labels == (labels or {}):
                    return sample.value
        return None

    def text(self) -> bytes:
        """Everything, as a scrape shows it."""
        return "".join(line for family in self.collect() for line in _lines(family)).encode()


class Counters:
    """The counters of one name, which ends in `_total`."""

    kind: ClassVar[Kind] = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: Registry) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        #: Without labels there is one series, from the first.
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}
        registry.register(self)

    def inc(self, labels: Labels = (), amount: float = 1.0) -> None:
        """Add to the counter with these labels."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Family]:
        """The counters as they are now."""
        family = Family(self.kind, self._name, self._text, self._labels)
        for labels, value in self._values.items():
            family.add(labels, value)
        yield family


class Gauges(Counters):
    """The gauges of one name."""

    kind: ClassVar[Kind] = "gauge"

    def set(self, value: float, labels: Labels = ()) -> None:
        """The value of the gauge with these labels from now on."""
        self._values[labels] = value


class Histograms:
    """The histograms of one name, with these upper bounds of their buckets, in ascending order."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: Registry, buckets: Sequence[float]
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = tuple(buckets)
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

    def collect(self) -> Iterator[Family]:
        """The histograms as they are now."""
        family = Family("histogram", self._name, self._text, self._labels)
        for labels, values in self._values.items():
            family.add_histogram(labels, self._bounds, values)
        yield family


def number(value: float) -> str:
    """A number as programs in Go write it."""
    value = float(value)
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    if value != value:
        return "NaN"
    text = repr(value)
    whole, point, fraction = text.partition(".")
    if value <= 0 or not point or len(whole) < _MANY_DIGITS:
        return text
    digits = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0").rstrip(".")
    return f"{digits}e+{len(whole) - 1:02d}"


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.full_name} {family.text.translate(_IN_HELP)}\n"
    yield f"# TYPE {family.full_name} {family.kind}\n"
    for sample in family.samples:
        labels = ",".join(
            f'{name}="{value.translate(_IN_LABELS)}"' for name, value in sorted(sample.labels.items())
        )
        where = f"{{{labels}}}" if labels else ""
        yield f"{sample.name}{where} {number(sample.value)}\n"
