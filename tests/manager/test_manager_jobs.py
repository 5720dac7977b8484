"""Jobs as Workloads: names, pod sets, starting, stopping, equivalence, end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pykueue.api.kueue import names
from pykueue.api.objects import merge_patch, replaced
from pykueue.jobs import workload as construction
from pykueue.jobs.job import BatchJob
from pykueue.jobs.podsets import PodSetConflictError, PodSetInfo

Object = dict[str, Any]
JOB = BatchJob()


def job(
    parallelism: int | None = 3,
    completions: int | None = None,
    suspend: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    status: Object | None = None,
    template: Object | None = None,
    **spec: Any,
) -> Object:
    counts = {"parallelism": parallelism, "completions": completions}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "uid": "u-1",
            "labels": {"kueue.x-k8s.io/queue-name": "lq", **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            **{key: value for key, value in counts.items() if value is not None},
            "suspend": suspend,
            "template": template
            or {
                "metadata": {"labels": {"app": "train", "controller-uid": "u-1", "job-name": "train"}},
                "spec": {
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
                    "nodeSelector": {"zone": "a"},
                },
            },
            **spec,
        },
        "status": status or {},
    }


def built(obj: Object, **options: Any) -> Object:
    return construction.build(obj, JOB, 0, None, **options)


INFO = PodSetInfo(
    "main",
    3,
    labels={"kueue.x-k8s.io/podset": "main"},
    node_selector={"instance": "spot"},
    tolerations=({"key": "spot", "operator": "Exists"},),
)


class TestWorkload:
    def test_says_what_the_job_asks_for(self) -> None:
        workload = built(
            job(
                labels={"kueue.x-k8s.io/max-exec-time-seconds": "600", "team": "a"},
                annotations={"provreq.kueue.x-k8s.io/duration": "1h", "other": "x"},
            ),
            label_keys=("team", "absent"),
        )
        metadata, spec = workload["metadata"], workload["spec"]
        assert metadata["name"].startswith("job-train-")
        assert metadata["labels"] == {"team": "a", "kueue.x-k8s.io/job-uid": "u-1"}
        assert metadata["annotations"] == {"provreq.kueue.x-k8s.io/duration": "1h"}
        assert metadata["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
        assert metadata["ownerReferences"][0] == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "u-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
        assert spec["queueName"] == "lq"
        assert spec["maximumExecutionTimeSeconds"] == 600
        (pods,) = spec["podSets"]
        assert (pods["name"], pods["count"]) == ("main", 3)
        assert pods["template"]["metadata"]["labels"] == {"app": "train"}

    @pytest.mark.parametrize(
        ("parallelism", "completions", "count"),
        [(None, None, 1), (3, None, 3), (3, 2, 2), (3, 10, 3), (None, 5, 1)],
    )
    def test_counts_the_pods_that_run_at_a_time(
        self, parallelism: int | None, completions: int | None, count: int
    ) -> None:
        assert built(job(parallelism, completions))["spec"]["podSets"][0]["count"] == count

    def test_names_of_long_and_of_colliding_jobs_stay_short_and_distinct(self) -> None:
        long = construction.workload_name("Job", "batch", "x" * 300, "u-1")
        assert len(long) == 253
        assert construction.workload_name("Job", "batch", "x" * 300, "u-2") != long
        assert len(construction.workload_name("Job", "batch", "x" * 300, "u-1", limit=63)) == 63

    def test_names_are_those_that_kueue_gives(self) -> None:
        """Seen there: so both find the Workload that the other made."""
        uid = "c9f6df70-e74b-4cf9-a65e-46a63b780cc1"
        assert construction.workload_name("Job", "batch", "checked-1", uid) == "job-checked-1-0647a"

    def test_has_each_environment_variable_once_the_last_one_winning(self) -> None:
        env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
        workload = built(job(template={"spec": {"containers": [{"name": "c", "env": env}]}}))
        container = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
        assert container["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]

    @pytest.mark.parametrize(("text", "minimum"), [("2", 2), ("0", None), ("3", None), ("x", None)])
    def test_carries_the_smallest_parallelism_that_makes_sense(self, text: str, minimum: int | None) -> None:
        workload = built(job(annotations={"kueue.x-k8s.io/job-min-parallelism": text}))
        assert workload["spec"]["podSets"][0].get("minCount") == minimum

    def test_takes_the_queue_from_the_annotation_only_where_there_is_no_label(self) -> None:
        obj = job(annotations={"kueue.x-k8s.io/queue-name": "old"})
        assert construction.queue_name(obj) == "lq"
        unlabelled = replaced(obj, ("metadata", "labels"), None)
        assert construction.queue_name(unlabelled) == "old"
        assert construction.queue_name_by_annotation(unlabelled)
        assert not construction.queue_name_by_annotation(obj)


class TestStarting:
    def test_injects_what_the_admission_brings_and_unsuspends_in_one_patch(self) -> None:
        original = job()
        patch = merge_patch(original, JOB.started(original, [INFO]))
        record = patch["metadata"]["annotations"].pop(names.TEMPLATE_ADDITIONS_ANNOTATION)
        tolerations = [{"key": "spot", "operator": "Exists"}]
        maps = {"labels": [names.POD_SET_LABEL], "nodeSelector": ["instance"]}
        assert orjson.loads(record) == {
            "templates": [{**maps, "tolerations": tolerations, "new": ["tolerations"]}]
        }
        assert patch == {
            "metadata": {"annotations": {}},
            "spec": {
                "suspend": False,
                "template": {
                    "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
                    "spec": {
                        "nodeSelector": {"instance": "spot"},
                        "tolerations": [{"key": "spot", "operator": "Exists"}],
                    },
                },
            },
        }

    def test_refuses_to_overrule_the_template(self) -> None:
        with pytest.raises(
            PodSetConflictError, match=r"nodeSelector\[zone\] is 'a', the admission needs 'b'"
        ):
            JOB.started(job(), [INFO.merged(node_selector={"zone": "b"})])

    def test_shrinks_a_job_to_what_was_admitted(self) -> None:
        annotations = {
            "kueue.x-k8s.io/job-min-parallelism": "1",
            "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
        }
        original = job(4, 4, annotations=annotations, completionMode="Indexed")
        desired = JOB.started(original, [PodSetInfo("main", 2)])
        assert (desired["spec"]["parallelism"], desired["spec"]["completions"]) == (2, 2)
        pod_sets = built(original)["spec"]["podSets"]
        stopped = JOB.stop({**desired, "status": {}}, pod_sets)
        assert stopped is not None
        restored = JOB.stop(stopped.desired, pod_sets)
        assert restored is not None
        assert (restored.desired["spec"]["parallelism"], restored.desired["spec"]["completions"]) == (4, 4)


class TestStopping:
    def test_suspends_waits_clears_the_start_time_then_restores_the_template(self) -> None:
        original = job()
        pod_sets = built(original)["spec"]["podSets"]
        running = {
            **JOB.started(original, [INFO]),
            "status": {"active": 3, "startTime": "2026-01-01T00:00:00Z"},
        }

        first = JOB.stop(running, pod_sets)
        assert first is not None
        assert merge_patch(running, first.desired) == {
            "metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}},
            "spec": {"suspend": True},
        }
        assert not JOB.is_suspended(first.desired)
        assert JOB.stop(first.desired, pod_sets) is None
        assert JOB.is_active(first.desired)

        conditions = [{"type": "Suspended", "status": "True"}]
        stopped = {**first.desired, "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions}}
        second = JOB.stop(stopped, pod_sets)
        assert second is not None
        assert second.subresource == "status"
        assert merge_patch(stopped, second.desired) == {"status": {"startTime": None}}

        third = JOB.stop(second.desired, pod_sets)
        assert third is not None
        assert third.desired["spec"] == original["spec"]
        assert JOB.is_suspended(third.desired)
        assert JOB.stop(third.desired, pod_sets) is None
        assert not JOB.is_active(third.desired)

    def test_of_a_job_that_never_ran_needs_nothing(self) -> None:
        original = job()
        assert JOB.stop(original, built(original)["spec"]["podSets"]) is None


class TestEquivalence:
    def test_a_job_is_described_by_its_own_workload_at_every_stage(self) -> None:
        original = job()
        workload = built(original)
        assert construction.equivalent(workload, original, JOB)
        running = JOB.started(original, [INFO])
        assert construction.equivalent(workload, running, JOB, {"main": 3})
        assert construction.equivalent(workload, original, JOB, {"main": 3})

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("spec", "parallelism"), 4),
            (("spec", "template", "spec", "containers"), [{"name": "other"}]),
            (("spec", "template", "spec", "initContainers"), [{"name": "init"}]),
            (("spec", "template", "spec", "tolerations"), [{"operator": "Exists"}]),
            (("metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds"), "60"),
        ],
    )
    def test_edit_of_a_pending_job_updates_its_workload(self, path: tuple[str, ...], value: Any) -> None:
        workload = built(job())
        assert not construction.equivalent(workload, replaced(job(), path, value), JOB)

    @pytest.mark.parametrize("field", ["nodeSelector", "affinity"])
    def test_fields_that_starting_changes_are_not_compared(self, field: str) -> None:
        edited = replaced(job(), ("spec", "template", "spec", field), {"x": {}})
        assert construction.equivalent(built(job()), edited, JOB)


class TestProgress:
    @pytest.mark.parametrize(
        ("status", "ready"),
        [
            ({}, False),
            ({"ready": 2}, False),
            ({"ready": 3}, True),
            ({"ready": 1, "succeeded": 2}, True),
            ({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["x"]}}, True),
        ],
    )
    def test_pods_are_ready_when_all_are_ready_or_done(self, status: Object, ready: bool) -> None:
        assert JOB.pods_ready(job(status=status)) is ready

    @pytest.mark.parametrize(
        ("spec", "status", "count"),
        [
            ({}, {"succeeded": 0}, 0),
            ({}, {"succeeded": 2}, 0),
            ({}, {"succeeded": 3}, 1),
            ({}, {"succeeded": 4}, 2),
            ({"completionMode": "Indexed"}, {"completedIndexes": "0,2-3", "succeeded": 3}, 1),
            ({"completionMode": "Indexed"}, {"completedIndexes": "0", "failedIndexes": "1-3"}, 2),
        ],
    )
    def test_pods_that_will_not_run_again_can_be_reclaimed(
        self, spec: Object, status: Object, count: int
    ) -> None:
        assert JOB.reclaimable(job(3, 5, status=status, **spec)).get("main", 0) == count

    @pytest.mark.parametrize(
        ("kind", "status", "succeeded"),
        [("Complete", "True", True), ("Failed", "True", False), ("Complete", "False", None)],
    )
    def test_the_outcome_is_the_terminal_condition(
        self, kind: str, status: str, succeeded: bool | None
    ) -> None:
        outcome = JOB.outcome(job(status={"conditions": [{"type": kind, "status": status, "message": "m"}]}))
        assert (outcome and outcome.succeeded) == succeeded
