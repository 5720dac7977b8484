"""Taints of devices: where they come from, and which tolerations of requests tolerate them.

Source of the rules: the Kubernetes documentation of device taints and tolerations.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from pykueue.api.devices.types import DeviceTaint, DeviceTaintRule, DeviceToleration

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
#: Driver, pool and name of a device.
DeviceId = tuple[str, str, str]


def selects(rule: DeviceTaintRule, device: DeviceId) -> bool:
    """Whether a DeviceTaintRule gives its taint to a device."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = (selector.driver, selector.pool, selector.device)
    return all(name is None or name == own for name, own in zip(names, device, strict=True))


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration tolerates a taint, for however long."""
    return (
        (not toleration.key or toleration.key == taint.key)
        and (not toleration.effect or toleration.effect == taint.effect)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )


def allocatable(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether a device with the taints may be allocated to a request with the tolerations."""
    tolerations = list(tolerations)
    return all(
        taint.effect not in (NO_SCHEDULE, NO_EXECUTE) or any(tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def tolerated_seconds(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> float:
    """For how long pods that use a device may stay under a taint with NoExecute; infinite for good.

    As in Kubernetes only tolerations with the effect NoExecute count, and one without seconds is enough.
    """
    limits = [
        inf if each.toleration_seconds is None else float(max(0, each.toleration_seconds))
        for each in tolerations
        if each.effect == NO_EXECUTE and tolerates(each, taint)
    ]
    return inf if inf in limits else min(limits, default=0.0)
