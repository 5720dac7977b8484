"""The sizes of jobs as ranges that double: what all pods request of the resource they compete for."""

from __future__ import annotations

from typing import Final

from pykueue.api import kueue
from pykueue.api.quantity import parse

#: Pod sets whose size is remembered.
_KNOWN_MAX: Final = 10_000
_NANO: Final = 1e-9


class Sizes:
    """The size of each job; jobs of a class share their pod sets, whose size is computed once."""

    def __init__(self) -> None:
        #: By the identity of a pod set, with the pod set, which keeps the identity in use.
        self._known: dict[int, tuple[kueue.PodSet, dict[str, float]]] = {}

    def of(self, spec: kueue.WorkloadSpec) -> str:
        """For example `nvidia.com/gpu 4-7`; devices go before cpu. Empty for a job that requests neither."""
        totals: dict[str, float] = {}
        for one in spec.pod_sets:
            for resource, value in self._requests(one).items():
                totals[resource] = totals.get(resource, 0.0) + value * one.count
        devices = sorted(resource for resource in totals if "/" in resource)
        for resource in (*devices, "cpu"):
            if totals.get(resource):
                return f"{resource} {_range(totals[resource])}"
        return ""

    def _requests(self, one: kueue.PodSet) -> dict[str, float]:
        """What each pod requests, in base units."""
        known = self._known.get(id(one))
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[id(one)] = one, _requests(one)
        return known[1]


def _requests(one: kueue.PodSet) -> dict[str, float]:
    totals: dict[str, float] = {}
    for container in (one.template.get("spec") or {}).get("containers") or ():
        for resource, value in ((container.get("resources") or {}).get("requests") or {}).items():
            totals[resource] = totals.get(resource, 0.0) + parse(value).nanos * _NANO
    return totals


def _range(value: float) -> str:
    """`1`, `2-3`, `4-7`, `8-15` and so on."""
    if value < 1:
        return "below 1"
    low = 1 << (int(value).bit_length() - 1)
    return "1" if low == 1 else f"{low}-{2 * low - 1}"
