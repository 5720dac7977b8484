"""Whether a Workload is pending although it fits, or its queue admits another before it.

Source of the rules: docs/reference/kueue-semantics.md 4.4, 4.5 and 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api import conditions, quantity
from pykueue.api.backfill_policies import BACKFILL_POLICIES, BACKFILLED
from pykueue.api.objects import Object, get, is_deleting, key_of
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import CLUSTER_QUEUES, COHORTS, LIMIT_RANGES, LOCAL_QUEUES, WORKLOADS
from pykueue.jobs.slices import replaced_key
from pykueue.manager.configuration import Configuration

from .causes import priority_of
from .jobkinds import ended
from .queue_status import may_queue, queue_of
from .quota import Books, nominal, usage
from .stored import Stored

STRICT = "StrictFIFO"


class PriorityOrder:
    """What the queueing strategies promise to pending Workloads.

    Not compared are Workloads that wait for something else than quota (a back-off, an admission check, a
    closed gate, a LimitRange), and all where admission waits for ready pods.
    """

    def __init__(self, stored: Stored, configuration: Configuration) -> None:
        self._stored = stored
        waiting = configuration.wait_for_pods_ready
        self._blocks = waiting is not None and waiting.block_admission

    def passed_over(self, holders: Iterable[Object]) -> Iterable[str]:
        """Pending Workloads that fit, once the manager has settled; `holders` have quota.

        Of a StrictFIFO queue only those of the highest priority are compared. What the head of another
        StrictFIFO queue of the cohort lacks is reserved for it, and so is what a Workload lacks that has
        preempted others: such a cohort is left out.
        """
        if self._blocks:
            return
        queues = {queue["metadata"]["name"]: queue for queue in self._stored.objects(CLUSTER_QUEUES)}
        cohorts = self._stored.objects(COHORTS)
        pending = self._pending(queues)
        holding = list(holders)
        books = Books(queues.values(), cohorts, holding)
        root = _roots(cohorts)
        evicting = {
            root(queues[conditions.cluster_queue(w)])
            for w in holding
            if conditions.is_evicted(w) and conditions.cluster_queue(w) in queues
        }
        for name, waiting in pending.items():
            queue = queues[name]
            cohort, strict = root(queue), self._is_strict(queue)
            strict_others = any(
                other != name and self._is_strict(queues[other]) and root(queues[other]) == cohort
                for other in pending
            )
            if strict_others or cohort in evicting:
                continue
            if strict:
                highest = max(map(priority_of, waiting))
                waiting = [w for w in waiting if priority_of(w) == highest]
            fitting = [
                w
                for w in waiting
                if self._is_eligible(w, queue) and _fits(w, queue, books) and not self._is_held_back(w)
            ]
            if strict and len(fitting) != len(waiting):
                continue
            for workload in fitting:
                yield f"{workload['metadata']['name']} fits {name} and is pending"

    def overtaken(self, workload: Object, unchanged: Callable[[Object], bool]) -> Iterable[str]:
        """Workloads of higher priority that a queue passes over for this one.

        Compared are those for which `unchanged` says that the manager has known them for a while. A
        BestEffortFIFO queue passes over what does not fit, but nothing that requests at most what this one
        got.
        """
        queues = {queue["metadata"]["name"]: queue for queue in self._stored.objects(CLUSTER_QUEUES)}
        name = conditions.cluster_queue(workload)
        queue = queues.get(name)
        if queue is None or not unchanged(queue) or conditions.is_true(workload, BACKFILLED):
            return
        if self._stored.objects(RESERVATIONS):
            return  # what one of higher priority would run into may be no hindrance for a shorter one
        for other in self._pending(queues).get(name, ()):
            if (
                priority_of(other) > priority_of(workload)
                and unchanged(other)
                and (self._is_strict(queue) or _fits_instead(other, workload))
                and self._is_eligible(other, queue)
            ):
                yield f"got quota before {other['metadata']['name']}, whose priority is higher, in {name}"

    def _pending(self, queues: Mapping[str, Object]) -> dict[str, list[Object]]:
        """Workloads in the queues of ClusterQueues, by the name of the ClusterQueue."""
        locals_ = {key_of(queue): queue for queue in self._stored.objects(LOCAL_QUEUES)}
        found: dict[str, list[Object]] = {}
        for workload in self._stored.objects(WORKLOADS):
            local = queue_of(workload, locals_)
            if local is None or not may_queue(workload):
                continue
            name = str(get(local, "spec", "clusterQueue"))
            if name in queues:
                found.setdefault(name, []).append(workload)
        return found

    def _is_strict(self, queue: Mapping[str, Any]) -> bool:
        """Whether a queue keeps the order of its Workloads; a BackfillPolicy is for all queues here."""
        strict = get(queue, "spec", "queueingStrategy") == STRICT
        return bool(strict) and not self._stored.objects(BACKFILL_POLICIES)

    @property
    def _backfills(self) -> bool:
        return bool(self._stored.objects(BACKFILL_POLICIES) or self._stored.objects(RESERVATIONS))

    def _is_held_back(self, workload: Object) -> bool:
        """Whether a pending Workload would use what is reserved for others."""
        found = conditions.condition(workload, conditions.QUOTA_RESERVED) or {}
        message = str(found.get("message"))
        reasons = ("Would delay ", "Would use quota of Reservation ")
        return self._backfills and any(reason in message for reason in reasons)

    def _is_eligible(self, workload: Object, queue: Object) -> bool:
        """Whether a pending Workload waits for nothing but quota."""
        job = self._stored.job_of(workload)
        return (
            job is not None
            and not ended(job)
            and not is_deleting(job)
            and conditions.is_true(queue, "Active")
            and not conditions.is_false(workload, "Requeued")
            and get(workload, "status", "requeueState", "requeueAt") is None
            and not any(
                check.get("state") in ("Retry", "Rejected")
                for check in get(workload, "status", "admissionChecks") or ()
            )
            and replaced_key(workload) is None  # a replacement is bound to the flavors of its slice
            and not any(_exceeds(workload, limits) for limits in self._stored.objects(LIMIT_RANGES))
        )


class AnyOrder(PriorityOrder):
    """Where more than quota decides, such as room on nodes, a workload of lower priority may go first."""

    def passed_over(self, holders: Iterable[Object]) -> Iterable[str]:
        return ()

    def overtaken(self, workload: Object, unchanged: Callable[[Object], bool]) -> Iterable[str]:
        return ()


def _fits(workload: Object, queue: Object, books: Books) -> bool:
    """Whether all its pods fit one flavor; false where it is not known what they request."""
    requests = _requests(workload)
    name = queue["metadata"]["name"]
    flavors = {flavor for flavor, _ in nominal(queue)}
    return requests is not None and any(
        all(amount <= books.available(name, (flavor, resource)) for resource, amount in requests.items())
        for flavor in flavors
    )


def _fits_instead(one: Object, admitted: Object) -> bool:
    """Whether a Workload fits wherever the other one, which has a single pod set, was admitted."""
    requests = _requests(one)
    if requests is None or len(get(admitted, "spec", "podSets") or ()) != 1:
        return False
    used = {resource: amount for (_, resource), amount in usage(admitted).items()}
    return all(amount <= used.get(resource, 0) for resource, amount in requests.items())


def _exceeds(workload: Object, limits: Object) -> bool:
    """Whether a container requests more than a LimitRange of its namespace allows."""
    if key_of(limits)[0] != key_of(workload)[0]:
        return False
    return any(
        quantity.parse(amount).milli() > quantity.parse(most).milli()
        for limit in get(limits, "spec", "limits") or ()
        for resource, most in (limit.get("max") or {}).items()
        for pod_set in get(workload, "spec", "podSets") or ()
        for container in get(pod_set, "template", "spec", "containers") or ()
        for amount in [(get(container, "resources", "requests") or {}).get(resource)]
        if amount is not None
    )


def _requests(workload: Object) -> dict[str, int] | None:
    """What all pods of a Workload request, in thousandths; None for pods with more than containers."""
    found: dict[str, int] = {}
    for pod_set in get(workload, "spec", "podSets") or ():
        spec = get(pod_set, "template", "spec") or {}
        if spec.get("initContainers") or spec.get("overhead") or spec.get("nodeSelector"):
            return None
        for container in spec.get("containers") or ():
            for resource, amount in (get(container, "resources", "requests") or {}).items():
                total = quantity.parse(amount).milli() * int(pod_set.get("count", 1))
                found[resource] = found.get(resource, 0) + total
    return found


def _roots(cohorts: Iterable[Object]) -> Callable[[Object], str]:
    """Names the root cohort of a ClusterQueue, or the ClusterQueue itself if it is in none."""
    parents = {cohort["metadata"]["name"]: get(cohort, "spec", "parentName") for cohort in cohorts}

    def root(queue: Object) -> str:
        name = get(queue, "spec", "cohortName")
        if not name:
            return f"ClusterQueue {queue['metadata']['name']}"
        seen = {name}
        while (parent := parents.get(name)) and parent not in seen:
            seen.add(parent)
            name = parent
        return str(name)

    return root
