"""Topology assignments in their short form (slices) and their long form (one entry per domain).

Source: docs/reference/topology-aware-scheduling.md 11. Readers accept every valid short form; which one is
written
is not part of the contract, but the one written here is small: runs of host names share their prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from pykueue.api.decoding import encode
from pykueue.api.kueue.workload import (
    TopologyAssignment,
    TopologyAssignmentSlice,
    TopologyAssignmentSliceLevelValues,
    TopologyAssignmentSliceLevelValuesIndividual,
    TopologyAssignmentSlicePodCounts,
)

HOSTNAME: Final = "kubernetes.io/hostname"
MAX_SLICES: Final = 1000
MAX_DOMAINS_PER_SLICE: Final = 100_000


class Domain(NamedTuple):
    """Pods in one domain; `values` has one value per level of the assignment."""

    values: tuple[str, ...]
    pods: int


def count_domains(assignment: TopologyAssignment) -> int:
    """Number of domains without writing them out."""
    return sum(part.domain_count for part in assignment.slices)


def expand(assignment: TopologyAssignment) -> list[Domain]:
    """The domains in order."""
    domains: list[Domain] = []
    for part in assignment.slices:
        columns = [_level_values(values, part.domain_count) for values in part.values_per_level]
        counts = part.pod_counts
        numbers = counts.individual
        if numbers is None:
            numbers = [counts.universal or 0] * part.domain_count
        rows = zip(*columns, strict=True)
        domains.extend(Domain(row, pods) for row, pods in zip(rows, numbers, strict=True))
    return domains


def _level_values(values: TopologyAssignmentSliceLevelValues, count: int) -> Sequence[str]:
    individual = values.individual
    if individual is None:
        return [values.universal or ""] * count
    return [individual.prefix + root + individual.suffix for root in individual.roots]


def compress(
    levels: Sequence[str], domains: Iterable[Domain], by_hostname_prefix: bool = True
) -> TopologyAssignment:
    """The short form. Host names are unique: where the lowest level is the host name only that is kept.

    Domains without pods are left out. `by_hostname_prefix` cuts host names into runs of a common prefix when
    that is shorter (gate TASAssignmentsEncodingByHostnamePrefix).
    """
    kept = [domain for domain in domains if domain.pods > 0]
    hostnames = bool(levels) and levels[-1] == HOSTNAME
    if hostnames and len(levels) > 1:
        levels = [HOSTNAME]
        kept = [Domain((domain.values[-1],), domain.pods) for domain in kept]
    runs = [
        kept[start : start + MAX_DOMAINS_PER_SLICE] for start in range(0, len(kept), MAX_DOMAINS_PER_SLICE)
    ]
    whole = TopologyAssignment(levels=list(levels), slices=[_slice(run) for run in runs])
    if not (by_hostname_prefix and hostnames and len(kept) > 1):
        return whole
    cut = _cut_by_prefix(kept)
    if cut is None or len(cut) == 1:
        return whole
    parts = TopologyAssignment(levels=list(levels), slices=[_slice(run) for run in cut])
    if len(kept) <= MAX_DOMAINS_PER_SLICE and _size(whole) < _size(parts):
        return whole
    return parts


def _size(assignment: TopologyAssignment) -> int:
    return len(msgspec.json.encode(encode(assignment)))


def _slice(domains: Sequence[Domain]) -> TopologyAssignmentSlice:
    columns = zip(*(domain.values for domain in domains), strict=True)
    counts = [domain.pods for domain in domains]
    return TopologyAssignmentSlice(
        domain_count=len(domains),
        values_per_level=[_column(list(column)) for column in columns],
        pod_counts=(
            TopologyAssignmentSlicePodCounts(universal=counts[0])
            if min(counts) == max(counts)
            else TopologyAssignmentSlicePodCounts(individual=counts)
        ),
    )


def _column(values: list[str]) -> TopologyAssignmentSliceLevelValues:
    # Of all strings the least and the greatest differ earliest, and likewise from behind.
    least, greatest = min(values), max(values)
    if least == greatest:
        return TopologyAssignmentSliceLevelValues(universal=least)
    prefix = _common(least, greatest)
    backwards = [value[::-1] for value in values]
    suffix = _common(min(backwards), max(backwards))
    prefix = min(prefix, min(map(len, values)) - suffix)
    first = values[0]
    return TopologyAssignmentSliceLevelValues(
        individual=TopologyAssignmentSliceLevelValuesIndividual(
            prefix=first[:prefix],
            suffix=first[len(first) - suffix :],
            roots=[value[prefix : len(value) - suffix] for value in values],
        )
    )


def _common(one: str, other: str) -> int:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return length


def _cut_by_prefix(domains: list[Domain]) -> list[list[Domain]] | None:
    """Runs of consecutive domains whose host names share their longest prefix that ends in a dash.

    None when no depth of prefixes gives few enough runs.
    """
    prefixes = [_prefixes(domain.values[-1]) for domain in domains]
    uses: dict[str, int] = {}
    for candidates in prefixes:
        for prefix in candidates:
            uses[prefix] = uses.get(prefix, 0) + 1
    for depth in range(max(map(len, prefixes)), -1, -1):
        runs: list[list[Domain]] = []
        last: str | None = None
        for domain, candidates in zip(domains, prefixes, strict=True):
            key = next((prefix for prefix in reversed(candidates[:depth]) if uses[prefix] > 1), "")
            if key != last or len(runs[-1]) == MAX_DOMAINS_PER_SLICE:
                runs.append([])
                last = key
            runs[-1].append(domain)
        if len(runs) <= MAX_SLICES:
            return runs
    return None


def _prefixes(hostname: str) -> list[str]:
    """Beginnings that end in a dash, shortest first; a dash at the very end does not count."""
    return [hostname[: at + 1] for at, letter in enumerate(hostname[:-1]) if letter == "-"]
