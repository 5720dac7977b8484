"""Extended resources that devices stand for: what the claim of a pod that requests them asks for.

A DeviceClass stands for the resource of its `extendedResourceName`, and for one named after the class itself.
Source of the rules: the Kubernetes documentation of extended resource allocation by DRA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pykueue.api.devices.types import EXACT_COUNT, DeviceClass
from pykueue.api.objects import Object
from pykueue.embedded.kinds.podspec import amounts_of

#: Before the name of a class: the extended resource that every class has.
CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


class ExtendedClaim(NamedTuple):
    """The claim that a pod needs for its extended resources on a node."""

    spec: Object
    """The spec of the ResourceClaim."""
    mappings: list[Object]
    """Which container uses which request, as the status of the pod shows it."""


def backing(classes: Mapping[str, DeviceClass]) -> dict[str, str]:
    """The class of each extended resource: the newest that has it, of equally new ones the first by name."""
    found = {CLASS_PREFIX + name: name for name in classes}
    ordered = sorted(classes.values(), key=lambda one: (-one.metadata.created, one.metadata.name))
    for each in ordered:
        if each.spec.extended_resource_name:
            found.setdefault(each.spec.extended_resource_name, each.metadata.name)
    return found


def extended_claim(spec: Object, classes: Mapping[str, str]) -> ExtendedClaim:
    """The claim of a pod with this spec; `classes` by resource are those that devices must be allocated for.

    Devices are allocated for each container. Init containers that terminate use the devices of the containers
    after them, and share what they need beyond that.
    """
    inits = spec.get("initContainers") or []
    containers: list[Object] = [*inits, *spec["containers"]]
    requested = [amounts_of((one.get("resources") or {}).get("requests")) for one in containers]
    ending = [index for index, one in enumerate(inits) if one.get("restartPolicy") != "Always"]
    counts: dict[str, tuple[str, int]] = {}
    mappings: list[Object] = []
    for resource, chosen in sorted(classes.items()):
        names = {
            index: f"container-{index}-request-{sorted(amounts).index(resource)}"
            for index, amounts in enumerate(requested)
            if amounts.get(resource)
        }
        uses: list[tuple[int, str]] = []
        for index, name in names.items():
            if index not in ending:
                counts[name] = (chosen, requested[index][resource])
                uses.append((index, name))
        lasting, lacking = [*uses], dict.fromkeys(names, 0)
        for index in (one for one in ending if one in names):
            lacking[index] = requested[index][resource]
            for later, name in lasting:
                if later > index and lacking[index] > 0:
                    uses.append((index, name))
                    lacking[index] -= counts[name][1]
        most = max(lacking, key=lambda index: lacking[index], default=-1)
        if most in ending and lacking[most] > 0:
            counts[names[most]] = (chosen, lacking[most])
            uses += [(index, names[most]) for index in ending if lacking.get(index, 0) > 0]
        mappings += [
            {"containerName": containers[index]["name"], "resourceName": resource, "requestName": name}
            for index, name in uses
        ]
    requests = [
        {
            "name": name,
            "exactly": {"deviceClassName": chosen, "allocationMode": EXACT_COUNT, "count": count},
        }
        for name, (chosen, count) in sorted(counts.items())
    ]
    return ExtendedClaim({"devices": {"requests": requests}}, mappings)
