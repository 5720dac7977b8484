"""Why a unit cannot be placed, in words: which level lacks how much, and which nodes are excluded.

Source of the rules: docs/reference/topology-aware-scheduling.md 18.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pykueue.engine.topology.counts import Counts
from pykueue.engine.topology.placement import Shortage
from pykueue.engine.topology.requests import Layout


class Failure(NamedTuple):
    """A unit that cannot be placed."""

    pod_set: str
    counts: Counts
    layout: Layout
    shortage: Shortage


def failure_text(failure: Failure) -> str:
    """A sentence without a full stop."""
    _, counts, layout, shortage = failure
    tree = counts.tree
    subject = f'topology "{tree.topology}" of flavor {tree.flavor}'
    if not tree.by_level[-1]:
        labels = [*tree.levels, *[f"{key}={value}" for key, value in sorted(tree.labels.items())]]
        return f"{subject}: no ready and schedulable node has all of the labels {', '.join(labels)}"
    size = layout.slice_size
    things = f"slices of {size} pods" if size > 1 else "pods"
    level = tree.levels[shortage.level]
    needed, fitting = f"{shortage.needed} {things}", shortage.fitting
    if shortage.together:
        beside = " beside the leader" if fitting >= shortage.needed else ""
        best = counts.index(shortage.level).roomiest()
        if fitting == 0 or best is None:
            parts = [f"no domain of level {level} holds any of {needed}"]
        else:
            largest = (
                f"the largest, {'/'.join(best.values)}, holds {fitting}{' without it' if beside else ''}"
            )
            parts = [f"no domain of level {level} holds {needed}{beside}: {largest}"]
    elif fitting == 0:
        parts = [f"the nodes hold none of {needed}"]
    elif fitting < shortage.needed:
        parts = [f"the nodes hold only {fitting} of {needed}"]
    else:
        parts = [f"the nodes hold {needed}, but not beside the leader"]
    if len(layout.layers) > 1:
        parts += _layers(failure)
    if counts.excluded:
        nodes = len(tree.by_level[-1])
        listed = ", ".join(sorted(f"{reason}: {count}" for reason, count in counts.excluded.items()))
        parts.append(f"of {nodes} domains of level {tree.levels[-1]} excluded: {listed}")
    return f"{subject}: " + "; ".join(parts)


def _layers(failure: Failure) -> list[str]:
    """How much of each inner layer of slices fits, at most into one domain or into all together."""
    _, counts, layout, shortage = failure
    total = shortage.needed * layout.slice_size
    tree = counts.tree
    found = []
    for level, size in layout.layers[1:]:
        fitting: Counter[tuple[str, ...]] = Counter()
        for each in counts.domains(level):
            # All domains are one where the pods may be in several.
            width = shortage.level + 1 if shortage.together else 0
            fitting[each.values[:width]] += counts.pods[each.slot] // size
        most = max(fitting.values(), default=0)
        if most < total // size:
            found.append(f"{most} of {total // size} slices of {size} pods fit on level {tree.levels[level]}")
    return found
