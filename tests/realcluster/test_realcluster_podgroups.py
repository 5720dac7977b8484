"""Groups of pods on a real API server: it takes their definitions, and the pod scheduler works on it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from realcluster_plane import INTERVAL, PATIENCE, Plane, until

from pykueue.clock import Clock
from pykueue.embedded.podgroups.definitions import DEFAULT_QUEUE, VOLCANO_POD_GROUPS, definitions
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.kube.client import Client
from pykueue.kube.config import load

Object = dict[str, Any]

NAMESPACE = "groups"
NODES = ("groups-0", "groups-1", "groups-2")


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def member(name: str, group: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"example.com/slot": "1"}}}
    container["resources"]["limits"] = container["resources"]["requests"]  # type: ignore[index]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"scheduling.k8s.io/group-name": group},
        },
        "spec": {
            "schedulerName": "volcano",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def group(name: str, least: int) -> Object:
    return {
        "apiVersion": VOLCANO_POD_GROUPS.api_version,
        "kind": VOLCANO_POD_GROUPS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": least},
    }


async def schedule(plane: Plane) -> list[Object]:
    """Let the scheduler work on the real server until one group is reported pending; returns all groups."""
    clock = Clock()
    transport = await load(plane.folder / "admin.kubeconfig")
    client = Client(transport, clock=clock)
    work = asyncio.create_task(PodScheduler(transport, clock, random.Random(1), names=["volcano"]).run())

    async def told() -> list[Object]:
        while True:
            groups = (await client.list(VOLCANO_POD_GROUPS, NAMESPACE)).items
            reasons = [one["reason"] for group in groups for one in conditions(group)]
            if "NotEnoughResources" in reasons:
                return groups
            await clock.sleep(INTERVAL)

    try:
        return await asyncio.wait_for(told(), PATIENCE)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await transport.close()
        # Connections under TLS take a moment to part.
        await clock.sleep(0.25)


def conditions(group: Object) -> list[Object]:
    return (group.get("status") or {}).get("conditions") or []


def test_of_two_groups_one_is_placed_whole_and_the_other_not_at_all(plane: Plane) -> None:
    kubectl = plane.kubectl
    kubectl.apply(*definitions())
    for one in definitions():
        name = one["metadata"]["name"]
        kubectl("wait", "--for=condition=Established", f"crd/{name}", f"--timeout={PATIENCE:g}s")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account = {"name": "default", "namespace": NAMESPACE}
    kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    until(lambda: kubectl.run("get", "podgroups.scheduling.volcano.sh").returncode == 0, "groups are served")
    kubectl.apply(DEFAULT_QUEUE, *map(node, NODES))
    room = '{"status": {"allocatable": {"example.com/slot": "1", "pods": "10"}}}'
    for name in NODES:
        kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", room)
    try:
        kubectl.apply(group("a", 2), group("b", 2))
        kubectl.apply(*(member(f"{name}-{number}", name) for number in (0, 1) for name in ("a", "b")))
        groups = asyncio.run(schedule(plane))
        pods = kubectl.list("pods", "-n", NAMESPACE)
        placed = [pod["metadata"]["name"][0] for pod in pods if pod["spec"].get("nodeName")]
        assert len(placed) == 2
        assert len(set(placed)) == 1
        waiting = [one["metadata"]["name"] for one in groups if "NotEnoughResources" in str(conditions(one))]
        assert {*waiting, *placed} == {"a", "b"}
    finally:
        kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
        kubectl("delete", "nodes", *NODES)
        kubectl("delete", "crd", *(one["metadata"]["name"] for one in definitions()))
