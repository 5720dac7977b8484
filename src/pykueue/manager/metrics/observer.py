"""Counters and histograms: what happened, read off the changes of Workloads as the watch cache shows them.

Everything is derived from the object before and after a change, so it counts whichever client wrote the
change,
and never twice. What was there before the first list ended is not counted: it happened before this process.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pykueue.api import conditions
from pykueue.api.backfill_policies import BACKFILLED, promised_end
from pykueue.api.kueue import names
from pykueue.api.meta import parse_time
from pykueue.api.objects import get
from pykueue.api.variants import has_variants, parent_reference
from pykueue.clock import Clock
from pykueue.engine.decisions import Admit, Decision, Requeue
from pykueue.jobs.pod import is_gated
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster
from pykueue.manager.connection import Order
from pykueue.manager.indexes import is_group_workload
from pykueue.prometheus import Counters, Histograms, Labels, Registry

from .labels import CustomLabels, Source, cohorts_above

#: Upper bounds of time histograms, in seconds: 1, then 2.5 doubled up to the given number of buckets.
BUCKETS_14 = (1.0, *(2.5 * 2.0**k for k in range(13)))
BUCKETS_16 = (1.0, *(2.5 * 2.0**k for k in range(15)))
#: Those of an attempt: from 5 ms to 10 s.
ATTEMPT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
#: Creation latency is shorter.
CREATION_BUCKETS = tuple(0.01 * 2.0**n for n in range(11))

_QUEUE = ("cluster_queue", "priority_class")
_LOCAL = ("name", "namespace", "priority_class")


class Observer:
    """Counts what happens to Workloads and in scheduling cycles, while this replica is the one that acts.

    `role` gives the value of the label replica_role: leader, follower or standalone. `local_queues` says for
    which LocalQueues (namespace, name) metrics are wanted.
    """

    def __init__(
        self,
        registry: Registry,
        cluster: Cluster,
        clock: Clock,
        role: Callable[[], str],
        local_queues: Callable[[str, str], bool],
        custom: CustomLabels,
    ) -> None:
        self._registry = registry
        self._cluster = cluster
        self._clock = clock
        self._role_now = role
        self._wants_local = local_queues
        self._custom = custom
        configuration = cluster.configuration
        self._gates = configuration.gates
        self._waits = configuration.wait_for_pods_ready is not None
        #: Labels of Workloads that were counted: one tuple for all metrics. None are kept with custom labels.
        self._series: dict[tuple[str, str, str, str, str, bool], _Series] = {}
        self._register_cycles()
        self._register_evictions()
        self._register_life()

    def _register_cycles(self) -> None:
        self._attempts = self._counter("admission_attempts", "Number of scheduling cycles.", ("result",))
        self._attempt_seconds = Histograms(
            "kueue_admission_attempt_duration_seconds",
            "Duration of scheduling cycles.",
            ("result", "replica_role"),
            self._registry,
            ATTEMPT_BUCKETS,
        )
        self._recomputed = self._counter(
            "preemption_target_recomputations",
            "Number of workloads whose targets another workload of the same cycle preempts.",
            ("cluster_queue", "result"),
            "ClusterQueue",
        )
        self._preempted = self._counter(
            "preempted_workloads",
            "Number of preempted workloads.",
            ("preempting_cluster_queue", "reason"),
            "ClusterQueue",
        )
        self._dispatched, self._admitted_remotely = (
            Counters(
                f"multikueue_workloads_{name}_total",
                f"Number of workloads {text} a worker cluster.",
                ("cluster_queue", "cluster", "replica_role"),
                self._registry,
            )
            for name, text in (("dispatched", "created on"), ("admitted", "whose check became Ready on"))
        )
        #: Workloads of the last cycle that had victims and were skipped, by ClusterQueue.
        self.skipped: Counts[str] = Counts()

    def _register_evictions(self) -> None:
        causes = ("cluster_queue", "reason", "underlying_cause", "priority_class")
        self._evicted = self._counter("evicted_workloads", "Number of evictions.", causes, "ClusterQueue")
        self._evicted_once = self._counter(
            "evicted_workloads_once",
            "Number of first evictions per workload and reason.",
            causes,
            "ClusterQueue",
        )
        self._lost = Counters(
            "pykueue_preemption_lost_resource_seconds_total",
            "Work that preempted workloads lost, under PreemptionPolicies.",
            ("preempting_cluster_queue", "preempted_cluster_queue", "reason", "resource", "replica_role"),
            self._registry,
        )
        self._backfilled = Counters(
            "pykueue_backfilled_workloads_total",
            "Workloads that were admitted before others and have finished, under BackfillPolicies.",
            ("cluster_queue", "proof", "result", "replica_role"),
            self._registry,
        )
        self._reserved = Counters(
            "pykueue_backfill_reservations_total",
            "Workloads that were admitted after capacity was reserved for them, under BackfillPolicies.",
            ("cluster_queue", "result", "replica_role"),
            self._registry,
        )
        self._eviction_latency = self._histogram(
            "workload_eviction_latency_seconds",
            "Time from eviction to the release of the quota.",
            ("cluster_queue", "reason"),
            "ClusterQueue",
        )
        self._ready_to_evicted = self._histogram(
            "pods_ready_to_evicted_time_seconds",
            "Time from the readiness of all pods to the eviction.",
            ("cluster_queue", "reason", "underlying_cause"),
            "ClusterQueue",
        )

    def _register_life(self) -> None:
        self._counts = {
            name: self._counter(f"{name}_workloads", f"Workloads {text}.", _QUEUE, "ClusterQueue")
            for name, text in _COUNTS.items()
        }
        self._cohort_admitted = self._counter(
            "cohort_subtree_admitted_workloads",
            "Number of workloads admitted in the subtree.",
            ("cohort", "priority_class"),
            "Cohort",
        )
        self._times = {
            name: self._histogram(f"{name}_seconds", text, _QUEUE, "ClusterQueue", buckets=buckets)
            for name, (text, buckets) in _TIMES.items()
            if self._waits or name not in _READY_TIMES
        }
        if self._gates["MetricForWorkloadCreationLatency"]:
            self._created = Histograms(
                "kueue_workload_creation_latency_seconds",
                "Time from the creation of the job to that of its Workload.",
                ("job_kind", "replica_role"),
                self._registry,
                CREATION_BUCKETS,
            )
        self._ungated = self._histogram(
            "pod_scheduling_gate_removal_seconds",
            "Time from admission to the removal of a pod's gate.",
            ("name", "cluster_queue", "is_group"),
            "ClusterQueue",
        )
        if not self._gates["LocalQueueMetrics"]:
            return
        self._local_counts = {
            name: self._counter(
                f"local_queue_{name}_workloads",
                f"Workloads {text}.",
                _LOCAL,
                "LocalQueue",
                apart=name in _APART,
            )
            for name, text in _COUNTS.items()
        }
        self._local_times = {
            name: self._histogram(
                f"local_queue_{name}_seconds",
                text,
                _LOCAL,
                "LocalQueue",
                apart=name in _APART,
                buckets=buckets,
            )
            for name, (text, buckets) in _TIMES.items()
            if name in self._times
        }
        self._local_evicted = self._counter(
            "local_queue_evicted_workloads",
            "Evictions.",
            ("name", "namespace", "reason", "underlying_cause", "priority_class"),
            "LocalQueue",
        )

    def _labels(self, labels: tuple[str, ...], source: Source | None, apart: bool) -> tuple[str, ...]:
        """All names of labels; `apart`: the metric tells workloads apart by their custom labels."""
        sources: list[Source] = [] if source is None else [source]
        if apart:
            sources.append("Workload")
        return (*labels, "replica_role", *self._custom.names(*sources))

    def _counter(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        source: Source | None = None,
        *,
        apart: bool = False,
    ) -> Counters:
        return Counters(f"kueue_{name}_total", text, self._labels(labels, source, apart), self._registry)

    def _histogram(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        source: Source,
        *,
        apart: bool = False,
        buckets: tuple[float, ...] = BUCKETS_14,
    ) -> Histograms:
        return Histograms(f"kueue_{name}", text, self._labels(labels, source, apart), self._registry, buckets)

    @property
    def _role(self) -> str:
        return self._role_now()

    # What happened

    def cycle(self, seconds: float, decisions: Sequence[Decision]) -> None:
        """A scheduling cycle took this long and decided this."""
        admitted = any(isinstance(decision, Admit) for decision in decisions)
        result = "success" if admitted else "inadmissible"
        self._attempts.inc((result, self._role))
        self._attempt_seconds.observe((result, self._role), seconds)
        self.skipped.clear()
        for decision in decisions:
            if isinstance(decision, Requeue):
                self._waits_on(decision)
            elif isinstance(decision, Admit) and decision.explanation.shadow is not None:
                # Times of conditions are whole seconds.
                kept = self._clock.time() <= decision.explanation.shadow.start + 1
                self._reserved.inc((decision.cluster_queue, "kept" if kept else "late", self._role))

    def _waits_on(self, decision: Requeue) -> None:
        explanation, queue = decision.explanation, decision.cluster_queue
        skipped = explanation.outcome in ("TargetsTaken", "NoLongerFits")
        if skipped and explanation.search is not None and explanation.search.targets:
            self.skipped[queue] += 1
        if explanation.recomputed:
            results = {"Preempting": "new_targets", "Deferred": "deferred_fit"}
            result = results.get(explanation.outcome, "skipped")
            self._recomputed.inc((queue, result, *self._of_queue(queue)))

    def preemption(self, cluster_queue: str, reason: str) -> None:
        """A workload was preempted for one of this ClusterQueue."""
        self._preempted.inc((cluster_queue, reason, *self._of_queue(cluster_queue)))

    def lost_work(self, preempting: str, preempted: str, reason: str, lost: Mapping[str, int]) -> None:
        """A workload of one ClusterQueue lost these resource-seconds when it was preempted for another."""
        for resource, amount in lost.items():
            self._lost.inc((preempting, preempted, reason, resource, self._role), amount)

    def dispatched(self, cluster_queue: str, cluster: str) -> None:
        """A copy of a workload of this ClusterQueue was created on a worker cluster."""
        self._dispatched.inc((cluster_queue, cluster, self._role))

    def admitted_remotely(self, cluster_queue: str, cluster: str) -> None:
        """The MultiKueue check of a workload of this ClusterQueue became Ready for a worker cluster."""
        self._admitted_remotely.inc((cluster_queue, cluster, self._role))

    def observe(self, workloads: Informer) -> None:
        """Count what happens to the Workloads of this cache from its first list on.

        Every replica sees it; the one that acts counts it.
        """

        def on_event(type_: str, old: Any, new: Any) -> None:
            if new is None or not workloads.has_synced or self._role == "follower":
                return
            if old is None:
                self._was_created(new)
            else:
                self.changed(old, new)

        workloads.on_event(on_event, Order.OBSERVE)

    def observe_pods(self, pods: Informer) -> None:
        """Count how long the gates of this cache's pods outlast their admission."""

        def on_event(type_: str, old: Any, new: Any) -> None:
            if old is None or new is None or self._role == "follower":
                return
            if is_gated(old) and not is_gated(new):
                self._was_ungated(new)

        pods.on_event(on_event, Order.OBSERVE)

    def _was_ungated(self, pod: Mapping[str, Any]) -> None:
        group = self._cluster.identifiers.group_name(pod)
        if group:
            workload = self._cluster.workload((pod["metadata"].get("namespace") or "", group))
        else:
            workload = next(iter(self._cluster.workloads_of(pod)), None)
        if workload is None or not conditions.is_admitted(workload):
            return
        self._observe_ungating(names.ADMISSION_GATE, workload, bool(group))

    def got_domain(self, workload: Mapping[str, Any]) -> None:
        """A pod of a Workload lost its topology gate."""
        self._observe_ungating(names.TOPOLOGY_GATE, workload, is_group_workload(workload))

    def _observe_ungating(self, gate: str, workload: Mapping[str, Any], group: bool) -> None:
        seconds = max(0.0, self._clock.time() - conditions.since(workload, conditions.ADMITTED))
        queue = conditions.cluster_queue(workload)
        labels = (gate, queue, str(group).lower(), *self._of_queue(queue))
        self._ungated.observe(labels, seconds)

    def _was_created(self, workload: Mapping[str, Any]) -> None:
        """A Workload came; how long its job had been there tells where the job was never changed since."""
        found = self._cluster.job_of(workload) if self._gates["MetricForWorkloadCreationLatency"] else None
        integration, job = found or (None, None)
        if integration is None or job is None or job["metadata"].get("generation") != 1:
            return
        seconds = max(0.0, self._clock.time() - conditions.created(job))
        self._created.observe((integration.kind.resource.kind, self._role), seconds)

    def changed(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """A Workload changed.

        Quota is held and lost by variants; their parent says when the pods of its job were ready and ended.
        """
        before, after = conditions.holding(old), conditions.holding(new)
        if before == after:
            return
        if not has_variants(new):
            self._quota_changed(old, new, before, after)
        if parent_reference(new) is None:
            self._pods_changed(new, after & ~before, after)

    def _quota_changed(self, old: Mapping[str, Any], new: Mapping[str, Any], before: int, after: int) -> None:
        held = before & conditions.HOLDS_QUOTA
        came = after & ~before
        if came & (conditions.HOLDS_QUOTA | conditions.IS_ADMITTED):
            series, queued = self._series_of(new), _queued_since(new, after)
            reserved = conditions.since(new, conditions.QUOTA_RESERVED)
            if came & conditions.HOLDS_QUOTA:
                self._count("quota_reserved", series)
                self._observe("quota_reserved_wait_time", series, reserved - queued)
            if came & conditions.IS_ADMITTED:
                self._was_admitted(new, series, queued, reserved)
        if not after & conditions.IS_EVICTED or not held:
            return
        if came & conditions.IS_EVICTED:
            self._was_evicted(old, new)
        if not after & conditions.HOLDS_QUOTA:
            seconds = conditions.since(new, conditions.QUOTA_RESERVED) - conditions.since(
                new, conditions.EVICTED
            )
            reason, queue = conditions.reason(new, conditions.EVICTED), conditions.cluster_queue(old)
            labels = (queue, reason, *self._of_queue(queue))
            self._eviction_latency.observe(labels, max(0.0, seconds))

    def _pods_changed(self, new: Mapping[str, Any], came: int, after: int) -> None:
        if self._waits and came & conditions.HAS_PODS_READY:
            self._became_ready(new)
        if came & conditions.IS_FINISHED:
            series = self._series_of(new)
            self._count("finished", series)
            self._audit_backfill(new)
            if after & conditions.IS_ADMITTED:
                past = int(get(new, "status", "accumulatedPastExecutionTimeSeconds") or 0)
                ran = conditions.since(new, conditions.FINISHED) - conditions.since(new, conditions.ADMITTED)
                self._observe("execution_time", series, past + ran)

    def _audit_backfill(self, workload: Mapping[str, Any]) -> None:
        """Count whether a workload that was admitted before others ended as it was to."""
        found = conditions.condition(workload, BACKFILLED)
        if found is None or found.get("status") != "True":
            return
        end = promised_end(str(found.get("message") or ""))
        kept = end is None or conditions.since(workload, conditions.FINISHED) <= end + 1
        queue, proof = conditions.cluster_queue(workload), str(found.get("reason"))
        self._backfilled.inc((queue, proof, "kept" if kept else "broken", self._role))

    def _was_admitted(
        self, workload: Mapping[str, Any], series: _Series, queued: float, reserved: float
    ) -> None:
        at = conditions.since(workload, conditions.ADMITTED)
        self._count("admitted", series)
        self._observe("admission_wait_time", series, at - queued)
        self._observe("admission_checks_wait_time", series, at - reserved)
        name, priority = series.cluster_queue[:2]
        queue = self._cluster.cluster_queues.get("", name)
        for cohort in cohorts_above(self._cluster, str(get(queue or {}, "spec", "cohortName") or "")):
            self._cohort_admitted.inc((cohort, priority, self._role, *self._custom.cohort(cohort)))

    def _became_ready(self, workload: Mapping[str, Any]) -> None:
        if conditions.reason(workload, conditions.PODS_READY) != "Started":
            return
        series = self._series_of(workload)
        at = conditions.since(workload, conditions.PODS_READY)
        self._observe("ready_wait_time", series, at - conditions.created(workload))
        admitted = conditions.since(workload, conditions.ADMITTED)
        self._observe("admitted_until_ready_wait_time", series, at - admitted)

    def _was_evicted(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before = _evictions(old)
        namespace, local = _local_queue(new)
        queue, priority = conditions.cluster_queue(old), _priority_class(new)
        for (reason, cause), count in _evictions(new).items():
            if count <= before.get((reason, cause), 0):
                continue
            labels = (queue, reason, cause, priority, *self._of_queue(queue))
            self._evicted.inc(labels)
            if (reason, cause) not in before:
                self._evicted_once.inc(labels)
            if conditions.is_true(old, conditions.PODS_READY):
                seconds = conditions.since(new, conditions.EVICTED) - conditions.since(
                    old, conditions.PODS_READY
                )
                ready = (queue, reason, cause, *self._of_queue(queue))
                self._ready_to_evicted.observe(ready, max(0.0, seconds))
            if self._wants_local(namespace, local):
                where = (local, namespace, reason, cause, priority)
                self._local_evicted.inc((*where, *self._of_local(namespace, local)))

    # Labels of a series

    def _of_queue(self, name: str) -> tuple[str, ...]:
        return (self._role, *self._custom.cluster_queue(name))

    def _of_local(self, namespace: str, name: str) -> tuple[str, ...]:
        return (self._role, *self._custom.local_queue(namespace, name))

    def _series_of(self, workload: Mapping[str, Any]) -> _Series:
        queue, priority = conditions.cluster_queue(workload), _priority_class(workload)
        namespace, local = _local_queue(workload)
        wants_local, role = self._wants_local(namespace, local), self._role
        if not wants_local:
            namespace = local = ""  # one entry for all of them
        key = (queue, priority, namespace, local, role, wants_local)
        known = self._series.get(key)
        if known is None:
            known = self._new_series(workload, key)
            if not self._custom:
                self._series[key] = known
        return known

    def _new_series(self, workload: Mapping[str, Any], key: tuple[str, str, str, str, str, bool]) -> _Series:
        queue, priority, namespace, local, _, wants_local = key
        of_cluster_queue = (queue, priority, *self._of_queue(queue))
        if not wants_local:
            return _Series(of_cluster_queue, None, None)
        of_local_queue = (local, namespace, priority, *self._of_local(namespace, local))
        apart = self._custom.workload(workload)
        return _Series(of_cluster_queue, of_local_queue, of_local_queue + apart if apart else of_local_queue)

    def _count(self, name: str, series: _Series) -> None:
        self._counts[name].inc(series.cluster_queue)
        local = series.apart if name in _APART else series.local_queue
        if local is not None:
            self._local_counts[name].inc(local)

    def _observe(self, name: str, series: _Series, seconds: float) -> None:
        seconds = max(0.0, seconds)
        self._times[name].observe(series.cluster_queue, seconds)
        local = series.apart if name in _APART else series.local_queue
        if local is not None:
            self._local_times[name].observe(local, seconds)


class _Series(NamedTuple):
    """The labels of a Workload's series: by ClusterQueue, and where that is wanted by LocalQueue."""

    cluster_queue: Labels
    local_queue: Labels | None
    #: Those by LocalQueue that tell workloads apart by their custom labels.
    apart: Labels | None


#: Counters that exist for ClusterQueues and for LocalQueues: workloads that ...
_COUNTS = {
    "quota_reserved": "that got quota",
    "admitted": "that were admitted",
    "finished": "that finished",
}
#: Of these and of the times, those that tell workloads apart by their custom labels.
_APART = frozenset({"admitted", "admission_wait_time"})
#: Times that are known only where pods are waited for.
_READY_TIMES = frozenset({"ready_wait_time", "admitted_until_ready_wait_time"})
#: Time histograms that exist for ClusterQueues and for LocalQueues.
_TIMES: dict[str, tuple[str, tuple[float, ...]]] = {
    "quota_reserved_wait_time": ("Time from queueing to quota reservation.", BUCKETS_14),
    "admission_wait_time": ("Time from queueing to admission.", BUCKETS_16),
    "admission_checks_wait_time": ("Time from quota reservation to admission.", BUCKETS_14),
    "ready_wait_time": ("Time from creation to the readiness of all pods.", BUCKETS_14),
    "admitted_until_ready_wait_time": ("Time from admission to the readiness of all pods.", BUCKETS_14),
    "execution_time": ("Time admitted, in total, of finished workloads.", BUCKETS_16),
}


def _priority_class(workload: Mapping[str, Any]) -> str:
    return str(get(workload, "spec", "priorityClassRef", "name") or "")


def _local_queue(workload: Mapping[str, Any]) -> tuple[str, str]:
    return (workload["metadata"].get("namespace") or "", str(get(workload, "spec", "queueName") or ""))


def _queued_since(workload: Mapping[str, Any], holding: int) -> float:
    """The creation, or the last time the workload was requeued."""
    if holding & conditions.IS_REQUEUED:
        return conditions.since(workload, conditions.REQUEUED)
    text = workload["metadata"].get("creationTimestamp")
    return parse_time(text) if text else 0.0


def _evictions(workload: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (str(entry.get("reason")), str(entry.get("underlyingCause") or "")): int(entry.get("count") or 0)
        for entry in get(workload, "status", "schedulingStats", "evictions") or ()
    }
