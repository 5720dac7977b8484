"""What a pod set requests of a topology: level, slices and mode, and what that means in one tree.

Source of the rules: docs/reference/topology-aware-scheduling.md 4, 5 and 9.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykueue.api.kueue.workload import PodSetTopologyRequest
from pykueue.engine.options import Options


class TopologyRules(NamedTuple):
    """What the feature gates say about placement."""

    least_free_first: bool = True
    """Requests without a level fill the smallest gaps first (TASProfileMixed)."""
    balanced: bool = False
    """Preferred requests are spread evenly (TASBalancedPlacement)."""
    layers: bool = True
    """Slices may have several layers (TASMultiLayerTopology)."""
    by_affinity: bool = False
    """Preferred node affinity goes first (TASRespectNodeAffinityPreferred)."""
    shared_hosts: bool = True
    """Flavors see what others use of a host (TASHandleOverlappingFlavors)."""
    scheduler_filters: bool = False
    """As in the scheduler, in topologies of hosts: taints keep pods off nodes that are not Ready or cordoned,
    and a host port is used once on a host (SchedulerLibraryIntegration)."""
    elastic: bool = False
    """A workload slice keeps the domains of the slice it replaces (ElasticJobsViaWorkloadSlicesWithTAS)."""

    @classmethod
    def of(cls, options: Options) -> TopologyRules:
        """As the feature gates say."""
        return cls(
            least_free_first=options.enabled("TASProfileMixed"),
            balanced=options.enabled("TASBalancedPlacement"),
            layers=options.enabled("TASMultiLayerTopology"),
            by_affinity=options.enabled("TASRespectNodeAffinityPreferred"),
            shared_hosts=options.enabled("TASHandleOverlappingFlavors"),
            scheduler_filters=options.enabled("SchedulerLibraryIntegration"),
            elastic=options.enabled("ElasticJobsViaWorkloadSlicesWithTAS"),
        )


class Layer(NamedTuple):
    """Slices of so many pods, each within one domain of a level."""

    level: str
    size: int


class LevelRequest(NamedTuple):
    """Where the pods of one unit of placement must be relative to each other."""

    mode: str
    """`required`, `preferred`, `sliced` (slices only), `unconstrained`, or empty if none is named."""
    level: str = ""
    """Of required and preferred requests."""
    layers: tuple[Layer, ...] = ()
    """Outermost first."""


class Layout(NamedTuple):
    """A level request in terms of one tree."""

    level: int
    """Where the search begins."""
    required: bool
    climbs: bool
    """Levels above are tried as well."""
    least_free_first: bool
    balanced: bool
    slice_level: int
    slice_size: int
    units: tuple[int, ...]
    """By level: domains hold multiples of so many pods (inner layers of slices); 0 for any number."""
    layers: tuple[tuple[int, int], ...]
    """(level, size) of all layers of slices."""


def layers_of(request: PodSetTopologyRequest, rules: TopologyRules) -> tuple[Layer, ...]:
    """The layers of slices that a request names, outermost first."""
    constraints = request.podset_slice_required_topology_constraints
    if constraints and rules.layers:
        return tuple([Layer(each.topology, each.size) for each in constraints])
    if request.pod_set_slice_required_topology and request.pod_set_slice_size is not None:
        return (Layer(request.pod_set_slice_required_topology, request.pod_set_slice_size),)
    return ()


def level_request(request: PodSetTopologyRequest | None, rules: TopologyRules) -> LevelRequest:
    """The mode and level of a pod set's request; without one it is unconstrained (5.1)."""
    if request is None or not request.explicit:
        return LevelRequest("unconstrained")
    layers = layers_of(request, rules)
    if request.required:
        return LevelRequest("required", request.required, layers)
    if request.preferred:
        return LevelRequest("preferred", request.preferred, layers)
    if layers:
        return LevelRequest("sliced", "", layers)
    return LevelRequest("unconstrained" if request.unconstrained else "")


def layout(request: LevelRequest, levels: Sequence[str], rules: TopologyRules) -> Layout | str:
    """The layout of a request in a tree with these levels, or why there is none (9.2)."""
    lowest = len(levels) - 1
    if request.mode in ("required", "preferred"):
        if request.level not in levels:
            return f"the topology has no level {request.level}"
        level = levels.index(request.level)
    elif request.mode == "sliced":
        level = 0
    elif request.mode == "unconstrained":
        level = lowest
    else:
        return "the topology level is not specified"
    slice_level, slice_size = lowest, 1
    units = [0] * len(levels)
    layers: list[tuple[int, int]] = []
    for layer in request.layers:
        if layer.level not in levels:
            return f"the topology has no level {layer.level} for slices"
        at = levels.index(layer.level)
        if layer.size < 1:
            return "the size of slices is not specified"
        if not layers:
            if at < level:
                return "the level of slices is above the level of the pods"
            slice_level, slice_size = at, layer.size
        else:
            above, size = layers[-1]
            if at <= above:
                return f"the level of the inner slices, {layer.level}, is not below {levels[above]}"
            if size % layer.size:
                return f"the size of the inner slices, {layer.size}, does not divide {size}"
            units[above + 1 : at + 1] = [layer.size] * (at - above)
        layers.append((at, layer.size))
    named = request.mode in ("required", "preferred")
    return Layout(
        level,
        request.mode == "required",
        request.mode == "preferred",
        not named and rules.least_free_first,
        request.mode == "preferred" and rules.balanced,
        slice_level,
        slice_size,
        tuple(units),
        tuple(layers),
    )
