"""The books of the scheduler on devices: which claims have which, and what others would get on a node.

Devices of a claim are taken from the moment of the decision on; the API shows it when the allocation is
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pykueue.api import decode
from pykueue.api.decoding import DecodeError
from pykueue.api.devices.selection import Candidate, candidates, newest_pools
from pykueue.api.devices.types import VERSION, DeviceClass, ResourceClaim, ResourceSlice
from pykueue.api.objects import Key, Object
from pykueue.embedded.kinds.devices import MAX_RESERVED
from pykueue.embedded.podscheduler.allocation import (
    AllocationError,
    DeviceId,
    Result,
    Search,
    Taken,
    amounts_of,
)
from pykueue.embedded.podscheduler.terms import NodeChoice, node_terms

#: Driver, pool, counter set and name of a counter.
_Counter = tuple[str, str, str, str]

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
ELSEWHERE: Final = "resourceclaim not available on the node"
IN_USE: Final = "resourceclaim in use by too many pods"


class Place(Protocol):
    """A node."""

    name: str
    labels: Mapping[str, str]


class _Decision(NamedTuple):
    """What the claims of a pod get on a node."""

    node: str
    results: dict[Key, list[Result]]


class DeviceBooks:
    """Slices, classes and claims, as the API has them, and allocations that were decided since."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[Key, Object] = {}
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

    def set_class(self, name: str, manifest: Object | None) -> None:
        """A DeviceClass appeared, changed or went."""
        _put(self._classes, name, _decoded(manifest, DeviceClass))

    def set_claim(self, key: Key, manifest: Object | None) -> bool:
        """A ResourceClaim appeared, changed or went; whether devices became free by it."""
        before = self._allocated.pop(key, None)
        _put(self._claims, key, manifest)
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

    def obstacle(self, uid: str, claims: Sequence[Key], place: Place) -> str:
        """Why the pod's claims do not let it use a node, or empty."""
        try:
            return self._obstacle(uid, claims, place)
        except AllocationError as error:
            return str(error)

    def _obstacle(self, uid: str, claims: Sequence[Key], place: Place) -> str:
        open_claims: list[Key] = []
        for key in claims:
            claim = self._claims.get(key)
            if claim is None:
                return f'resourceclaim "{key[1]}" not found'
            if claim["metadata"].get("deletionTimestamp"):
                return f'resourceclaim "{key[1]}" is being deleted'
            status = claim.get("status") or {}
            decided = self._decided(key)
            if status.get("allocation") is None and decided is None:
                open_claims.append(key)
                continue
            users = [one.get("uid") for one in status.get("reservedFor") or ()]
            if uid not in users and len(users) >= MAX_RESERVED:
                return IN_USE
            allocation = status.get("allocation")
            if allocation is not None:
                selector = allocation.get("nodeSelector")
            else:
                assert decided is not None
                selector = _selector_of(decided[1], decided[0])
            if selector is not None and not _selects(selector, place):
                return ELSEWHERE
        return "" if not open_claims or self._search(open_claims, place) is not None else CANNOT_ALLOCATE

    def _decided(self, key: Key) -> tuple[str, list[Result]] | None:
        for node, results in self._assumed.values():
            if key in results:
                return node, results[key]
        return None

    def assume(self, uid: str, claims: Sequence[Key], place: Place) -> None:
        """The pod was placed on a node: its claims have their devices there from now on."""
        wanted = [
            key
            for key in claims
            if key in self._claims and key not in self._allocated and self._decided(key) is None
        ]
        if not wanted or uid in self._assumed:
            return
        try:
            found = self._search(wanted, place)
        except AllocationError:
            return
        if found is not None:
            self._assumed[uid] = _Decision(place.name, found)
            self._taken = self._left = None

    def forget(self, uid: str) -> None:
        """The pod is not placed any more: what was only decided for it is free again."""
        if self._assumed.pop(uid, None) is not None:
            self._taken = self._left = None

    def decided(self, uid: str) -> dict[Key, Object]:
        """The allocations to write for a pod that was placed, by claim."""
        decision = self._assumed.get(uid)
        if decision is None:
            return {}
        return {key: self._allocation(key, found, decision.node) for key, found in decision.results.items()}

    def _allocation(self, key: Key, results: Sequence[Result], node: str) -> Object:
        devices: Object = {"results": [result.manifest() for result in results]}
        claim = self._claims[key]
        given = ((claim.get("spec") or {}).get("devices") or {}).get("config") or []
        if given:
            devices["config"] = [{"source": "FromClaim", **one} for one in given]
        selector = _selector_of(results, node)
        return {"devices": devices, **({"nodeSelector": selector} if selector is not None else {})}

    def _search(self, claims: Iterable[Key], place: Place) -> dict[Key, list[Result]] | None:
        taken, left = self._all_taken(), dict(self._counters_left())
        here = [*self._by_node.get(place.name, ())]
        here += [candidate for candidate in self._by_node.get("", ()) if _is_at(candidate, place)]
        search = Search(here, self._classes, lambda device: taken.get(device, ()), left)
        found: dict[Key, list[Result]] = {}
        for claim_key in claims:
            claim = _decoded(self._claims[claim_key], ResourceClaim)
            results = search.allocate(claim.spec) if claim is not None else None
            if results is None:
                return None
            found[claim_key] = results
        return found

    def _all_candidates(self) -> list[Candidate]:
        if self._candidates is None:
            pools = newest_pools(self._slices.values())
            self._candidates = candidates(pools)
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
            taken, every = self._all_taken(), self._all_candidates()
            self._left = dict(self._totals)
            for candidate in every:
                if candidate.id in taken:
                    driver, pool, _ = candidate.id
                    for use in candidate.device.consumes_counters:
                        for name, counter in use.counters.items():
                            key = (driver, pool, use.counter_set, name)
                            self._left[key] = self._left.get(key, 0) - counter.value.nanos
        return self._left

    def _all_taken(self) -> dict[DeviceId, list[Taken]]:
        if self._taken is None:
            self._taken = {}
            for key, results in [item for _, found in self._assumed.values() for item in found.items()]:
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
        return decode({"apiVersion": VERSION, "kind": kind.__name__, **manifest})
    except DecodeError:
        return None


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
