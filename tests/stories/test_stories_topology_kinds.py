"""Jobs of every kind on topologies: each pod set in one rack, and its pods where their Workload puts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kinds_world import manifests
from stories_world import EXAMPLE, SIMULATION, Story, play
from topology_stories import BLOCK, RACK, D, domains_of, hosts, queues

from pykueue.api.resources import NODES, WORKLOADS

Object = dict[str, Any]

#: The label of the rank where each kind has one.
RANKS = {
    "kubeflow/pytorchjob": "training.kubeflow.org/replica-index",
    "kubeflow/tfjob": "training.kubeflow.org/replica-index",
    "kubeflow/xgboostjob": "training.kubeflow.org/replica-index",
    "kubeflow/paddlejob": "training.kubeflow.org/replica-index",
    "kubeflow/jaxjob": "training.kubeflow.org/replica-index",
    "mpi/mpijob": "training.kubeflow.org/replica-index",
    "trainjob/trainjob": "batch.kubernetes.io/job-completion-index",
    "ray/raycluster": "",
    "ray/rayjob": "",
    "appwrapper/appwrapper": "batch.kubernetes.io/job-completion-index",
    "leaderworkerset/leaderworkerset": "leaderworkerset.sigs.k8s.io/worker-index",
    "spark/sparkapplication": "",
}


def sample(name: str, **annotations: str) -> tuple[list[Object], Object]:
    """What an example needs, and its job in the queue `q`, with annotated templates; it runs for an hour."""
    *others, made = manifests(EXAMPLE.parent / f"{name}.yaml")
    made["metadata"]["labels"] = {f"{D}/queue-name": "q"}
    for metadata in [part for obj in (*others, made) for part in annotated_parts(obj)]:
        given = metadata.get("annotations") or {}
        lasting = {f"{SIMULATION}run-time": "1h"} if f"{SIMULATION}run-time" in given else {}
        metadata["annotations"] = {
            **given,
            **lasting,
            **{f"{D}/podset-{key}": value for key, value in annotations.items()},
        }
    return others, made


def annotated_parts(obj: Any) -> Iterator[Object]:
    """The metadata of the pod templates in an object; the driver and executor of a SparkApplication."""
    if isinstance(obj, list):
        for value in obj:
            yield from annotated_parts(value)
    elif isinstance(obj, dict) and "containers" in (obj.get("spec") or {}):
        yield obj.setdefault("metadata", {})
    elif isinstance(obj, dict):
        for key, value in list(obj.items()):
            if key in ("driver", "executor"):
                yield value
            else:
                yield from annotated_parts(value)


async def assignments(s: Story) -> dict[tuple[str, str], list[str]]:
    """The node of each pod by Workload and pod set, in the order of the assignment."""
    found = {}
    for workload in await s.all(WORKLOADS):
        for given in workload["status"].get("admission", {}).get("podSetAssignments", ()):
            key = (workload["metadata"]["name"], given["name"])
            found[key] = [domain.values[-1] for domain in domains_of(given) for _ in range(domain.pods)]
    return found


def test_each_pod_set_of_a_job_of_any_kind_runs_in_the_rack_it_was_assigned() -> None:
    async def story(s: Story) -> None:
        kinds = {}
        for name in RANKS:
            others, made = sample(name, **{"required-topology": RACK})
            kinds[made["kind"], made["metadata"]["name"]] = name
            await s.create(*others, made)
        await s.wait(90)
        wanted = await assignments(s)
        names = {
            key: kinds[owner["kind"], owner["name"]]
            for key in wanted
            for owner in (await s.get(WORKLOADS, key[0]))["metadata"]["ownerReferences"]
            if (owner["kind"], owner["name"]) in kinds
        }
        assert sorted(set(names.values())) == sorted(RANKS)
        racks = {node["metadata"]["name"]: node["metadata"]["labels"][RACK] for node in await s.all(NODES)}
        pods: dict[tuple[str, str], list[Object]] = {}
        for pod in await s.pods():
            owner = pod["metadata"]["annotations"][f"{D}/workload"]
            pods.setdefault((owner, pod["metadata"]["labels"][f"{D}/podset"]), []).append(pod)
        assert pods.keys() == wanted.keys()
        for key, domains in wanted.items():
            nodes = [pod["spec"].get("nodeName") for pod in pods[key]]
            assert Counter(nodes) == Counter(domains), key
            assert len({racks[node] for node in nodes}) == 1, key
            ranks = [pod["metadata"]["labels"].get(RANKS[names[key]]) for pod in pods[key]]
            if RANKS[names[key]] and None not in ranks:
                first = min(map(int, ranks))  # workers of a group may begin with 1
                for rank, node in zip(ranks, nodes, strict=True):
                    assert domains[int(rank) - first] == node, key

    play(story, nodes=hosts(racks=4, of=5, cpu=4), objects=queues(memory="1Ti"))


def test_leader_and_workers_of_a_group_of_pods_share_a_rack() -> None:
    async def story(s: Story) -> None:
        annotations = {"required-topology": RACK, "group-name": "g"}
        _, made = sample("leaderworkerset/leaderworkerset", **annotations)
        await s.create(made)
        await s.wait(60)
        racks = {node["metadata"]["name"]: node["metadata"]["labels"][RACK] for node in await s.all(NODES)}
        by_workload: dict[str, set[str]] = {}
        for (workload, _), nodes in (await assignments(s)).items():
            by_workload.setdefault(workload, set()).update(racks[node] for node in nodes)
        assert [len(found) for found in by_workload.values()] == [1, 1]
        assert await s.running() == 6

    play(story, nodes=hosts(racks=4, of=4, cpu=2), objects=queues(memory="1Ti"))


@pytest.mark.parametrize("name", ["kubeflow/pytorchjob", "mpi/mpijob"])
def test_worker_of_a_failed_node_runs_on_another_one_of_the_block(name: str) -> None:
    async def story(s: Story) -> None:
        others, made = sample(name, **{"required-topology": BLOCK})
        await s.create(*others, made)
        await s.wait(60)
        (key,) = (key for key in await assignments(s) if key[1] == "worker")
        before = (await assignments(s))[key]
        failed = before[0]
        await s.client.delete(NODES, failed, None)
        await s.wait(300)
        after = (await assignments(s))[key]
        assert failed not in after
        assert Counter(before) - Counter({failed: before.count(failed)}) <= Counter(after)
        workers = [pod for pod in await s.pods() if pod["metadata"]["labels"][f"{D}/podset"] == "worker"]
        live = [pod for pod in workers if pod["status"]["phase"] == "Running"]
        assert Counter(pod["spec"]["nodeName"] for pod in live) == Counter(after)
        assert not await s.condition(made["metadata"]["name"], "Evicted")

    play(story, nodes=hosts(racks=4, of=4, cpu=2), objects=queues(memory="1Ti"))


def test_workload_of_a_single_pod_keeps_its_node_and_does_not_return_to_its_queue_without_it() -> None:
    async def story(s: Story) -> None:
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}
        metadata = {
            "name": "alone",
            "namespace": "default",
            "labels": {f"{D}/queue-name": "q"},
            "annotations": {f"{D}/podset-required-topology": RACK, f"{SIMULATION}run-time": "2h"},
        }
        spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 30}
        await s.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await s.wait(20)
        ((node,),) = (await assignments(s)).values()
        seen: list[tuple[str, bool]] = []

        async def is_gone() -> bool:
            for nodes in (await assignments(s)).values():
                seen.append((*nodes, await s.reason("alone", "Requeued") == ("True", "NodeFailures")))
            return not await s.all(WORKLOADS)

        await s.client.delete(NODES, node, None)
        await s.until(is_gone)
        assert set(seen) <= {(node, False)}
        assert await s.used("q") == "0"

    play(story, nodes=hosts(), objects=queues())
