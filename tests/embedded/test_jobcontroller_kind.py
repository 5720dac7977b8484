"""Jobs as the API server keeps them: defaults, refusals, changes, statuses, printed rows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jobcontroller_cluster import Cluster, Object, job

from pykueue.api.resources import JOBS, PODS
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.kinds.job import Job
from pykueue.embedded.kinds.jobindexes import format_indexes, parse_indexes
from pykueue.kube.errors import ApiError

JSON_START = "2026-01-01T00:00:00Z"


def story(tell: Callable[[Cluster], Awaitable[None]]) -> None:
    """A cluster whose controllers are away: the test writes all statuses."""

    async def main(clock: Clock) -> None:
        cluster = Cluster(clock)
        await cluster.server.start()
        await tell(cluster)
        await cluster.stop()

    run_virtual(main)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {},
            {
                "completions": 1,
                "parallelism": 1,
                "backoffLimit": 6,
                "podReplacementPolicy": "TerminatingOrFailed",
            },
        ),
        ({"completions": 5}, {"completions": 5, "parallelism": 1}),
        ({"parallelism": 5}, {"completions": None, "parallelism": 5}),
        (
            {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1},
            {"backoffLimit": 2147483647},
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]}},
            {
                "podReplacementPolicy": "Failed",
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "X", "status": "True"}]}]
                },
            },
        ),
    ],
)
def test_what_the_user_leaves_out_is_filled_in(given: Object, expected: Object) -> None:
    async def tell(cluster: Cluster) -> None:
        spec = (await cluster.create_job(**given))["spec"]
        assert {key: spec.get(key) for key in expected} == expected
        assert (spec["completionMode"], spec["suspend"]) == (given.get("completionMode", "NonIndexed"), False)

    story(tell)


def test_a_job_gets_a_selector_of_its_own_and_labels() -> None:
    async def tell(cluster: Cluster) -> None:
        created = await cluster.create_job(labels={"app": "x"})
        uid = created["metadata"]["uid"]
        assert created["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        assert created["spec"]["template"]["metadata"]["labels"] == {
            "app": "x",
            "job-name": "job",
            "batch.kubernetes.io/job-name": "job",
            "controller-uid": uid,
            "batch.kubernetes.io/controller-uid": uid,
        }
        assert created["metadata"]["labels"] == {"app": "x"}
        assert created["metadata"]["generation"] == 1
        plain = await cluster.create_job("plain")
        assert plain["metadata"]["labels"]["job-name"] == "plain"

    story(tell)


INDEXED = {"completionMode": "Indexed", "completions": 3}
POLICY_ACTION = {"action": "FailJob"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"parallelism": -1}, "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"restart_policy": "Always"},
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        ({"selector": {"matchLabels": {"a": "b"}}}, "`selector` not auto-generated"),
        ({"manualSelector": True}, "spec.selector: Required value"),
        (
            {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
            "`selector` does not match template `labels`",
        ),
        (
            {"completionMode": "Indexed", "parallelism": 1},
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        ({**INDEXED, "parallelism": 100001}, "must be less than or equal to 100000"),
        (
            {"backoffLimitPerIndex": 1},
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            {**INDEXED, "maxFailedIndexes": 1},
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
        ),
        (
            {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 4},
            "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
        ),
        (
            {"completionMode": "Indexed", "completions": 100001, "backoffLimitPerIndex": 1},
            "spec.maxFailedIndexes: Required value",
        ),
        ({"managedBy": "me"}, 'spec.managedBy: Invalid value: "me": must be a domain-prefixed path'),
        ({"managedBy": "example.com/" + "x" * 60}, "spec.managedBy: Too long"),
        (
            {"podFailurePolicy": {"rules": [POLICY_ACTION]}},
            "specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{**POLICY_ACTION, "onExitCodes": {"operator": "In", "values": [0]}}]
                }
            },
            "must not be 0 for the In operator",
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{**POLICY_ACTION, "onExitCodes": {"operator": "In", "values": [2, 1]}}]
                }
            },
            "must be ordered",
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{**POLICY_ACTION, "onExitCodes": {"operator": "In", "values": [1, 1]}}]
                }
            },
            "Duplicate value: 1",
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [
                        {
                            **POLICY_ACTION,
                            "onExitCodes": {"operator": "In", "values": [1], "containerName": "other"},
                        }
                    ]
                }
            },
            "must be one of the container or initContainer names in the pod template",
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "X"}]}]}},
            "requires the backoffLimitPerIndex to be set",
        ),
        (
            {"podFailurePolicy": {"rules": []}, "restart_policy": "OnFailure"},
            'only "Never" is supported when podFailurePolicy is specified',
        ),
        (
            {"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed"},
            'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        ),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, "requires indexed completion mode"),
        ({**INDEXED, "successPolicy": {"rules": []}}, "at least one rules must be specified"),
        (
            {**INDEXED, "successPolicy": {"rules": [{}]}},
            "at least one of succeededCount or succeededIndexes must be specified",
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0-3"}]}},
            "error parsing succeededIndexes: too large index: 3, completions: 3",
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0,1", "succeededCount": 3}]}},
            "must be less than or equal to 2",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field_named(spec: Object, message: str) -> None:
    async def tell(cluster: Cluster) -> None:
        with pytest.raises(ApiError, match=re.escape(message)) as error:
            await cluster.create_job(**spec)
        assert error.value.code == 422

    story(tell)


def test_an_indexed_job_needs_a_name_its_pods_can_have_as_hostname() -> None:
    async def tell(cluster: Cluster) -> None:
        long = "x" * 61
        with pytest.raises(ApiError, match=f"invalid DNS label: {long}-99"):
            await cluster.create_job(long, completionMode="Indexed", completions=100)
        await cluster.create_job(long, completionMode="Indexed", completions=10)
        await cluster.create_job("not.a.label")
        with pytest.raises(ApiError, match=r"spec\.template\.labels: .* no more than 63 bytes"):
            await cluster.create_job("y" * 64)

    story(tell)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"parallelism": 2}, True),
        ({"suspend": True}, True),
        ({"backoffLimit": 9}, True),
        ({"activeDeadlineSeconds": 9}, True),
        ({"ttlSecondsAfterFinished": 9}, True),
        ({"podReplacementPolicy": "Failed"}, True),
        ({"completions": 9}, False),
        ({"completionMode": "Indexed"}, False),
        ({"managedBy": "example.com/x"}, False),
        ({"template": {"spec": {"priorityClassName": "x"}}}, False),
        ({"template": {"metadata": {"labels": {"x": "y"}}}}, False),
        ({"selector": {"matchLabels": {"x": "y"}}}, False),
    ],
)
def test_what_may_change_of_a_running_job(change: Object, allowed: bool) -> None:
    async def tell(cluster: Cluster) -> None:
        created = await cluster.create_job(completions=4)
        if allowed:
            changed = await cluster.patch_job(**change)
            assert changed["metadata"]["generation"] == created["metadata"]["generation"] + 1
        else:
            with pytest.raises(ApiError, match="immutable") as error:
                await cluster.patch_job(**change)
            assert error.value.code == 422

    story(tell)


def test_an_elastic_indexed_job_changes_completions_together_with_parallelism() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completionMode="Indexed", completions=3, parallelism=3)
        await cluster.patch_job(completions=5, parallelism=5)
        with pytest.raises(ApiError, match=r"can only be modified in tandem with spec\.parallelism"):
            await cluster.patch_job(completions=4)

    story(tell)


CONTAINER = {"name": "main", "image": "x"}
SELECTOR = {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}
RESOURCES = {"template": {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "1"}}}]}}}
IMAGE = {"template": {"spec": {"containers": [{**CONTAINER, "image": "y"}]}}}
LABELS = {"template": {"metadata": {"labels": {"x": "y"}}}}
GATES = {"template": {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}}
SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": JSON_START}]}


@pytest.mark.parametrize(
    ("suspended", "status", "change", "allowed"),
    [
        (True, {}, SELECTOR, True),
        (True, {}, {**SELECTOR, "suspend": False}, True),
        (True, {}, RESOURCES, True),
        (True, {}, LABELS, True),
        (True, {}, GATES, True),
        (True, {}, IMAGE, False),
        (False, {}, SELECTOR, False),
        (False, {}, {**SELECTOR, "suspend": True}, False),
        # Evicted: the pods are not yet gone, the start time is.
        (True, {"active": 1}, SELECTOR, True),
        (True, {"active": 1}, RESOURCES, False),
        # Evicted, the start time still there.
        (True, {"startTime": JSON_START, "active": 1, **SUSPENDED}, SELECTOR, False),
        (True, {"startTime": JSON_START, **SUSPENDED}, SELECTOR, True),
        (True, {"startTime": JSON_START, **SUSPENDED}, RESOURCES, True),
        (True, {"startTime": JSON_START}, SELECTOR, False),
    ],
)
def test_the_template_of_a_suspended_job_may_change_where_pods_are_placed(
    suspended: bool, status: Object, change: Object, allowed: bool
) -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(suspend=suspended)
        if status:
            await write_status(cluster, **status)
        if allowed:
            await cluster.patch_job(**change)
        else:
            with pytest.raises(ApiError, match=r"spec\.template: Invalid value: .* field is immutable"):
                await cluster.patch_job(**change)

    story(tell)


# Status


async def write_status(cluster: Cluster, **fields: Any) -> Object:
    return await cluster.client.patch(JOBS, "job", "default", {"status": fields}, subresource="status")


def conditions(*types: str, **statuses: str) -> Object:
    found = {**dict.fromkeys(types, "True"), **statuses}
    return {
        "conditions": [
            {"type": type_, "status": status, "lastTransitionTime": JSON_START}
            for type_, status in found.items()
        ]
    }


STARTED = {"startTime": JSON_START}
DONE = {**STARTED, "completionTime": "2026-01-01T00:00:05Z"}


@pytest.mark.parametrize(
    ("spec", "before", "after", "message"),
    [
        ({}, STARTED, conditions("Failed"), "without the FailureTarget=true condition"),
        ({}, STARTED, {**DONE, **conditions("Complete")}, "without the SuccessCriteriaMet=true condition"),
        ({}, STARTED, {**conditions("FailureTarget", "Failed")}, None),
        ({}, STARTED, {**DONE, **conditions("SuccessCriteriaMet", "Complete")}, None),
        (
            {},
            STARTED,
            {**DONE, **conditions("SuccessCriteriaMet", "Complete", "FailureTarget")},
            "cannot set Complete=True and FailureTarget=true",
        ),
        (
            {},
            {**STARTED, **conditions("FailureTarget", "Failed")},
            conditions("FailureTarget", Failed="False"),
            "cannot disable the terminal Failed=True condition",
        ),
        ({}, {"failed": 2}, {"failed": 1}, "cannot decrease the failed counter"),
        ({}, {"succeeded": 2}, {"succeeded": 1}, "cannot decrease the succeeded counter"),
        ({**INDEXED, "parallelism": 3}, {"succeeded": 2}, {"succeeded": 1}, None),
        ({}, {"active": 1}, {"ready": 2}, "cannot set more ready pods than active"),
        (
            {},
            STARTED,
            {"active": 1, **conditions("FailureTarget", "Failed")},
            "cannot set active pods for a finished job",
        ),
        (
            {},
            STARTED,
            {"terminating": 1, **conditions("FailureTarget", "Failed")},
            "cannot set terminating pods for a finished job",
        ),
        (
            {},
            STARTED,
            {"uncountedTerminatedPods": {"failed": ["u"]}, **conditions("FailureTarget", "Failed")},
            "uncountedTerminatedPods needs to be empty",
        ),
        ({}, {}, conditions("FailureTarget", "Failed"), "startTime is required for finished job"),
        ({}, STARTED, {"startTime": None}, "startTime cannot be removed for unsuspended job"),
        ({}, STARTED, {"startTime": "2026-01-01T00:00:09Z"}, "immutable for an unsuspended job"),
        ({"suspend": True}, STARTED, {"startTime": None}, None),
        (
            {},
            {**STARTED, **conditions("Suspended")},
            {"startTime": "2026-01-01T00:00:09Z", **conditions(Suspended="False")},
            None,
        ),
        ({}, STARTED, {"completionTime": JSON_START}, "when there is no Complete=True condition"),
        ({}, STARTED, conditions("SuccessCriteriaMet", "Complete"), "completionTime is required"),
        (
            {},
            {"startTime": "2026-01-01T00:00:09Z"},
            {"completionTime": JSON_START, **conditions("SuccessCriteriaMet", "Complete")},
            "completionTime cannot be set before startTime",
        ),
        ({}, {}, {"completedIndexes": "0"}, "when non-indexed completion mode"),
        (INDEXED, {}, {"completedIndexes": "0,2"}, None),
        (INDEXED, {}, {"completedIndexes": "2,0"}, "error parsing completedIndexes"),
        (INDEXED, {}, {"completedIndexes": "3"}, "too large index"),
        (INDEXED, {}, {"failedIndexes": "0"}, "no backoff limit per index"),
        (
            {**INDEXED, "backoffLimitPerIndex": 1},
            {},
            {"completedIndexes": "0,1", "failedIndexes": "1,2"},
            "failedIndexes and completedIndexes overlap at index: 1",
        ),
        ({}, {}, {"uncountedTerminatedPods": {"succeeded": ["u"], "failed": ["u"]}}, "Duplicate value"),
        ({}, {}, {"active": -1}, "must be greater than or equal to 0"),
    ],
)
def test_a_status_that_contradicts_itself_or_the_past_is_refused(
    spec: Object, before: Object, after: Object, message: str | None
) -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(**spec)
        if before:
            await write_status(cluster, **before)
        if message is None:
            await write_status(cluster, **after)
            return
        with pytest.raises(ApiError, match=re.escape(message)) as error:
            await write_status(cluster, **after)
        assert error.value.code == 422

    story(tell)


# Text forms


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 2], "1,2"),
        ([0, 1, 2, 3, 4, 6, 8, 9], "0-4,6,8,9"),
        ([0, 2, 3, 4, 7, 8, 9], "0,2-4,7-9"),
    ],
)
def test_index_ranges(indexes: list[int], text: str) -> None:
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == set(indexes)


@pytest.mark.parametrize("text", ["a", "1,", "2-1", "1-1", "1,1", "3,2", "-1", "1-", "0x1", "1 ,2", "٣"])
def test_what_is_not_an_index_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"index|order"):
        parse_indexes(text)


@pytest.mark.parametrize(
    ("spec", "status", "cells"),
    [
        ({"completions": 20}, {}, ["Running", "0/20", ""]),
        ({"completions": 20}, conditions("Suspended"), ["Suspended", "0/20", ""]),
        (
            {"completions": 20},
            {**STARTED, **conditions(Suspended="False"), "succeeded": 3},
            ["Running", "3/20", "60s"],
        ),
        (
            {"completions": 2},
            {**DONE, **conditions("SuccessCriteriaMet", "Complete"), "succeeded": 2},
            ["Complete", "2/2", "5s"],
        ),
        ({"completions": 2}, {**STARTED, **conditions("FailureTarget", "Failed")}, ["Failed", "0/2", "60s"]),
        ({"completions": 2}, {**STARTED, **conditions("FailureTarget")}, ["FailureTarget", "0/2", "60s"]),
        ({"parallelism": 3}, {"succeeded": 1}, ["Running", "1/1 of 3", ""]),
        ({"parallelism": 1}, {}, ["Running", "0/1", ""]),
    ],
)
def test_the_row_kubectl_prints(spec: Object, status: Object, cells: list[str]) -> None:
    made = {**job("job", **spec), "status": status}
    made["metadata"]["creationTimestamp"] = JSON_START
    row = Job().cells(made, 1767225660.0)
    assert row[:5] == ["job", *cells, "60s"]
    assert row[5:] == ["main", "x", "<none>"]


def test_jobs_are_found_by_their_successes() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job()
        await cluster.create_job("other")
        await write_status(cluster, succeeded=1, **STARTED)
        found = await cluster.client.list(JOBS, "default", field_selector="status.successful=1")
        assert [one["metadata"]["name"] for one in found.items] == ["job"]
        assert (await cluster.client.list(PODS)).items == []

    story(tell)
