"""A world with nodes: racks and hosts, flavors with a topology, and where pods are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_world import World
from topology_notation import LEVELS, hosts_of

from pykueue.api import decode
from pykueue.api.kueue import V1BETA2
from pykueue.api.topologies import expand
from pykueue.engine import Options, Removed, Upsert


class NodeWorld(World):
    """A world whose flavor `f` has the topology `racks` of the given nodes."""

    def __init__(
        self, nodes: str, quota: Any = 100, levels: str = "RH", options: Options | None = None, **queue: Any
    ) -> None:
        super().__init__(options)
        self.topology("racks", levels)
        self.tas_flavor("f", "racks")
        for values, capacity in hosts_of(nodes):
            self.node(values, capacity, levels)
        self.queue("q", {"cpu": quota}, **queue)

    def topology(self, name: str, levels: str) -> None:
        spec = {"levels": [{"nodeLabel": LEVELS[each]} for each in levels]}
        self.apply({"apiVersion": V1BETA2, "kind": "Topology", "metadata": {"name": name}, "spec": spec})

    def tas_flavor(self, name: str, topology: str, **labels: str) -> None:
        spec = {"nodeLabels": labels or {"pool": "tas"}, "topologyName": topology}
        self.apply(
            {"apiVersion": V1BETA2, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}
        )

    def node(
        self, values: tuple[str, ...], capacity: Mapping[str, int], levels: str = "RH", **more: Any
    ) -> None:
        labels = {LEVELS[level]: value for level, value in zip(levels, values, strict=True)}
        ready = more.pop("ready", True)
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": values[-1], "labels": {"pool": "tas", **labels}},
                "spec": more,
                "status": {
                    "allocatable": {
                        **{resource: str(amount) for resource, amount in capacity.items()},
                        "cpu": f"{capacity['cpu']}m",
                    },
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                },
            }
        )

    def host(self, name: str, cpu: int, rack: str = "r1", **more: Any) -> None:
        """A host of a rack, with so many cpu."""
        self.node((rack, name), {"cpu": cpu * 1000, "pods": 110}, **more)

    def lose(self, name: str) -> None:
        """A node is gone."""
        self.driver.apply(Removed("Node", "", name))
        self.engine.check()

    def pod(self, name: str, node: str, cpu: int, ports: Sequence[Any] = (), **status: Any) -> None:
        """A pod that runs outside workloads."""
        containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}, "ports": list(ports)}]
        spec = {"nodeName": node, "containers": containers}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
            "status": status,
        }
        self.driver.apply(Upsert(decode(manifest)))
        self.engine.check()

    def placed(self, name: str, count: int, topology: Mapping[str, Any] | None = None, **more: Any) -> None:
        """A workload of `count` pods of one cpu, and `ports`, with a topologyRequest."""
        container = {
            "name": "c",
            "resources": {"requests": {"cpu": "1"}},
            "ports": list(more.pop("ports", ())),
        }
        template = {"spec": {"containers": [container]}}
        pods: dict[str, Any] = {"name": "main", "count": count, "template": template}
        if topology is not None:
            pods["topologyRequest"] = dict(topology)
        self.workload(name, more.pop("queue", "q"), 1, count=count, **more)
        manifest = self.workloads[name]
        self.put({**manifest, "spec": {**manifest["spec"], "podSets": [pods]}})

    def hosts_by_pod_set(self, name: str) -> dict[str, dict[str, int]]:
        """Pods by pod set and the last value of their domains."""
        admission = self.driver.workloads[self.key(name)].status.admission
        assert admission is not None
        return {
            given.name: {domain.values[-1]: domain.pods for domain in expand(given.topology_assignment)}
            for given in admission.pod_set_assignments
            if given.topology_assignment is not None
        }

    def hosts(self, name: str) -> dict[str, int]:
        """Pods by the last value of their domains."""
        by_pod_set = self.hosts_by_pod_set(name)
        return {host: pods for hosts in by_pod_set.values() for host, pods in hosts.items()}
