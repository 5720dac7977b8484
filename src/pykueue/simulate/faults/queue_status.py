"""Whether the status of ClusterQueues and LocalQueues agrees with the Workloads that there are.

Source of the figures: docs/reference/kueue-semantics.md 3.8, 4.2 and 4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api import conditions, quantity
from pykueue.api.objects import Key, Object, get, is_deleting, key_of
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS

from .quota import Pair, nominal, usage
from .stored import Stored, shows_quota


def miscounted(stored: Stored, waits: Callable[[Object], bool] | None = None) -> Iterable[str]:
    """Figures in the status of queues that are not what the Workloads add up to.

    `waits` says which Workloads are in their queues, where `may_queue` does not say all.
    """
    waits = waits or may_queue
    queues = {queue["metadata"]["name"]: queue for queue in stored.objects(CLUSTER_QUEUES)}
    locals_ = {key_of(queue): queue for queue in stored.objects(LOCAL_QUEUES)}
    workloads = stored.objects(WORKLOADS)
    reserving = [stored.counted(w) for w in workloads if shows_quota(w)]
    pending = [w for w in workloads if waits(w) and queue_of(w, locals_) is not None]
    for name, queue in queues.items():
        mine = [w for w in reserving if conditions.cluster_queue(w) == name]
        waiting = [w for w in pending if get(_local_queue(w, locals_) or {}, "spec", "clusterQueue") == name]
        yield from _differences(f"ClusterQueue {name}", queue, queue, mine, len(waiting))
    for key, queue in locals_.items():
        target = queues.get(str(get(queue, "spec", "clusterQueue")))
        mine = [w for w in reserving if _queue_key(w) == key] if target is not None else []
        waiting = [w for w in pending if _queue_key(w) == key]
        yield from _differences(f"LocalQueue {key[1]}", queue, target, mine, len(waiting))


def _queue_key(workload: Mapping[str, Any]) -> Key:
    return (key_of(workload)[0], str(get(workload, "spec", "queueName") or ""))


def _local_queue(workload: Mapping[str, Any], queues: Mapping[Key, Object]) -> Object | None:
    return queues.get(_queue_key(workload))


def may_queue(workload: Mapping[str, Any]) -> bool:
    """Whether a Workload waits in its queue, be it that it has to wait out a back-off there."""
    return (
        conditions.is_active(workload)
        and not conditions.is_finished(workload)
        and not conditions.has_quota(workload)
        and not conditions.is_gated(workload)
        and not conditions.is_on_hold(workload)
        and not conditions.is_true(workload, "WaitingForReplacementPods")
        and not is_deleting(workload)
    )


def queue_of(workload: Mapping[str, Any], queues: Mapping[Key, Object]) -> Object | None:
    """The LocalQueue through which a Workload is in the queue of a ClusterQueue, if that is open."""
    queue = _local_queue(workload, queues)
    if queue is None or (get(queue, "spec", "stopPolicy") or "None") != "None" or is_deleting(queue):
        return None
    return queue


def _differences(
    text: str, queue: Object, cluster_queue: Object | None, reserving: list[Object], pending: int
) -> Iterable[str]:
    admitted = [w for w in reserving if conditions.is_admitted(w)]
    counts = {
        "pendingWorkloads": pending,
        "reservingWorkloads": len(reserving),
        "admittedWorkloads": len(admitted),
    }
    for field, count in counts.items():
        reported = get(queue, "status", field) or 0
        if reported != count:
            yield f"{text} says {field} {reported}, there are {count}"
    for field, workloads in (("flavorsReservation", reserving), ("flavorsUsage", admitted)):
        shown = _shown(queue, field)
        truth = _totals(cluster_queue, workloads, queue is cluster_queue)
        if shown != truth:
            yield f"{text} says {field} {shown}, it is {truth}"


def _shown(queue: Object, field: str) -> dict[Pair, tuple[int, int]]:
    """Total and borrowed amount by flavor and resource, in thousandths."""
    return {
        (str(flavor["name"]), str(one["name"])): (
            quantity.parse(one.get("total") or 0).milli(),
            quantity.parse(one.get("borrowed") or 0).milli(),
        )
        for flavor in get(queue, "status", field) or ()
        for one in flavor.get("resources") or ()
    }


def _totals(
    cluster_queue: Object | None, workloads: Iterable[Object], borrows: bool
) -> dict[Pair, tuple[int, int]]:
    if cluster_queue is None:
        return {}
    quotas = nominal(cluster_queue)
    totals = dict.fromkeys(quotas, 0)
    for workload in workloads:
        for pair, amount in usage(workload).items():
            if pair in totals:
                totals[pair] += amount
    in_cohort = borrows and bool(get(cluster_queue, "spec", "cohortName"))
    return {pair: (total, max(0, total - quotas[pair]) if in_cohort else 0) for pair, total in totals.items()}
