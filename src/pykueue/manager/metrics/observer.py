"""Counters and histograms: what happened, read off the changes of Workloads as the watch cache shows them.

Everything is derived from the object before and after a change, so it counts whoever wrote the change, and
never twice. What was there before the first list ended is not counted: it happened before this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from pykueue.api.meta import parse_time
from pykueue.jobs.objects import get
from pykueue.kube.informer import Informer
from pykueue.manager.workloads import reading

#: Upper bounds of time histograms, in seconds: 1, then 2.5 doubled up to the given number of buckets.
BUCKETS_14 = (1.0, *(2.5 * 2.0**k for k in range(13)))
BUCKETS_16 = (1.0, *(2.5 * 2.0**k for k in range(15)))
#: Creation latency is shorter.
CREATION_BUCKETS = tuple(0.01 * 2.0**n for n in range(11))

# The reference has no `_created` series beside its counters.
disable_created_metrics()  # type: ignore[no-untyped-call]

_QUEUE = ("cluster_queue", "priority_class")
_LOCAL = ("name", "namespace", "priority_class")


class Observer:
    """Counts what happens to Workloads and in scheduling cycles.

    `role` gives the value of the label replica_role: leader, follower or standalone. `local_queues` says for
    which LocalQueues (namespace, name) metrics are wanted.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        role: Callable[[], str],
        local_queues: Callable[[str, str], bool],
        waits_for_pods: bool,
    ) -> None:
        self._role_now = role
        self._wants_local = local_queues
        self._waits = waits_for_pods
        self._registry = registry
        self._attempts = self._counter("admission_attempts", "Scheduling cycles.", ("result",))
        self._attempt_seconds = Histogram(
            "kueue_admission_attempt_duration_seconds",
            "Duration of scheduling cycles.",
            ("result", "replica_role"),
            registry=registry,
        )
        self._reserved = self._counter("quota_reserved_workloads", "Workloads that got quota.", _QUEUE)
        self._admitted = self._counter("admitted_workloads", "Admitted workloads.", _QUEUE)
        self._finished = self._counter("finished_workloads", "Finished workloads.", _QUEUE)
        self._evicted = self._counter(
            "evicted_workloads",
            "Evictions.",
            ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        )
        self._evicted_once = self._counter(
            "evicted_workloads_once",
            "First evictions per workload and reason.",
            ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        )
        self._preempted = self._counter(
            "preempted_workloads", "Preempted workloads.", ("preempting_cluster_queue", "reason")
        )
        self._eviction_latency = self._histogram(
            "workload_eviction_latency_seconds",
            "Eviction until quota was released.",
            ("cluster_queue", "reason"),
        )
        self._ready_to_evicted = self._histogram(
            "pods_ready_to_evicted_time_seconds",
            "Pods ready until eviction.",
            ("cluster_queue", "reason", "underlying_cause"),
        )
        self._created = Histogram(
            "kueue_workload_creation_latency_seconds",
            "Job created until its Workload was.",
            ("job_kind", "replica_role"),
            buckets=CREATION_BUCKETS,
            registry=registry,
        )
        self._times = {
            name: self._histogram(f"{name}_seconds", text, _QUEUE, buckets)
            for name, (text, buckets) in _TIMES.items()
        }
        self._local_times = {
            name: self._histogram(f"local_queue_{name}_seconds", text, _LOCAL, buckets)
            for name, (text, buckets) in _TIMES.items()
        }
        self._local_counts = {
            name: self._counter(f"local_queue_{name}_workloads", f"Workloads {text}.", _LOCAL)
            for name, text in (
                ("quota_reserved", "that got quota"),
                ("admitted", "that were admitted"),
                ("finished", "that finished"),
            )
        }
        self._local_evicted = self._counter(
            "local_queue_evicted_workloads",
            "Evictions.",
            ("name", "namespace", "reason", "underlying_cause", "priority_class"),
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"kueue_{name}_total", text, (*labels, "replica_role"), registry=self._registry)

    def _histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = BUCKETS_14
    ) -> Histogram:
        labels = (*labels, "replica_role")
        return Histogram(f"kueue_{name}", text, labels, buckets=buckets, registry=self._registry)

    @property
    def _role(self) -> str:
        return self._role_now()

    # What happened

    def cycle(self, seconds: float, admitted: bool) -> None:
        """A scheduling cycle took this long, and admitted something or not."""
        result = "success" if admitted else "inadmissible"
        self._attempts.labels(result, self._role).inc()
        self._attempt_seconds.labels(result, self._role).observe(seconds)

    def preemption(self, cluster_queue: str, reason: str) -> None:
        """A workload was preempted for one of this ClusterQueue."""
        self._preempted.labels(cluster_queue, reason, self._role).inc()

    def workload_created(self, kind: str, seconds: float) -> None:
        """A Workload was created this long after its job."""
        self._created.labels(kind, self._role).observe(seconds)

    def follow(self, workloads: Informer) -> None:
        """Count what happens to the Workloads of this cache from its first list on."""

        def hear(type_: str, old: Any, new: Any) -> None:
            if old is not None and new is not None and workloads.has_synced:
                self.changed(old, new)

        workloads.on_event(hear)

    def changed(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """A Workload changed."""
        if reading.has_quota(new) and not reading.has_quota(old):
            waited = reading.since(new, reading.QUOTA_RESERVED) - _queued_since(new)
            self._count("quota_reserved", self._reserved, new)
            self._observe("quota_reserved_wait_time", new, waited)
        if reading.is_admitted(new) and not reading.is_admitted(old):
            at = reading.since(new, reading.ADMITTED)
            self._count("admitted", self._admitted, new)
            self._observe("admission_wait_time", new, at - _queued_since(new))
            checked = at - reading.since(new, reading.QUOTA_RESERVED)
            self._observe("admission_checks_wait_time", new, checked)
        if (
            self._waits
            and reading.holds(new, reading.PODS_READY)
            and not reading.holds(old, reading.PODS_READY)
        ):
            self._became_ready(new)
        if reading.is_evicted(new) and not reading.is_evicted(old) and reading.has_quota(old):
            self._was_evicted(old, new)
        if reading.is_evicted(new) and reading.has_quota(old) and not reading.has_quota(new):
            seconds = reading.since(new, reading.QUOTA_RESERVED) - reading.since(new, reading.EVICTED)
            reason = reading.reason(new, reading.EVICTED)
            queue = reading.cluster_queue(old)
            self._eviction_latency.labels(queue, reason, self._role).observe(max(0.0, seconds))
        if reading.is_finished(new) and not reading.is_finished(old):
            self._count("finished", self._finished, new)
            if reading.is_admitted(new):
                past = int(get(new, "status", "accumulatedPastExecutionTimeSeconds") or 0)
                ran = reading.since(new, reading.FINISHED) - reading.since(new, reading.ADMITTED)
                self._observe("execution_time", new, past + ran)

    def _became_ready(self, workload: Mapping[str, Any]) -> None:
        if reading.reason(workload, reading.PODS_READY) != "Started":
            return
        at = reading.since(workload, reading.PODS_READY)
        self._observe("ready_wait_time", workload, at - reading.created(workload))
        self._observe(
            "admitted_until_ready_wait_time", workload, at - reading.since(workload, reading.ADMITTED)
        )

    def _was_evicted(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before = _evictions(old)
        for (reason, cause), count in _evictions(new).items():
            if count <= before.get((reason, cause), 0):
                continue
            labels = (reading.cluster_queue(old), reason, cause, _priority_class(new), self._role)
            self._evicted.labels(*labels).inc()
            if (reason, cause) not in before:
                self._evicted_once.labels(*labels).inc()
            if reading.holds(old, reading.PODS_READY):
                seconds = reading.since(new, reading.EVICTED) - reading.since(old, reading.PODS_READY)
                self._ready_to_evicted.labels(labels[0], reason, cause, self._role).observe(max(0.0, seconds))
            namespace, queue = _local_queue(new)
            if self._wants_local(namespace, queue):
                self._local_evicted.labels(queue, namespace, *labels[1:]).inc()

    def _count(self, name: str, counter: Counter, workload: Mapping[str, Any]) -> None:
        priority = _priority_class(workload)
        counter.labels(reading.cluster_queue(workload), priority, self._role).inc()
        namespace, queue = _local_queue(workload)
        if self._wants_local(namespace, queue):
            self._local_counts[name].labels(queue, namespace, priority, self._role).inc()

    def _observe(self, name: str, workload: Mapping[str, Any], seconds: float) -> None:
        priority, seconds = _priority_class(workload), max(0.0, seconds)
        self._times[name].labels(reading.cluster_queue(workload), priority, self._role).observe(seconds)
        namespace, queue = _local_queue(workload)
        if self._wants_local(namespace, queue):
            self._local_times[name].labels(queue, namespace, priority, self._role).observe(seconds)


#: Time histograms that exist for ClusterQueues and for LocalQueues.
_TIMES: dict[str, tuple[str, tuple[float, ...]]] = {
    "quota_reserved_wait_time": ("Queued until quota was reserved.", BUCKETS_14),
    "admission_wait_time": ("Queued until admitted.", BUCKETS_16),
    "admission_checks_wait_time": ("Quota reserved until admitted.", BUCKETS_14),
    "ready_wait_time": ("Created until all pods were ready.", BUCKETS_14),
    "admitted_until_ready_wait_time": ("Admitted until all pods were ready.", BUCKETS_14),
    "execution_time": ("Admitted in all until finished.", BUCKETS_16),
}


def _priority_class(workload: Mapping[str, Any]) -> str:
    return str(get(workload, "spec", "priorityClassRef", "name") or "")


def _local_queue(workload: Mapping[str, Any]) -> tuple[str, str]:
    return (workload["metadata"].get("namespace") or "", str(get(workload, "spec", "queueName") or ""))


def _queued_since(workload: Mapping[str, Any]) -> float:
    """Creation, or the last time it was let into its queue again."""
    if reading.holds(workload, reading.REQUEUED):
        return reading.since(workload, reading.REQUEUED)
    text = workload["metadata"].get("creationTimestamp")
    return parse_time(text) if text else 0.0


def _evictions(workload: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (str(entry.get("reason")), str(entry.get("underlyingCause") or "")): int(entry.get("count") or 0)
        for entry in get(workload, "status", "schedulingStats", "evictions") or ()
    }
