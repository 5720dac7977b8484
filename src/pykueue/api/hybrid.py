# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Hybrid assignments: one pod set over several flavors, each with a contiguous range of the pods' indexes.

A pod template asks for it by an annotation, and an annotation of the ClusterQueue permits it. The parts are
the domains of the pod set's topology assignment, whose only level is then `pykueue.io/flavor`: so they are
written with the admission, and last as long as it does. Source of the rules: docs/reference/policies.md 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.kueue.names import FLAVOR_LABEL, HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION
from pykueue.api.kueue.workload import PodSetAssignment, TopologyAssignment
from pykueue.api.model import Model
from pykueue.api.objects import get
from pykueue.api.topologies import Domain, compress, expand

FLAVORS_MAX: Final = 8
#: Flavors become label values.
_NAME_MAX: Final = 63
_MOST_PODS: Final = 2**31 - 1
_EXAMPLE: Final = '{"flavors": [{"name": "reserved"}, {"name": "spot"}]}'

#: A number of pods, or a share such as "50%".
Bound = int | str


class HybridFlavor(Model, forbid_unknown_fields=True):
    """One of the flavors, with the fewest and the most pods it may get."""

    name: str
    min: Bound | None = None
    max: Bound | None = None


class HybridRequest(Model, forbid_unknown_fields=True):
    """What the annotation of a pod template says."""

    flavors: list[HybridFlavor] = []
    """In the order of preference."""
    slice_size: int = 1
    """The number of pods of a flavor is a multiple of it."""

    def bounds(self, pods: int) -> list[tuple[int, int]]:
        """The fewest and the most slices of each flavor; shares are of `pods`."""
        size = self.slice_size
        found = []
        for flavor in self.flavors:
            least = -(-_pods(flavor.min, pods, 0, up=True) // size)
            most = pods if flavor.max is None else _pods(flavor.max, pods, pods, up=False)
            found.append((least, -(-pods // size) if most >= pods else most // size))
        return found


class Part(NamedTuple):
    """The pods of a pod set that have one flavor; they follow those of the part before."""

    flavor: str
    pods: int


def parse_request(text: str) -> HybridRequest:
    """The annotation of a pod template. Raises ValueError with what is wrong and what is accepted."""
    try:
        found = decode_as(HybridRequest, msgspec.json.decode(text))
    except DecodeError as error:
        raise ValueError(error.why) from None
    except msgspec.DecodeError:
        raise ValueError(f"must be a JSON object such as {_EXAMPLE}") from None
    for problem in _problems(found):
        raise ValueError(problem)
    return found


def count_problem(request: HybridRequest, pods: int) -> str:
    """Why so many pods cannot be split as requested; empty if they can be."""
    if pods % request.slice_size:
        return f"the number of pods, {pods}, is not a multiple of sliceSize {request.slice_size}"
    slices = pods // request.slice_size
    bounds = request.bounds(pods)
    for flavor, (least, most) in zip(request.flavors, bounds, strict=True):
        if least > most:
            return f"of {pods} pods, min of flavor {flavor.name} is more than its max, in whole slices"
    if sum(least for least, _ in bounds) > slices:
        return f"the min of all flavors together is more than {pods} pods"
    if sum(most for _, most in bounds) < slices:
        return f"the max of all flavors together is less than {pods} pods"
    return ""


def is_permitted(annotations: Mapping[str, str]) -> bool:
    """Whether a ClusterQueue with these annotations lets pod sets be split over flavors."""
    return annotations.get(HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION) == "true"


def with_parts(given: PodSetAssignment, parts: Sequence[Part]) -> PodSetAssignment:
    """The assignment with the parts of its pod set."""
    domains = [Domain((part.flavor,), part.pods) for part in parts]
    return msgspec.structs.replace(given, topology_assignment=compress((FLAVOR_LABEL,), domains))


def parts_of(given: PodSetAssignment) -> list[Part]:
    """The parts of a pod set, the most preferred flavor first; empty unless it has several flavors."""
    return _parts(given.topology_assignment)


def parts_in(given: Mapping[str, Any]) -> list[Part]:
    """`parts_of` a pod set assignment as a manifest."""
    assignment = given.get("topologyAssignment")
    if not assignment or get(assignment, "levels") != [FLAVOR_LABEL]:
        return []
    return _parts(decode_as(TopologyAssignment, assignment))


def split_pod_sets(workload: Mapping[str, Any]) -> Iterator[str]:
    """Names of the pod sets of a Workload that are split over flavors."""
    for given in get(workload, "status", "admission", "podSetAssignments") or ():
        if parts_in(given):
            yield str(given.get("name"))


def flavors_of(given: PodSetAssignment) -> dict[str, None]:
    """All flavors of a pod set, each once, in order."""
    return dict.fromkeys((*given.flavors.values(), *[part.flavor for part in parts_of(given)]))


def flavors_in(given: Mapping[str, Any]) -> dict[str, None]:
    """`flavors_of` a pod set assignment as a manifest."""
    names = (given.get("flavors") or {}).values()
    return dict.fromkeys((*map(str, names), *[part.flavor for part in parts_in(given)]))


def parts_text(parts: Sequence[Part]) -> str:
    """The parts with the indexes of their pods, as in `reserved (pods 0-11) and spot (pods 12-19)`."""
    texts, first = [], 0
    for part in parts:
        last = first + part.pods - 1
        indexes = f"pods {first}-{last}" if last > first else f"pod {first}"
        texts.append(f"{part.flavor} ({indexes})")
        first += part.pods
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def shares_of(parts: Sequence[Part], flavor: str, admitted: int, needed: int) -> list[Part]:
    """Which flavors the pods of a resource count for that is assigned a flavor.

    `needed` of the `admitted` pods still need quota. Which of them have ended is not known, so a part keeps
    its quota until fewer pods need quota than it has.
    """
    if not parts or parts[0].flavor != flavor:
        return [Part(flavor, min(admitted, needed))]
    return [Part(part.flavor, min(part.pods, needed)) for part in parts]


def _parts(assignment: TopologyAssignment | None) -> list[Part]:
    if assignment is None or assignment.levels != [FLAVOR_LABEL]:
        return []
    return [Part(values[0], pods) for values, pods in expand(assignment)]


def _pods(bound: Bound | None, pods: int, default: int, up: bool) -> int:
    if bound is None:
        return default
    if isinstance(bound, int):
        return bound
    share = int(bound.removesuffix("%")) * pods
    return -(-share // 100) if up else share // 100


def _problems(request: HybridRequest) -> Iterator[str]:
    names = [flavor.name for flavor in request.flavors]
    if not 2 <= len(names) <= FLAVORS_MAX:
        yield f"flavors: {len(names)} flavors are named; accepted: 2 to {FLAVORS_MAX}"
    if not 1 <= request.slice_size <= _MOST_PODS:
        yield f"sliceSize: {request.slice_size} is not accepted: must be at least 1"
    for index, flavor in enumerate(request.flavors):
        where = f"flavors[{index}]"
        if not flavor.name or len(flavor.name) > _NAME_MAX:
            yield f"{where}.name: must be the name of a ResourceFlavor of at most {_NAME_MAX} characters"
        if flavor.name in names[:index]:
            yield f"{where}.name: {flavor.name} is named twice"
        for field, bound in (("min", flavor.min), ("max", flavor.max)):
            if bound is not None and not _is_bound(bound):
                yield f'{where}.{field}: {bound} is not accepted: must be a number of pods, or "0%" to "100%"'


def _is_bound(bound: Bound) -> bool:
    if isinstance(bound, int):
        return 0 <= bound <= _MOST_PODS
    number = bound.removesuffix("%")
    return bound.endswith("%") and number.isascii() and number.isdecimal() and int(number) <= 100
