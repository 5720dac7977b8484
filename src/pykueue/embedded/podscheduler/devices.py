"""The books of the scheduler on devices: which claims have which, and what others would get on a node.

Devices of a claim are taken from the moment of the decision on; the API shows it when the allocation is
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.devices.selection import Candidate, candidates, newest_pools
from pykueue.api.devices.types import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from pykueue.api.objects import Key, Object, controller_of
from pykueue.embedded.kinds.devices import MAX_RESERVED, is_extended_claim
from pykueue.embedded.podscheduler.allocation import (
    AllocationError,
    DeviceId,
    Result,
    Search,
    Taken,
    amounts_of,
)
from pykueue.embedded.podscheduler.extended import ExtendedClaim, backing, extended_claim
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.terms import NodeChoice, node_terms

#: Driver, pool, counter set and name of a counter.
_Counter = tuple[str, str, str, str]

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
ELSEWHERE: Final = "resourceclaim not available on the node"
IN_USE: Final = "resourceclaim in use by too many pods"
#: What the claim of a pod's extended resources is called until it is created: no name that a claim can have.
_UNNAMED: Final = "<extended-resources>"


class Place(Protocol):
    """A node."""

    name: str
    labels: Mapping[str, str]
    allocatable: dict[str, int]


class _Decision(NamedTuple):
    """What the claims of a pod get on a node."""

    node: str
    results: dict[Key, list[Result]]
    extended: ExtendedClaim | None


class DeviceBooks:
    """Slices, classes, taints and claims, as the API has them, and allocations that were decided since."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._claims: dict[Key, Object] = {}
        #: The class of each extended resource that devices stand for. The same dict for good.
        self.backed: dict[str, str] = {}
        #: Claims that were created for extended resources, by uid of their pod.
        self._extended: dict[str, Key] = {}
        #: The claim of a decision for extended resources, once it is created, by uid of the pod.
        self._written: dict[str, Key] = {}
        #: Of claims of the API that are allocated.
        self._allocated: dict[Key, list[Taken]] = {}
        #: Allocations that were decided, by uid of the pod that was placed with them.
        self._assumed: dict[str, _Decision] = {}
        # Computed by the first search after a change of what they follow from.
        self._taken: dict[DeviceId, list[Taken]] | None = None
        self._candidates: list[Candidate] | None = None
        #: Of those: the devices of each node; under "" those that say otherwise from where they can be used.
        self._by_node: dict[str, list[Candidate]] = {}
        #: Amounts of counters in the slices, and what allocations leave of them.
        self._totals: dict[_Counter, int] = {}
        self._left: dict[_Counter, int] | None = None

    # --- objects ----------------------------------------------------------------------------------------

    def set_slice(self, name: str, manifest: Object | None) -> None:
        """A ResourceSlice appeared, changed or went."""
        _put(self._slices, name, _decoded(manifest, ResourceSlice))
        self._candidates = self._left = None

    def set_rule(self, name: str, manifest: Object | None) -> None:
        """A DeviceTaintRule appeared, changed or went."""
        _put(self._rules, name, _decoded(manifest, DeviceTaintRule))
        self._candidates = self._left = None

    def set_class(self, name: str, manifest: Object | None) -> bool:
        """A DeviceClass appeared, changed or went; whether `backed` changed."""
        _put(self._classes, name, _decoded(manifest, DeviceClass))
        before, after = dict(self.backed), backing(self._classes)
        self.backed.clear()
        self.backed.update(after)
        return before != after

    def set_claim(self, key: Key, manifest: Object | None) -> bool:
        """A ResourceClaim appeared, changed or went; whether devices became free by it."""
        before = self._allocated.pop(key, None)
        known = self._claims.get(key)
        _put(self._claims, key, manifest)
        if is_extended_claim(manifest or known):
            owner = controller_of(manifest or known or {})
            _put(self._extended, owner["uid"] if owner else "", None if manifest is None else key)
        allocation = ((manifest or {}).get("status") or {}).get("allocation")
        if allocation is not None:
            self._allocated[key] = [
                Taken((one["driver"], one["pool"], one["device"]), amounts_of(one))
                for one in (allocation.get("devices") or {}).get("results") or ()
                if not one.get("adminAccess")
            ]
        self._taken = self._left = None
        return before is not None and allocation is None

    def claim(self, key: Key) -> Object | None:
        """A claim as the API has it."""
        return self._claims.get(key)

    # --- what a pod gets --------------------------------------------------------------------------------

    def concern(self, pod: PodInfo) -> bool:
        """Whether a pod has claims, or may need devices for its extended resources."""
        return bool(pod.claims) or (
            bool(self.backed) and any(name in self.backed for name, _ in pod.shape.requests)
        )

    def obstacle(self, pod: PodInfo, place: Place) -> str:
        """Why the pod's claims and extended resources do not let it use a node, or empty."""
        try:
            return self._obstacle(pod, place)
        except AllocationError as error:
            return str(error)

    def _obstacle(self, pod: PodInfo, place: Place) -> str:
        wanted: list[tuple[Key, ResourceClaimSpec]] = []
        for key in pod.claims:
            claim = self._claims.get(key)
            if claim is None:
                return f'resourceclaim "{key[1]}" not found'
            if claim["metadata"].get("deletionTimestamp"):
                return f'resourceclaim "{key[1]}" is being deleted'
            status = claim.get("status") or {}
            decided = self._decided(key)
            if status.get("allocation") is None and decided is None:
                wanted.append((key, _spec_of(claim)))
                continue
            users = [one.get("uid") for one in status.get("reservedFor") or ()]
            if pod.uid not in users and len(users) >= MAX_RESERVED:
                return IN_USE
            allocation = status.get("allocation")
            if allocation is not None:
                selector = allocation.get("nodeSelector")
            else:
                assert decided is not None
                selector = _selector_of(decided[1], decided[0])
            if selector is not None and not _selects(selector, place):
                return ELSEWHERE
        extended = self._needed(pod, place)
        if extended is not None:
            wanted.append(((pod.namespace, _UNNAMED), decode_as(ResourceClaimSpec, extended.spec)))
        return "" if not wanted or self._search(pod, wanted, place) is not None else CANNOT_ALLOCATE

    def _needed(self, pod: PodInfo, place: Place) -> ExtendedClaim | None:
        """The claim for the extended resources that the node has only as devices."""
        backed = self.backed
        if not backed:
            return None
        classes = {
            name: backed[name]
            for name, _ in pod.shape.requests
            if name in backed and not place.allocatable.get(name)
        }
        return extended_claim(pod.manifest["spec"], classes) if classes else None

    def _decided(self, key: Key) -> tuple[str, list[Result]] | None:
        for decision in self._assumed.values():
            if key in decision.results:
                return decision.node, decision.results[key]
        return None

    def assume(self, pod: PodInfo, place: Place) -> None:
        """The pod was placed on a node: its claims have their devices there from now on."""
        wanted = [
            (key, _spec_of(self._claims[key]))
            for key in pod.claims
            if key in self._claims and key not in self._allocated and self._decided(key) is None
        ]
        # Of a pod that is bound the claim for extended resources is written.
        extended = None if pod.manifest["spec"].get("nodeName") else self._needed(pod, place)
        if extended is not None:
            wanted.append(((pod.namespace, _UNNAMED), decode_as(ResourceClaimSpec, extended.spec)))
        if not wanted or pod.uid in self._assumed:
            return
        try:
            found = self._search(pod, wanted, place)
        except AllocationError:
            return
        if found is not None:
            self._assumed[pod.uid] = _Decision(place.name, found, extended)
            self._taken = self._left = None

    def forget(self, uid: str) -> None:
        """The pod is not placed any more: what was only decided for it is free again."""
        if self._assumed.pop(uid, None) is not None:
            self._written.pop(uid, None)
            self._taken = self._left = None

    def decided(self, uid: str) -> dict[Key, Object]:
        """The allocations to write for a pod that was placed, by claim that exists."""
        decision = self._assumed.get(uid)
        if decision is None:
            return {}
        return {
            key: self._allocation(self._claims[key], found, decision.node)
            for key, found in decision.results.items()
            if key in self._claims
        }

    def extended(self, pod: PodInfo) -> tuple[ExtendedClaim, Object] | None:
        """The claim to create for the extended resources of a pod that was placed, and its allocation."""
        decision = self._assumed.get(pod.uid)
        if decision is None or decision.extended is None:
            return None
        results = decision.results[pod.namespace, _UNNAMED]
        return decision.extended, self._allocation({"spec": decision.extended.spec}, results, decision.node)

    def extended_key(self, uid: str) -> Key | None:
        """The claim for the extended resources of a pod, of this decision or an earlier one."""
        return self._extended.get(uid)

    def set_written(self, uid: str, claim: Object, key: Key) -> None:
        """The claim for the extended resources of a pod that was placed is in the API, with its devices."""
        self._written[uid] = key
        self.set_claim(key, claim)

    def is_written(self, uid: str) -> bool:
        """Whether that is so."""
        return uid in self._written

    def _allocation(self, claim: Object, results: Sequence[Result], node: str) -> Object:
        devices: Object = {"results": [result.manifest() for result in results]}
        given = ((claim.get("spec") or {}).get("devices") or {}).get("config") or []
        if given:
            devices["config"] = [{"source": "FromClaim", **one} for one in given]
        selector = _selector_of(results, node)
        return {"devices": devices, **({"nodeSelector": selector} if selector is not None else {})}

    def _search(
        self, pod: PodInfo, wanted: Sequence[tuple[Key, ResourceClaimSpec]], place: Place
    ) -> dict[Key, list[Result]] | None:
        taken, left = self._for(pod.uid)
        here = [*self._by_node.get(place.name, ())]
        here += [candidate for candidate in self._by_node.get("", ()) if _is_at(candidate, place)]
        search = Search(here, self._classes, lambda device: taken.get(device, ()), left)
        found: dict[Key, list[Result]] = {}
        for key, spec in wanted:
            results = search.allocate(spec)
            if results is None:
                return None
            found[key] = results
        return found

    def _for(self, uid: str) -> tuple[Mapping[DeviceId, list[Taken]], dict[_Counter, int]]:
        """What others have of devices, and what is left of counters.

        What a claim for extended resources of the pod has is free to it: the claim was created by an attempt
        that failed, and is replaced.
        """
        left = dict(self._counters_left())
        stale = self._allocated.get(self._extended.get(uid, ("", "")), ())
        if not stale:
            return self._all_taken(), left
        others = {
            device: [each for each in several if not any(each is one for one in stale)]
            for device, several in self._all_taken().items()
        }
        return others, self._left_beside(others)

    def _all_candidates(self) -> list[Candidate]:
        if self._candidates is None:
            pools = newest_pools(self._slices.values())
            self._candidates = candidates(pools, [rule for _, rule in sorted(self._rules.items())])
            self._by_node = {}
            for candidate in self._candidates:
                self._by_node.setdefault(_where(candidate).node_name, []).append(candidate)
            self._totals = {
                (item.spec.driver, item.spec.pool.name, each.name, name): counter.value.nanos
                for slices in pools
                for item in slices
                for each in item.spec.shared_counters
                for name, counter in each.counters.items()
            }
        return self._candidates

    def _counters_left(self) -> Mapping[_Counter, int]:
        if self._left is None:
            self._left = self._left_beside(self._all_taken())
        return self._left

    def _left_beside(self, taken: Mapping[DeviceId, Sequence[Taken]]) -> dict[_Counter, int]:
        every = self._all_candidates()
        left = dict(self._totals)
        for candidate in every:
            if taken.get(candidate.id):
                driver, pool, _ = candidate.id
                for use in candidate.device.consumes_counters:
                    for name, counter in use.counters.items():
                        key = (driver, pool, use.counter_set, name)
                        left[key] = left.get(key, 0) - counter.value.nanos
        return left

    def _all_taken(self) -> dict[DeviceId, list[Taken]]:
        if self._taken is None:
            self._taken = {}
            decided = [
                (self._written.get(uid, key) if key[1] == _UNNAMED else key, results)
                for uid, decision in self._assumed.items()
                for key, results in decision.results.items()
            ]
            for key, results in decided:
                if key not in self._allocated:
                    for each in results:
                        if not each.admin:
                            taken = Taken(each.candidate.id, each.amounts)
                            self._taken.setdefault(taken.device, []).append(taken)
            for several in self._allocated.values():
                for taken in several:
                    self._taken.setdefault(taken.device, []).append(taken)
        return self._taken


def _put(into: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


def _decoded(manifest: Object | None, kind: type[Any]) -> Any:
    if manifest is None:
        return None
    try:
        return decode_as(kind, manifest)
    except DecodeError:
        return None


def _spec_of(claim: Object) -> ResourceClaimSpec:
    """What a claim requests. Raises AllocationError."""
    try:
        return decode_as(ResourceClaim, claim).spec
    except DecodeError as error:
        raise AllocationError(str(error)) from None


def _where(candidate: Candidate) -> Any:
    """What says from where a device can be used: the device itself, or its slice."""
    spec = candidate.slice.spec
    return candidate.device if spec.per_device_node_selection else spec


def _is_at(candidate: Candidate, place: Place) -> bool:
    """Whether a device that belongs to no single node can be used from this one."""
    where = _where(candidate)
    if where.all_nodes:
        return True
    return where.node_selector is not None and _selects(where.node_selector, place)


def _selects(selector: Mapping[str, Any], place: Place) -> bool:
    return NodeChoice((), node_terms(selector)).matches(place.labels, place.name)


def _selector_of(results: Sequence[Result], node: str) -> Object | None:
    """The nodes from which all devices can be used, of which `node` is one; None for all nodes."""
    places = [_where(result.candidate) for result in results]
    selectors = [place.node_selector for place in places if place.node_selector is not None]
    if any(place.node_name for place in places) or any(one != selectors[0] for one in selectors):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return dict(selectors[0]) if selectors else None
