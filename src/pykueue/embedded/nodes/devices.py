"""The devices of simulated nodes, published in ResourceSlices as their drivers would.

An annotation of the Node lists them, as the section `devices` of a node pool does:

```yaml
devices:
- driver: gpu.example.com
  name: gpu                     # devices are named gpu-0, gpu-1, …
  count: 4
  attributes: {model: a100}     # texts, whole numbers, true and false; `index` is added
  capacity: {memory: 80Gi}
  shared: false                 # true: several claims may share the capacity of one device
  partitions:                   # gpu-0-half-0, …: allocated instead of the whole device, within its capacity
  - {name: half, count: 2, capacity: {memory: 40Gi}}
```

A simulated driver prepares nothing on the node: pods with devices start as other pods do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from pykueue.api.objects import Object, is_deleting
from pykueue.api.quantity import QuantityError, parse
from pykueue.api.resources import NODES, RESOURCE_SLICES
from pykueue.api.validation.syntax import dns_label, subdomain
from pykueue.clock import Clock
from pykueue.embedded.kinds.devices import MAX_DEVICES, MAX_LARGE_DEVICES
from pykueue.embedded.nodes.annotations import DOMAIN
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.informer import InformerFactory

DEVICES: Final = DOMAIN + "devices"

log = logging.getLogger(__name__)


class _Strict(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Unknown fields are errors: a typing mistake must not silently mean the default."""


class Partition(_Strict):
    """Parts that a device can be divided into."""

    name: str
    count: int = 1
    attributes: dict[str, str | int | bool] = {}
    capacity: dict[str, str | int | float] = {}


class DeviceGroup(_Strict):
    """Devices of one driver that are alike, for each node."""

    driver: str
    name: str = "device"
    count: int = 1
    attributes: dict[str, str | int | bool] = {}
    capacity: dict[str, str | int | float] = {}
    #: Whether several claims may share the capacity of one device.
    shared: bool = False
    partitions: list[Partition] = []


def faults_of(groups: Iterable[DeviceGroup]) -> Iterator[tuple[str, str]]:
    """What is wrong with the devices of a node: (field, what is wrong)."""
    counts: dict[str, int] = {}
    names: set[tuple[str, str]] = set()
    for index, group in enumerate(groups):
        path = f"devices[{index}]"
        if fault := subdomain(group.driver):
            yield f"{path}.driver", f"{group.driver!r} {fault}"
        if fault := dns_label(group.name):
            yield f"{path}.name", f"{group.name!r} {fault}"
        if (group.driver, group.name) in names:
            yield f"{path}.name", f"{group.name!r} is used by other devices of driver {group.driver}"
        names.add((group.driver, group.name))
        for number, part in enumerate(group.partitions):
            if fault := dns_label(part.name):
                yield f"{path}.partitions[{number}].name", f"{part.name!r} {fault}"
            for name in part.capacity:
                if name not in group.capacity:
                    yield f"{path}.partitions[{number}].capacity", f"{name!r} is not a capacity of the device"
        for place, amounts in (
            (path, group.capacity),
            *(
                (f"{path}.partitions[{number}]", part.capacity)
                for number, part in enumerate(group.partitions)
            ),
        ):
            for name, text in amounts.items():
                try:
                    parse(str(text))
                except QuantityError:
                    yield f"{place}.capacity.{name}", f"{text!r} is not a quantity"
        each = 1 + sum(part.count for part in group.partitions)
        counts[group.driver] = counts.get(group.driver, 0) + group.count * each
        most = MAX_LARGE_DEVICES if group.partitions else MAX_DEVICES
        if group.count < 1 or counts[group.driver] > most:
            yield (
                f"{path}.count",
                f"{group.count}; accepted: at least 1, and at most {most} devices of a driver",
            )


def annotation(groups: Iterable[DeviceGroup]) -> str:
    """The annotation that lists the devices."""
    return msgspec.json.encode(list(groups)).decode()


def slices(node: Object) -> list[Object]:
    """The ResourceSlices of a node by its annotation, one for each driver. Raises ValueError."""
    text = (node["metadata"].get("annotations") or {}).get(DEVICES)
    if not text:
        return []
    groups = msgspec.json.decode(text, type=list[DeviceGroup])
    for field, fault in faults_of(groups):
        raise ValueError(f"{field}: {fault}")
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"].get("uid", "")}
    found = []
    for driver in sorted({group.driver for group in groups}):
        mine = [group for group in groups if group.driver == driver]
        spec: Object = {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [device for group in mine for device in _devices(group)],
        }
        counters = [counters for group in mine if group.partitions for counters in _counters(group)]
        if counters:
            spec["sharedCounters"] = counters
        found.append(
            {
                "apiVersion": RESOURCE_SLICES.api_version,
                "kind": RESOURCE_SLICES.kind,
                "metadata": {"name": f"{name}-{driver}", "ownerReferences": [owner]},
                "spec": spec,
            }
        )
    return found


def _devices(group: DeviceGroup) -> Iterator[Object]:
    for index in range(group.count):
        whole = f"{group.name}-{index}"
        yield _device(whole, {**group.attributes, "index": index}, group.capacity, group, index)
        for part in group.partitions:
            for number in range(part.count):
                attributes = {**group.attributes, **part.attributes, "index": index, "partition": part.name}
                yield _device(f"{whole}-{part.name}-{number}", attributes, part.capacity, group, index)


def _device(
    name: str,
    attributes: dict[str, str | int | bool],
    capacity: dict[str, str | int | float],
    group: DeviceGroup,
    index: int,
) -> Object:
    device: Object = {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in attributes.items()},
    }
    if capacity:
        device["capacity"] = {key: {"value": str(value)} for key, value in capacity.items()}
    if group.shared:
        device["allowMultipleAllocations"] = True
    if group.partitions:
        counters = {key: {"value": str(value)} for key, value in capacity.items()}
        device["consumesCounters"] = [{"counterSet": f"{group.name}-{index}", "counters": counters}]
    return device


def _attribute(value: str | int | bool) -> Object:
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def _counters(group: DeviceGroup) -> Iterator[Object]:
    for index in range(group.count):
        counters = {key: {"value": str(value)} for key, value in group.capacity.items()}
        yield {"name": f"{group.name}-{index}", "counters": counters}


class DeviceDriver:
    """Publishes the devices of all nodes that have the annotation; run by `run`."""

    def __init__(self, client: Client, informers: InformerFactory, clock: Clock) -> None:
        self._client = client
        self._nodes = informers.informer(NODES)
        self._slices = informers.informer(RESOURCE_SLICES)
        self._controller: Controller[str] = Controller(
            "device-driver", self._sync, clock=clock, wait_for=[informers.synced]
        )
        self._slices.add_index("node", lambda item: [item["spec"].get("nodeName") or ""])
        self._nodes.on_event(self._on_node)
        self._slices.on_event(self._on_slice)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_node(self, _type: str, old: Any, new: Any) -> None:
        if new is None:
            return
        before, after = (
            (node or {"metadata": {}})["metadata"].get("annotations") or {} for node in (old, new)
        )
        if before.get(DEVICES) != after.get(DEVICES):
            self._controller.queue.add(new["metadata"]["name"])

    def _on_slice(self, _type: str, old: Any, new: Any) -> None:
        name = (new or old)["spec"].get("nodeName")
        if name and (new is None or (old is not None and old["spec"] != new["spec"])):
            self._controller.queue.add(name)

    async def _sync(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None or is_deleting(node):
            return
        try:
            wanted = {item["metadata"]["name"]: item for item in slices(node)}
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("node %s: annotation %s: %s", name, DEVICES, error)
            return
        known = {
            item["metadata"]["name"]: item
            for item in self._slices.by_index("node", name)
            if any(owner.get("kind") == "Node" for owner in item["metadata"].get("ownerReferences") or ())
        }
        for key, item in wanted.items():
            old = known.pop(key, None)
            if old is None:
                await self._client.create(RESOURCE_SLICES, item)
            elif _content(old) != _content(item):
                pool = {**item["spec"]["pool"], "generation": old["spec"]["pool"]["generation"] + 1}
                spec = {**item["spec"], "pool": pool}
                await self._client.update(RESOURCE_SLICES, {**old, "spec": spec})
        for key in known:
            await self._client.delete(RESOURCE_SLICES, key)


def _content(item: Object) -> Object:
    return {key: value for key, value in item["spec"].items() if key != "pool"}
