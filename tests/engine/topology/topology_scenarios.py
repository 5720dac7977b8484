"""Random clusters with topologies, and what happens to them, checked after every cycle.

A scenario is a function of its seed. `Scenario(seed).run()` gives what went wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import topology_checker as checker
from engine_world import START
from topology_checker import Assigned, Flavor, Host, Role

from pykueue.api import decode, encode
from pykueue.api.kueue import V1BETA2
from pykueue.api.kueue.names import WORKLOAD_SLICE_REPLACEMENT_ANNOTATION
from pykueue.api.meta import format_time
from pykueue.api.topologies import HOSTNAME
from pykueue.engine import Admit, Assign, Options, Removed, Upsert
from pykueue.engine.driver import Driver
from pykueue.engine.dump import dump, load

Object = dict[str, Any]

#: Gates that change placement, by how often they are on in a scenario.
GATES: Mapping[str, float] = {
    "TASBalancedPlacement": 0.4,
    "TASProfileMixed": 0.8,
    "TASMultiLayerTopology": 0.9,
    "TASHandleOverlappingFlavors": 0.8,
    "TASRecomputeAssignmentWithinSchedulingCycle": 0.8,
    "TASFailedNodeReplacement": 0.9,
    "TASFailedNodeReplacementFailFast": 0.6,
    "TASRespectNodeAffinityPreferred": 0.3,
    "ElasticJobsViaWorkloadSlicesWithTAS": 0.5,
    "SchedulingEquivalenceHashing": 0.8,
    "FlavorFungibility": 0.9,
}
LEVELS: Sequence[tuple[str, ...]] = (
    ("rack", HOSTNAME),
    ("block", "rack", HOSTNAME),
    (HOSTNAME,),
    ("block", "rack"),
    ("rack",),
)
LEVEL_WEIGHTS = (5, 5, 2, 1, 1)


class Scenario:
    """One cluster, from its seed."""

    def __init__(self, seed: int, steps: int = 30) -> None:
        self.seed = seed
        self.steps = steps
        self.random = random = Random(seed)
        self.gates = {gate: random.random() < often for gate, often in GATES.items()}
        options = Options(gates=self.gates, fair_sharing=random.random() < 0.3)
        self.driver = Driver(options, START, release="manual")
        #: Nodes have much room, and fail more often: most of what they lose can be replaced.
        self._roomy = random.random() < 0.3
        self.hosts: dict[str, Host] = {}
        self.flavors: dict[str, Flavor] = {}
        self.roles: dict[str, list[Role]] = {}
        #: What decided about a placement when it was made: by (workload, domain).
        self._seen: dict[tuple[str, tuple[str, ...]], object] = {}
        #: What pods outside workloads use, by pod: (host, amounts).
        self.pods: dict[str, tuple[str, Mapping[str, int]]] = {}
        self.tolerant: set[str] = set()
        self._topologies: dict[str, tuple[str, ...]] = {}
        self._topology_of: dict[str, str] = {}
        self.queue_specs: dict[str, Object] = {}
        self.errors: list[str] = []
        #: Slices of elastic jobs that replace others: their pods may be where new ones would not go.
        self.scaled: set[str] = set()
        #: Workloads decided for, by the name of the decision.
        self.decided: Counter[str] = Counter()
        self._serial = 0
        self._build()

    # --- objects ----------------------------------------------------------------------------------------

    def apply(self, manifest: Object) -> None:
        self.driver.apply(Upsert(decode(manifest)))

    def kueue(self, kind: str, name: str, spec: Object, **metadata: Any) -> None:
        self.apply(
            {
                "apiVersion": V1BETA2,
                "kind": kind,
                "metadata": {"name": name, "uid": name, **metadata},
                "spec": spec,
            }
        )

    def _build(self) -> None:
        random = self.random
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        for number in range(random.choice((1, 1, 2))):
            self._put_topology(f"t{number}", random.choices(LEVELS, LEVEL_WEIGHTS)[0])
        for number in range(random.choice((1, 1, 2, 2, 3))):
            name = f"f{number}"
            topology = self._topology_of[name] = random.choice(sorted(self._topologies))
            labels = random.choice(({"pool": "tas"}, {"pool": "tas", "half": str(number % 2)}))
            if random.random() < 0.2:
                self.tolerant.add(name)
            self.flavors[name] = Flavor(labels, self._topologies[topology])
            self._put_flavor(name)
        for number in range(random.randint(6 if self._roomy else 2, 9)):
            self._host(f"h{number}")
        for number in range(random.choice((1, 2, 2, 3))):
            self._queue(f"q{number}")

    def _put_topology(self, name: str, levels: tuple[str, ...]) -> None:
        self._topologies[name] = levels
        self.kueue("Topology", name, {"levels": [{"nodeLabel": level} for level in levels]})

    def _put_flavor(self, name: str) -> None:
        labels = dict(self.flavors[name].labels)
        spec: Object = {"nodeLabels": labels, "topologyName": self._topology_of[name]}
        if name in self.tolerant:
            spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        self.kueue("ResourceFlavor", name, spec)

    def _queue(self, name: str) -> None:
        random = self.random
        flavors = random.sample(sorted(self.flavors), random.randint(1, len(self.flavors)))
        quota = {"cpu": random.randint(3, 40), "gpu": random.randint(2, 30)}
        policies = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
        spec: Object = {
            "namespaceSelector": {},
            "queueingStrategy": random.choice(("StrictFIFO", "BestEffortFIFO", "BestEffortFIFO")),
            "resourceGroups": [
                {
                    "coveredResources": sorted(quota),
                    "flavors": [
                        {
                            "name": flavor,
                            "resources": [
                                {"name": resource, "nominalQuota": str(amount)}
                                for resource, amount in sorted(quota.items())
                            ],
                        }
                        for flavor in flavors
                    ],
                }
            ],
            "preemption": {
                "withinClusterQueue": random.choice(policies),
                "reclaimWithinCohort": random.choice(("Never", "Any", "LowerPriority")),
            },
        }
        if random.random() < 0.6:
            spec["cohortName"] = random.choice(("one", "two"))
        self.queue_specs[name] = spec
        self.kueue("ClusterQueue", name, spec)
        self.kueue("LocalQueue", name, {"clusterQueue": name}, namespace="default")

    def _host(self, name: str) -> None:
        random = self.random
        labels = {"pool": "tas", HOSTNAME: name, "zone": random.choice("ab"), "half": random.choice("01")}
        if random.random() < 0.97:
            labels |= {"block": random.choice(("b1", "b2")), "rack": random.choice(("r1", "r2", "r3"))}
        allocatable = {
            "cpu": random.choice((8, 10, 12) if self._roomy else (0, 2, 3, 4, 6, 8, 10)),
            "pods": random.choice((3, 6, 110, 110)),
        }
        if random.random() < 0.7:
            allocatable["gpu"] = random.randint(1, 8)
        usable = random.random() < 0.93
        taint = "gpu" if random.random() < 0.1 else ""
        cordoned = not usable and random.random() < 0.5
        self.hosts[name] = Host(labels, allocatable, usable, taint)
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    "unschedulable": cordoned,
                    "taints": [{"key": taint, "effect": "NoSchedule"}] if taint else [],
                },
                "status": {
                    "allocatable": {resource: str(amount) for resource, amount in allocatable.items()},
                    "conditions": [{"type": "Ready", "status": "True" if usable or cordoned else "False"}],
                },
            }
        )

    def _outside_pod(self) -> None:
        random = self.random
        name, host = f"d{random.randint(0, 4)}", f"h{random.randint(0, 8)}"
        amounts = {"cpu": random.randint(0, 2)}
        done = random.random() < 0.3
        if name in self.pods:
            host = self.pods[name][0]
        self.pods[name] = (host, {} if done else {**amounts, "pods": 1})
        requests = {resource: str(amount) for resource, amount in amounts.items()}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "nodeName": host,
                    "containers": [{"name": "c", "resources": {"requests": requests}}],
                },
                "status": {"phase": "Succeeded" if done else "Running"},
            }
        )

    # --- workloads --------------------------------------------------------------------------------------

    def request(self, flavor: Flavor) -> Object:
        """A topologyRequest with levels of a flavor; empty: none."""
        random = self.random
        levels = flavor.levels
        kind = random.choice(
            ("none", "required", "required", "preferred", "preferred", "unconstrained", "slices")
        )
        if kind == "none":
            return {}
        if kind == "unconstrained":
            return {"unconstrained": True}
        at = random.randrange(len(levels))
        found: Object = {kind: levels[at]} if kind != "slices" else {}
        if kind == "slices" or random.random() < 0.4:
            first = random.randrange(at if kind != "slices" else 0, len(levels))
            size = random.choice((1, 2, 2, 3, 4, 6))
            layers = [(levels[first], size)]
            if random.random() < 0.4:
                for level in levels[first + 1 :]:
                    divisors = [each for each in range(1, size + 1) if size % each == 0]
                    if random.random() < 0.7:
                        size = random.choice(divisors)
                        layers.append((level, size))
            if len(layers) > 1 and self.gates["TASMultiLayerTopology"]:
                found["podsetSliceRequiredTopologyConstraints"] = [
                    {"topology": level, "size": size} for level, size in layers
                ]
            else:
                level, size = layers[0]
                found |= {"podSetSliceRequiredTopology": level, "podSetSliceSize": size}
        return found

    def role(self, name: str, request: Object) -> Role:
        random = self.random
        amounts = {"cpu": random.choice((0, 1, 1, 1, 2, 3))}
        if random.random() < 0.3:
            amounts["gpu"] = random.choice((1, 1, 2))
        tolerates, zone = random.random() < 0.3, random.choice(("", "", "", "a"))
        return Role(name, random.choice((1, 1, 2, 2, 3, 4, 4, 6, 8)), amounts, request, tolerates, zone)

    def add_workload(self) -> str:
        random = self.random
        roles = []
        if random.random() < 0.25:
            level = random.choice(self.flavors[random.choice(sorted(self.flavors))].levels)
            request = {random.choice(("required", "preferred")): level, "podSetGroupName": "g"}
            leader, workers = self.role("leader", request)._replace(count=1), self.role("workers", request)
            roles = [leader, workers] if random.random() < 0.5 else [workers, leader]
        for number in range(random.choice((1, 1, 1, 2)) if not roles else random.choice((0, 0, 0, 1))):
            roles.append(
                self.role(f"p{number}", self.request(self.flavors[random.choice(sorted(self.flavors))]))
            )
        return self.put_workload(roles, random.choice(sorted(self.queue_specs)))

    def _scale_one(self) -> None:
        """A slice of another size is to replace a workload; its pods are of the same templates."""
        names = sorted(self._holding())
        if not names:
            return
        old = self.random.choice(names)
        roles = [role._replace(count=self.random.randint(1, 8)) for role in self.roles[old]]
        if any(role.group for role in roles):
            return
        self.scaled.add(self.put_workload(roles, self._holding()[old].spec.queue_name, False, old))

    def put_workload(self, roles: list[Role], queue: str, min_counts: bool = True, replaces: str = "") -> str:
        self._serial += 1
        name = f"w{self._serial}"
        self.roles[name] = roles
        self.apply(
            {
                "apiVersion": V1BETA2,
                "kind": "Workload",
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": name,
                    "creationTimestamp": format_time(START + self._serial),
                    "annotations": {WORKLOAD_SLICE_REPLACEMENT_ANNOTATION: f"default/{replaces}"}
                    if replaces
                    else {},
                },
                "spec": {
                    "queueName": queue,
                    "priority": self.random.choice((0, 0, 1, 2)),
                    "podSets": [self._pod_set(role, min_counts) for role in roles],
                },
            }
        )
        return name

    def _pod_set(self, role: Role, min_counts: bool) -> Object:
        random = self.random
        requests = {resource: str(amount) for resource, amount in role.amounts.items() if amount}
        spec: Object = {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        }
        if role.tolerates:
            spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        if role.zone:
            spec["nodeSelector"] = {"zone": role.zone}
        if random.random() < 0.3:
            term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
            spec["affinity"] = {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]
                }
            }
        found: Object = {"name": role.name, "count": role.count, "template": {"spec": spec}}
        if role.request:
            found["topologyRequest"] = dict(role.request)
        if min_counts and random.random() < 0.1:
            found["minCount"] = random.randint(1, role.count)
        return found

    # --- what happens -----------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """Runs to the end; returns what went wrong."""
        for _ in range(self.steps):
            self.step()
            if self.errors:
                return self.errors
        for _ in range(4):
            self.cycle()
        return self.errors

    def step(self) -> None:
        random = self.random
        draw = random.random()
        if draw < 0.4:
            self.add_workload()
        elif draw < 0.47:
            self._end_one()
        elif draw < 0.55:
            self._host(f"h{random.randint(0, 8)}")
        elif draw < (0.7 if self._roomy else 0.62):
            self._lose(f"h{random.randint(0, 8)}")
        elif draw < 0.72:
            self._outside_pod()
        elif draw < 0.73:
            self._change_flavor()
        elif draw < 0.75:
            self._scale_one()
        elif draw < 0.76:
            self._change_levels()
        else:
            self.cycle()

    def _end_one(self) -> None:
        names = sorted(self.driver.workloads)
        if names:
            key = self.random.choice(names)
            self.driver.apply(Removed("Workload", *key.split("/")))

    def _lose(self, host: str) -> None:
        """A node disappears, or only fails; its workloads list it as unhealthy, some only later."""
        if self.hosts.pop(host, None) is None:
            return
        self.driver.apply(Removed("Node", "", host))
        for _, workload in sorted(self._holding().items()):
            if any(each.values == (host,) for each in checker.assignments(workload, self.flavors)):
                listed = [*(node.name for node in workload.status.unhealthy_nodes), host]
                manifest = {"apiVersion": V1BETA2, "kind": "Workload", **encode(workload)}
                status = {**manifest["status"], "unhealthyNodes": [{"name": each} for each in listed]}
                self.apply({**manifest, "status": status})

    def _change_flavor(self) -> None:
        """A flavor selects other nodes; workloads that hold its quota stay where they are."""
        name = self.random.choice(sorted(self.flavors))
        labels = self.random.choice(({"pool": "tas"}, {"pool": "tas", "half": self.random.choice("01")}))
        self.flavors[name] = self.flavors[name]._replace(labels=labels)
        self._put_flavor(name)

    def _change_levels(self) -> None:
        """A topology of hosts gets other levels above them, all others cannot change."""
        name = self.random.choice(sorted(self._topologies))
        if self._topologies[name][-1] != HOSTNAME:
            return
        self._put_topology(name, self.random.choice([each for each in LEVELS if each[-1] == HOSTNAME]))
        for key, topology in self._topology_of.items():
            if topology == name:
                self.flavors[key] = self.flavors[key]._replace(levels=self._topologies[name])

    def _holding(self) -> dict[str, Any]:
        return {
            workload.metadata.name: workload
            for workload in self.driver.workloads.values()
            if workload.condition_is("QuotaReserved") and not workload.condition_is("Finished")
        }

    def cycle(self) -> None:
        """One cycle, carried out; evicted workloads give back what they hold, some of them later."""
        before = self.usage()
        old = self._holding()
        decisions = self._forked() if self.random.random() < 0.04 else self.driver.cycle()
        self.driver.engine.check()
        self.driver.carry_out()
        self.driver.engine.check()
        for decision in decisions:
            self.decided[type(decision).__name__] += 1
            name = decision.key.partition("/")[2]
            if isinstance(decision, Admit) and name not in self.scaled:
                self.check_admitted(name)
            elif isinstance(decision, Assign):
                self._check_replaced(name, old[name])
        self._check_room(before)
        for workload in list(self._holding().values()):
            if workload.condition_is("Evicted") and self.random.random() < 0.7:
                self.driver.release(workload.metadata.key)
        self.driver.advance(self.driver.now + 1)

    def _forked(self) -> list[Any]:
        """The decisions of a cycle that is tried in a fork first, and in an engine loaded from a dump."""
        engine = self.driver.engine
        document = dump(engine)
        items = document["items"]
        shuffled = [*items[:-1]]
        self.random.shuffle(shuffled)
        loaded = load({**document, "items": [*shuffled, items[-1]]})
        loaded.check()
        with engine.fork() as trial:
            tried = trial.cycle(self.driver.now)
        engine.check()
        if loaded.cycle(self.driver.now) != tried:
            self.error("an engine that got the objects in another order decides otherwise")
        decided = self.driver.cycle()
        if decided != tried:
            self.error("a fork left traces")
        return decided

    # --- checks -----------------------------------------------------------------------------------------

    def usage(self) -> dict[tuple[str, ...], Counter[str]]:
        amounts = {
            (name, role.name): checker.per_pod(role) for name, roles in self.roles.items() for role in roles
        }
        found: list[Assigned] = []
        for workload in self._holding().values():
            found += checker.assignments(workload, self.flavors)
        return checker.usage(found, amounts, not self.gates["TASHandleOverlappingFlavors"])

    def outside(self) -> dict[str, Counter[str]]:
        outside: dict[str, Counter[str]] = {}
        for host, amounts in self.pods.values():
            outside.setdefault(host, Counter()).update(amounts)
        return outside

    def _check_room(self, before: Mapping[tuple[str, ...], Counter[str]]) -> None:
        """No leaf got more than it has; what was there already may exceed a node that became smaller."""
        outside = self.outside()
        for key, used in self.usage().items():
            room = checker.room(key, self.flavors, self.hosts, outside)
            for resource, amount in used.items():
                if amount > max(room[resource], before.get(key, Counter())[resource]):
                    self.error(f"{key} has {room[resource]} {resource}, {amount} are used")

    def workload(self, name: str) -> Any:
        return self.driver.workloads[f"default/{name}"]

    def check_admitted(self, name: str) -> None:
        for error in checker.placement_errors(
            self.workload(name), self._roles(name), self.flavors, self.hosts
        ):
            self.error(f"{name}: {error}")

        for each in self.placed(name):
            self._seen[name, each.values] = self._labels(each)

    def _labels(self, each: Assigned) -> object:
        """What decides about a domain: its node and its flavor."""
        return self.hosts.get(each.values[-1]), self.flavors[each.flavor]

    def _roles(self, name: str) -> list[Role]:
        """Roles with the tolerations of the flavor they got, which a group has in common."""
        got: dict[str, str] = {each.role: each.flavor for each in self.placed(name)}
        return [
            role._replace(tolerates=role.tolerates or got.get(role.name) in self.tolerant)
            for role in self.roles[name]
        ]

    def _check_replaced(self, name: str, before: Any) -> None:
        """Only pods of failed nodes moved, and all of them have a domain."""
        old = list(checker.assignments(before, self.flavors))
        gone = {(node.name,) for node in before.status.unhealthy_nodes}
        new = Counter({(each.role, each.values): each.pods for each in self.placed(name)})
        for each in old:
            if each.values not in gone and new[each.role, each.values] < each.pods:
                self.error(f"{name}: pods of {each.role} left {each.values}, which did not fail")
        kept = [each for each in old if each.values not in gone]
        if all(self._seen.get((name, each.values)) == self._labels(each) for each in kept):
            # Otherwise nodes moved to other racks since, and what was together may be apart.
            self.check_admitted(name)
        moved = sum(each.pods for each in old) - sum(new.values())
        if moved:
            self.error(f"{name}: {moved} pods have no domain any more")

    def placed(self, name: str) -> Iterator[Assigned]:
        return checker.assignments(self.workload(name), self.flavors)

    def error(self, text: str) -> None:
        self.errors.append(f"seed {self.seed}: {text}")
