"""Node pools: the file that `pykueue up --nodes FILE` reads, and the Node objects it stands for.

```yaml
seed: 7                       # any number or text; changes every draw of the simulation
pools:
- name: gpu                   # nodes are named gpu-0, gpu-1, …
  count: 8
  allocatable: {cpu: "16", memory: 64Gi, pods: "110", nvidia.com/gpu: "8"}
  labels: {gpu: a100}
  taints: [{key: gpu, effect: NoSchedule}]
  zones: [zone-a, zone-b]     # the nodes are dealt out evenly, the first ones to the first zone
  topology:                   # further levels below, each within the one above
  - {label: cloud.provider.com/topology-rack, count: 2}
  runtime: simulated          # or process: containers are processes of this machine (see `processes`)
  simulation: {startDelay: 1s-2s, runTime: 10s}
  devices: [{driver: gpu.example.com, name: gpu, count: 8, capacity: {memory: 80Gi}}]  # see `devices`
  life: {failEvery: 30d, failFor: 5m-1h, reclaimEvery: 6h, reclaimNotice: 30s, replaceAfter: 1m}
- name: cloud                 # a pool that the cluster autoscaler changes in size
  allocatable: {cpu: "16", memory: 64Gi}
  scaling: {min: 0, max: 20, startUp: 2m-4m, price: 1.5, failureRate: 0.05, scaleDownAfter: 10m,
            stockOuts: [{start: 8h, duration: 2h, every: 1d}]}
```

Everything but `name` and `allocatable` may be left out. `simulation` sets the defaults for the pods of the
pool's nodes (see `behaviour`), `life` says how the nodes fail (see `outages`); both are annotations of the
nodes.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pykueue.api.objects import Object
from pykueue.api.quantity import QuantityError, parse
from pykueue.api.resources import NODES
from pykueue.api.yaml_values import YamlSyntaxError, read_documents
from pykueue.clock import Clock
from pykueue.embedded.kinds.podspec import canonical_amounts
from pykueue.embedded.kinds.podvalidation import validate_taints
from pykueue.embedded.nodes.annotations import DOMAIN, SEED, BehaviourError
from pykueue.embedded.nodes.behaviour import as_annotations as behaviour_annotations
from pykueue.embedded.nodes.behaviour import read_fields
from pykueue.embedded.nodes.devices import DEVICES, DeviceGroup, Partition, annotation, faults_of
from pykueue.embedded.nodes.durations import parse_duration, parse_span
from pykueue.embedded.nodes.outages import as_annotations as outage_annotations
from pykueue.embedded.nodes.outages import read_fields as read_outages
from pykueue.embedded.nodes.registration import RUNTIME
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Transport

POOL_LABEL = DOMAIN + "pool"
ZONE_LABEL = "topology.kubernetes.io/zone"
HOSTNAME_LABEL = "kubernetes.io/hostname"
#: Pods are simulated, or their containers are processes of this machine.
RUNTIMES = ("simulated", "process")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_MAX_COUNT = 100_000
#: The most faults of a file that are reported at once.
_MAX_FAULTS = 50
#: Requests under way at the same time.
_WRITERS = 16


class PoolError(ValueError):
    """A node pool file cannot be used. The text has a line for each fault: file, field, what is accepted."""


class _Strict(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Unknown fields are errors: a typing mistake must not silently mean the default."""


class Simulation(_Strict):
    """Defaults for the pods of a pool's nodes."""

    start_delay: str | int | float | None = None
    run_time: str | int | float | None = None
    ready_delay: str | int | float | None = None
    stop_delay: str | int | float | None = None
    exit_code: str | int | None = None
    failure_rate: float | None = None
    ignores_sigterm: bool | None = None


class Life(_Strict):
    """How the nodes of a pool fail and are taken back; nothing happens to them of which nothing is said."""

    fail_every: str | int | float | None = None
    fail_for: str | int | float | None = None
    fail_as: str | None = None
    reclaim_every: str | int | float | None = None
    reclaim_notice: str | int | float | None = None
    #: How long a node that is gone stays away; without it, until the pools are declared again.
    replace_after: str | int | float | None = None


class Level(_Strict):
    """A level of topology: a label, and how many values it has within each value of the level above."""

    label: str
    count: int


class StockOut(_Strict):
    """A time in which the provider has no nodes for a pool."""

    #: Time from the declaration of the pools to the first of them.
    start: str | int | float
    duration: str | int | float
    #: Time from the start of one to the start of the next; without it there is one.
    every: str | int | float | None = None


class Scaling(_Strict):
    """How the cluster autoscaler changes the size of a pool."""

    max: int
    min: int = 0
    #: Time from the request of a node until it joins the cluster.
    start_up: str | int | float = "2m"
    #: Of one node for an hour, in any unit: the cheapest pool grows first.
    price: float = 1.0
    #: The probability that a requested node cannot be started.
    failure_rate: float = 0.0
    stock_outs: list[StockOut] = []
    #: How long a node is empty before it is removed.
    scale_down_after: str | int | float = "10m"


class NodePool(_Strict):
    """Nodes that are alike."""

    name: str
    allocatable: dict[str, str | int | float]
    capacity: dict[str, str | int | float] | None = None
    count: int = 1
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    unschedulable: bool = False
    zones: list[str] = []
    topology: list[Level] = []
    #: What becomes of its pods, one of RUNTIMES.
    runtime: str = "simulated"
    simulation: Simulation = msgspec.field(default_factory=Simulation)
    life: Life = msgspec.field(default_factory=Life)
    #: What drivers of devices publish for each node.
    devices: list[DeviceGroup] = []
    #: None: the pool has `count` nodes.
    scaling: Scaling | None = None
    #: Taken from the file's top.
    seed: str = ""

    @property
    def size(self) -> int:
        """How many nodes the pool always has: the autoscaler removes none of them."""
        return self.count if self.scaling is None else self.scaling.min

    @property
    def limit(self) -> int:
        """How many nodes the pool can have."""
        return self.count if self.scaling is None else self.scaling.max

    def nodes(self) -> list[Object]:
        """The Node objects that the pool always has, by number."""
        return [self.node(number) for number in range(self.size)]

    def number_of(self, node: str) -> int | None:
        """The number of the node of that name, None when the pool can have no such node."""
        digits = node.removeprefix(f"{self.name}-")
        if not _NUMBER.fullmatch(digits) or node == digits or int(digits) >= self.limit:
            return None
        return int(digits)

    def name_of(self, number: int) -> str:
        """The name of the node of a number."""
        return f"{self.name}-{number}"

    def node(self, number: int) -> Object:
        """The Node object of a number."""
        name = self.name_of(number)
        specified = {
            **behaviour_annotations(read_fields(_texts(self.simulation))),
            **outage_annotations(read_outages(_texts(self.life))),
        }
        if self.devices:
            specified[DEVICES] = annotation(self.devices)
        if self.runtime == "process":
            specified[RUNTIME] = self.runtime
        allocatable = dict(canonical_amounts(self.allocatable))
        spec: Object = {}
        if self.taints:
            spec["taints"] = [dict(one) for one in self.taints]
        if self.unschedulable:
            spec["unschedulable"] = True
        labels = {
            HOSTNAME_LABEL: name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            POOL_LABEL: self.name,
            **self._places(number),
            **self.labels,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {**specified, **({SEED: self.seed} if self.seed else {}), **self.annotations},
            },
            "spec": spec,
            "status": {
                "capacity": dict(canonical_amounts(self.capacity)) if self.capacity else allocatable,
                "allocatable": allocatable,
            },
        }

    def _places(self, number: int) -> dict[str, str]:
        """The node's place at every level: neighbours in number are neighbours in place."""
        levels = [(ZONE_LABEL, len(self.zones))] if self.zones else []
        levels += [(level.label, level.count) for level in self.topology]
        leaves = 1
        for _, width in levels:
            leaves *= width
        leaf = number * leaves // self.limit
        found: dict[str, str] = {}
        above = ""
        for label, width in levels:
            leaves //= width
            place = leaf // leaves % width
            if label == ZONE_LABEL and self.zones:
                above = self.zones[place]
            else:
                kind = label.rpartition("/")[2].removeprefix("topology-")
                above = f"{above}-{kind}-{place}" if above else f"{self.name}-{kind}-{place}"
            found[label] = above
        return found


class _File(_Strict):
    pools: list[NodePool]
    seed: str | int = ""


#: Where in the file -> the section that stands there; the first that matches counts.
_SECTIONS: dict[str, type[msgspec.Struct]] = {
    r"\.simulation$": Simulation,
    r"\.life$": Life,
    r"\.topology\[\d+\]$": Level,
    r"\.scaling\.stockOuts\[\d+\]$": StockOut,
    r"\.scaling$": Scaling,
    r"\.devices\[\d+\]\.partitions\[\d+\]$": Partition,
    r"\.devices\[\d+\]$": DeviceGroup,
    r"^pools\[\d+\]$": NodePool,
    r"^$": _File,
}
#: msgspec's names of types -> those of people who write files.
_WORDS = {
    "array": "a list",
    "object": "a section with fields",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def _texts(section: _Strict) -> dict[str, str]:
    """What a section says, as annotations would."""
    texts: dict[str, str] = {}
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, bool):
            texts[field] = "true" if value else "false"
        elif value is not None:
            texts[field] = value if isinstance(value, str) else f"{value:g}"
    return texts


def load_pools(path: str | Path) -> list[NodePool]:
    """The pools of a file. Raises PoolError and OSError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PoolError(f"{path}: not UTF-8 text: byte {error.start} is {error.reason}") from None
    return parse_pools(text, str(path))


def parse_pools(text: str, source: str = "node pools") -> list[NodePool]:
    """The pools a text declares; `source` names it in errors."""
    try:
        documents = list(read_documents(text))
    except YamlSyntaxError as error:
        raise PoolError(f"{source}: {error}") from None
    if len(documents) > 1:
        raise PoolError(f"{source}: has {len(documents)} YAML documents; exactly one is accepted")
    document = copy.deepcopy(documents[0].value) if documents else None
    faults: list[str] = []
    file: _File | None = None
    while file is None and len(faults) < _MAX_FAULTS:
        try:
            file = msgspec.convert(document, _File)
        except msgspec.ValidationError as error:
            text, repaired = _misfit(document, str(error), len(faults))
            faults.append(text)
            if not repaired:
                break
    names: set[str] = set()
    for position, pool in enumerate(file.pools if file is not None else ()):
        faults += _check(pool, f"pools[{position}]")
        if pool.name in names:
            faults.append(f"pools[{position}].name: {pool.name!r} is the name of another pool too")
        names.add(pool.name)
    if faults or file is None:
        raise PoolError("\n".join(f"{source}: {fault}" for fault in faults[:_MAX_FAULTS]))
    return [msgspec.structs.replace(pool, seed=str(file.seed)) for pool in file.pools]


def _misfit(document: Any, error: str, number: int) -> tuple[str, bool]:
    """msgspec's complaint as field, value and what is accepted.

    msgspec stops at the first fault. So the field at fault is taken out of the document, or replaced where it
    is required, for the next attempt to find others; whether that was possible is the second value.
    """
    what, _, where = error.partition(" - at ")
    path = where.strip("`").removeprefix("$").removeprefix(".")
    #: From the document to the value at fault: each container with the key that leads on.
    steps: list[tuple[Any, Any]] = []
    value = document
    for name, position in re.findall(r"([^.\[\]]+)(?!\])|\[(\d+|\.\.\.)\]", path):
        if position == "...":
            # A mapping with keys of the user's choice: msgspec does not tell which one.
            fits = str if what.startswith("Expected `str`,") else str | int | float
            key = next(
                key for key, one in value.items() if not isinstance(one, fits) or isinstance(one, bool)
            )
            path = path.replace("[...]", f".{key}")
        else:
            key = int(position) if position else name
        steps.append((value, key))
        value = value[key]
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        section = next(section for pattern, section in _SECTIONS.items() if re.search(pattern, path))
        field = f"{path}.{unknown[1]}".lstrip(".")
        del value[unknown[1]]
        return f"{field}: unknown field; accepted: {', '.join(section.__struct_encode_fields__)}", True
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        value[missing[1]] = _stand_in(missing[1], number)
        return f"{path or 'the document'}: {what}", True
    text = f"{path or 'the document'}: {what}"
    if wrong := re.fullmatch(r"Expected `(.*)`, got `.*`", what):
        accepted = " or ".join(_WORDS.get(word, word) for word in wrong[1].split(" | ") if word != "null")
        shown = msgspec.json.encode(value, enc_hook=str).decode()
        text = f"{path or 'the document'}: {shown} is not accepted; accepted: {accepted}"
    return text, _take_out(steps, number)


#: Required fields of the sections, each with what passes for it while other faults are looked for.
_STAND_INS: dict[str, Any] = {
    "pools": [],
    "allocatable": {},
    "label": "unnamed",
    "count": 1,
    "max": 1,
    "start": "0s",
    "duration": "0s",
}


def _stand_in(field: str, number: int) -> Any:
    return f"unnamed-{number}" if field == "name" else copy.copy(_STAND_INS[field])


def _take_out(steps: list[tuple[Any, Any]], number: int) -> bool:
    """Take the value that the steps lead to out of its document; False where nothing would be left of it."""
    if not steps:
        return False
    container, key = steps[-1]
    if isinstance(key, int):
        if steps[-2][1] != "pools":
            return _take_out(steps[:-1], number)
        # Later pools keep their positions.
        container[key] = {field: _stand_in(field, number) for field in ("name", "allocatable")}
    elif key == "name" or key in _STAND_INS:
        container[key] = _stand_in(key, number)
    else:
        del container[key]
    return True


def _check(pool: NodePool, path: str) -> Iterator[str]:
    """What is wrong with a pool."""
    if not _NAME.fullmatch(pool.name):
        yield f"{path}.name: {pool.name!r} is not lower case letters, digits, '-' and '.'"
    if not 0 <= pool.count <= _MAX_COUNT:
        yield f"{path}.count: {pool.count} is not from 0 to {_MAX_COUNT}"
    for field, fault in faults_of(pool.devices):
        yield f"{path}.{field}: {fault}"
    if pool.runtime not in RUNTIMES:
        yield f"{path}.runtime: {pool.runtime!r} is not accepted; accepted: {' or '.join(RUNTIMES)}"
    for field in ("allocatable", "capacity"):
        for name, amount in (getattr(pool, field) or {}).items():
            try:
                if parse(amount).nanos < 0:
                    yield f"{path}.{field}.{name}: {amount} is negative; accepted: 0 or more"
            except QuantityError as error:
                yield f"{path}.{field}.{name}: {error}"
    for cause in validate_taints(pool.taints, f"{path}.taints"):
        yield f"{cause.field}: {cause.message}"
    for position, taint in enumerate(pool.taints):
        for unknown in sorted(set(taint) - {"key", "value", "effect"}):
            yield f"{path}.taints[{position}].{unknown}: unknown field; key, value and effect are accepted"
    for position, level in enumerate(pool.topology):
        if level.count < 1:
            yield f"{path}.topology[{position}].count: {level.count} is not at least 1"
    yield from _check_scaling(pool, path)
    try:
        read_fields(_texts(pool.simulation))
    except BehaviourError as error:
        yield f"{path}.simulation.{error}"
    try:
        read_outages(_texts(pool.life))
    except BehaviourError as error:
        yield f"{path}.life.{error}"


def _check_scaling(pool: NodePool, path: str) -> Iterator[str]:
    scaling = pool.scaling
    if scaling is None:
        return
    if pool.count != 1:
        yield f"{path}.count: the size of a pool with `scaling` is given by its min and max"
    if not 0 <= scaling.min <= scaling.max <= _MAX_COUNT:
        limits = f"min {scaling.min} and max {scaling.max}"
        yield f"{path}.scaling: {limits} are not in order from 0 to {_MAX_COUNT}"
    if not 0 <= scaling.failure_rate <= 1:
        yield f"{path}.scaling.failureRate: {scaling.failure_rate:g} is not from 0 to 1"
    if scaling.price < 0:
        yield f"{path}.scaling.price: {scaling.price:g} is negative; accepted: 0 or more"
    times = [
        ("startUp", scaling.start_up, parse_span),
        ("scaleDownAfter", scaling.scale_down_after, parse_duration),
    ]
    for number, one in enumerate(scaling.stock_outs):
        where = f"stockOuts[{number}]"
        times += [
            (f"{where}.start", one.start, parse_duration),
            (f"{where}.duration", one.duration, parse_duration),
        ]
        if one.every is not None:
            times.append((f"{where}.every", one.every, parse_duration))
    for field, value, read in times:
        try:
            read(str(value))
        except ValueError as error:
            yield f"{path}.scaling.{field}: {error}"


async def ensure_nodes(
    transport: Transport, clock: Clock, pools: Iterable[NodePool], before: Iterable[NodePool] = ()
) -> None:
    """Create the nodes of the pools; bring those that exist to what the pools say.

    What the pools said `before` and no longer say is taken away. Other labels, annotations and nodes that no
    pool speaks of stay as they are. Raises ApiError, ConnectionError.
    """
    client = Client(transport, clock=clock)
    existing = {node["metadata"]["name"]: node for node in (await client.list(NODES)).items}
    known = {pool.name: pool for pool in before}
    waiting = [(pool, number) for pool in pools for number in range(pool.size)]
    waiting.reverse()

    async def write() -> None:
        while waiting:
            pool, number = waiting.pop()
            node, name = pool.node(number), pool.name_of(number)
            old = known.get(pool.name)
            specified = old.node(number) if old is not None and number < old.size else {}
            await _ensure(client, node, existing.get(name), specified)

    async with asyncio.TaskGroup() as group:
        for _ in range(_WRITERS):
            group.create_task(write())


def _is_of_life(taint: Object) -> bool:
    """Whether a taint tells how a node is, which no declaration changes."""
    return (taint.get("key") or "").startswith((DOMAIN, "node.kubernetes.io/"))


async def _ensure(client: Client, node: Object, stored: Object | None, before: Object) -> None:
    """Create the node or bring it to what is wanted, `before` being what was wanted of it until now."""
    if stored is None:
        await client.create(NODES, node)
        return
    name = node["metadata"]["name"]
    while change := _change(node, stored, before):
        change.setdefault("metadata", {})["resourceVersion"] = stored["metadata"]["resourceVersion"]
        try:
            stored = await client.patch(NODES, name, None, change)
        except ApiError as error:
            if not error.conflict:
                raise
            stored = await client.get(NODES, name)
    status = stored.get("status") or {}
    amounts = {field: node["status"][field] for field in ("capacity", "allocatable")}
    if any(status.get(field) != wanted for field, wanted in amounts.items()):
        gone = {
            field: {name: None for name in status.get(field) or {} if name not in wanted}
            for field, wanted in amounts.items()
        }
        patch = {"status": {field: {**gone[field], **wanted} for field, wanted in amounts.items()}}
        await client.patch(NODES, name, None, patch, subresource="status")


def _change(node: Object, stored: Object, before: Object) -> Object:
    """The patch of a node's metadata and taints; empty when there is nothing to change."""
    change: Object = {}
    for field in ("labels", "annotations"):
        wanted, shown = node["metadata"][field], stored["metadata"].get(field) or {}
        dropped = {
            key: None
            for key, value in (before.get("metadata") or {}).get(field, {}).items()
            if key not in wanted and shown.get(key) == value
        }
        new = {key: value for key, value in wanted.items() if shown.get(key) != value}
        if new or dropped:
            change.setdefault("metadata", {})[field] = {**dropped, **new}
    shown = (stored.get("spec") or {}).get("taints") or []
    taints = [*(node["spec"].get("taints") or ()), *(one for one in shown if _is_of_life(one))]
    if shown != taints:
        change["spec"] = {"taints": taints}
    return change
