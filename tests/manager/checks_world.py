"""Two flavors and admission checks that tests answer in place of their controllers."""

from __future__ import annotations

from typing import Any

from manager_stack import Object, Stack

from pykueue.api.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, WORKLOADS
from queue_manifests import admission_check, cluster_queue, flavor, local_queue

FLAVORS = {"f1": {"cpu": 10}, "f2": {"cpu": 10}}


async def create_checks(s: Stack, *names: str) -> None:
    """Create checks that are active."""
    for name in names:
        await s.client.create(ADMISSION_CHECKS, admission_check(name, f"example.com/{name}"))
        active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
        active["lastTransitionTime"] = s.now()
        await s.patch(ADMISSION_CHECKS, name, {"status": {"conditions": [active]}}, "status")


async def set_up(s: Stack, **rules: list[str]) -> None:
    """Flavors f1 and f2, a ClusterQueue `cq` with these checks, each with its flavors; none: all flavors."""
    await create_checks(s, *rules)
    await s.apply([flavor("f1"), flavor("f2")])
    await s.apply([cluster_queue("cq", FLAVORS, **strategy(**rules)), local_queue("lq", "cq")])
    await s.settle()


def strategy(**rules: list[str]) -> Object:
    """Fields of a ClusterQueue's spec that name these checks."""
    found = [{"name": name, **({"onFlavors": on} if on else {})} for name, on in rules.items()]
    return {"admissionChecksStrategy": {"admissionChecks": found} if found else None}


async def change_queue(s: Stack, **spec: Any) -> None:
    await s.patch(CLUSTER_QUEUES, "cq", {"spec": spec})
    await s.settle()


def quota(**cpu: int) -> Object:
    """Fields of a ClusterQueue's spec: flavors with so many cpu."""
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": count}]} for name, count in cpu.items()
    ]
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}


async def answer(s: Stack, job: str, **answers: str | Object) -> None:
    """Write the states of checks of a job's Workload: a state, or fields."""
    workload = await s.workload(job)
    states = []
    for one in workload["status"]["admissionChecks"]:
        given = answers.get(one["name"])
        if given is not None:
            fields = {"state": given} if isinstance(given, str) else given
            one = {**one, "message": "", "lastTransitionTime": s.now(), **fields}
        states.append(one)
    change = {"status": {"admissionChecks": states}}
    await s.patch(WORKLOADS, workload["metadata"]["name"], change, "status")
    await s.settle()


def activity(obj: Object) -> tuple[str, str, str]:
    """Status, reason and message of the condition Active, the only one of the object."""
    (found,) = obj["status"]["conditions"]
    return found["status"], found["reason"], found["message"]


async def states(s: Stack, job: str = "a") -> dict[str, str]:
    """The checks that a job's Workload lists, with their states."""
    status = (await s.workload(job)).get("status") or {}
    return {one["name"]: one["state"] for one in status.get("admissionChecks") or ()}


async def assigned(s: Stack, job: str = "a") -> list[str]:
    """The flavors of a job's pod sets."""
    admission = (await s.workload(job))["status"]["admission"]
    return [one["flavors"]["cpu"] for one in admission["podSetAssignments"]]
