"""Cohorts whose parent links form a cycle, and how that is reported.

Source: docs/reference/kueue-api.md 1.4 and docs/reference/kueue-semantics.md 3.6: no ClusterQueue below
such a cohort
is active until the cycle is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

#: Reason of the condition Active of ClusterQueues and Cohorts.
COHORT_CYCLE: Final = "CohortCycle"


def find_cycle(cohort: str, parent: Callable[[str], str]) -> tuple[str, ...]:
    """The cohorts of the cycle that parent links lead into from a cohort; empty where they end at a root.

    In the order of the links from the first name in alphabetical order: the same for all members.
    `parent` answers the name of a cohort's parent, empty for a root and for a cohort without an object.
    """
    chain: list[str] = []
    while cohort and cohort not in chain:
        chain.append(cohort)
        cohort = parent(cohort)
    if not cohort:
        return ()
    members = chain[chain.index(cohort) :]
    start = members.index(min(members))
    return (*members[start:], *members[:start])


def cycle_message(cycle: Sequence[str]) -> str:
    """`parentName of Cohorts forms a cycle: a -> b -> a`."""
    return f"parentName of Cohorts forms a cycle: {' -> '.join((*cycle, cycle[0]))}"
