"""What becomes of a Workload's status when time passes and its context change."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api import conditions
from pykueue.api.meta import format_time, parse_time
from pykueue.api.pending_reasons import PendingReason
from pykueue.manager.configuration import RequeuingStrategy, WaitForPodsReady
from pykueue.manager.workloads import transitions
from pykueue.manager.workloads.rules import Context, Queue, Step, backoff, next_step

Object = dict[str, Any]
NOW = parse_time("2026-01-01T12:00:00Z")
WAITING = WaitForPodsReady(timeout=600, recovery_timeout=60)


def workload(*present: tuple[str, str, str, float], spec: Object | None = None, **status: Any) -> Object:
    """A Workload with conditions (type, status, reason, seconds ago)."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "w",
            "namespace": "ns",
            "generation": 1,
            "creationTimestamp": format_time(NOW - 3600),
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}],
        },
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 2}], **(spec or {})},
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": "m",
                    "lastTransitionTime": format_time(NOW - ago),
                    "observedGeneration": 1,
                }
                for kind, value, reason, ago in present
            ],
            **status,
        },
    }


def admitted(*more: tuple[str, str, str, float], ago: float = 0, **fields: Any) -> Object:
    return workload(
        ("QuotaReserved", "True", "QuotaReserved", ago),
        ("Admitted", "True", "Admitted", ago),
        *more,
        admission={"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]},
        **fields,
    )


def step(obj: Object, **context: Any) -> Step:
    context = {"local_queue": Queue("lq"), "cluster_queue": Queue("cq"), **context}
    return next_step(obj, Context(now=NOW, **context))


def states(obj: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in obj["status"].get("conditions") or ()}


def test_unchanged_workload_is_not_written() -> None:
    for obj in (
        workload(),
        workload(("QuotaReserved", "False", "WaitingForQuota", 5)),
        admitted(),
        workload(("Finished", "True", "Succeeded", 5)),
    ):
        assert step(obj).workload == obj
        assert step(obj).events == []


class TestPodsReady:
    def test_is_waited_for_from_admission_on(self) -> None:
        early = step(admitted(ago=599), waiting=WAITING)
        assert not conditions.is_evicted(early.workload)
        assert early.wake == NOW + 1

        late = step(admitted(ago=600), waiting=WAITING)
        assert states(late.workload)["Evicted"] == ("True", "PodsReadyTimeout")
        assert late.workload["status"]["requeueState"] == {"count": 1, "requeueAt": format_time(NOW + 60)}
        assert late.workload["status"]["schedulingStats"]["evictions"] == [
            {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}
        ]
        assert late.workload["status"]["admission"]["clusterQueue"] == "cq"
        assert [event[1] for event in late.events] == ["EvictedDueToPodsReadyTimeout"]

    def test_is_not_waited_for_once_ready(self) -> None:
        obj = admitted(("PodsReady", "True", "Started", 5), ago=6000)
        assert step(obj, waiting=WAITING).workload == obj

    def test_recovery_has_its_own_time_limit(self) -> None:
        obj = admitted(("PodsReady", "False", "WaitForRecovery", 59), ago=6000)
        assert step(obj, waiting=WAITING).wake == NOW + 1
        obj = admitted(("PodsReady", "False", "WaitForRecovery", 60), ago=6000)
        evicted = step(obj, waiting=WAITING).workload
        assert evicted["status"]["schedulingStats"]["evictions"][0]["underlyingCause"] == "WaitForRecovery"
        unlimited = WaitForPodsReady(timeout=600, recovery_timeout=0)
        assert step(obj, waiting=unlimited).workload == obj

    @pytest.mark.parametrize(
        ("base", "cap", "waits"),
        [
            (60, 3600, [60, 120, 240, 480, 960, 1920, 3600, 3600]),
            (7200, 3600, [7200, 3600]),
            (0, 3600, [0, 0]),
        ],
    )
    def test_waits_double_up_to_the_cap_except_the_first(
        self, base: int, cap: int, waits: list[float]
    ) -> None:
        waiting = WaitForPodsReady(
            requeuing_strategy=RequeuingStrategy(backoff_base_seconds=base, backoff_max_seconds=cap)
        )
        assert [backoff(waiting, n + 1) for n in range(len(waits))] == waits

    @pytest.mark.parametrize(("limit", "count", "deactivates"), [(0, 0, True), (3, 2, False), (3, 3, True)])
    def test_the_limit_of_requeuings_deactivates(self, limit: int, count: int, deactivates: bool) -> None:
        waiting = WaitForPodsReady(
            timeout=600, requeuing_strategy=RequeuingStrategy(backoff_limit_count=limit)
        )
        obj = admitted(ago=600, requeueState={"count": count})
        result = states(step(obj, waiting=waiting).workload)
        assert ("DeactivationTarget" in result) is deactivates
        assert ("Evicted" in result) is not deactivates


class TestBackoff:
    def test_keeps_a_workload_out_until_its_time_and_then_lets_it_in(self) -> None:
        held = ("Requeued", "False", "PodsReadyTimeout", 5.0)
        early = step(workload(held, requeueState={"count": 2, "requeueAt": format_time(NOW + 5)}))
        assert early.wake == NOW + 5
        late = step(workload(held, requeueState={"count": 2, "requeueAt": format_time(NOW)})).workload
        assert states(late)["Requeued"] == ("True", "BackoffFinished")
        assert late["status"]["requeueState"] == {"count": 2}


class TestDeactivation:
    def test_by_a_user_evicts_and_resets_the_requeue_state(self) -> None:
        result = step(admitted(spec={"active": False}, requeueState={"count": 3}))
        assert states(result.workload)["Evicted"] == ("True", "Deactivated")
        assert "requeueState" not in result.workload["status"]
        assert [event[1] for event in result.events] == ["EvictedDueToDeactivated"]

    def test_by_the_system_names_its_cause(self) -> None:
        target = ("DeactivationTarget", "True", "RequeuingLimitExceeded", 0.0)
        result = step(admitted(target, spec={"active": False}))
        found = states(result.workload)
        assert found["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
        assert "DeactivationTarget" not in found
        assert result.workload["status"]["schedulingStats"]["evictions"] == [
            {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1}
        ]
        assert step(result.workload).workload == result.workload

    def test_of_a_waiting_workload_says_so_without_an_event(self) -> None:
        result = step(workload(spec={"active": False}))
        assert states(result.workload)["QuotaReserved"] == ("False", "Deactivated")
        assert result.events == []
        assert step(result.workload).workload == result.workload

    @pytest.mark.parametrize("reason", ["Deactivated", "DeactivatedDueToRequeuingLimitExceeded"])
    def test_activation_requeues_whatever_the_cause_of_deactivation(self, reason: str) -> None:
        obj = workload(
            ("Evicted", "True", reason, 60),
            ("Requeued", "False", reason, 50),
            ("QuotaReserved", "False", "Deactivated", 50),
        )
        result = states(step(obj).workload)
        assert result["Requeued"] == ("True", "Reactivated")
        assert result["QuotaReserved"] == ("False", "PendingEvaluation")

    def test_of_a_workload_without_an_owner_releases_its_quota_at_once(self) -> None:
        obj = admitted(spec={"active": False})
        del obj["metadata"]["ownerReferences"]
        result = step(obj).workload
        assert "admission" not in result["status"]
        assert states(result)["QuotaReserved"] == ("False", "Deactivated")


class TestChecks:
    def reserved(self, **check: Any) -> Object:
        return workload(
            ("QuotaReserved", "True", "QuotaReserved", 5),
            admission={"clusterQueue": "cq"},
            admissionChecks=[{"name": "c", "lastTransitionTime": format_time(NOW), **check}],
        )

    def test_are_listed_pending_when_required_and_dropped_when_not(self) -> None:
        pending = workload(("QuotaReserved", "False", "WaitingForQuota", 5))
        listed = step(pending, required_checks=frozenset("ba")).workload["status"]["admissionChecks"]
        assert [(check["name"], check["state"]) for check in listed] == [("a", "Pending"), ("b", "Pending")]
        assert "admissionChecks" not in step(workload(admissionChecks=listed)).workload["status"]

    def test_are_listed_once_the_workload_was_evaluated(self) -> None:
        """The reservation lists them too: a Workload that gets quota at once needs no second write."""
        fresh = step(workload(), required_checks=frozenset("a")).workload
        assert "admissionChecks" not in fresh["status"]
        stopped = Queue("cq", stop_policy="Hold")
        held = step(workload(), required_checks=frozenset("a"), cluster_queue=stopped).workload
        assert states(held)["QuotaReserved"][0] == "False"
        assert [check["name"] for check in held["status"]["admissionChecks"]] == ["a"]

    def test_hold_the_admission_until_all_are_ready(self) -> None:
        required = {"required_checks": frozenset("c")}
        waiting = step(self.reserved(state="Pending"), **required).workload
        assert states(waiting)["Admitted"] == ("False", "UnsatisfiedAdmissionChecks")
        ready = step(self.reserved(state="Ready"), **required)
        assert states(ready.workload)["Admitted"] == ("True", "Admitted")
        assert [event[1] for event in ready.events] == ["Admitted"]

    def test_that_ask_for_a_retry_evict_until_then(self) -> None:
        obj = self.reserved(state="Retry", requeueAfterSeconds=30, message="no room")
        result = step(obj, required_checks=frozenset("c")).workload
        assert states(result)["Evicted"] == ("True", "AdmissionCheck")
        assert result["status"]["requeueState"]["requeueAt"] == format_time(NOW + 30)
        (check,) = result["status"]["admissionChecks"]
        assert (check["state"], check["retryCount"], check["requeueAfterSeconds"]) == ("Pending", 1, 30)

    def test_that_reject_deactivate(self) -> None:
        result = step(self.reserved(state="Rejected"), required_checks=frozenset("c"))
        assert states(result.workload)["DeactivationTarget"] == ("True", "AdmissionCheck")
        assert result.events[0][:2] == ("Warning", "AdmissionCheckRejected")


class TestExecutionTime:
    def test_counts_earlier_runs(self) -> None:
        limit = {"maximumExecutionTimeSeconds": 100}
        early = step(admitted(ago=39, spec=limit, accumulatedPastExecutionTimeSeconds=60))
        assert early.wake == NOW + 1
        late = step(admitted(ago=40, spec=limit, accumulatedPastExecutionTimeSeconds=60))
        assert states(late.workload)["DeactivationTarget"] == ("True", "MaximumExecutionTimeExceeded")
        assert "accumulatedPastExecutionTimeSeconds" not in late.workload["status"]

    def test_is_added_up_when_an_admission_ends(self) -> None:
        obj = admitted(ago=40, accumulatedPastExecutionTimeSeconds=60)
        released = transitions.released(transitions.evicted(obj, "Preempted", "m", NOW), True, NOW)
        assert released["status"]["accumulatedPastExecutionTimeSeconds"] == 100
        assert states(released) == {
            "QuotaReserved": ("False", "PendingEvaluation"),
            "Admitted": ("False", "NoReservation"),
            "Evicted": ("True", "Preempted"),
            "Requeued": ("True", "Preempted"),
            "PodsReady": ("False", "WaitForStart"),
        }


class TestQueues:
    HOLD = Queue("q", stop_policy="Hold")
    DRAIN = Queue("q", stop_policy="HoldAndDrain")
    GONE = Queue("q", exists=False)

    @pytest.mark.parametrize(
        ("local", "cluster", "reason", "text"),
        [
            (GONE, None, "Misconfigured", "LocalQueue q doesn't exist"),
            (HOLD, Queue("cq"), "Suspended", "LocalQueue q is stopped"),
            (Queue("lq"), GONE, "Misconfigured", "ClusterQueue q doesn't exist"),
            (Queue("lq"), HOLD, "Suspended", "ClusterQueue q is stopped"),
            (
                Queue("lq"),
                Queue("q", problems=("no flavor",)),
                "Suspended",
                "ClusterQueue q is inactive: no flavor",
            ),
        ],
    )
    def test_that_take_nothing_say_so_on_their_workloads_until_they_do(
        self, local: Queue, cluster: Queue | None, reason: str, text: str
    ) -> None:
        waiting = step(workload(), local_queue=local, cluster_queue=cluster).workload
        condition = conditions.condition(waiting, "QuotaReserved")
        assert condition is not None
        assert (condition["reason"], condition["message"]) == (reason, text)
        assert states(step(waiting).workload)["QuotaReserved"] == ("False", "PendingEvaluation")

    def test_drained_evict_and_held_ones_keep_what_runs(self) -> None:
        for queues, reason in (
            ({"local_queue": self.DRAIN}, "LocalQueueStopped"),
            ({"cluster_queue": self.DRAIN}, "ClusterQueueStopped"),
        ):
            assert states(step(admitted(), **queues).workload)["Evicted"] == ("True", reason)
        for queues in (
            {"local_queue": self.HOLD},
            {"cluster_queue": self.HOLD},
            {"cluster_queue": self.GONE},
        ):
            assert step(admitted(), **queues).workload == admitted()

    def test_held_withdraw_a_reservation_that_is_no_admission_yet(self) -> None:
        obj = workload(
            ("QuotaReserved", "True", "QuotaReserved", 5),
            admission={"clusterQueue": "cq"},
            admissionChecks=[{"name": "c", "state": "Pending"}],
        )
        result = step(obj, cluster_queue=self.HOLD, required_checks=frozenset("c")).workload
        assert states(result)["QuotaReserved"] == ("False", "Suspended")
        assert "admission" not in result["status"]

    @pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
    def test_restarted_let_their_evicted_workloads_in_again(self, kind: str) -> None:
        obj = workload(("Requeued", "False", f"{kind}Stopped", 5))
        stopped = {"local_queue": self.HOLD} if kind == "LocalQueue" else {"cluster_queue": self.HOLD}
        assert states(step(obj, **stopped).workload)["Requeued"][0] == "False"
        assert states(step(obj).workload)["Requeued"] == ("True", f"{kind}Restarted")


def test_an_admission_gate_keeps_out_until_it_is_gone() -> None:
    gated = workload()
    gated["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    result = step(gated).workload
    assert states(result)["QuotaReserved"] == ("False", "AdmissionGated")
    del result["metadata"]["annotations"]
    assert states(step(result).workload)["QuotaReserved"] == ("False", "PendingEvaluation")


@pytest.mark.parametrize("reason", ["AdmissionGated", "Misconfigured"])
def test_a_reason_of_the_scheduler_is_kept_where_no_queue_or_annotation_is_the_cause(reason: str) -> None:
    """A closed preemption gate gives the reason AdmissionGated too, invalid requests Misconfigured."""
    waiting = workload(("QuotaReserved", "False", reason, 5))
    assert step(waiting, scheduler_reason=PendingReason(reason, "")).workload == waiting
    assert states(step(waiting).workload)["QuotaReserved"] == ("False", "PendingEvaluation")


def test_a_reservation_resets_what_an_eviction_left() -> None:
    obj = workload(
        ("Evicted", "True", "Preempted", 60),
        ("Preempted", "True", "InClusterQueue", 60),
        ("Requeued", "True", "Preempted", 50),
        ("QuotaReserved", "False", "WaitingForQuota", 50),
        resourceRequests=[{"name": "main"}],
    )
    result = transitions.reserved(obj, {"clusterQueue": "cq"}, [], True, NOW)
    assert states(result) == {
        "Evicted": ("False", "QuotaReserved"),
        "Preempted": ("False", "QuotaReserved"),
        "Requeued": ("True", "Preempted"),
        "QuotaReserved": ("True", "QuotaReserved"),
        "Admitted": ("True", "Admitted"),
        "PodsReady": ("False", "WaitForStart"),
    }
    assert conditions.condition(result, "Evicted")["message"] == "Previously: m"  # type: ignore[index]
    assert "resourceRequests" not in result["status"]


def test_workload_that_is_admitted_without_quota_is_not_admitted() -> None:
    obj = workload(("QuotaReserved", "False", "ByHand", 0), ("Admitted", "True", "Admitted", 0))
    found = states(step(obj).workload)
    assert found["Admitted"] == ("False", "NoReservation")
    assert found["QuotaReserved"] == ("False", "PendingEvaluation")


def test_reclaimable_pods_are_those_that_the_job_says() -> None:
    obj = admitted(reclaimablePods=[{"name": "main", "count": 1}])
    assert "reclaimablePods" not in transitions.with_reclaimable(obj, {})["status"]
    grown = transitions.with_reclaimable(obj, {"main": 9})
    assert grown["status"]["reclaimablePods"] == [{"name": "main", "count": 2}]
