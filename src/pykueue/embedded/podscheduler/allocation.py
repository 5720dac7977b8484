"""Which devices a claim gets on a node: the search over requests, constraints, counters and capacity.

Source of the rules: the Kubernetes documentation of dynamic resource allocation (structured parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pykueue.api.decoding import encode
from pykueue.api.devices.capacities import consumed
from pykueue.api.devices.selection import Candidate, SelectorError
from pykueue.api.devices.taints import allocatable
from pykueue.api.devices.types import (
    ALL,
    DeviceClass,
    DeviceConstraint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from pykueue.api.objects import Object
from pykueue.api.quantity import Quantity, parse

#: Devices that one search may try: beyond them a claim counts as not allocatable on the node.
MAX_STEPS: Final = 20_000

DeviceId = tuple[str, str, str]


class Taken(NamedTuple):
    """A device that a claim has; `amounts` of its capacity (nanos) where others may share the rest."""

    device: DeviceId
    amounts: Mapping[str, int] | None = None


class Result(NamedTuple):
    """A device for a request."""

    request: str
    candidate: Candidate
    admin: bool
    amounts: Mapping[str, int] | None
    tolerations: Sequence[DeviceToleration] = ()

    def manifest(self) -> Object:
        """As it is in the status of a claim."""
        driver, pool, device = self.candidate.id
        found: Object = {"request": self.request, "driver": driver, "pool": pool, "device": device}
        if self.admin:
            found["adminAccess"] = True
        if self.tolerations:
            found["tolerations"] = [encode(each) for each in self.tolerations]
        if self.amounts is not None:
            capacity = self.candidate.device.capacity
            found["consumedCapacity"] = {
                name: str(Quantity(amount, capacity[name].value.format))
                for name, amount in self.amounts.items()
            }
        return found


class AllocationError(ValueError):
    """A claim that cannot be allocated on any node; the text says why."""


class _Slot(NamedTuple):
    """One device of a request is to be found."""

    name: str
    parent: str
    request: ExactDeviceRequest


class Search:
    """Finds devices for claims among the candidates of one node.

    `taken` gives what other claims have of a device, `counters` are what is left of those of the pools
    (nanos). Raises AllocationError where a class is missing or an expression cannot be evaluated.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        classes: Mapping[str, DeviceClass],
        taken: Callable[[DeviceId], Sequence[Taken]],
        counters: dict[tuple[str, str, str, str], int],
    ) -> None:
        self._candidates = candidates
        self._classes = classes
        self._taken = taken
        self._counters = counters
        self._steps = 0
        self._chosen: dict[DeviceId, list[Mapping[str, int] | None]] = {}
        self._matching: dict[int, list[Candidate]] = {}

    def allocate(self, claim: ResourceClaimSpec) -> list[Result] | None:
        """The devices of a claim, which later claims of the search do not get; None if it cannot be met."""
        return self._choose([*self._alternatives(claim)], 0, [], claim.devices.constraints)

    def _alternatives(self, claim: ResourceClaimSpec) -> Iterator[list[list[_Slot]]]:
        """For each request: the lists of slots of which one must be filled."""
        for request in claim.devices.requests:
            if request.exactly is not None:
                yield [self._slots(request.name, request.name, request.exactly)]
            else:
                yield [
                    self._slots(f"{request.name}/{each.name}", request.name, each)
                    for each in request.first_available
                ]

    def _slots(self, name: str, parent: str, request: ExactDeviceRequest) -> list[_Slot]:
        count = len(self._suitable(request)) if request.allocation_mode == ALL else request.count
        # All devices must be free, and there must be one at least.
        return [_Slot(name, parent, request)] * max(1, count)

    def _suitable(self, request: ExactDeviceRequest) -> list[Candidate]:
        """The candidates that a request selects, taken or not."""
        found = self._matching.get(id(request))
        if found is not None:
            return found
        chosen = self._classes.get(request.device_class_name)
        if chosen is None:
            raise AllocationError(f"device class {request.device_class_name} does not exist")
        try:
            found = [
                each
                for each in self._candidates
                if each.matches(chosen.spec.selectors)
                and each.matches(request.selectors)
                and allocatable(each.taints, request.tolerations)
            ]
        except SelectorError as error:
            raise AllocationError(str(error)) from None
        self._matching[id(request)] = found
        return found

    def _choose(
        self,
        requests: list[list[list[_Slot]]],
        index: int,
        so_far: list[Result],
        constraints: Sequence[DeviceConstraint],
    ) -> list[Result] | None:
        if index == len(requests):
            return so_far
        for slots in requests[index]:
            found = self._fill(slots, 0, 0, so_far, constraints, requests, index)
            if found is not None:
                return found
        return None

    def _fill(
        self,
        slots: list[_Slot],
        number: int,
        start: int,
        so_far: list[Result],
        constraints: Sequence[DeviceConstraint],
        requests: list[list[list[_Slot]]],
        index: int,
    ) -> list[Result] | None:
        """Fill the slots from `number` on with candidates from `start` on, then the requests that follow."""
        if number == len(slots):
            return self._choose(requests, index + 1, so_far, constraints)
        slot = slots[number]
        suitable = self._suitable(slot.request)
        for position in range(start, len(suitable)):
            self._steps += 1
            if self._steps > MAX_STEPS:
                return None
            result = self._take(slot, suitable[position])
            if result is None:
                continue
            every = [*so_far, result]
            if _meet(constraints, every):
                found = self._fill(slots, number + 1, position + 1, every, constraints, requests, index)
                if found is not None:
                    return found
            self._give_back(result)
        return None

    def _take(self, slot: _Slot, candidate: Candidate) -> Result | None:
        """The device for the slot, if it is free; then it is the search's until it is given back."""
        request, device = slot.request, candidate.device
        if request.admin_access:
            return Result(slot.name, candidate, True, None, request.tolerations)
        others = [each.amounts for each in self._taken(candidate.id)] + self._chosen.get(candidate.id, [])
        amounts: dict[str, int] | None = None
        requested = request.capacity.requests if request.capacity is not None else {}
        if device.allow_multiple_allocations:
            amounts = {}
            for name, capacity in device.capacity.items():
                amount = consumed(capacity, requested.get(name))
                used = sum((each or {}).get(name, 0) for each in others)
                if amount is None or used + amount.nanos > capacity.value.nanos:
                    return None
                amounts[name] = amount.nanos
        elif others:
            return None
        for name, wanted in requested.items():
            held = device.capacity.get(name)
            if held is None or held.value < wanted:
                return None
        if not others and not self._count(candidate, 1):
            return None
        self._chosen.setdefault(candidate.id, []).append(amounts)
        return Result(slot.name, candidate, False, amounts, request.tolerations)

    def _give_back(self, result: Result) -> None:
        if result.admin:
            return
        chosen = self._chosen[result.candidate.id]
        chosen.pop()
        if not chosen and not self._taken(result.candidate.id):
            self._count(result.candidate, -1)

    def _count(self, candidate: Candidate, sign: int) -> bool:
        """Take what a device uses of its counters, if there is so much; or give it back."""
        driver, pool, _ = candidate.id
        uses = [
            ((driver, pool, each.counter_set, name), counter.value.nanos)
            for each in candidate.device.consumes_counters
            for name, counter in each.counters.items()
        ]
        if sign > 0 and any(self._counters.get(key, 0) < amount for key, amount in uses):
            return False
        for key, amount in uses:
            self._counters[key] = self._counters.get(key, 0) - sign * amount
        return True


def _meet(constraints: Sequence[DeviceConstraint], results: Sequence[Result]) -> bool:
    """Whether the newest result goes with those before it."""
    for constraint in constraints:
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        concerned = [each for each in results if _named(constraint.requests, each.request)]
        if not concerned or concerned[-1] is not results[-1]:
            continue
        values = [each.candidate.attribute(name) for each in concerned]
        if values[-1] is None:
            return False
        if constraint.match_attribute and values[-1] != values[0]:
            return False
        if constraint.distinct_attribute and values[-1] in values[:-1]:
            return False
    return True


def _named(requests: Sequence[str], request: str) -> bool:
    return not requests or request in requests or request.partition("/")[0] in requests


def amounts_of(result: Mapping[str, Any]) -> Mapping[str, int] | None:
    """What a result in the status of a claim takes of the capacity of a shared device, in nanos."""
    amounts = result.get("consumedCapacity")
    return None if amounts is None else {name: parse(str(text)).nanos for name, text in amounts.items()}
