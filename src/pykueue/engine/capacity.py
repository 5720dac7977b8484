"""What workloads compete for: quota, and capacities that trees of cohorts share (licences, budgets, nodes).

| step | of quota (`quota.capacity`) | of a shared capacity |
|---|---|---|
| request | what the pods request | `request`: from the object alone |
| demand | amounts at nodes of the tree, once flavors are chosen | `demand`: given the flavors |
| fits | enough is available | `fits`, and `could_fit` if nothing were reserved |
| reservation | the amounts | `place`: what exactly is taken, such as nodes |

Nomination and the search for workloads to preempt ask the same questions of all capacities: release what a
candidate reserves, see whether all demands fit, reserve it again. A workload gets all it demands or nothing.
`reserve` and `release` are exact inverses without any other effect, in any order, also beyond what fits:
while preempted workloads still run, what their preemptor will get is reserved on top. A fork is undone by the
same two, through the undo log of the moves (see `places`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pykueue.api import kueue
from pykueue.api.hybrid import Part, parts_of, shares_of


class AssignedPodSet(NamedTuple):
    """A pod set with the flavors it would get, or got."""

    name: str
    pods: int
    flavors: Mapping[str, str]
    """By resource."""
    implied: bool = False
    """All flavors of its ClusterQueue have a topology: it is placed although it does not ask for that."""
    delayed: bool = False
    """Its nodes are chosen only after the admission checks."""
    parts: Sequence[Part] = ()
    """The pods of each flavor, where they are split over several."""

    def uses(self) -> Iterator[tuple[str, str, int]]:
        """(resource, flavor, pods)."""
        for resource, flavor in self.flavors.items():
            for part in shares_of(self.parts, flavor, self.pods, self.pods):
                yield resource, part.flavor, part.pods


ImpossibleReason = Literal["ExceedsMaxQuota", "NoMatchingFlavor", "TopologyPlacementFailed"]


class SharedCapacity(ABC):
    """A capacity beside quota. Trees whose workloads request it are woken and cycled together.

    Values of requests, demands and reservations are the capacity's own; requests are compared. One that only
    counts needs no more than the abstract methods: demand and reservation are then what was requested.
    """

    #: Unique in an engine.
    name: ClassVar[str]
    #: Reason of a workload that could not fit if nothing were reserved.
    impossible: ClassVar[ImpossibleReason] = "ExceedsMaxQuota"
    #: Workloads of one scheduling class request the same.
    by_class: ClassVar[bool] = False
    #: A workload whose demand does not fit preempts no others and lets those behind it go on, in a strict
    #: queue too.
    sets_aside: ClassVar[bool] = False

    @property
    def flavors(self) -> Collection[str] | None:
        """Flavors whose quota goes with this capacity: ClusterQueues that have any of them share it.

        None: the ClusterQueues share it whose workloads request it, whatever their flavors.
        """
        return None

    def request(self, workload: kueue.Workload) -> Any | None:
        """What a workload requests; None if nothing. Depends on the object alone."""
        return None

    def request_of(self, workload: kueue.Workload, scheduling_class: Any) -> Any | None:
        """The same for a capacity that also looks at the scheduling class of the workload."""
        return self.request(workload)

    def demand(self, request: Any, pod_sets: Sequence[AssignedPodSet]) -> Any | None:
        """What a request comes to with these flavors and pod counts; None if nothing."""
        return request

    def continuing(self, demand: Any, held: Any) -> Any:
        """The demand of a workload slice, given what the slice holds that it replaces."""
        return demand

    @abstractmethod
    def fits(self, demand: Any) -> bool:
        """Whether the demand could be reserved now."""

    def could_fit(self, demand: Any) -> bool:
        """Whether the demand could be reserved if nothing were; no workload is preempted otherwise."""
        return True

    def within_nominal(self, demand: Any) -> str:
        """Why a workload may not borrow, as a sentence without a full stop; empty: it may."""
        return ""

    def place(self, demand: Any) -> Any | None:
        """What would be reserved for the demand now; None if it cannot be placed."""
        return demand

    def why_impossible(self, demand: Any) -> ImpossibleReason:
        """The reason of a workload whose demand could not fit if nothing were reserved."""
        return self.impossible

    def available(self, reservation: Any) -> bool | None:
        """Whether exactly this could be reserved now; None if all that matters is whether the demand fits."""
        return None

    def keep(self, demand: Any) -> Any | None:
        """What is kept from others for the rest of a cycle, for a demand that does not fit now."""
        return None

    @abstractmethod
    def reserve(self, reservation: Any) -> None:
        """Count the reservation as used."""

    @abstractmethod
    def release(self, reservation: Any) -> None:
        """The exact inverse of `reserve`."""

    @abstractmethod
    def explain(self, demand: Any) -> str:
        """Why the demand does not fit, as a sentence without a full stop."""

    def frees(self, reservation: Any, demand: Any) -> bool:
        """Whether releasing the reservation of another workload could help the demand."""
        return True

    def write(self, admission: kueue.Admission, reservation: Any) -> kueue.Admission:
        """The admission with what others must know of the reservation, such as the nodes."""
        return admission

    def read(self, request: Any, admission: kueue.Admission) -> Any | None:
        """The reservation of a workload with that admission; None if it has none. The inverse of `write`."""
        return self.demand(request, assigned_by(admission))

    def encode(self, reservation: Any) -> Any:
        """The reservation as JSON data, for a dump."""
        return reservation

    def decode(self, data: Any) -> Any:
        """The inverse of `encode`."""
        return data

    def problems(self, reservations: Iterable[Any]) -> Iterable[str]:
        """What is wrong with the count of what is used, given all reservations; for `Engine.check`."""
        return ()


#: What one workload requests, by capacity.
Requests = tuple[tuple[SharedCapacity, Any], ...]
#: What one workload demands, by capacity.
Demands = tuple[tuple[SharedCapacity, Any], ...]
#: What workloads reserve of one capacity, and of all by capacity.
Reservation = tuple[SharedCapacity, Any]
Reservations = tuple[Reservation, ...]


def assigned_by(admission: kueue.Admission) -> list[AssignedPodSet]:
    """The pod sets of an admission with their flavors."""
    return [
        AssignedPodSet(given.name, given.count or 0, given.flavors, parts=parts_of(given))
        for given in admission.pod_set_assignments
    ]


def demands(requests: Requests, pod_sets: Sequence[AssignedPodSet]) -> Demands:
    """What requests come to with these flavors."""
    found = [(shared, shared.demand(request, pod_sets)) for shared, request in requests]
    return tuple([(shared, demand) for shared, demand in found if demand is not None])


def continuing(demands: Demands, held: Reservations) -> Demands:
    """The demands of a workload slice, given what the slice holds that it replaces."""
    by_name = {shared.name: reservation for shared, reservation in held}
    return tuple(
        [
            (shared, shared.continuing(demand, by_name[shared.name]) if shared.name in by_name else demand)
            for shared, demand in demands
        ]
    )


def lacking(demands: Demands) -> Demands:
    """The demands that cannot be reserved now."""
    return tuple([(shared, demand) for shared, demand in demands if not shared.fits(demand)])


def fits(demands: Demands) -> bool:
    """Whether each of the demands could be reserved now."""
    return all(shared.fits(demand) for shared, demand in demands)


def place(demands: Demands) -> Reservations | None:
    """What would be reserved for the demands now; None if one of them cannot be placed."""
    if not fits(demands):
        return None
    found = [(shared, shared.place(demand)) for shared, demand in demands]
    if any(reservation is None for _, reservation in found):
        return None
    return tuple(found)


def taken(reservations: Reservations) -> bool:
    """Whether others hold what was to be reserved."""
    return any(shared.available(reservation) is False for shared, reservation in reservations)


def still_fits(demands: Demands, reservations: Reservations) -> bool:
    """Whether what was to be reserved for the demands is free, and the demands fit that only count."""
    free = {shared.name: shared.available(reservation) for shared, reservation in reservations}
    for shared, demand in demands:
        available = free.get(shared.name)
        if not (shared.fits(demand) if available is None else available):
            return False
    return True


def kept(demands: Demands) -> Reservations:
    """What is kept from others for demands that do not fit now."""
    found = [(shared, shared.keep(demand)) for shared, demand in demands]
    return tuple([(shared, reservation) for shared, reservation in found if reservation is not None])


def read(requests: Requests, admission: kueue.Admission) -> Reservations:
    """What a workload with that admission reserves."""
    found = [(shared, shared.read(request, admission)) for shared, request in requests]
    return tuple([(shared, reservation) for shared, reservation in found if reservation is not None])


def write(admission: kueue.Admission, reservations: Reservations) -> kueue.Admission:
    """The inverse of `read`."""
    for shared, reservation in reservations:
        admission = shared.write(admission, reservation)
    return admission


def reserve(reservations: Iterable[Reservation]) -> None:
    """Count all reservations as used."""
    for shared, reservation in reservations:
        shared.reserve(reservation)


def release(reservations: Iterable[Reservation]) -> None:
    """The exact inverse of `reserve`."""
    for shared, reservation in reservations:
        shared.release(reservation)


def frees(reservations: Reservations, demands: Demands) -> bool:
    """Whether releasing reservations could help any of the demands."""
    return any(
        shared.frees(reservation, demand)
        for shared, reservation in reservations
        for other, demand in demands
        if shared is other
    )
