"""Pod groups in queues: one Workload of the group's name (docs/reference/kueue-integrations.md 9.4,
"Pod")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from manager_stack import Stack, story
from pods_world import FLAVORED, PODS_ON, D, Pods, member, pod

from pykueue.api.resources import EVENTS, PODS, WORKLOADS

Object = dict[str, Any]


def play(test: Callable[[Pods], Awaitable[None]], configuration: str = PODS_ON) -> None:
    async def run(stack: Stack) -> None:
        await test(Pods(stack))

    story(run, configuration, FLAVORED)


def names(count: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


async def group_of(pods: Pods, count: int, **options: Any) -> list[str]:
    """A group whose pods run."""
    await pods.create(*(member(name, count, **options) for name in names(count)))
    await pods.run(*names(count))
    return names(count)


def test_a_group_is_admitted_when_it_is_complete() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(member("p0", 3), member("p1", 3))
        assert await pods.stack.workloads() == []
        assert await pods.gated() == ["p0", "p1"]
        await pods.create(member("p2", 3, cpu="2"))
        workload = await pods.workload()
        assert workload["metadata"]["annotations"][f"{D}is-group-workload"] == "true"
        owners = workload["metadata"]["ownerReferences"]
        assert sorted(one["name"] for one in owners) == ["p0", "p1", "p2"]
        assert not any(one.get("controller") for one in owners)
        assert sorted(one["count"] for one in workload["spec"]["podSets"]) == [1, 2]
        hashes = [one["name"] for one in workload["spec"]["podSets"]]
        assert hashes == sorted(hashes)
        role = (await pods.get("p2"))["metadata"]["annotations"][f"{D}role-hash"]
        assert role in hashes
        assert await pods.gated() == []
        started = await pods.get("p2")
        assert started["spec"]["nodeSelector"] == {"disk": "fast"}
        assert started["metadata"]["labels"][f"{D}podset"] == role

    play(test)


def test_group_that_does_not_fit_stays_pending_as_a_whole() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("single", "2"))
        await pods.create(*(member(name, 3) for name in names(3)))
        assert await pods.gated() == ["p0", "p1", "p2"]
        assert (await pods.conditions())["QuotaReserved"] == ("False", "WaitingForQuota")
        await pods.run("single")
        await pods.end("single")
        assert await pods.gated() == []

    play(test)


def test_a_fast_group_queues_with_its_first_pod() -> None:
    fast = {f"{D}pod-group-fast-admission": "true"}

    async def test(pods: Pods) -> None:
        await pods.create(member("p0", 3, annotations=fast))
        assert [one["count"] for one in (await pods.workload())["spec"]["podSets"]] == [3]
        assert await pods.gated() == []
        await pods.create(member("p1", 3, annotations=fast))
        assert await pods.gated() == []
        assert "WaitingForReplacementPods" not in await pods.conditions()

    play(test)


def test_all_pods_succeeded_finish_the_group() -> None:
    async def test(pods: Pods) -> None:
        members = await group_of(pods, 2)
        await pods.end("p0")
        workload = await pods.workload()
        assert workload["status"]["reclaimablePods"][0]["count"] == 1
        assert await pods.is_held("p0")
        await pods.end("p1")
        assert (await pods.conditions())["Finished"] == ("True", "Succeeded")
        for name in members:
            assert not await pods.is_held(name)

    play(test)


def test_a_failed_pod_is_waited_for_and_replaced_under_the_same_admission() -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 2)
        await pods.end("p0", phase="Failed")
        conditions = await pods.conditions()
        assert conditions["WaitingForReplacementPods"] == ("True", "PodsFailed")
        assert conditions["Admitted"][0] == "True"
        assert "Finished" not in conditions
        await pods.create(member("again", 2))
        assert await pods.gated() == []
        assert (await pods.conditions())["WaitingForReplacementPods"] == ("False", "PodsReady")
        assert not await pods.is_held("p0")
        owners = (await pods.workload())["metadata"]["ownerReferences"]
        assert "again" in [one["name"] for one in owners]
        assert "OwnerReferencesAdded" in await pods.stack.events("g")
        await pods.run("again")
        await pods.end("p1", "again")
        assert (await pods.conditions())["Finished"] == ("True", "Succeeded")

    play(test)


def test_pods_that_come_after_the_end_never_start() -> None:
    async def test(pods: Pods) -> None:
        members = await group_of(pods, 2)
        await pods.end(*members)
        await pods.create(member("late", 2))
        assert await pods.names() == members
        assert "ExcessPodDeleted" in await pods.stack.events("late")

    play(test)


def test_an_unretriable_pod_ends_the_group_once_all_have_ended() -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 2)
        await pods.annotate("p0", "retriable-in-group", "false")
        await pods.end("p0", phase="Failed")
        assert "Finished" not in await pods.conditions()
        await pods.end("p1")
        assert (await pods.conditions())["Finished"] == ("True", "Failed")
        assert not await pods.is_held("p0")

    play(test)


def test_excess_pods_are_removed_newest_first() -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 2)
        await pods.create(member("late", 2))
        assert await pods.names() == ["p0", "p1"]
        assert "ExcessPodDeleted" in await pods.stack.events("late")
        await pods.create(member("odd", 2, cpu="500m"))
        assert await pods.names() == ["p0", "p1"]

    play(test)


def test_pods_beyond_the_count_do_not_get_into_the_workload() -> None:
    async def test(pods: Pods) -> None:
        for name in names(4):
            await pods.stack.client.create(PODS, member(name, 3))
        await pods.stack.settle()
        assert [one["count"] for one in (await pods.workload())["spec"]["podSets"]] == [3]
        assert len(await pods.names()) == 3

    play(test)


def test_an_evicted_group_waits_for_new_pods() -> None:
    async def test(pods: Pods) -> None:
        members = await group_of(pods, 4)
        await pods.create(pod("high", "4", labels={f"{D}priority-class": "high"}))
        for name in members:
            stopped = await pods.get(name)
            assert stopped["metadata"]["deletionTimestamp"]
            assert any(one["type"] == "TerminationTarget" for one in stopped["status"]["conditions"])
        # Quota goes back only when none of them runs any more.
        assert (await pods.conditions())["QuotaReserved"][0] == "True"
        assert await pods.is_gated("high")
        await pods.end(*members, phase="Failed")
        assert not await pods.is_gated("high")
        conditions = await pods.conditions()
        assert conditions["Evicted"] == ("True", "Preempted")
        assert conditions["QuotaReserved"][0] == "False"
        assert conditions["WaitingForReplacementPods"] == ("True", "Preempted")
        await pods.create(*(member(name, 4) for name in names(4, "new")))
        assert await pods.names() == ["high", *names(4, "new")]
        assert await pods.gated() == names(4, "new")
        await pods.run("high")
        await pods.end("high")
        assert await pods.gated() == []
        assert (await pods.conditions())["Admitted"][0] == "True"

    play(test)


def test_pods_that_do_not_end_hold_quota_for_their_grace_only() -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 4)
        await pods.create(pod("high", "4", labels={f"{D}priority-class": "high"}))
        assert await pods.is_gated("high")
        await pods.stack.settle(40)
        assert not await pods.is_gated("high")

    play(test)


@pytest.mark.parametrize("on", [True, False])
def test_gate_releases_the_quota_of_terminating_pods_at_once(on: bool) -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 4)
        await pods.create(pod("high", "4", labels={f"{D}priority-class": "high"}))
        assert await pods.is_gated("high") is not on

    gate = f"featureGates: {{FastQuotaReleaseInPodIntegration: {str(on).lower()}}}\n"
    play(test, PODS_ON + gate)


@pytest.mark.parametrize("on", [True, False])
def test_gate_decides_whether_an_annotation_names_the_group(on: bool) -> None:
    def renamed(name: str, label: str, annotation: str) -> Object:
        return member(name, 1, label, annotations={f"{D}pod-group-name": annotation})

    long = "long." * 13 + "g"

    async def test(pods: Pods) -> None:
        await pods.create(renamed("p0", "by-label", "by-annotation"))
        alone = member("p1", 1, annotations={f"{D}pod-group-name": long})
        del alone["metadata"]["labels"][f"{D}pod-group-name"]
        await pods.create(alone)
        names = {one["metadata"]["name"] for one in await pods.stack.workloads()}
        assert names == {"by-annotation" if on else "by-label", long}

    gate = f"featureGates: {{WorkloadIdentifierAnnotations: {str(on).lower()}}}\n"
    play(test, PODS_ON + gate)


def test_a_serving_group_never_finishes() -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 2, annotations={f"{D}pod-group-serving": "true"})
        await pods.end("p0", "p1")
        assert "Finished" not in await pods.conditions()
        assert "reclaimablePods" not in (await pods.workload())["status"]

    play(test)


COPYING = """
integrations: {frameworks: [pod], labelKeysToCopy: [team]}
featureGates: {CustomMetricLabels: true}
metrics:
  customLabels:
  - {name: shown, sourceKind: Workload, trackedValues: [a, s]}
  - {name: tier, sourceKind: Workload, sourceAnnotationKey: tier, trackedValues: [t]}
"""


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (member("p1", 2, queue="lq2"), "different queue names: lq, lq2"),
        (member("p1", 3), "different total counts: 2, 3"),
        (
            member("p1", 2, annotations={f"{D}pod-group-fast-admission": "true"}),
            "different fast admission annotations: None, true",
        ),
        (member("p1", 2, labels={"team": "b"}), "different values of the label team: a, b"),
        (member("p1", 2, labels={"shown": "b"}), "different values of the label shown: a, b"),
        (member("p1", 2, annotations={"tier": "b"}), "different values of the annotation tier: a, b"),
    ],
)
def test_pods_that_contradict_each_other_make_no_workload(other: Object, text: str) -> None:
    async def test(pods: Pods) -> None:
        first = member("p0", 2, labels={"team": "a", "shown": "a"}, annotations={"tier": "a"})
        await pods.create(first, other)
        assert await pods.stack.workloads() == []
        found = (await pods.stack.client.list(EVENTS)).items
        notes = [one["message"] for one in found if one["reason"] == "ErrWorkloadCompose"]
        assert any(text in note for note in notes)

    play(test, COPYING)


def test_a_workload_has_what_any_pod_of_its_group_has() -> None:
    async def test(pods: Pods) -> None:
        some = member("p0", 2, labels={"team": "a"}, annotations={"tier": "t"})
        await pods.create(some, member("p1", 2, labels={"shown": "s", "not": "copied"}))
        (workload,) = await pods.stack.workloads()
        assert workload["metadata"]["labels"] == {"team": "a", "shown": "s"}
        assert workload["metadata"]["annotations"]["tier"] == "t"

    play(test, COPYING)


def foreign(**metadata: Any) -> Object:
    """A Workload with the name of the group that was not made for a pod group."""
    return {
        "apiVersion": f"{D}v1beta2",
        "kind": "Workload",
        "metadata": {"name": "g", "namespace": "default", **metadata},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": pod("x")["spec"]}}]},
    }


@pytest.mark.parametrize(("validated", "owned"), [(True, False), (False, False), (False, True)])
def test_gate_decides_whether_a_group_takes_over_a_workload_without_owner(
    validated: bool, owned: bool
) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}

    async def test(pods: Pods) -> None:
        await pods.stack.apply(foreign(ownerReferences=[owner] if owned else []))
        await pods.create(member("p0", 2), member("p1", 2))
        taken = not validated and not owned
        assert await pods.gated() == ([] if taken else ["p0", "p1"])
        owners = (await pods.workload())["metadata"].get("ownerReferences", [])
        assert [one["name"] for one in owners] == (["p0", "p1"] if taken else ["t"] if owned else [])

    gate = f"featureGates: {{PodIntegrationValidateGroupOwner: {str(validated).lower()}}}\n"
    play(test, PODS_ON + gate)


def test_workload_of_another_owner_is_not_adopted() -> None:
    async def test(pods: Pods) -> None:
        await pods.stack.apply(foreign())
        await pods.create(member("p0", 1))
        assert await pods.gated() == ["p0"]
        assert "WorkloadNameConflict" in await pods.stack.events("p0")
        assert "ownerReferences" not in (await pods.workload())["metadata"]
        await pods.delete("p0")
        assert await pods.names() == []

    play(test)


def test_deleting_the_workload_deletes_the_group() -> None:
    async def test(pods: Pods) -> None:
        members = await group_of(pods, 2)
        await pods.end("p0")
        await pods.stack.delete(WORKLOADS, "g")
        await pods.stack.settle()
        assert (await pods.get("p1"))["metadata"]["deletionTimestamp"]
        await pods.end("p1", phase="Failed")
        assert await pods.names() == []
        assert not await pods.exists(WORKLOADS, "g")
        assert members == ["p0", "p1"]

    play(test)


def test_deleted_running_pod_of_a_group_stays_until_it_is_replaced() -> None:
    async def test(pods: Pods) -> None:
        await group_of(pods, 2)
        await pods.delete("p0")
        await pods.end("p0", phase="Failed")
        await pods.stack.settle(600)
        assert await pods.is_held("p0")
        await pods.create(member("again", 2))
        assert await pods.names() == ["again", "p1"]
        assert await pods.gated() == []

    play(test)


def test_deleting_all_pods_gives_the_group_up() -> None:
    async def test(pods: Pods) -> None:
        members = await group_of(pods, 2)
        await pods.delete("p0")
        assert await pods.is_held("p0")
        await pods.delete("p1")
        await pods.end(*members, phase="Failed")
        assert await pods.names() == []

    play(test)


def test_readiness_of_a_group_is_that_of_all_its_pods() -> None:
    configuration = PODS_ON + "waitForPodsReady: {timeout: 300s}\n"

    async def test(pods: Pods) -> None:
        await pods.create(member("p0", 2), member("p1", 2))
        await pods.run("p0")
        assert (await pods.conditions())["PodsReady"] == ("False", "WaitForStart")
        await pods.run("p1")
        assert (await pods.conditions())["PodsReady"] == ("True", "Started")
        await pods.end("p1", phase="Failed")
        assert (await pods.conditions())["PodsReady"] == ("False", "WaitForRecovery")

    play(test, configuration)


def test_a_rank_is_taken_from_the_label_that_holds_it() -> None:
    async def test(pods: Pods) -> None:
        rank = {f"{D}pod-group-pod-index-label": "rank"}
        await pods.create(member("p0", 1, labels={"rank": "7"}, annotations=rank))
        assert (await pods.get("p0"))["metadata"]["labels"][f"{D}pod-group-pod-index"] == "7"

    play(test)


def test_the_whole_life_goes_on_over_a_managers_crashes() -> None:
    async def test(pods: Pods) -> None:
        for name in names(3):
            await pods.stack.client.create(PODS, member(name, 3))
            await pods.stack.stop_manager()
            await pods.stack.start_manager()
        await pods.stack.settle()
        assert await pods.gated() == []
        await pods.run(*names(3))
        for name in names(3):
            await pods.stack.stop_manager()
            await pods.stack.patch(PODS, name, {"status": {"phase": "Succeeded"}}, "status")
            await pods.stack.start_manager()
            await pods.stack.settle()
        assert (await pods.conditions())["Finished"] == ("True", "Succeeded")
        assert not await pods.is_held("p0")

    play(test)
