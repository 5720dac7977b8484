"""What is true of placements, from the API objects alone: an independent check of the engine's arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pykueue.api.topologies import HOSTNAME, expand

Object = dict[str, Any]
#: Values of the levels of a domain, widest first.
Values = tuple[str, ...]
Amounts = Mapping[str, int]


class Host(NamedTuple):
    """A node as its manifest describes it; amounts are whole units."""

    labels: Mapping[str, str]
    allocatable: Amounts
    usable: bool
    taint: str


class Flavor(NamedTuple):
    """A flavor with the levels of its topology."""

    labels: Mapping[str, str]
    levels: tuple[str, ...]


class Role(NamedTuple):
    """A pod set of a generated workload."""

    name: str
    count: int
    amounts: Amounts
    """Of one pod, without `pods`."""
    request: Mapping[str, Any]
    """Its topologyRequest."""
    tolerates: bool
    zone: str
    """Value of the node label `zone` that its pods select; empty for any."""

    @property
    def group(self) -> str:
        return str(self.request.get("podSetGroupName", ""))

    @property
    def layers(self) -> list[tuple[str, int]]:
        """(level, size) of its slices, outermost first."""
        if constraints := self.request.get("podsetSliceRequiredTopologyConstraints"):
            return [(each["topology"], each["size"]) for each in constraints]
        if level := self.request.get("podSetSliceRequiredTopology"):
            return [(level, self.request["podSetSliceSize"])]
        return []


class Assigned(NamedTuple):
    """Pods of one pod set in one domain."""

    workload: str
    role: str
    flavor: str
    levels: tuple[str, ...]
    values: Values
    pods: int


def per_pod(role: Role) -> Counter[str]:
    """What one pod takes of a node."""
    return Counter({**role.amounts, "pods": 1})


def assignments(workload: Any, tas_flavors: Mapping[str, Flavor]) -> Iterator[Assigned]:
    """The domains of an admission."""
    admission = workload.status.admission
    groups = {
        pods.name: pods.topology_request.pod_set_group_name if pods.topology_request is not None else None
        for pods in workload.spec.pod_sets
    }
    for given in admission.pod_set_assignments if admission is not None else ():
        if given.topology_assignment is None:
            continue
        # A member of a group that requests nothing is assigned no flavor: it is placed with the others.
        flavors = {
            flavor
            for each in admission.pod_set_assignments
            if each.name == given.name or (groups[each.name] and groups[each.name] == groups[given.name])
            for flavor in each.flavors.values()
        }
        flavor = next(each for each in sorted(flavors) if each in tas_flavors)
        levels = tuple(given.topology_assignment.levels)
        for values, pods in expand(given.topology_assignment):
            yield Assigned(workload.metadata.name, given.name, flavor, levels, values, pods)


def members(flavor: Flavor, hosts: Mapping[str, Host]) -> list[str]:
    """Names of the nodes of a flavor."""
    return [
        name
        for name, host in sorted(hosts.items())
        if host.usable
        and all(host.labels.get(key) == value for key, value in flavor.labels.items())
        and all(level in host.labels for level in flavor.levels)
    ]


def allowed(role: Role, flavor: Flavor, hosts: Mapping[str, Host]) -> list[str]:
    """Names of the nodes of a flavor on which pods of a role may run."""
    found = members(flavor, hosts)
    if flavor.levels[-1] != HOSTNAME:
        return found
    return [
        name
        for name in found
        if (not hosts[name].taint or role.tolerates)
        and (not role.zone or hosts[name].labels.get("zone") == role.zone)
    ]


def values_of(host: Host, flavor: Flavor) -> Values:
    return tuple([host.labels[level] for level in flavor.levels])


def full_values(each: Assigned, flavor: Flavor, hosts: Mapping[str, Host]) -> Values:
    """The values of all levels of an assigned domain."""
    return values_of(hosts[each.values[0]], flavor) if each.levels == (HOSTNAME,) else each.values


def placement_errors(
    workload: Any,
    roles: Sequence[Role],
    flavors: Mapping[str, Flavor],
    hosts: Mapping[str, Host],
    moved_from: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """What a fresh placement breaks of what its pod sets request."""
    found = list(assignments(workload, flavors))
    units: dict[str, list[Role]] = {}
    for role in roles:
        units.setdefault(role.group or f"/{role.name}", []).append(role)
    given = {each.name: each.count or 0 for each in workload.status.admission.pod_set_assignments}
    for unit in units.values():
        names = {role.name for role in unit}
        mine = [each for each in found if each.role in names]
        if not mine:
            continue
        flavor = flavors[mine[0].flavor]
        leader = ""
        if len(unit) == 2:
            leader = unit[0].name if given[unit[1].name] > given[unit[0].name] else unit[1].name
        full: list[tuple[Assigned, Values]] = []
        for each in mine:
            worker = next(role for role in unit if role.name != leader)
            # A group goes where its workers may run; a leader replaced alone, where it may run itself.
            own = next(role for role in unit if role.name == each.role)
            usable = {*allowed(worker, flavor, hosts), *allowed(own, flavor, hosts)}
            if each.levels == (HOSTNAME,) and each.values[0] not in usable:
                yield f"{each.role} is on {each.values[0]}, where its pods may not run"
                continue
            full.append((each, full_values(each, flavor, hosts)))
        for role in unit:
            size = role.layers[0][1] if role.layers and role.name != leader else 1
            wanted = 1 if role.name == leader else given[role.name] - given[role.name] % size
            placed = sum(each.pods for each, _ in full if each.role == role.name)
            if placed != wanted:
                yield f"{role.name} has domains for {placed} of {wanted} pods"
        worker = next(role for role in unit if role.name != leader)
        if (required := worker.request.get("required")) is not None:
            at = flavor.levels.index(required) + 1
            if len({values[:at] for _, values in full}) > 1:
                yield f"{worker.name} requires one {required} and is in several"
        for level, size in worker.layers:
            at = flavor.levels.index(level) + 1
            per_domain: Counter[Values] = Counter()
            for each, values in full:
                if each.role == worker.name:
                    per_domain[values[:at]] += each.pods
            for values, pods in per_domain.items():
                if pods % size:
                    yield f"{worker.name} has {pods} pods in {values}, no multiple of {size}"


def usage(
    found: Sequence[Assigned], amounts: Mapping[tuple[str, str], Counter[str]], by_flavor: bool
) -> dict[tuple[str, ...], Counter[str]]:
    """Use by leaf: by host for topologies of hosts, otherwise by flavor and values."""
    used: dict[tuple[str, ...], Counter[str]] = {}
    for each in found:
        by_host = each.levels == (HOSTNAME,)
        key = (each.flavor if by_flavor or not by_host else "", *each.values)
        of_leaf = used.setdefault(key, Counter())
        for resource, amount in amounts[each.workload, each.role].items():
            of_leaf[resource] += amount * each.pods
    return used


def room(
    key: tuple[str, ...],
    flavors: Mapping[str, Flavor],
    hosts: Mapping[str, Host],
    outside: Mapping[str, Amounts],
) -> Counter[str]:
    """What the nodes of a leaf have beside pods that are in no workload."""
    flavor, *values = key
    total: Counter[str] = Counter()
    for name, host in hosts.items():
        if not flavor or flavors[flavor].levels[-1] == HOSTNAME:
            inside = name == values[-1]
        else:
            inside = (
                name in members(flavors[flavor], hosts) and list(values_of(host, flavors[flavor])) == values
            )
        if inside:
            total.update(host.allocatable)
            total.subtract(outside.get(name, {}))
    return total


# --- brute force ----------------------------------------------------------------------------------------


def best_domain(
    role: Role,
    leader: Role | None,
    level: int,
    flavor: Flavor,
    free: Mapping[Values, Counter[str]],
) -> int:
    """The most whole slices (pods without slices) that one domain of a level holds, the leader beside them.

    Minus one where the leader fits nowhere. Level -1 is the whole tree.
    """
    best = -1 if leader is not None else 0
    for domain in {values[: level + 1] for values in free}:
        inside = {values: amounts for values, amounts in free.items() if values[: level + 1] == domain}
        if leader is None:
            best = max(best, slices_in(role, flavor, inside))
            continue
        for values in inside:
            left = Counter(inside[values])
            left.subtract(per_pod(leader))
            if all(left[resource] >= 0 for resource in per_pod(leader)):
                best = max(best, slices_in(role, flavor, {**inside, values: left}))
    return best


def slices_in(role: Role, flavor: Flavor, free: Mapping[Values, Counter[str]]) -> int:
    """Whole slices of a role that fit into leaves together."""
    layers = {flavor.levels.index(level): size for level, size in role.layers}
    top = min(layers, default=len(flavor.levels) - 1)
    amounts = {name: amount for name, amount in per_pod(role).items() if amount}

    def pods(domain: Values) -> int:
        at = len(domain) - 1
        if at == len(flavor.levels) - 1:
            count = min(max(free[domain][name], 0) // amount for name, amount in amounts.items())
        else:
            count = sum(
                pods(child) for child in {each[: at + 2] for each in free if each[: at + 1] == domain}
            )
        # Every level below the outermost layer down to an inner one holds multiples of the inner size.
        inner = min((layer for layer in layers if layer >= at and layer > top), default=-1)
        return count - count % layers[inner] if at > top and inner >= 0 else count

    size = layers.get(top, 1)
    return sum(pods(domain) // size for domain in {values[: top + 1] for values in free})
