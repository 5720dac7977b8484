"""Questions to the engine that change nothing: what status, metrics, visibility and dashboards show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

from pykueue.api import kueue
from pykueue.api.quantity import MAX_INT64, Quantity
from pykueue.engine.admission import requests_of
from pykueue.engine.cluster_queue import ClusterQueue, Tally
from pykueue.engine.evaluation import Evaluator
from pykueue.engine.explanation import Explanation
from pykueue.engine.fairness import share_of
from pykueue.engine.quota import is_unlimited, to_quantity
from pykueue.engine.state import State
from pykueue.engine.tree import Cohort, Node
from pykueue.engine.workload import GATED_BY, HOLDING, IN_FLIGHT, NO_SCAN, OUT, Record


@dataclass(slots=True)
class Amount:
    """Use of one resource in one flavor."""

    flavor: str
    resource: str
    total: Quantity
    borrowed: Quantity


@dataclass(slots=True)
class QueueView:
    """A ClusterQueue or LocalQueue in figures."""

    name: str
    pending: int
    active: int
    """Of the pending ones, those in line; the others are parked until something changes."""
    reserving: int
    admitted: int
    reservation: list[Amount]
    usage: list[Amount]
    problems: tuple[tuple[str, str], ...] = ()
    """(reason, text) of everything that keeps the queue from admitting; the first reason is that of the
    condition."""
    weighted_share: int = 0
    """Share in thousandths, rounded up; 9223372036854775807 if infinite. 0 for a LocalQueue."""
    consumed: dict[str, Quantity] = field(default_factory=dict)
    """Past usage of a LocalQueue under admission fair sharing."""
    sampled: float | None = None
    """When that was last reckoned, in seconds since 1970."""


@dataclass(slots=True)
class CohortView:
    """A cohort and everything below it in figures."""

    name: str
    subtree_quota: list[tuple[str, str, Quantity | None]]
    """(flavor, resource, amount) that the subtree has; None: without bound."""
    reservation: list[Amount]
    """What workloads of all its queues hold."""
    admitted: int
    weighted_share: int
    """Share in thousandths, rounded up; 9223372036854775807 if infinite."""


@dataclass(slots=True)
class WorkloadView:
    """Where a workload stands."""

    key: str
    state: str
    """`active` (in line), `inadmissible` (parked), `holding` (holds quota), or `out` (in no queue)."""
    cluster_queue: str
    admission: kueue.Admission | None
    """What it holds."""
    admitted: bool
    assumed: bool
    """It holds quota by a decision that the API does not show yet."""
    evicted: bool
    reason: str
    """Why it waits: the reason of the last decision, or that of a workload like it which did not fit."""
    bypassed: bool
    """It was parked without being looked at, because one like it did not fit."""
    problem: str
    """What is wrong with its requests, or empty."""
    requests: tuple[tuple[str, dict[str, Quantity]], ...]
    """What it asks for, by pod set."""


class Views:
    """The engine's read-only side."""

    def __init__(self, state: State, evaluator: Evaluator) -> None:
        self._views_state = state
        self._views_evaluator = evaluator

    # --- queues -----------------------------------------------------------------------------------------

    def cluster_queue(self, name: str) -> QueueView | None:
        """A ClusterQueue in figures; None if it has no object."""
        state = self._views_state
        state.settle()
        queue = state.queues.get(name)
        if queue is None or queue.obj is None:
            return None
        pending = queue.pending
        parked = len(pending.lone) + sum(bucket.size for bucket in pending.parked_buckets)
        return QueueView(
            name=name,
            pending=len(pending.records),
            active=len(pending.records) - parked,
            reserving=queue.tally.reserving,
            admitted=queue.tally.admitted,
            reservation=self._amounts(queue.tally, queue.tally.reserved, queue),
            usage=self._amounts(queue.tally, queue.tally.used, queue),
            problems=queue.inactive,
            weighted_share=self._weighted(queue),
        )

    def local_queue(self, namespace: str, name: str) -> QueueView | None:
        """A LocalQueue in figures; None if it has no object."""
        state = self._views_state
        state.settle()
        local = state.locals.get(f"{namespace}/{name}")
        if local is None or local.obj is None:
            return None
        waiting = [record for record in local.records.values() if _waits(record)]
        queue = state.queues.get(local.cluster_queue)
        return QueueView(
            name=local.key,
            pending=len(waiting),
            active=sum(not record.queue.pending.is_parked(record) for record in waiting if record.queue),
            reserving=local.tally.reserving,
            admitted=local.tally.admitted,
            reservation=self._amounts(local.tally, local.tally.reserved, queue),
            usage=self._amounts(local.tally, local.tally.used, queue),
            consumed={resource: Quantity(amount) for resource, amount in sorted(local.consumed.items())},
            sampled=local.sampled,
        )

    def cohort_share(self, name: str) -> int:
        """Weighted share of a cohort, as status shows it."""
        state = self._views_state
        state.settle()
        cohort = state.forest.cohorts.get(name)
        return self._weighted(cohort) if cohort is not None else 0

    def cohorts(self) -> list[CohortView]:
        """All cohorts that are there: by an object of their own, or because others name them."""
        state = self._views_state
        state.settle()
        found = []
        for cohort in state.forest.cohorts.values():
            held: dict[int, int] = {}
            admitted = self._held_below(cohort, held)
            quota = [
                (
                    *state.pairs.names[pair],
                    None if is_unlimited(cell.subtree) else to_quantity(cell.resource, cell.subtree),
                )
                for pair, cell in cohort.cells.items()
            ]
            amounts = [
                Amount(flavor, resource, to_quantity(resource, amount), Quantity(0))
                for (flavor, resource), amount in (
                    (state.pairs.names[pair], held.get(pair, 0)) for pair in {**cohort.cells, **held}
                )
            ]
            found.append(CohortView(cohort.name, quota, amounts, admitted, self._weighted(cohort)))
        return found

    def _held_below(self, cohort: Cohort, held: dict[int, int]) -> int:
        """Adds what all queues below hold; the number of their admitted workloads."""
        admitted = 0
        for queue in cohort.queues.values():
            admitted += queue.tally.admitted
            for pair, amount in queue.tally.reserved.items():
                held[pair] = held.get(pair, 0) + amount
        return admitted + sum(self._held_below(child, held) for child in cohort.children.values())

    def pending_kinds(self, cluster_queue: str) -> tuple[int, int]:
        """(active, inadmissible): how many kinds of waiting workloads there are that fare alike."""
        queue = self._views_state.queues.get(cluster_queue)
        if queue is None:
            return 0, 0
        buckets = [bucket for bucket in queue.pending.buckets() if bucket.size]
        alone = {(record.shape, record.priority) for record in queue.pending.lone.values()}
        active = {bucket.likeness for bucket in buckets if not bucket.parked}
        return len(active), len(alone | {bucket.likeness for bucket in buckets if bucket.parked})

    def pending_requests(self, cluster_queue: str) -> dict[str, Quantity]:
        """What all waiting workloads of a ClusterQueue ask for together, by resource."""
        queue = self._views_state.queues.get(cluster_queue)
        if queue is None:
            return {}
        shapes = [(record.shape, 1) for record in queue.pending.lone.values()]
        shapes += [(bucket.likeness[0], bucket.size) for bucket in queue.pending.buckets()]
        total: dict[str, int] = {}
        for shape, count in shapes:
            for _, amounts in requests_of(shape) if shape is not None else ():
                for resource, amount in amounts.items():
                    total[resource] = total.get(resource, 0) + amount * count
        return {resource: to_quantity(resource, amount) for resource, amount in sorted(total.items())}

    def fair_usage(self, namespace: str, name: str) -> float | None:
        """What orders a LocalQueue among others under admission fair sharing; None where that is off."""
        local = self._views_state.locals.get(f"{namespace}/{name}")
        usage = self._views_evaluator.usage_of
        return None if local is None or usage is None else usage(local)

    def _amounts(self, tally: Tally, amounts: dict[int, int], queue: ClusterQueue | None) -> list[Amount]:
        """Every pair the queue has quota for, and any other that is in use."""
        state = self._views_state
        declared = (
            [pair for group in queue.groups for _, pairs in group.flavors for pair in pairs.values()]
            if (queue is not None)
            else []
        )
        others = sorted(pair for pair, amount in amounts.items() if amount and pair not in set(declared))
        result = []
        for pair in (*declared, *others):
            flavor, resource = state.pairs.names[pair]
            total = amounts.get(pair, 0)
            borrowed = 0
            if queue is not None and queue.parent is not None and tally is queue.tally:
                cell = queue.cells.get(pair)
                borrowed = max(0, total - (cell.nominal if cell is not None else 0))
            result.append(
                Amount(flavor, resource, to_quantity(resource, total), to_quantity(resource, borrowed))
            )
        return result

    @staticmethod
    def _weighted(node: Node) -> int:
        share = share_of(node)
        return MAX_INT64 if share.unbounded else ceil(share.value)

    def pending(self, cluster_queue: str) -> list[str]:
        """Keys of all waiting workloads of a ClusterQueue: those in line first, in the order they are
        taken."""
        state = self._views_state
        state.settle()
        queue = state.queues.get(cluster_queue)
        if queue is None:
            return []
        return [record.key for record in self._in_order(queue)]

    def in_line(self, cluster_queue: str) -> tuple[list[str], list[str]]:
        """(active, inadmissible): keys of waiting workloads of a ClusterQueue, each in queue order."""
        state = self._views_state
        state.settle()
        queue = state.queues.get(cluster_queue)
        if queue is None:
            return [], []
        active: list[str] = []
        parked: list[str] = []
        for record in self._in_order(queue):
            (parked if queue.pending.is_parked(record) else active).append(record.key)
        return active, parked

    def _in_order(self, queue: ClusterQueue) -> Iterable[Record]:
        pending = queue.pending
        usage = self._views_evaluator.usage_of

        def order(record: Record) -> tuple[object, ...]:
            used = usage(record.local) if pending.by_local and usage is not None and record.local else 0.0
            return (pending.is_parked(record), used, *pending.order(record))

        return sorted(pending.records.values(), key=order)

    # --- workloads --------------------------------------------------------------------------------------

    def workload(self, key: str) -> WorkloadView | None:
        """Where a workload stands; None if the engine does not know it (finished ones are forgotten)."""
        state = self._views_state
        state.settle()
        record = state.records.get(key)
        if record is None:
            return None
        reason, bypassed = record.reason, False
        queue = record.queue
        if record.place in (OUT, IN_FLIGHT):
            where = "out"
        elif record.place == HOLDING:
            where, reason = "holding", ""
        else:
            assert queue is not None
            where = "inadmissible" if queue.pending.is_parked(record) else "active"
            if record.bucket is not None and record.bucket.parked:
                reason, bypassed = record.bucket.parked, True
        shape = record.shape
        return WorkloadView(
            key=key,
            state=where,
            cluster_queue=queue.name if queue is not None and where != "out" else "",
            admission=record.admission if where == "holding" else None,
            admitted=record.admitted and where == "holding",
            assumed=record.assumed,
            evicted=record.evicted,
            reason=reason,
            bypassed=bypassed,
            problem=shape.problem if shape is not None else "",
            requests=tuple(
                (name, {resource: to_quantity(resource, amount) for resource, amount in amounts.items()})
                for name, amounts in (requests_of(shape) if shape is not None else ())
            ),
        )

    def standing(self, key: str) -> tuple[str, str]:
        """(reason, text) of QuotaReserved=False for a workload without quota (5.9, between cycles).

        The text is empty where the reason is the last decision's, which had its own.
        """
        state = self._views_state
        state.settle()
        record = state.records.get(key)
        if record is None or record.place == HOLDING:
            return "", ""
        spec = record.obj.spec
        if not spec.active:
            return "Deactivated", "the workload is deactivated"
        if any(
            condition.type == "QuotaReserved" and condition.status == "False" and condition.reason == "OnHold"
            for condition in record.obj.status.conditions
        ):
            return "OnHold", "the workload is on hold"
        local = record.local
        if local is None or local.obj is None or local.is_terminating:
            return "Misconfigured", f"LocalQueue {spec.queue_name} does not exist"
        if not local.is_open:
            return "Suspended", f"LocalQueue {spec.queue_name} is stopped"
        queue = state.queues.get(local.cluster_queue)
        if queue is None or queue.obj is None or queue.obj.metadata.deletion_timestamp is not None:
            return "Misconfigured", f"ClusterQueue {local.cluster_queue} does not exist"
        if queue.inactive:
            return "Suspended", "; ".join(text for _, text in queue.inactive)
        problem = record.shape.problem if record.shape is not None else ""
        if not state.admits_namespace(queue, record.namespace):
            problem = f"ClusterQueue {queue.name} does not take workloads of namespace {record.namespace}"
        if problem:
            return "Misconfigured", problem
        if record.obj.metadata.annotations.get(GATED_BY) and state.options.enabled("AdmissionGatedBy"):
            return "AdmissionGated", "the workload is gated by the annotation " + GATED_BY
        bucket = record.bucket
        if bucket is not None and bucket.parked:
            return bucket.parked, "a workload that asks for the same did not fit; evaluation was skipped"
        if record.reason:
            return record.reason, ""
        return "PendingEvaluation", "the workload was not considered yet"

    def explain(self, key: str) -> Explanation | None:
        """How a waiting workload would fare if it were considered now; None if it does not wait."""
        state = self._views_state
        state.settle()
        record = state.records.get(key)
        if record is None or not _waits(record):
            return None
        queue = record.queue
        assert queue is not None
        shape = record.shape
        if queue.inactive:
            return Explanation(problem="; ".join(text for _, text in queue.inactive))
        if shape is None or shape.problem:
            return Explanation(problem=shape.problem if shape is not None else "")
        if not state.admits_namespace(queue, record.namespace):
            return Explanation(
                problem=f"ClusterQueue {queue.name} does not take workloads of namespace {record.namespace}"
            )
        scan, record.scan = record.scan, NO_SCAN
        found = self._views_evaluator.evaluate(record, queue, replaced=state.replaced_by(record))
        record.scan = scan
        return Explanation(found.assignment.attempts, found.report)


def _waits(record: Record) -> bool:
    return record.queue is not None and record.place not in (OUT, IN_FLIGHT, HOLDING)
