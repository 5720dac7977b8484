"""Why a unit cannot be placed, in words: which level lacks how much, and which nodes are excluded.

Source of the rules: docs/reference/topology-aware-scheduling.md 18.
"""

from __future__ import annotations

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
    parts = []
    if shortage.together:
        best = counts.index(shortage.level).roomiest()
        if shortage.fitting == 0 or best is None:
            parts.append(f"no domain of level {level} holds any of {shortage.needed} {things}")
        else:
            parts.append(
                f"no domain of level {level} holds {shortage.needed} {things}: "
                f"the largest, {'/'.join(best.values)}, holds {shortage.fitting}"
            )
    elif shortage.fitting == 0:
        parts.append(f"the nodes hold none of {shortage.needed} {things}")
    else:
        parts.append(f"the nodes hold only {shortage.fitting} of {shortage.needed} {things}")
    if shortage.fitting >= shortage.needed:
        parts.append("the leader does not fit beside them")
    if len(layout.layers) > 1:
        parts += _layers(failure)
    if counts.excluded:
        nodes = len(tree.by_level[-1])
        listed = ", ".join(sorted(f"{reason}: {count}" for reason, count in counts.excluded.items()))
        parts.append(f"of {nodes} domains of level {tree.levels[-1]} excluded: {listed}")
    return f"{subject}: " + "; ".join(parts)


def _layers(failure: Failure) -> list[str]:
    """How much of each layer of slices fits into the best domain, or into all together."""
    _, counts, layout, shortage = failure
    total = shortage.needed * layout.slice_size
    best = counts.index(shortage.level).roomiest()
    found = []
    for at, (level, size) in enumerate(layout.layers):
        if at == 0:
            continue
        domains = counts.domains(level)
        if shortage.together and best is not None:
            width = len(best.values)
            domains = [each for each in domains if each.values[:width] == best.values]
        fitting = sum(counts.pods[each.slot] // size for each in domains)
        if fitting < total // size:
            found.append(
                f"{fitting} of {total // size} slices of {size} pods fit on level {counts.tree.levels[level]}"
            )
    return found
