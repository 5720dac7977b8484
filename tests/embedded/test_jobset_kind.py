"""The kind JobSet: what is stored, refused and printed (docs/reference/cluster-workloads.md 2.1, 2.5,
2.10)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from jobset_world import Object, World, jobset, replicated, tell

from pykueue.api.resources import CRDS, JOB_SETS, PERSISTENT_VOLUME_CLAIMS
from pykueue.embedded.apiserver.crd.kind import CustomKind
from pykueue.embedded.jobset.definition import definition
from pykueue.embedded.jobset.generate import generate
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_the_data_file_is_what_the_types_say() -> None:
    assert definition() == generate(), "run python -m pykueue.embedded.jobset --write"


def test_it_is_a_custom_resource_like_any_other() -> None:
    async def story(world: World) -> None:
        crd = await world.client.get(CRDS, "jobsets.jobset.x-k8s.io")
        assert any(c["type"] == "Established" and c["status"] == "True" for c in crd["status"]["conditions"])
        found = await world.client.call(Request("GET", "/apis/jobset.x-k8s.io/v1alpha2"))
        assert [one["name"] for one in found["resources"]] == ["jobsets", "jobsets/status"]

    tell(story)


def test_kubectl_prints_how_the_set_is() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", run_time="5s"), suspend=False)
        await world.wait(20)
        crd = definition()
        kind = CustomKind(crd, crd["spec"]["versions"][0])
        names = [column.name for column in kind.columns]
        assert names == ["Name", "TerminalState", "Restarts", "Completed", "Suspended", "Age"]
        cells = kind.cells(await world.jobset(), world.clock.time())
        assert [str(cell) for cell in cells] == ["js", "Completed", "0", "True", "false", "20s"]

    tell(story)


def rule(**fields: Any) -> Object:
    return {"failurePolicy": {"maxRestarts": 1, "rules": [{"action": "FailJobSet", **fields}]}}


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (jobset(replicated("a"), name="j" * 62), "spec.replicatedJobs[0]"),
        (jobset(replicated("a", pods=2), name="j" * 52), "spec.replicatedJobs[0]"),
        (jobset(replicated("a"), name="1st"), "spec.replicatedJobs[0]"),
        (jobset(replicated("a", 2**20, 2**12)), "spec.replicatedJobs[0].replicas"),
        (jobset(replicated("a", -1)), "spec.replicatedJobs[0].replicas"),
        (jobset(replicated("a"), replicated("a")), "spec.replicatedJobs[1]"),
        (jobset(replicated("a"), network={"subdomain": "no_label"}), "spec.network.subdomain"),
        (
            jobset(replicated("a"), successPolicy={"operator": "All", "targetReplicatedJobs": ["x"]}),
            "spec.successPolicy.targetReplicatedJobs[0]",
        ),
        (jobset(replicated("a"), successPolicy={"operator": "Some"}), "spec.successPolicy.operator"),
        (jobset(replicated("a"), **rule(name="0")), "spec.failurePolicy.rules[0].name"),
        (jobset(replicated("a"), **rule(name="a" * 129)), "spec.failurePolicy.rules[0].name"),
        (jobset(replicated("a"), **rule(name="a:")), "spec.failurePolicy.rules[0].name"),
        (
            jobset(replicated("a"), **rule(onJobFailureReasons=["Because"])),
            "spec.failurePolicy.rules[0].onJobFailureReasons[0]",
        ),
        (
            jobset(replicated("a"), **rule(onJobFailureMessagePatterns=["("])),
            "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[0]",
        ),
        (
            jobset(replicated("a"), **rule(onJobFailureMessagePatterns=["a", "(?!x)"])),
            "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[1]",
        ),
        (
            jobset(replicated("a"), **rule(onJobFailureMessagePatterns=["a{900}", "b{900}", "c{900}"])),
            "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[2]",
        ),
        (
            jobset(replicated("a"), **rule(targetReplicatedJobs=["x"])),
            "spec.failurePolicy.rules[0].targetReplicatedJobs[0]",
        ),
        (
            jobset(replicated("a"), failurePolicy={"rules": [{"action": "RestartJob"}]}),
            "spec.failurePolicy.rules[0].action",
        ),
        (
            jobset(replicated("a"), failurePolicy={"restartStrategy": "InPlaceRestart"}),
            "spec.failurePolicy.restartStrategy",
        ),
        (jobset(replicated("a"), coordinator={"replicatedJob": "x"}), "spec.coordinator.replicatedJob"),
        (
            jobset(replicated("a"), coordinator={"replicatedJob": "a", "jobIndex": 1}),
            "spec.coordinator.jobIndex",
        ),
        (
            jobset(replicated("a"), coordinator={"replicatedJob": "a", "podIndex": 1}),
            "spec.coordinator.podIndex",
        ),
        (
            jobset(replicated("a", depends_on=[{"name": "a", "status": "Ready"}])),
            "spec.replicatedJobs[0].dependsOn",
        ),
        (
            jobset(replicated("a"), replicated("b", depends_on=[{"name": "c", "status": "Ready"}])),
            "spec.replicatedJobs[1].dependsOn[0].name",
        ),
        (
            jobset(
                replicated("a"),
                replicated("b", depends_on=[{"name": "a", "status": "Ready"}]),
                startupPolicy={"startupPolicyOrder": "InOrder"},
            ),
            "spec.replicatedJobs[1].dependsOn",
        ),
        (jobset(replicated("a"), managedBy="invalid"), "spec.managedBy"),
        (
            jobset(
                replicated("a"),
                volumeClaimPolicies=[{"templates": [{"metadata": {"name": "d"}, "spec": CLAIM}]}],
            ),
            "spec.volumeClaimPolicies[0].templates[0].metadata.name",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_field(obj: Object, field: str) -> None:
    async def story(world: World) -> None:
        found = await world.refused(obj)
        assert any(text.startswith(f"{field}:") for text in found), found

    tell(story)


def test_a_claim_that_exists_can_only_be_taken_over_by_a_set_that_keeps_it() -> None:
    async def story(world: World) -> None:
        present = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "d-js", "namespace": "default"},
            "spec": CLAIM,
        }
        await world.client.create(PERSISTENT_VOLUME_CLAIMS, present)
        one = replicated("a")
        pod = one["template"]["spec"]["template"]["spec"]
        pod["containers"][0]["volumeMounts"] = [{"name": "d", "mountPath": "/d"}]
        policy: Object = {"templates": [{"metadata": {"name": "d"}, "spec": CLAIM}]}
        (text,) = await world.refused(jobset(one, volumeClaimPolicies=[policy]))
        assert "this claim exists" in text
        policy["retentionPolicy"] = {"whenDeleted": "Retain"}
        await world.create(one, volumeClaimPolicies=[policy])
        await world.wait()
        assert await world.running() == 1

    tell(story)


def set_pod(path: tuple[str, ...], value: Any) -> Callable[[Object], None]:
    """Change the first replicated job's pod template."""

    def change(obj: Object) -> None:
        node = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = value

    return change


def set_spec(*path: Any, value: Any) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        node = obj["spec"]
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value

    return change


FREE_WHILE_SUSPENDED = [
    set_pod(("metadata", "labels", "x"), "y"),
    set_pod(("metadata", "annotations", "x"), "y"),
    set_pod(("spec", "nodeSelector"), {"x": "y"}),
    set_pod(("spec", "tolerations"), [{"key": "x", "operator": "Exists"}]),
    set_pod(("spec", "schedulingGates"), [{"name": "acme.io/x"}]),
]
ALWAYS_FREE = [
    set_spec("suspend", value=True),
    set_spec("ttlSecondsAfterFinished", value=10),
    set_spec("coordinator", value={"replicatedJob": "b"}),
    # Clients in Go send a struct that is empty.
    set_spec("replicatedJobs", 0, "template", "metadata", value={}),
]
NEVER_FREE = [
    set_pod(("spec", "priorityClassName"), "x"),
    set_pod(("spec", "containers"), [{"name": "main", "image": "other"}]),
    set_spec("replicatedJobs", 0, "replicas", value=3),
    set_spec("replicatedJobs", 1, "template", "spec", "parallelism", value=1),
    set_spec("replicatedJobs", value=[]),
    set_spec("network", value={"enableDNSHostnames": False}),
    set_spec("successPolicy", value={"operator": "Any"}),
    set_spec("failurePolicy", value={"maxRestarts": 3}),
    set_spec("startupPolicy", value={"startupPolicyOrder": "InOrder"}),
    set_spec("managedBy", value="acme.io/x"),
]


async def accepted(world: World, change: Callable[[Object], None]) -> bool:
    wanted = copy.deepcopy(await world.jobset())
    change(wanted)
    try:
        await world.client.update(JOB_SETS, wanted, dry_run=True)
    except ApiError as error:
        if error.code == 422 and "immutable" in error.message:
            return False
        raise
    return True


@pytest.mark.parametrize("suspended", [False, True])
def test_what_may_change_depends_on_being_suspended(suspended: bool) -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a"), replicated("b", 2, 3), suspend=suspended)
        await world.wait()
        for change in FREE_WHILE_SUSPENDED:
            assert await accepted(world, change) is suspended
        for change in ALWAYS_FREE:
            assert await accepted(world, change)
        for change in NEVER_FREE:
            assert not await accepted(world, change)

    tell(story)


def test_templates_may_change_with_the_write_that_suspends() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a"))
        await world.wait()

        def change(obj: Object) -> None:
            obj["spec"]["suspend"] = True
            set_pod(("spec", "nodeSelector"), {"x": "y"})(obj)

        assert await accepted(world, change)

    tell(story)


def test_unknown_fields_are_named_and_dropped() -> None:
    async def story(world: World) -> None:
        stored = await world.create({**replicated("a"), "replica": 3})
        assert "replica" not in stored["spec"]["replicatedJobs"][0]

    tell(story)


def test_a_generated_name_is_checked_with_what_will_be_added() -> None:
    async def story(world: World) -> None:
        obj = jobset(replicated("a"))
        obj["metadata"] = {"generateName": "j" * 55, "namespace": "default"}
        assert await world.refused(obj)
        obj["metadata"]["generateName"] = "short-"
        created = await world.client.create(JOB_SETS, obj)
        await world.wait()
        assert list(await world.jobs()) == [f"{created['metadata']['name']}-a-0"]

    tell(story)


def test_controllers_start_when_the_kind_appears() -> None:
    async def story(world: World) -> None:
        await world.client.delete(CRDS, "jobsets.jobset.x-k8s.io")
        await world.wait(60)
        await world.client.create(CRDS, definition())
        await world.wait(1)
        await world.create(replicated("a"))
        await world.wait(30)
        assert await world.running() == 1

    tell(story)
