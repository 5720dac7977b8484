"""How much of a device's capacity a request takes, under the policy of the device for that capacity."""

from __future__ import annotations

from pykueue.api.devices.types import CapacityRequestPolicy, DeviceCapacity
from pykueue.api.quantity import Quantity


def consumed(capacity: DeviceCapacity, requested: Quantity | None) -> Quantity | None:
    """What a request takes of a capacity; None if the policy allows no amount that is large enough.

    Without an amount it takes the default of the policy, or all there is. The amount is rounded up to the
    next valid value or step.
    """
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        requested = default if default is not None else capacity.value
    return requested if policy is None else _rounded(requested, policy)


def _rounded(amount: Quantity, policy: CapacityRequestPolicy) -> Quantity | None:
    if policy.valid_values:
        return min((value for value in policy.valid_values if value >= amount), default=None)
    bounds = policy.valid_range
    if bounds is None:
        return amount
    nanos = amount.nanos
    if bounds.min is not None:
        least = bounds.min.nanos
        nanos = max(nanos, least)
        if bounds.step is not None and bounds.step.nanos > 0:
            nanos = least + -(-(nanos - least) // bounds.step.nanos) * bounds.step.nanos
    if bounds.max is not None and nanos > bounds.max.nanos:
        return None
    return Quantity(nanos)
