"""Questions to the engine that change nothing: what status, metrics, visibility and dashboards show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import ceil

from pykueue.api import kueue, pending_reasons
from pykueue.api.budgets import Budget, BudgetLedger
from pykueue.api.cohorts import COHORT_CYCLE, cycle_message
from pykueue.api.meta import parse_time
from pykueue.api.pending_reasons import PendingReason
from pykueue.api.quantity import MAX_INT64, Quantity
from pykueue.api.reservations import Reservation
from pykueue.engine.budgets.capacity import BudgetShortage
from pykueue.engine.budgets.rules import BudgetRules, LedgerKey
from pykueue.engine.cycle.backfill import Planner
from pykueue.engine.cycle.evaluation import Evaluation, Evaluator
from pykueue.engine.explain.quota_queries import QuotaQueries
from pykueue.engine.explain.render import reason_text
from pykueue.engine.explain.views import Amount, CohortView, PendingReservation, QueueView, WorkloadView
from pykueue.engine.explanation import Explanation, basis_of
from pykueue.engine.fair_sharing.shares import share_of
from pykueue.engine.flavors.assignment import FIT
from pykueue.engine.flavors.reservation import requests_of
from pykueue.engine.preemption.damping import lost_resource_seconds
from pykueue.engine.queues.cluster_queue import ClusterQueue, UsageCounts
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.queues.pending import Bucket
from pykueue.engine.quota.tree import Cohort, Node
from pykueue.engine.quota.usage import is_unlimited, to_quantity
from pykueue.engine.state import State
from pykueue.engine.topology.view import LeafView, leaf_views
from pykueue.engine.workload import IN_FLIGHT, NO_SCAN, OUT, RESERVED, WorkloadInfo, is_admission_gated


class Queries(QuotaQueries):
    """The engine's read-only side."""

    def __init__(self, state: State, evaluator: Evaluator) -> None:
        super().__init__(state)
        self._evaluator = evaluator

    # --- nodes ------------------------------------------------------------------------------------------

    def topology_leaves(self) -> list[LeafView]:
        """The lowest domains of all flavors with a topology: their amounts, and the pods assigned to each."""
        nodes = self._state.nodes
        if nodes is None:
            return []
        reserved = [
            (key, reservation)
            for key, info in sorted(self._state.workloads.items())
            if info.place == RESERVED
            for shared, reservation in info.shared
            if shared is nodes
        ]
        return list(leaf_views(nodes, reserved))

    # --- queues -----------------------------------------------------------------------------------------

    def cluster_queue(self, name: str) -> QueueView | None:
        """A ClusterQueue in figures; None if it has no object."""
        state = self._state
        state.settle()
        queue = state.queues.get(name)
        if queue is None or queue.obj is None:
            return None
        pending = queue.pending
        inadmissible = len(pending.inadmissible) + sum(bucket.size for bucket in pending.inadmissible_buckets)
        return QueueView(
            name=name,
            pending=len(pending.workloads),
            active=len(pending.workloads) - inadmissible,
            reserving=queue.usage_counts.reserving,
            admitted=queue.usage_counts.admitted,
            reservation=self._amounts(queue.usage_counts, queue.usage_counts.reserved, queue),
            usage=self._amounts(queue.usage_counts, queue.usage_counts.used, queue),
            problems=self._problems(queue),
            weighted_share=self._weighted(queue),
        )

    def queue_problems(self, name: str) -> tuple[tuple[str, str], ...] | None:
        """The problems of `cluster_queue(name)`, without its figures; None if it has no object."""
        self._state.settle()
        queue = self._state.queues.get(name)
        return None if queue is None or queue.obj is None else self._problems(queue)

    def _problems(self, queue: ClusterQueue) -> tuple[tuple[str, str], ...]:
        """(reason, text) of everything that keeps a ClusterQueue from taking part."""
        if not queue.tree.cyclic:
            return queue.inactive
        cycle = self._state.forest.cycle_above(queue)
        return (*queue.inactive, (COHORT_CYCLE, cycle_message(cycle)))

    def cluster_queues(self) -> list[str]:
        """Names of all ClusterQueues that have an object, sorted."""
        return sorted(name for name, queue in self._state.queues.items() if queue.obj is not None)

    def local_queue(self, namespace: str, name: str) -> QueueView | None:
        """A LocalQueue in figures; None if it has no object."""
        state = self._state
        state.settle()
        local = state.locals.get(f"{namespace}/{name}")
        if local is None or local.obj is None:
            return None
        waiting = [info for info in local.workloads.values() if _waits(info)]
        queue = state.queues.get(local.cluster_queue)
        return QueueView(
            name=local.key,
            pending=len(waiting),
            active=sum(not info.queue.pending.is_inadmissible(info) for info in waiting if info.queue),
            reserving=local.usage_counts.reserving,
            admitted=local.usage_counts.admitted,
            reservation=self._amounts(local.usage_counts, local.usage_counts.reserved, queue),
            usage=self._amounts(local.usage_counts, local.usage_counts.used, queue),
            consumed={resource: Quantity(amount) for resource, amount in sorted(local.consumed.items())},
            sampled=local.sampled,
        )

    def cohort_share(self, name: str) -> int:
        """Weighted share of a cohort, as status shows it."""
        state = self._state
        state.settle()
        cohort = state.forest.cohorts.get(name)
        return self._weighted(cohort) if cohort is not None else 0

    def cohorts(self) -> list[CohortView]:
        """All cohorts that are there: by an object of their own, or because others name them."""
        state = self._state
        state.settle()
        found = []
        for cohort in state.forest.cohorts.values():
            reserved: dict[int, int] = {}
            admitted = self._reserved_below(cohort, reserved)
            quota = [
                (
                    *state.flavor_resources.names[flavor_resource],
                    None
                    if is_unlimited(flavor_usage.subtree)
                    else to_quantity(flavor_usage.resource, flavor_usage.subtree),
                )
                for flavor_resource, flavor_usage in cohort.flavor_usages.items()
            ]
            amounts = [
                Amount(flavor, resource, to_quantity(resource, amount), Quantity(0))
                for (flavor, resource), amount in (
                    (state.flavor_resources.names[flavor_resource], reserved.get(flavor_resource, 0))
                    for flavor_resource in {**cohort.flavor_usages, **reserved}
                )
            ]
            found.append(CohortView(cohort.name, quota, amounts, admitted, self._weighted(cohort)))
        return found

    def _reserved_below(self, cohort: Cohort, reserved: dict[int, int]) -> int:
        """Adds what all queues below hold; the number of their admitted workloads."""
        admitted = 0
        for queue in cohort.queues.values():
            admitted += queue.usage_counts.admitted
            for flavor_resource, amount in queue.usage_counts.reserved.items():
                reserved[flavor_resource] = reserved.get(flavor_resource, 0) + amount
        return admitted + sum(self._reserved_below(child, reserved) for child in cohort.children.values())

    def pending_kinds(self, cluster_queue: str) -> tuple[int, int]:
        """(active, inadmissible): how many kinds of waiting workloads there are that fare alike."""
        queue = self._state.queues.get(cluster_queue)
        if queue is None:
            return 0, 0
        buckets = [bucket for bucket in queue.pending.buckets() if bucket.size]
        alone = {queue.pending.class_of(info) for info in queue.pending.inadmissible.values()}
        active = {bucket.equivalence_class for bucket in buckets if not bucket.inadmissible}
        return len(active), len(
            alone | {bucket.equivalence_class for bucket in buckets if bucket.inadmissible}
        )

    def pending_requests(self, cluster_queue: str) -> dict[str, Quantity]:
        """What all waiting workloads of a ClusterQueue ask for together, by resource."""
        queue = self._state.queues.get(cluster_queue)
        if queue is None:
            return {}
        scheduling_classes = [(info.scheduling_class, 1) for info in queue.pending.inadmissible.values()]
        scheduling_classes += [
            (bucket.equivalence_class[0], bucket.size) for bucket in queue.pending.buckets()
        ]
        total: dict[str, int] = {}
        for scheduling_class, count in scheduling_classes:
            for _, amounts in requests_of(scheduling_class) if scheduling_class is not None else ():
                for resource, amount in amounts.items():
                    total[resource] = total.get(resource, 0) + amount * count
        return {resource: to_quantity(resource, amount) for resource, amount in sorted(total.items())}

    def fair_usage(self, namespace: str, name: str) -> float | None:
        """What orders a LocalQueue among others under admission fair sharing; None where that is off."""
        local = self._state.locals.get(f"{namespace}/{name}")
        usage = self._evaluator.usage_of
        return None if local is None or usage is None else usage(local)

    def _amounts(
        self, usage_counts: UsageCounts, amounts: dict[int, int], queue: ClusterQueue | None
    ) -> list[Amount]:
        """Every FlavorResource the queue has quota for, and any other that is in use."""
        state = self._state
        declared = (
            [
                flavor_resource
                for group in queue.groups
                for _, flavor_resources in group.flavors
                for flavor_resource in flavor_resources.values()
            ]
            if queue is not None
            else []
        )
        used = {flavor_resource for flavor_resource, amount in amounts.items() if amount}
        others = sorted(used.difference(declared))
        result = []
        for flavor_resource in (*declared, *others):
            flavor, resource = state.flavor_resources.names[flavor_resource]
            total = amounts.get(flavor_resource, 0)
            borrowed = 0
            if queue is not None and queue.parent is not None and usage_counts is queue.usage_counts:
                flavor_usage = queue.flavor_usages.get(flavor_resource)
                borrowed = max(0, total - (flavor_usage.nominal if flavor_usage is not None else 0))
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
        state = self._state
        state.settle()
        queue = state.queues.get(cluster_queue)
        if queue is None:
            return []
        return [info.key for info in self._in_order(queue)]

    def in_line(self, cluster_queue: str) -> tuple[list[str], list[str]]:
        """(active, inadmissible): keys of waiting workloads of a ClusterQueue, each in queue order."""
        state = self._state
        state.settle()
        queue = state.queues.get(cluster_queue)
        if queue is None:
            return [], []
        active: list[str] = []
        inadmissible: list[str] = []
        for info in self._in_order(queue):
            (inadmissible if queue.pending.is_inadmissible(info) else active).append(info.key)
        return active, inadmissible

    def _in_order(self, queue: ClusterQueue) -> Iterable[WorkloadInfo]:
        pending = queue.pending
        usage = self._evaluator.usage_of

        def order(info: WorkloadInfo) -> tuple[object, ...]:
            used = usage(info.local) if pending.by_local and usage is not None and info.local else 0.0
            return (pending.is_inadmissible(info), used, *pending.order(info))

        return sorted(pending.workloads.values(), key=order)

    # --- workloads --------------------------------------------------------------------------------------

    def budget_object(self, name: str) -> Budget | None:
        """The Budget as it was applied."""
        return self._state.budgets.budgets.get(name)

    def budget_ledgers(self, name: str) -> list[BudgetLedger]:
        """The ledgers of a Budget, by value."""
        ledgers = self._state.budgets.ledgers
        return [ledger for key, ledger in sorted(ledgers.items()) if key[0] == name]

    def reservation_object(self, name: str) -> Reservation | None:
        """The Reservation as it was applied."""
        objects = self._state.backfill.windows.objects()
        return next((obj for obj in objects if obj.metadata.name == name), None)

    def ledgers_of(self, workload: kueue.Workload) -> list[tuple[LedgerKey, BudgetRules]]:
        """The ledgers that a workload is counted in, with the rules of their Budgets."""
        self._state.settle()
        return self._state.budgets.ledgers_of(workload)

    @property
    def has_preemption_policies(self) -> bool:
        """Whether any PreemptionPolicy is in force."""
        return self._state.damping.on

    def preemption_policy_of(self, path: tuple[str, ...]) -> str:
        """Name of the PreemptionPolicy of a queue, given its path from the root cohort; empty: none."""
        return self._state.damping.policy_of(path)

    def lost_work(self, key: str, at: str) -> dict[str, int]:
        """What a workload that holds quota loses if it ends `at` (RFC 3339), by resource.

        In cpus, bytes or pieces, times seconds since its admission or last checkpoint; empty: it holds none.
        """
        info = self._state.workloads.get(key)
        if info is None or info.place != RESERVED:
            return {}
        return lost_resource_seconds(info, parse_time(at))

    def version(self, key: str) -> tuple[str, int]:
        """The uid and the generation of a workload as decided on; empty and 0 for an unknown one."""
        info = self._state.workloads.get(key)
        if info is None:
            return "", 0
        metadata = info.obj.metadata
        return metadata.uid, metadata.generation or 0

    def workload(self, key: str) -> WorkloadView | None:
        """Where a workload stands; None if the engine does not know it (finished ones are forgotten)."""
        state = self._state
        state.settle()
        info = state.workloads.get(key)
        if info is None:
            return None
        reason, bypassed = info.reason, False
        queue = info.queue
        if info.place in (OUT, IN_FLIGHT):
            where = "out"
        elif info.place == RESERVED:
            where, reason = "reserved", ""
        else:
            assert queue is not None
            where = "inadmissible" if queue.pending.is_inadmissible(info) else "active"
            if info.bucket is not None and info.bucket.inadmissible:
                reason, bypassed = info.bucket.inadmissible, True
        scheduling_class = info.scheduling_class
        return WorkloadView(
            key=key,
            state=where,
            cluster_queue=queue.name if queue is not None and where != "out" else "",
            admission=info.admission if where == "reserved" else None,
            admitted=info.admitted and where == "reserved",
            assumed=info.assumed,
            evicted=info.evicted,
            reason=reason,
            bypassed=bypassed,
            problem=scheduling_class.problem if scheduling_class is not None else "",
            requests=tuple(
                (name, {resource: to_quantity(resource, amount) for resource, amount in amounts.items()})
                for name, amounts in (requests_of(scheduling_class) if scheduling_class is not None else ())
            ),
        )

    def pending_reason(self, key: str) -> tuple[str, str]:
        """(reason, text) of QuotaReserved=False for a workload without quota (5.9, between cycles).

        The text is empty where the reason is the last decision's, which had its own.
        """
        state = self._state
        state.settle()
        info = state.workloads.get(key)
        if info is None or info.place == RESERVED:
            return "", ""
        spec = info.obj.spec
        if not spec.active:
            return pending_reasons.INACTIVE
        if any(
            condition.type == "QuotaReserved" and condition.status == "False" and condition.reason == "OnHold"
            for condition in info.obj.status.conditions
        ):
            return pending_reasons.on_hold()
        local = info.local
        queue = None if local is None else state.queues.get(local.cluster_queue)
        # Claims that cannot be counted are reported of a queue that is stopped or inactive too.
        kept_out = info.scheduling_class is not None and info.scheduling_class.kept_out
        why = _of_local_queue(str(spec.queue_name or ""), local)
        if why is not None and not (kept_out and why.reason == pending_reasons.SUSPENDED):
            return why
        assert local is not None
        why = self._of_cluster_queue(local.cluster_queue, queue)
        if why is not None and not (kept_out and why.reason == pending_reasons.SUSPENDED):
            return why
        assert queue is not None
        if not state.admits_namespace(queue, info.namespace):
            return pending_reasons.namespace_mismatch(queue.name, info.namespace)
        if info.scheduling_class is not None and info.scheduling_class.problem:
            return pending_reasons.MISCONFIGURED, info.scheduling_class.problem
        if is_admission_gated(info.obj, state.options):
            return pending_reasons.GATED
        bucket = info.bucket
        if bucket is not None and bucket.inadmissible:
            return bucket.inadmissible, self._skipped_text(info, bucket)
        if info.reason:
            return info.reason, ""
        return pending_reasons.NOT_EVALUATED

    def _of_cluster_queue(self, name: str, queue: ClusterQueue | None) -> PendingReason | None:
        obj = None if queue is None else queue.obj
        if queue is None or obj is None:
            return pending_reasons.not_found("ClusterQueue", name)
        return pending_reasons.of_queue(
            "ClusterQueue",
            name,
            terminating=obj.metadata.deletion_timestamp is not None,
            stopped=obj.spec.stop_policy != "None",
            problems=[text for _, text in self._problems(queue)],
        )

    def _skipped_text(self, info: WorkloadInfo, bucket: Bucket) -> str:
        """Why a workload does not fit that was not evaluated because one like it did not fit.

        It is evaluated when first asked for, once for all workloads like it.
        """
        if not bucket.explained:
            found = self.explain(info.key)
            text = reason_text(found) if found is not None else ""
            # It may fit by now: then its queue is about to look at it again.
            self._state.undo_log.set(bucket, "explained", text or "the workload is evaluated again")
        return bucket.explained

    def explain(self, key: str, now: float | None = None) -> Explanation | None:
        """How a waiting workload would fare if it were considered `now`; None if it does not wait.

        `now` is in seconds since 1970; None: the time of the last cycle.
        """
        state = self._state
        state.settle()
        info = state.workloads.get(key)
        if info is None or not _waits(info):
            return None
        queue = info.queue
        assert queue is not None
        scheduling_class = info.scheduling_class
        if problems := self._problems(queue):
            return Explanation(problem="; ".join(text for _, text in problems))
        if scheduling_class is None or scheduling_class.problem:
            return Explanation(problem=scheduling_class.problem if scheduling_class is not None else "")
        if not state.admits_namespace(queue, info.namespace):
            problem = pending_reasons.namespace_mismatch(queue.name, info.namespace).message
            return Explanation(problem=problem)
        found = self._evaluate(info, queue, now)
        explanation = Explanation(found.assignment.attempts, found.report, shortages=found.shortages)
        if found.protected_until is not None and not found.targets:
            explanation.outcome = "NoCandidates"
        if state.backfill.on:
            self._explain_backfill(info, found, explanation, state.now if now is None else now)
        return explanation

    def _evaluate(self, info: WorkloadInfo, queue: ClusterQueue, now: float | None) -> Evaluation:
        state = self._state
        scan, info.scan = info.scan, NO_SCAN
        found = self._evaluator.evaluate(
            info,
            queue,
            replaced=state.replaced_by(info),
            context=self._evaluator.context(state.now if now is None else now),
        )
        info.scan = scan
        return found

    def budget_shortages(self, key: str, now: float) -> list[BudgetShortage]:
        """What Budgets lack for a pending workload that would have quota at `now` (seconds since 1970)."""
        state = self._state
        state.settle()
        info = state.workloads.get(key)
        if not state.budgets.on or info is None or info.queue is None or not _waits(info):
            return []
        if info.scheduling_class is None or info.scheduling_class.problem or self._problems(info.queue):
            return []
        found = self._evaluate(info, info.queue, now)
        demands = (demand for shared, demand in found.demands if shared is state.budgets)
        return [short for demand in demands for short in state.budgets.shortages(demand)]

    def pending_reservations(self, now: float) -> list[PendingReservation]:
        """The reservations of pending workloads under BackfillPolicies at `now` (seconds since 1970)."""
        state = self._state
        if not state.backfill.on:
            return []
        state.settle()
        names = state.flavor_resources.names
        with self._planner(now) as planner:
            return [
                PendingReservation(
                    each.info.key,
                    queue.name,
                    each.start,
                    each.end,
                    declared,
                    queue.backfill.policy,
                    tuple([(*names[usage.flavor_resource], amount) for usage, amount in each.demand]),
                    probability,
                )
                for queue in state.queues.values()
                if queue.backfill is not None
                for each in planner.holders(queue)
                if each.queue is queue
                for declared, probability in [basis_of(each.certainty)]
            ]

    @contextmanager
    def _planner(self, now: float) -> Iterator[Planner]:
        """Reservations at a time; what is computed for them is undone."""
        undo_log = self._state.undo_log
        own_fork, undo_log.on = not undo_log.on, True
        try:
            yield Planner(self._state, self._evaluator, now)
        finally:
            if own_fork:
                undo_log.undo()

    def _explain_backfill(
        self, info: WorkloadInfo, found: Evaluation, explanation: Explanation, now: float
    ) -> None:
        """Add the reservation of a workload, and what it would delay, to its explanation."""
        queue = info.queue
        assert queue is not None
        with self._planner(now) as planner:
            explanation.shadow = planner.shadow(info, queue)
            if found.assignment.mode == FIT:
                proof = planner.window(info, queue, found) or planner.proof(info, queue, found, found.placed)
                if proof is not None and proof.kind in ("WouldDelay", "RunsIntoReservation"):
                    explanation.outcome, explanation.backfill = "WouldDelay", proof


def _of_local_queue(name: str, local: LocalQueue | None) -> PendingReason | None:
    if local is None or local.obj is None:
        return pending_reasons.not_found("LocalQueue", name)
    return pending_reasons.of_queue(
        "LocalQueue", name, terminating=local.is_terminating, stopped=not local.is_open
    )


def _waits(info: WorkloadInfo) -> bool:
    return info.queue is not None and info.place not in (OUT, IN_FLIGHT, RESERVED)
