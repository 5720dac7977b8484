"""Figures of many values: exact while there are few, with a bounded error and bounded memory beyond.

Source of the second form: a histogram with logarithmic buckets answers every quantile within the relative
width of a bucket.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Values kept as they are.
EXACT_MAX = 4096
#: Width of a bucket: the relative error of a quantile beyond `EXACT_MAX` values is at most half of it.
_WIDTH = 0.01
_BASE = math.log1p(_WIDTH)
#: Values below it count as zero: a microsecond.
_SMALLEST = 1e-6
#: Their bucket, before all others.
_ZERO = math.floor(math.log(_SMALLEST) / _BASE) - 1


@dataclass(slots=True)
class Distribution:
    """Values that are not negative."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0
    _exact: array | None = field(default_factory=lambda: array("d"))  # type: ignore[type-arg]
    _buckets: Counter[int] = field(default_factory=Counter)
    """Values by the logarithm of their size."""

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        if value > self.largest:
            self.largest = value
        if self._exact is None:
            self._buckets[_bucket(value)] += 1
        else:
            self._exact.append(value)
            if len(self._exact) > EXACT_MAX:
                self._fold()

    def merge(self, other: Distribution) -> None:
        """Adds all values of another one."""
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        if other._exact is None:
            if self._exact is not None:
                self._fold()
            self._buckets.update(other._buckets)
        elif self._exact is None:
            self._buckets.update(map(_bucket, other._exact))
        else:
            self._exact.extend(other._exact)
            if len(self._exact) > EXACT_MAX:
                self._fold()

    def _fold(self) -> None:
        assert self._exact is not None
        self._buckets.update(map(_bucket, self._exact))
        self._exact = None

    def above(self, limit: float) -> int:
        """How many values are above a limit; within a bucket of it, none."""
        if self._exact is not None:
            return sum(value > limit for value in self._exact)
        last = _bucket(limit)
        return sum(count for bucket, count in self._buckets.items() if bucket > last)

    @property
    def mean(self) -> float:
        """NaN where there are no values."""
        return self.total / self.count if self.count else math.nan

    def quantile(self, share: float) -> float:
        """The smallest value that this share of all values does not exceed; NaN where there are none."""
        if not self.count:
            return math.nan
        rank = max(1, math.ceil(share * self.count))
        if rank == self.count:
            return self.largest
        if self._exact is not None:
            return float(sorted(self._exact)[rank - 1])
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return 0.0 if bucket == _ZERO else math.exp((bucket + 0.5) * _BASE)
        return self.largest


def merged(all: Iterable[Distribution]) -> Distribution:
    """All values of all of them."""
    result = Distribution()
    for each in all:
        result.merge(each)
    return result


def _bucket(value: float) -> int:
    return _ZERO if value < _SMALLEST else math.floor(math.log(value) / _BASE)
