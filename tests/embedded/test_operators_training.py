"""Stand-in for the training operator (docs/reference/operators.md 2 and 3)."""

from __future__ import annotations

from typing import Any

import pytest
from operators_world import World, play, template

from pykueue.api.resources import CRDS, JOB_SETS, JOBS, PODS, SERVICES
from pykueue.embedded.jobset.definition import definition

Object = dict[str, Any]
JOB_LABEL, TYPE_LABEL, INDEX_LABEL = (
    f"training.kubeflow.org/{name}" for name in ("job-name", "replica-type", "replica-index")
)


def replicas(container: str, count: int = 1, policy: str = "", **program: str) -> Object:
    given = {"restartPolicy": policy} if policy else {}
    return {"replicas": count, **given, "template": template(container, **program)}


def pytorch(master: Object | None = None, worker: Object | None = None, **policy: Any) -> Object:
    roles = {"Master": master or replicas("pytorch")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "runPolicy": policy,
            "pytorchReplicaSpecs": {**roles, "Worker": worker or replicas("pytorch", 2)},
        },
    }


def of_kind(kind: str, field: str, **roles: Object) -> Object:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {field: roles},
    }


def test_pods_and_services_carry_names_labels_and_the_address_of_the_master() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch())
        await world.wait()
        pods = await world.pods()
        assert list(pods) == ["train-master-0", "train-worker-0", "train-worker-1"]
        worker = pods["train-worker-1"]
        labels = worker["metadata"]["labels"]
        assert (labels[JOB_LABEL], labels[TYPE_LABEL], labels[INDEX_LABEL]) == ("train", "worker", "1")
        assert worker["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert worker["spec"]["restartPolicy"] == "OnFailure"
        env = {one["name"]: one["value"] for one in worker["spec"]["containers"][0]["env"]}
        assert (env["MASTER_ADDR"], env["WORLD_SIZE"], env["RANK"]) == ("train-master-0", "3", "2")
        services = await world.all(SERVICES)
        assert services["train-master-0"]["spec"]["clusterIP"] == "None"
        assert services["train-master-0"]["spec"]["selector"][TYPE_LABEL] == "master"
        assert pods["train-master-0"]["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"

    play(story)


def test_job_created_suspended_has_no_pods_and_starts_when_it_is_resumed() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch(suspend=True))
        await world.wait()
        assert await world.conditions(job) == [("Created", "True"), ("Suspended", "True")]
        assert "startTime" not in await world.status(job)
        assert not await world.pods()
        assert "train-master-0" not in await world.all(SERVICES)
        await world.patch(job, {"runPolicy": {"suspend": False}})
        await world.wait()
        expected = [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
        assert await world.conditions(job) == expected
        assert (await world.status(job))["replicaStatuses"]["Worker"]["active"] == 2

    play(story)


def test_suspended_job_counts_no_active_pods_while_they_terminate() -> None:
    async def story(world: World) -> None:
        slow = replicas("pytorch", 2, run_time="1h")
        slow["template"]["metadata"]["annotations"]["sim.pykueue.io/stop-delay"] = "20s"
        job = await world.create(pytorch(replicas("pytorch", run_time="1h"), slow))
        await world.wait()
        await world.patch(job, {"runPolicy": {"suspend": True}})
        await world.wait()
        statuses = (await world.status(job))["replicaStatuses"]
        assert [one["active"] for one in statuses.values()] == [0, 0]
        assert len(await world.all(PODS)) == 2
        assert not await world.pods()
        assert ("Running", "False") in await world.conditions(job)
        await world.wait(30)
        assert not await world.all(PODS)
        assert (await world.status(job))["replicaStatuses"]["Worker"]["active"] == 0

    play(story)


def test_end_of_the_master_is_the_end_of_the_job_and_workers_stay_unless_cleaned() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch(worker=replicas("pytorch", 2, run_time="1h")))
        await world.wait(40)
        assert (await world.conditions(job))[-1] == ("Succeeded", "True")
        assert (await world.status(job))["completionTime"]
        assert set((await world.phases()).values()) == {"Succeeded", "Running"}
        await world.patch(job, {"runPolicy": {"cleanPodPolicy": "Running"}})
        await world.wait()
        assert await world.phases() == {"train-master-0": "Succeeded"}

    play(story)


@pytest.mark.parametrize(("code", "condition"), [("130", "Restarting"), ("1", "Failed")])
def test_exit_code_decides_whether_a_pod_is_replaced(code: str, condition: str) -> None:
    async def story(world: World) -> None:
        worker = replicas("pytorch", 1, "ExitCode", exit_code=code, run_time="5s")
        job = await world.create(pytorch(replicas("pytorch", run_time="1h"), worker))
        await world.wait(1)
        before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
        await world.wait(9)
        found = await world.events(job)
        assert f"PyTorchJob{condition}" in found
        after = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
        assert (after["train-worker-0"] != before["train-worker-0"]) is (condition == "Restarting")
        assert "completionTime" not in await world.status(job)

    play(story)


def test_failed_pod_that_is_never_restarted_fails_the_job() -> None:
    async def story(world: World) -> None:
        worker = replicas("jax", 2, exit_code="1")
        job = await world.create(of_kind("JAXJob", "jaxReplicaSpecs", Worker=worker))
        await world.wait(40)
        assert (await world.conditions(job))[-2:] == [("Running", "False"), ("Failed", "True")]

    play(story)


def test_tensorflow_job_without_a_chief_ends_with_its_first_worker() -> None:
    async def story(world: World) -> None:
        roles = {"PS": replicas("tensorflow", run_time="1h"), "Worker": replicas("tensorflow", 2)}
        job = await world.create(of_kind("TFJob", "tfReplicaSpecs", **roles))
        await world.wait(40)
        assert ("Succeeded", "True") in await world.conditions(job)
        pod = (await world.pods())["train-ps-0"]
        assert '"ps": ["train-ps-0.default.svc:2222"]' in pod["spec"]["containers"][0]["env"][0]["value"]

    play(story)


@pytest.mark.parametrize(
    ("kind", "field", "container"),
    [("XGBoostJob", "xgbReplicaSpecs", "xgboost"), ("PaddleJob", "paddleReplicaSpecs", "paddle")],
)
def test_kinds_with_a_master_end_with_it(kind: str, field: str, container: str) -> None:
    async def story(world: World) -> None:
        worker = replicas(container, 2, run_time="1h")
        job = await world.create(of_kind(kind, field, Master=replicas(container), Worker=worker))
        await world.wait(10)
        assert ("Running", "True") in await world.conditions(job)
        await world.wait(30)
        assert ("Succeeded", "True") in await world.conditions(job)

    play(story)


def test_job_that_ends_is_deleted_after_its_time_to_live() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch(ttlSecondsAfterFinished=60))
        await world.wait(60)
        assert ("Succeeded", "True") in await world.conditions(job)
        await world.wait(60)
        assert not await world.all(PODS)

    play(story)


def test_deadline_fails_a_job() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch(activeDeadlineSeconds=10, cleanPodPolicy="All"))
        await world.wait(20)
        assert ("Failed", "True") in await world.conditions(job)
        assert not await world.pods()

    play(story)


def test_jobs_of_other_controllers_are_left_alone() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch(managedBy="kueue.x-k8s.io/multikueue"))
        await world.wait()
        assert not await world.status(job)
        assert not await world.pods()

    play(story)


def test_kinds_whose_definition_is_not_ours_are_left_to_their_operator() -> None:
    async def story(world: World) -> None:
        label = {"sim.pykueue.io/stand-in-operator": None}
        name = "pytorchjobs.kubeflow.org"
        await world.client.patch(CRDS, name, None, {"metadata": {"labels": label}})
        await world.wait(1)
        job = await world.create(pytorch())
        await world.wait()
        assert not await world.status(job)
        await world.restart()
        await world.wait()
        found = await world.client.get(CRDS, name)
        assert not found["metadata"].get("labels")
        assert not await world.status(job)
        label = {"sim.pykueue.io/stand-in-operator": "true"}  # type: ignore[dict-item]
        await world.client.patch(CRDS, name, None, {"metadata": {"labels": label}})
        await world.wait()
        assert len(await world.pods()) == 3

    play(story)


def test_restart_of_the_operator_neither_repeats_nor_loses_pods() -> None:
    async def story(world: World) -> None:
        job = await world.create(pytorch(replicas("pytorch", run_time="60s")))
        await world.wait(1)
        before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
        await world.restart()
        await world.wait()
        after = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
        assert after == before
        await world.wait(120)
        assert ("Succeeded", "True") in await world.conditions(job)

    play(story)


def test_kinds_that_are_not_chosen_are_not_served() -> None:
    async def story(world: World) -> None:
        names = {one["metadata"]["name"] for one in (await world.client.list(CRDS)).items}
        assert "tfjobs.kubeflow.org" in names
        assert "pytorchjobs.kubeflow.org" not in names

    play(story, job_kinds=("TFJob",))


def test_job_sets_that_are_not_chosen_are_left_to_their_own_operator() -> None:
    manifest = {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": "set", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template("main")}}}]},
    }

    async def story(world: World) -> None:
        assert await world.client.find(CRDS, "jobsets.jobset.x-k8s.io") is None
        assert world.cluster.server is not None
        await world.cluster.server.install_crds([definition()])
        await world.wait()
        await world.client.create(JOB_SETS, manifest)
        await world.wait(60)
        found = await world.client.get(JOB_SETS, "set", "default")
        assert "status" not in found
        assert "successPolicy" not in found["spec"]
        assert not (await world.client.list(JOBS, "default")).items

    play(story, job_kinds=("TFJob",))


def test_job_sets_are_served_where_train_jobs_need_them() -> None:
    async def story(world: World) -> None:
        assert await world.client.find(CRDS, "jobsets.jobset.x-k8s.io") is not None

    play(story, job_kinds=("TrainJob",))
