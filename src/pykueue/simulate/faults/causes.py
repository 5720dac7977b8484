"""Whether evictions, deactivations and stops of jobs have a cause.

Causes are looked up in the objects, not in the manager: a queue that drains, a check that asks for a retry, a
preemptor that may preempt this workload. Source of the rules: docs/reference/kueue-semantics.md 8 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api import conditions, variants
from pykueue.api.jobkinds import with_value
from pykueue.api.objects import Object, get, key_of
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from pykueue.api.variants import has_variants, parent_reference
from pykueue.clock import Clock
from pykueue.jobs.slices import replaced_key
from pykueue.manager.configuration import Configuration
from pykueue.manager.indexes import job_uid

from .jobkinds import suspend_field, suspended
from .quiet import is_to_run
from .quota import taken_over
from .stored import Stored

#: Seconds for which a cause counts after it has ended: caches are late while watches stall (8 s for each
#: event), and a decision is written with delays and retries.
MEMORY = 60.0
_IN_COHORT = ("InCohortReclamation", "InCohortReclaimWhileBorrowing", "InCohortFairSharing")


class Causes:
    """Remembers what could have led to an eviction, and looks for it when one is written.

    `exact_times` is False where clocks jump, so that time limits cannot be compared.
    """

    def __init__(
        self, stored: Stored, clock: Clock, configuration: Configuration, exact_times: bool = True
    ) -> None:
        self._stored = stored
        self._clock = clock
        self._waiting = configuration.wait_for_pods_ready
        self._exact_times = exact_times
        #: When queues last stopped to drain, by kind, namespace and name.
        self._drained: dict[tuple[str, str, str], float] = {}
        #: Workloads as they were last, by uid, and when they were deleted or changed their priority or queue.
        self._workloads: dict[str, Object] = {}
        self._changed: dict[str, float] = {}
        #: The specs with which jobs were started, by uid.
        self._started: dict[str, Any] = {}

    # What happens

    def queue_stored(self, resource: Resource, before: Object | None, after: Object | None) -> None:
        """Note when a ClusterQueue or LocalQueue drains."""
        if before is not None and get(before, "spec", "stopPolicy") == "HoldAndDrain":
            namespace, name = key_of(before)
            self._drained[resource.kind, namespace, name] = self._clock.time()

    def workload_stored(self, before: Object | None, after: Object | None) -> None:
        """Note what preemptions compare."""
        workload = after or before
        assert workload is not None
        uid = workload["metadata"]["uid"]
        if before is not None and (after is None or _rank(before) != _rank(after)):
            self._changed[uid] = self._clock.time()
        self._workloads[uid] = workload

    def job_stored(self, before: Object | None, after: Object, by_manager: bool = True) -> None:
        """Note with which spec the manager starts an admitted job.

        One that its user starts may be stopped: it need not be what was admitted.

        One whose start arrives after its admission was taken may be stopped even if it is admitted again
        meanwhile: the stop is under way then.
        """
        if not suspended(after) and (before is None or suspended(before)):
            self._started.pop(after["metadata"]["uid"], None)
            if by_manager and any(map(is_to_run, self._stored.workloads_of(after))):
                self._started[after["metadata"]["uid"]] = _without_switch(after)

    def _recently(self, at: float | None) -> bool:
        return at is not None and self._clock.time() < at + MEMORY

    def _replaces_deactivated(self, workload: Object) -> bool:
        """Whether it took over from a slice that was deactivated: that ends the job all the same."""
        replaced = replaced_key(workload)
        return replaced is not None and any(
            key_of(other) == replaced and not conditions.is_active(other)
            for other in self._workloads.values()
        )

    # What needs a cause

    def missing(self, before: Object, after: Object) -> Iterable[str]:
        """What the manager's write did to a Workload without a cause."""
        deactivated = conditions.is_active(before) and not conditions.is_active(after)
        if deactivated and not (
            conditions.is_true(before, conditions.DEACTIVATION_TARGET)
            or parent_reference(before)
            or self._replaces_deactivated(before)
        ):
            yield "was deactivated without a cause"
        if conditions.has_quota(after) and not conditions.has_quota(before):
            return  # a status that is written back says again what it said before it was edited
        target = conditions.reason(after, conditions.DEACTIVATION_TARGET)
        is_new = conditions.condition(before, conditions.DEACTIVATION_TARGET) is None
        if target and is_new and not self._may_deactivate(before, target):
            yield f"is to be deactivated for {target} without that cause"
        if conditions.is_evicted(after) and not conditions.is_evicted(before):
            reason = conditions.reason(after, conditions.EVICTED)
            if not conditions.has_quota(before):
                if not reason.startswith(conditions.DEACTIVATED):
                    yield f"was evicted for {reason} without quota"
            elif why := self._lacks(reason, before, after):
                yield f"was evicted for {reason}: {why}"

    def stopped(self, before: Object, after: Object) -> str:
        """What is wrong with a write of the manager that stops a job; empty where it has a cause."""
        if suspended(before) or not suspended(after):
            return ""
        started = self._started.get(after["metadata"]["uid"])
        if started is None or started != _without_switch(before):
            return ""
        workloads = list(self._stored.workloads_of(after))
        former = taken_over(workloads)
        if any(is_to_run(one) and (job_uid(one), key_of(one)) not in former for one in workloads):
            return "was stopped although its workload is admitted"
        return ""

    def _may_deactivate(self, workload: Object, cause: str) -> bool:
        match cause:
            case "AdmissionCheck":
                # Of a parent all variants have been rejected, whose checks were reset since.
                return _has_check(workload, "Rejected") or has_variants(workload)
            case "MaximumExecutionTimeExceeded":
                return get(workload, "spec", "maximumExecutionTimeSeconds") is not None
            case "RequeuingLimitExceeded":
                if self._waiting is None:
                    return False
                limit = self._waiting.requeuing_strategy.backoff_limit_count
                count = int(get(workload, "status", "requeueState", "count") or 0)
                return limit is not None and count >= limit
        return False

    def _lacks(self, reason: str, before: Object, after: Object) -> str:
        """What is missing for an eviction with this reason."""
        if reason.startswith(conditions.DEACTIVATED):
            return "" if not conditions.is_active(before) else "spec.active is true"
        if self._follows_parent(reason, before):
            return ""
        match reason:
            case variants.FLAVOR_MIGRATION:
                return "" if parent_reference(before) else "it is no variant"
            case variants.VARIANT_EVICTED:
                evicted = any(map(conditions.is_evicted, self._family(before)))
                return "" if evicted else "none of its variants was evicted"
            case variants.NO_VARIANT:
                admitted = any(map(conditions.may_run, self._family(before)))
                return "a variant is admitted" if admitted else ""
            case conditions.PREEMPTED:
                return self._lacks_preemptor(before, after)
            case conditions.PODS_READY_TIMEOUT:
                return self._lacks_timeout(before)
            case conditions.CLUSTER_QUEUE_STOPPED:
                key = ("", conditions.cluster_queue(before))
                return "" if self._drains(CLUSTER_QUEUES, *key) else "the queue does not drain"
            case conditions.LOCAL_QUEUE_STOPPED:
                key = (key_of(before)[0], str(get(before, "spec", "queueName")))
                return "" if self._drains(LOCAL_QUEUES, *key) else "the queue does not drain"
            case "AdmissionCheck":
                return "" if _has_check(before, "Retry") else "no check asks for a retry"
            case "NodeFailures":
                return "" if get(before, "status", "unhealthyNodes") else "none of its nodes is unhealthy"
        return "the reason is unknown"

    def _family(self, parent: Object) -> list[Object]:
        """The variants of a Workload."""
        uid = parent["metadata"]["uid"]
        return [
            one for one in self._stored.objects(WORKLOADS) if (parent_reference(one) or {}).get("uid") == uid
        ]

    def _follows_parent(self, reason: str, workload: Object) -> bool:
        """Whether it is a variant, and was evicted as its parent was."""
        reference = parent_reference(workload)
        if reference is None:
            return False
        parent = self._stored.find(WORKLOADS, key_of(workload)[0], str(reference["name"]))
        return parent is not None and conditions.reason(parent, conditions.EVICTED) == reason

    def _drains(self, resource: Resource, namespace: str, name: str) -> bool:
        queue = self._stored.find(resource, namespace, name)
        if queue is not None and get(queue, "spec", "stopPolicy") == "HoldAndDrain":
            return True
        return self._recently(self._drained.get((resource.kind, namespace, name)))

    def _lacks_timeout(self, workload: Object) -> str:
        if self._waiting is None:
            return "nothing waits for ready pods"
        ready = conditions.condition(workload, conditions.PODS_READY) or {}
        if ready.get("status") == "True":
            return "its pods are ready"
        recovers = ready.get("reason") == conditions.WAIT_FOR_RECOVERY
        limit = self._waiting.timeout
        if recovers and self._waiting.recovery_timeout is not None:
            limit = self._waiting.recovery_timeout
        since = conditions.since(workload, conditions.PODS_READY if recovers else conditions.ADMITTED)
        if self._exact_times and self._clock.time() < since + limit:
            return f"{limit:g} s have not passed"
        return ""

    # Preemption

    def _lacks_preemptor(self, before: Object, after: Object) -> str:
        reason = conditions.reason(after, conditions.PREEMPTED)
        text = str((conditions.condition(after, conditions.EVICTED) or {}).get("message") or "")
        uid = text.partition("(UID: ")[2].partition(",")[0]
        path, _, own_path = text.rpartition("preemptor path: /")[2].partition("; preemptee path: /")
        if not conditions.is_true(after, conditions.PREEMPTED) or not (uid and path and own_path):
            return "it names no preemptor"
        preemptor = self._workloads.get(uid)
        if preemptor is None or uid == before["metadata"]["uid"]:
            return f"the preemptor {uid} does not exist"
        ours, theirs = own_path.split("/"), path.split("/")
        if (reason in _IN_COHORT) != (ours[-1] != theirs[-1]) or (
            reason in _IN_COHORT and ours[0] != theirs[0]
        ):
            return f"{reason} does not happen between {own_path} and {path}"
        queue = self._stored.find(CLUSTER_QUEUES, "", theirs[-1])
        if queue is None or any(
            self._recently(self._changed.get(one)) for one in (uid, before["metadata"]["uid"])
        ):
            return ""  # what they were when it was decided is not known
        policy = _policy(queue, reason)
        higher = priority_of(preemptor) > priority_of(before)
        if policy == "Never" or (policy == "LowerPriority" and not higher):
            return (
                f"policy {policy} of {theirs[-1]} does not let priority {priority_of(preemptor)} preempt it"
            )
        if policy == "LowerOrNewerEqualPriority" and priority_of(preemptor) < priority_of(before):
            return f"its priority is higher than that of {preemptor['metadata']['name']}"
        return ""


def _rank(workload: Mapping[str, Any]) -> tuple[Any, ...]:
    return (priority_of(workload), get(workload, "spec", "queueName"))


def priority_of(workload: Mapping[str, Any]) -> int:
    """`spec.priority`; 0 where it has none."""
    return int(get(workload, "spec", "priority") or 0)


def _policy(queue: Mapping[str, Any], reason: str) -> str:
    """The preemption policy of the preemptor's ClusterQueue that a reason rests on."""
    preemption = get(queue, "spec", "preemption") or {}
    field = "reclaimWithinCohort" if reason in _IN_COHORT else "withinClusterQueue"
    if reason == "InCohortReclaimWhileBorrowing":
        return str((preemption.get("borrowWithinCohort") or {}).get("policy") or "Never")
    return str(preemption.get(field) or "Never")


def _has_check(workload: Mapping[str, Any], state: str) -> bool:
    return any(check.get("state") == state for check in get(workload, "status", "admissionChecks") or ())


def _without_switch(job: Mapping[str, Any]) -> Any:
    """The job's spec without the field that stops it."""
    return with_value(job, suspend_field(job["kind"]), None)["spec"]
