"""Whether a queue is active: the condition Active of ClusterQueues, LocalQueues and Cohorts and its reason.

What keeps a ClusterQueue inactive is derived by the engine, which does not admit to it. Source:
docs/reference/kueue-semantics.md 3.9, docs/reference/kueue-api.md 1.3 and 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pykueue.api.cohorts import COHORT_CYCLE, cycle_message, find_cycle
from pykueue.api.objects import Object, get
from pykueue.engine import Engine
from pykueue.manager.activity import Activity

Lookup = Callable[[str], Object | None]


READY = Activity(True, "Ready", "Can admit new workloads")


def cluster_queue_activity(engine: Engine, name: str) -> Activity:
    """Active is False when any problem is found; the first gives the reason, all of them the message."""
    problems = engine.queue_problems(name)
    if problems is None:
        problems = (("NotFound", "the ClusterQueue is invalid"),)
    if not problems:
        return READY
    texts = "; ".join(text for _, text in problems)
    return Activity(False, problems[0][0], f"Can't admit new workloads: {texts}")


def cohort_activity(obj: Mapping[str, Any], cohort: Lookup) -> Activity:
    """Active is False while the parent links of the Cohort lead into a cycle."""
    cycle = find_cycle(
        obj["metadata"]["name"], lambda each: str(get(cohort(each) or {}, "spec", "parentName") or "")
    )
    if cycle:
        return Activity(False, COHORT_CYCLE, f"Can't admit new workloads: {cycle_message(cycle)}")
    return READY


def local_queue_activity(queue: Mapping[str, Any], cluster_queue: Activity | None) -> Activity:
    """`cluster_queue` is that of the ClusterQueue it leads to; None where there is none."""
    if (get(queue, "spec", "stopPolicy") or "None") != "None":
        return Activity(False, "Stopped", "LocalQueue is stopped")
    if cluster_queue is None:
        return Activity(
            False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue: it doesn't exist"
        )
    if not cluster_queue.active:
        return Activity(
            False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue: it is inactive"
        )
    return Activity(True, "Ready", "Can submit new workloads to localQueue")
