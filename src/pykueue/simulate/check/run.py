"""The check of a policy: all rules, in one order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from .declared import declared
from .findings import Finding
from .model import shapes
from .policy import Policy
from .search import search, starvation

#: Runs of the model of each tree and resource, by default: under a second.
RUNS: Final = 400
#: Runs of all models together: the trees of a large policy get fewer each.
RUNS_MAX: Final = 20_000


def check(
    policy: Policy,
    runs: int = RUNS,
    ignored: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """What is wrong with a policy, the worst first.

    `runs` is the number of random runs of each model; `ignored` names rules that are left out; `progress` is
    called with the models searched so far and their number.
    """
    found = list(declared(policy))
    # Queues that stay inactive decide nothing.
    if not any(one.rule == "missing-object" for one in found):
        found += _searched(policy, runs, progress)
    return kept(policy, found, ignored)


def kept(policy: Policy, found: Iterable[Finding], ignored: Collection[str] = ()) -> list[Finding]:
    """Findings that are neither ignored nor accepted by an annotation, the worst first."""
    left = [
        one
        for one in found
        if one.rule not in ignored and one.rule not in policy.accepted.get(one.object, frozenset())
    ]
    return sorted(left, key=_order)


def _searched(policy: Policy, runs: int, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    models = [shape for tree in policy.trees() for shape in shapes(policy, tree)]
    each = min(runs, max(20, RUNS_MAX // max(1, len(models))))
    for number, shape in enumerate(models):
        progress(number, len(models))
        yield from search(policy, shape, each)
        yield from starvation(policy, shape)


def _order(one: Finding) -> tuple[int, str, int, str, str]:
    return -one.severity, one.place.file, one.place.line, one.rule, one.message


def worst(findings: Iterable[Finding]) -> int:
    """The highest severity; -1 where there are no findings."""
    return max((one.severity for one in findings), default=-1)
