"""Single units asked for on random clusters, and what brute force says of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import topology_checker as checker
from topology_checker import Flavor, Role
from topology_scenarios import Scenario

from pykueue.api.topologies import HOSTNAME
from pykueue.engine import Admit, Removed, Requeue
from pykueue.engine.explain.render import message


class Probes(Scenario):
    """A scenario that ends with workloads of one unit, one after the other."""

    def probe(self, times: int = 6) -> list[str]:
        """Asks for single units on the nodes as they are, and compares the answers with brute force."""
        for name, spec in self.queue_specs.items():
            self.kueue("ClusterQueue", name, {**spec, "stopPolicy": "Hold"})
        for _ in range(times):
            flavor = self.random.choice(sorted(self.flavors))
            quota = [{"name": each, "nominalQuota": "10000"} for each in ("cpu", "gpu")]
            group = {"coveredResources": ["cpu", "gpu"], "flavors": [{"name": flavor, "resources": quota}]}
            queue = f"probe-{flavor}"
            self.kueue("ClusterQueue", queue, {"namespaceSelector": {}, "resourceGroups": [group]})
            self.kueue("LocalQueue", queue, {"clusterQueue": queue}, namespace="default")
            self._probe(queue, flavor)
            if self.errors:
                break
        return self.errors

    def _probe(self, queue: str, flavor_name: str) -> None:
        flavor = self.flavors[flavor_name]
        request = self.request(flavor) or {"unconstrained": True}
        role = self.role("p", request)
        role = role._replace(amounts={**role.amounts, "cpu": max(role.amounts["cpu"], 1)})
        roles = [role]
        if (
            not role.layers
            and ("required" in request or "preferred" in request)
            and self.random.random() < 0.4
        ):
            request = {**request, "podSetGroupName": "g"}
            # Of two pod sets of the same size the first would be the workers.
            role = role._replace(request=request, count=max(role.count, 2))
            roles = [self.role("leader", request)._replace(count=1), role]
        name = self.put_workload(roles, queue, min_counts=False)
        usage, outside = self.usage(), self.outside()
        decision = next((each for each in self.driver.cycle() if each.key.endswith(f"/{name}")), None)
        self.driver.engine.check()
        self.driver.carry_out()
        self.driver.advance(self.driver.now + 1)
        if decision is None:
            self.error(f"{name} is not decided")
            return
        leader, worker = roles if len(roles) == 2 else (None, roles[0])
        expected = Expectation(self, flavor_name, worker, leader, usage, outside)
        if isinstance(decision, Admit):
            self.check_admitted(name)
            if not expected.feasible:
                self.error(f"{name} is admitted, there is no room")
            self._check_depth(name, flavor, expected)
            return
        assert isinstance(decision, Requeue), decision
        if expected.feasible:
            self.error(f"{name} waits: {message(decision)}; there is room")
        if (decision.reason == "TopologyPlacementFailed") == expected.feasible_if_empty:
            self.error(f"{name} waits with reason {decision.reason}: {message(decision)}")
        for problem in expected.untrue(message(decision)):
            self.error(f"{name} waits: {message(decision)}; {problem}")
        self.driver.apply(Removed("Workload", "default", name))

    def _check_depth(self, name: str, flavor: Flavor, expected: Expectation) -> None:
        """A workload without a required level is in the deepest domain that its request allows."""
        if self.gates["TASRespectNodeAffinityPreferred"] or (
            self.gates["TASBalancedPlacement"] and "preferred" in expected.worker.request
        ):
            return
        at = expected.deepest + 1
        domains = {checker.full_values(each, flavor, self.hosts)[:at] for each in self.placed(name)}
        if len(domains) > 1:
            self.error(f"{name} is in {sorted(domains)}, one domain of level {at - 1} holds it")


class Expectation:
    """What brute force says of one unit on one flavor."""

    def __init__(
        self,
        scenario: Scenario,
        flavor_name: str,
        worker: Role,
        leader: Role | None,
        usage: Mapping[tuple[str, ...], Counter[str]],
        outside: Mapping[str, Counter[str]],
    ) -> None:
        self.worker = worker
        flavor = scenario.flavors[flavor_name]
        role = worker._replace(tolerates=worker.tolerates or flavor_name in scenario.tolerant)
        self._units = worker.count // (worker.layers[0][1] if worker.layers else 1)
        self._flavor, self._leader = flavor, leader
        self._free: dict[tuple[str, ...], Counter[str]]
        empty: dict[tuple[str, ...], Counter[str]] = {}
        for name in checker.allowed(role, flavor, scenario.hosts):
            values = checker.values_of(scenario.hosts[name], flavor)
            amounts = empty.setdefault(values, Counter())
            amounts.update(scenario.hosts[name].allocatable)
            amounts.subtract(outside.get(name, {}))
        self._leaves = {
            checker.values_of(scenario.hosts[each], flavor)
            for each in checker.members(flavor, scenario.hosts)
        }
        self._free = free = {}
        by_host = flavor.levels[-1] == HOSTNAME
        shared = scenario.gates["TASHandleOverlappingFlavors"]
        for values, amounts in empty.items():
            key = ("" if by_host and shared else flavor_name, *(values[-1:] if by_host else values))
            free[values] = Counter(amounts)
            free[values].subtract(usage.get(key, {}))
        self.feasible = self._feasible(free)
        self.feasible_if_empty = self._feasible(empty)
        #: The deepest level, at most that of the request, of which one domain holds everything; -1 for none.
        self.deepest = self._deepest(free)

    def untrue(self, text: str) -> Iterator[str]:
        """What of the text is not so that says why there is no place."""
        if found := re.search(r"no domain of level (\S+) holds any of", text):
            if most := self._most(self._flavor.levels.index(found[1])):
                yield f"one holds {most}"
        elif found := re.search(
            r"no domain of level (\S+) holds \d+ .*?: the largest, (\S+), holds (\d+)", text
        ):
            level = self._flavor.levels.index(found[1])
            largest = {key: amounts for key, amounts in self._free.items() if _path(key, level) == found[2]}
            if not self._most(level) == self._most(level, largest) == int(found[3]):
                yield f"the largest holds {self._most(level)}, that one {self._most(level, largest)}"
        elif found := re.search(r"the nodes hold (?:none|only (\d+)) of", text):
            yield from [f"they hold {self._most(-1)}"] * (self._most(-1) != int(found[1] or 0))
        if "beside the leader" in text:
            required = self.worker.request.get("required")
            if self._most(self._flavor.levels.index(required) if required else -1) < self._units:
                yield "the workers alone do not fit"
        for found in re.finditer(r"(\d+) of \d+ slices of \d+ pods fit on level ([^\s;]+)", text):
            if self._most_inner(found[2], "no domain" in text) != int(found[1]):
                yield f"{self._most_inner(found[2], 'no domain' in text)} fit on level {found[2]}"
        if found := re.search(r"of (\d+) domains of level \S+ excluded: (.*)", text):
            excluded = sum(map(int, re.findall(r": (\d+)", found[2])))
            usable = [key for key, amounts in self._free.items() if self._pods({key: amounts})]
            if (int(found[1]), excluded) != (len(self._leaves), len(self._leaves) - len(usable)):
                yield f"there are {len(self._leaves)}, and {len(usable)} hold a pod"

    def _most(self, level: int, free: Mapping[tuple[str, ...], Counter[str]] | None = None) -> int:
        """The most whole slices that one domain of a level holds, the leader left out."""
        return checker.best_domain(
            self.worker, None, level, self._flavor, self._free if free is None else free
        )

    def _most_inner(self, label: str, in_one: bool) -> int:
        """The most inner slices on a level, in one domain of the required level or in all."""
        constraints = self.worker.request["podsetSliceRequiredTopologyConstraints"]
        at = [each["topology"] for each in constraints].index(label)
        inner = self.worker._replace(request={"podsetSliceRequiredTopologyConstraints": constraints[at:]})
        level = self._flavor.levels.index(self.worker.request["required"]) if in_one else -1
        return checker.best_domain(inner, None, level, self._flavor, self._free)

    def _pods(self, free: Mapping[tuple[str, ...], Counter[str]]) -> int:
        single = self.worker._replace(request={})
        return checker.best_domain(single, None, -1, self._flavor, free)

    def _holds(self, level: int, free: Mapping[tuple[str, ...], Counter[str]]) -> bool:
        most = checker.best_domain(self.worker, self._leader, level, self._flavor, free)
        return self._units > 0 and most >= self._units

    def _feasible(self, free: Mapping[tuple[str, ...], Counter[str]]) -> bool:
        required = self.worker.request.get("required")
        return self._holds(self._flavor.levels.index(required) if required else -1, free)

    def _deepest(self, free: Mapping[tuple[str, ...], Counter[str]]) -> int:
        request = self.worker.request
        start = 0 if self.worker.layers else len(self._flavor.levels) - 1
        if level := request.get("required") or request.get("preferred"):
            start = self._flavor.levels.index(level)
        climbs = "preferred" in request
        levels = range(start, -1, -1) if climbs else [start]
        return next((level for level in levels if self._holds(level, free)), -1)


def _path(values: tuple[str, ...], level: int) -> str:
    return "/".join(values[: level + 1])
