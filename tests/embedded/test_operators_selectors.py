"""The label selector of a kind's pods selects what its operator makes for a job, and nothing else."""

from __future__ import annotations

from operators_world import RESOURCES, Object, World, play
from test_operators_failures import create

from pykueue.api.jobkinds import DESCRIBED, LEADER_WORKER_SET, pod_selector
from pykueue.api.objects import controller_of
from pykueue.api.resources import JOB_SETS, JOBS, PODS

KINDS = {kind.resource.kind: kind for kind in (*DESCRIBED, LEADER_WORKER_SET)}
#: The pods that submit to a Ray cluster are no part of it.
NOT_SELECTED = {"RayJob": 1}


async def owned(world: World, root: Object) -> set[str]:
    """Names of the pods below a job, however many objects are between them."""
    resources = (PODS, JOBS, JOB_SETS, *RESOURCES.values())
    found = [(kind is PODS, one) for kind in resources for one in (await world.all(kind)).values()]
    owners = {one["metadata"]["uid"]: (controller_of(one) or {}).get("uid") for _, one in found}

    def is_below(uid: str | None) -> bool:
        return uid is not None and (uid == root["metadata"]["uid"] or is_below(owners.get(uid)))

    return {one["metadata"]["name"] for is_pod, one in found if is_pod and is_below(one["metadata"]["uid"])}


def test_selector_of_each_kind_selects_the_pods_of_the_job() -> None:
    async def story(world: World) -> None:
        jobs = await create(world)
        await world.wait(8)
        for made in jobs:
            job = await world.get(made)
            selector = pod_selector(job, KINDS[made["kind"]])
            assert selector, made["kind"]
            pods = (await world.client.list(PODS, "default", label_selector=selector)).items
            selected = {pod["metadata"]["name"] for pod in pods}
            below = await owned(world, job)
            assert selected <= below, made["kind"]
            assert len(below - selected) == NOT_SELECTED.get(made["kind"], 0), made["kind"]
            assert selected

    play(story)
