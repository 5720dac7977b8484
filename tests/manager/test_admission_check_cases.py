"""The worked cases of admission checks by number (docs/reference/admission-checks.md 21.1)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from checks_world import answer, assigned, change_queue, create_checks, quota, set_up, states, strategy
from manager_stack import Object, Stack, job, story

from pykueue.api.meta import parse_time
from pykueue.api.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, JOBS, WORKLOADS
from pykueue.manager.jobs.pod_set_info import pod_set_infos
from queue_manifests import cluster_queue, flavor, local_queue

ON_F2 = {"a": [], "b": ["f2"]}
TESTS = Path(__file__).parents[1]
REFERENCE = TESTS.parent / "docs/reference/admission-checks.md"
#: Where the worked cases are tested; those of ProvisioningRequests and MultiKueue in modules of their own.
MODULES = (
    "manager/test_admission_check_cases.py",
    "manager/test_provisioning.py",
    "manager/test_multikueue_cases.py",
    "manager/test_multikueue_quota.py",
    "stories/test_stories_autoscaler.py",
    "stories/test_stories_clusters.py",
)


def test_every_worked_case_of_the_reference_has_a_test_with_its_number() -> None:
    section = REFERENCE.read_text().partition("\n## 21. Worked cases")[2].partition("\n## ")[0]
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    text = "\n".join((TESTS / module).read_text() for module in MODULES)
    tested = {int(number) for number in re.findall(r"def test_(?:case_)?(\d+)_", text)}
    assert numbers == tested == set(range(1, 51))


def checked(test: Callable[[Stack], Awaitable[None]], configuration: str = "", **rules: list[str]) -> None:
    """Run a test with a ClusterQueue `cq` of the flavors f1 and f2, and with these checks."""

    async def life(s: Stack) -> None:
        await set_up(s, **rules)
        await test(s)

    story(life, configuration, queues=[])


async def start(s: Stack, name: str = "a", **more: object) -> None:
    await s.apply(job(name, **more))  # type: ignore[arg-type]
    await s.settle()


def test_case_01_pending_workload_lists_checks_of_all_flavors() -> None:
    async def test(s: Stack) -> None:
        await change_queue(s, stopPolicy="Hold")
        await start(s)
        assert await states(s) == {"a": "Pending"}

    checked(test, **ON_F2)


def test_case_02_workload_is_admitted_when_the_checks_of_its_flavor_are_ready() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        assert await assigned(s) == ["f1"]
        assert await states(s) == {"a": "Pending"}
        await answer(s, "a", a="Ready")
        assert (await s.conditions("a"))["Admitted"][0] == "True"

    checked(test, **ON_F2)


def test_case_03_requeued_workload_on_another_flavor_lists_its_checks() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await change_queue(s, **quota(f1=0, f2=10))
        await answer(s, "a", a="Retry")
        assert await assigned(s) == ["f2"]
        assert await states(s) == {"a": "Pending", "b": "Pending"}

    checked(test, **ON_F2)


def test_case_04_check_that_is_ready_before_the_reservation_admits_at_once() -> None:
    async def test(s: Stack) -> None:
        await change_queue(s, stopPolicy="Hold")
        await start(s)
        await answer(s, "a", a="Ready")
        await change_queue(s, stopPolicy="None")
        assert await assigned(s) == ["f1"]
        assert await states(s) == {"a": "Ready"}
        assert not await s.suspended("a")

    checked(test, **ON_F2)


async def add_check_to_running(s: Stack) -> None:
    await start(s)
    await s.run_job("a")
    await create_checks(s, "c")
    await change_queue(s, **strategy(c=[]))


def test_case_05_check_added_to_the_queue_of_a_running_workload_is_pending_only() -> None:
    async def test(s: Stack) -> None:
        await add_check_to_running(s)
        assert await states(s) == {"c": "Pending"}
        assert (await s.conditions("a"))["Admitted"][0] == "True"
        assert not await s.suspended("a")

    checked(test)


def test_case_06_check_added_to_a_running_workload_counts_after_its_eviction() -> None:
    async def test(s: Stack) -> None:
        await add_check_to_running(s)
        await change_queue(s, stopPolicy="HoldAndDrain")
        await s.stop_pods("a")
        await s.settle()
        await change_queue(s, stopPolicy="None")
        found = await s.conditions("a")
        assert (found["QuotaReserved"][0], found["Admitted"][0]) == ("True", "False")
        await answer(s, "a", c="Ready")
        assert not await s.suspended("a")

    checked(test)


def test_case_07_requeue_time_is_the_latest_of_all_retries() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        now = s.clock.time()
        early = {"state": "Retry", "requeueAfterSeconds": 60, "lastTransitionTime": s.now()}
        await s.clock.sleep(10)
        late = {"state": "Retry", "requeueAfterSeconds": 120, "lastTransitionTime": s.now()}
        await answer(s, "a", a=early, b=late)
        at = (await s.workload("a"))["status"]["requeueState"]["requeueAt"]
        assert parse_time(at) == int(now) + 130

    checked(test, a=[], b=[])


def test_case_08_retry_without_delay_requeues_at_once() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a="Retry")
        assert (await s.conditions("a"))["QuotaReserved"][0] == "True"
        (check,) = (await s.workload("a"))["status"]["admissionChecks"]
        assert (check["state"], check["retryCount"]) == ("Pending", 1)

    checked(test, a=[])


def test_case_09_rejected_wins_over_retry() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a="Retry", b="Rejected")
        assert (await s.workload("a"))["spec"]["active"] is False

    checked(test, a=[], b=[])


def test_case_10_retry_of_a_running_workload_evicts_it() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a="Ready")
        await s.run_job("a")
        await answer(s, "a", a={"state": "Retry", "requeueAfterSeconds": 60})
        assert (await s.conditions("a"))["Evicted"] == ("True", "AdmissionCheck")
        assert await s.suspended("a")

    checked(test, a=[])


def ready(**update: object) -> Object:
    """A check that is Ready and changes the pods."""
    return {"state": "Ready", "podSetUpdates": [{"name": "main", **update}]}


def test_case_11_updates_that_contradict_one_another_finish_the_workload() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a=ready(nodeSelector={"x": "1"}), b=ready(nodeSelector={"x": "2"}))
        assert (await s.conditions("a"))["Finished"] == ("True", "FailedToStart")

    checked(test, a=[], b=[])


def test_case_12_update_that_the_template_has_already_is_no_conflict() -> None:
    async def test(s: Stack) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {"restartPolicy": "Never", "containers": [container], "nodeSelector": {"x": "1"}}
        await start(s, template={"spec": spec})
        await answer(s, "a", a=ready(nodeSelector={"x": "1"}))
        assert not await s.suspended("a")
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"x": "1"}

    checked(test, a=[])


def test_case_13_toleration_with_the_default_operator_is_not_duplicated() -> None:
    async def test(s: Stack) -> None:
        toleration = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {"restartPolicy": "Never", "containers": [container], "tolerations": [toleration]}
        await start(s, template={"spec": spec})
        short = {key: value for key, value in toleration.items() if key != "operator"}
        await answer(s, "a", a=ready(tolerations=[short]))
        assert (await s.job("a"))["spec"]["template"]["spec"]["tolerations"] == [toleration]

    checked(test, a=[])


def test_case_14_of_flavors_that_set_one_label_the_last_counts() -> None:
    async def test(s: Stack) -> None:
        await s.apply([flavor("c", nodeLabels={"zone": "1"}), flavor("m", nodeLabels={"zone": "2"})])
        queue = cluster_queue("cq", {"c": {"cpu": 10}})
        amounts = [{"name": "memory", "nominalQuota": "10Gi"}]
        group = {"coveredResources": ["memory"], "flavors": [{"name": "m", "resources": amounts}]}
        queue["spec"]["resourceGroups"].append(group)
        await s.apply([queue, local_queue("lq", "cq")])
        requests = {"cpu": "1", "memory": "1Gi"}
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        await start(s, template={"spec": {"restartPolicy": "Never", "containers": [container]}})
        assert not await s.suspended("a")
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "2"}

    story(test, queues=[])


def test_case_15_update_of_one_pod_set_leaves_the_others() -> None:
    async def test(s: Stack) -> None:
        spec = job("x")["spec"]["template"]["spec"]
        pod_sets = [{"name": name, "count": 1, "template": {"spec": spec}} for name in ("driver", "worker")]
        await s.client.create(
            WORKLOADS,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": "w", "namespace": "default"},
                "spec": {"queueName": "lq", "podSets": pod_sets},
            },
        )
        await s.settle()
        update = {"name": "worker", "labels": {"x": "y"}}
        await answer(s, "w", a={"state": "Ready", "podSetUpdates": [update]})
        infos = pod_set_infos(await s.workload("w"), lambda name: {"metadata": {"name": name}}, False)
        assert ["x" in info.labels for info in infos] == [False, True]

    checked(test, a=[])


async def evict(s: Stack) -> None:
    """Evict the Workload of job `a` for a reason that has nothing to do with its checks."""
    name = (await s.workload("a"))["metadata"]["name"]
    await s.patch(WORKLOADS, name, {"spec": {"active": False}})
    await s.settle()
    await s.patch(WORKLOADS, name, {"spec": {"active": True}})
    await s.settle()


def test_case_16_eviction_keeps_the_retries_of_a_pending_check() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a="Retry")
        await answer(s, "a", a="Retry")
        await evict(s)
        (check,) = (await s.workload("a"))["status"]["admissionChecks"]
        assert (check["state"], check["retryCount"]) == ("Pending", 2)

    checked(test, a=[])


def test_case_17_eviction_forgets_the_retries_of_a_check_that_was_ready() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a="Retry")
        await answer(s, "a", a="Retry")
        await answer(s, "a", a=ready(labels={"x": "y"}))
        await evict(s)
        (check,) = (await s.workload("a"))["status"]["admissionChecks"]
        assert check["state"] == "Pending"
        assert not {"retryCount", "podSetUpdates"} & check.keys()

    checked(test, a=[])


def test_case_18_workload_that_waits_for_a_check_blocks_others_under_block_admission() -> None:
    async def test(s: Stack) -> None:
        await s.apply([cluster_queue("free", {"f1": {"cpu": 10}}), local_queue("free", "free")])
        await start(s)
        await start(s, "b", queue="free")
        await s.settle(20 * 60)
        assert await s.suspended("b")
        await answer(s, "a", a="Ready")
        await s.run_job("a")
        await s.settle()
        assert not await s.suspended("b")

    checked(test, "waitForPodsReady: {timeout: 1h, blockAdmission: true}", a=[])


def test_case_19_deleted_check_stays_until_no_queue_names_it() -> None:
    async def test(s: Stack) -> None:
        await s.delete(ADMISSION_CHECKS, "a")
        await s.settle()
        check = await s.get(ADMISSION_CHECKS, "a")
        assert check["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
        (condition,) = (await s.get(CLUSTER_QUEUES, "cq"))["status"]["conditions"]
        assert condition["status"] == "True"
        await s.patch(ADMISSION_CHECKS, "a", {"metadata": {"finalizers": None}})
        await s.settle()
        (condition,) = (await s.get(CLUSTER_QUEUES, "cq"))["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "AdmissionCheckNotFound")

    checked(test, a=[])


def test_case_20_reactivated_workload_starts_again_with_pending_checks() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        await answer(s, "a", a="Retry")
        await answer(s, "a", a="Rejected")
        workload = await s.workload("a")
        assert workload["spec"]["active"] is False
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}})
        await s.settle()
        found = await s.conditions("a")
        assert found["QuotaReserved"][0] == "True"
        assert found["Requeued"] == ("True", "Reactivated")
        (check,) = (await s.workload("a"))["status"]["admissionChecks"]
        assert check["state"] == "Pending"
        assert "retryCount" not in check

    checked(test, a=[])


# Section 5


def test_retry_of_a_workload_without_reservation_does_not_keep_it_from_its_queue() -> None:
    async def test(s: Stack) -> None:
        await change_queue(s, stopPolicy="Hold")
        await start(s)
        await answer(s, "a", a="Rejected")
        assert (await s.workload("a"))["spec"]["active"] is True
        await change_queue(s, stopPolicy="None")
        assert (await s.conditions("a"))["QuotaReserved"][0] == "True"
        assert await states(s) == {"a": "Pending"}

    checked(test, a=[])


def test_stopped_job_gets_its_template_back() -> None:
    async def test(s: Stack) -> None:
        await start(s)
        before = (await s.job("a"))["spec"]["template"]
        update = {"labels": {"l": "1"}, "annotations": {"n": "1"}, "nodeSelector": {"x": "1"}}
        await answer(s, "a", a=ready(**update, tolerations=[{"key": "k", "operator": "Exists"}]))
        template = (await s.job("a"))["spec"]["template"]
        assert template["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}]
        await answer(s, "a", a={"state": "Retry", "requeueAfterSeconds": 60})
        assert (await s.job("a"))["spec"]["template"] == before

    checked(test, a=[])


def test_gated_job_gets_no_quota_until_its_gate_is_removed() -> None:
    key = "kueue.x-k8s.io/admission-gated-by"

    async def test(s: Stack) -> None:
        await start(s, annotations={key: "example.com/approval,example.com/budget"})
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "AdmissionGated")
        await s.patch(JOBS, "a", {"metadata": {"annotations": {key: "example.com/budget"}}})
        await s.settle()
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "AdmissionGated")
        await s.patch(JOBS, "a", {"metadata": {"annotations": {key: None}}})
        await s.settle()
        assert not await s.suspended("a")

    checked(test)
