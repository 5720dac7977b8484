"""Sums of exact quantities: what pods request and may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.quantity import Quantity, parse
from pykueue.embedded.kinds.podspec import is_sidecar

Amounts = dict[str, Quantity]


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    """A resource list as quantities. Raises QuantityError."""
    return {name: parse(value) for name, value in (resources or {}).items()}


def plus(left: Amounts, right: Amounts) -> Amounts:
    """Both together."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total[name] + value if name in total else value
    return total


def larger(left: Amounts, right: Amounts) -> Amounts:
    """The larger of both, resource by resource."""
    total = dict(left)
    for name, value in right.items():
        if name not in total or total[name] < value:
            total[name] = value
    return total


def of_pod(spec: Object, part: str) -> Amounts:
    """`requests` or `limits` of a whole pod: the larger of its start and its running life, plus overhead.

    Limits get overhead only where there is a limit (docs/reference/cluster-workloads.md, 4.7).
    """

    def of(container: Object) -> Amounts:
        return amounts((container.get("resources") or {}).get(part))

    running: Amounts = {}
    for container in spec.get("containers") or ():
        running = plus(running, of(container))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        if is_sidecar(container):
            sidecars = plus(sidecars, of(container))
            starting = larger(starting, sidecars)
        else:
            starting = larger(starting, plus(sidecars, of(container)))
    total = larger(plus(running, sidecars), starting)
    overhead = amounts(spec.get("overhead"))
    if part == "limits":
        overhead = {name: value for name, value in overhead.items() if name in total}
    return plus(total, overhead)
