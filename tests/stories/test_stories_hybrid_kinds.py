"""Jobs of other kinds that are split over flavors: each pod runs on the nodes of its part."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from kinds_world import manifests
from stories_world import EXAMPLE, SIMULATION, Story, play
from test_stories_topology_kinds import annotated_parts

from pykueue.api.hybrid import parts_in
from pykueue.api.kueue.names import (
    FLAVOR_LABEL,
    HYBRID_ASSIGNMENT_ANNOTATION,
    HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION,
    POD_SET_LABEL,
    WORKLOAD_ANNOTATION,
)
from pykueue.api.resources import WORKLOADS
from pykueue.embedded.nodes.pool import NodePool
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]
#: The first pod of each pod set on a reserved node, all others on spot nodes.
REQUEST = json.dumps({"flavors": [{"name": "reserved", "max": 1}, {"name": "spot"}]})
KINDS = (
    "kubeflow/pytorchjob",
    "kubeflow/tfjob",
    "kubeflow/xgboostjob",
    "kubeflow/paddlejob",
    "kubeflow/jaxjob",
    "mpi/mpijob",
    "trainjob/trainjob",
    "ray/raycluster",
    "ray/rayjob",
    "appwrapper/appwrapper",
    "spark/sparkapplication",
)


def split_sample(name: str) -> tuple[list[Object], Object]:
    """What an example needs, and its job in the queue `q`, with requests for flavors; it runs for an hour."""
    *others, made = manifests(EXAMPLE.parent / f"{name}.yaml")
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    for metadata in [part for obj in (*others, made) for part in annotated_parts(obj)]:
        given = metadata.get("annotations") or {}
        lasting = {f"{SIMULATION}run-time": "1h"} if f"{SIMULATION}run-time" in given else {}
        metadata["annotations"] = {**given, **lasting, HYBRID_ASSIGNMENT_ANNOTATION: REQUEST}
    return others, made


def world() -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "256Gi", "pods": "110"}
    pools = [
        NodePool(name=name, count=4, allocatable=amounts, labels={"capacity": name})
        for name in ("reserved", "spot")
    ]
    quota = {name: {"cpu": 60, "memory": "1Ti"} for name in ("reserved", "spot")}
    queue = cluster_queue("q", quota)
    queue["metadata"]["annotations"] = {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"}
    flavors = [flavor(name, nodeLabels={"capacity": name}) for name in ("reserved", "spot")]
    return {"nodes": pools, "objects": [*flavors, queue, local_queue("q"), priority("high", 10)]}


@pytest.mark.parametrize("name", KINDS)
def test_first_pod_of_each_pod_set_is_reserved_and_the_others_are_on_spot_nodes(name: str) -> None:
    async def story(s: Story) -> None:
        others, made = split_sample(name)
        await s.create(*others, made)
        await s.wait(90)
        expected: dict[tuple[str, str], Counter[str]] = {}
        for workload in await s.all(WORKLOADS):
            for given in workload["status"]["admission"]["podSetAssignments"]:
                key = workload["metadata"]["name"], given["name"]
                parts = {part.flavor: part.pods for part in parts_in(given)} or {"reserved": given["count"]}
                assert parts["reserved"] == 1, key
                expected[key] = Counter(parts)
        assert any(len(parts) == 2 for parts in expected.values())
        pods: dict[tuple[str, str], Counter[str]] = {}
        for pod in await s.pods():
            owner = pod["metadata"]["annotations"][WORKLOAD_ANNOTATION]
            key = owner, pod["metadata"]["labels"][POD_SET_LABEL]
            node = pod["spec"]["nodeName"].partition("-")[0]
            assert pod["metadata"]["labels"].get(FLAVOR_LABEL, "reserved") == node
            pods.setdefault(key, Counter())[node] += 1
        assert pods == expected

    play(story, **world())


@pytest.mark.parametrize("name", ["leaderworkerset/leaderworkerset"])
def test_kinds_whose_pods_are_queued_themselves_are_refused(name: str) -> None:
    async def story(s: Story) -> None:
        others, made = split_sample(name)
        with pytest.raises(ApiError, match="pods that are queued themselves cannot be split over flavors"):
            await s.create(*others, made)

    play(story, **world())
