"""All built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import ModuleType
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.embedded.kinds import (
    admissionpolicies,
    apps,
    autoscaling,
    core,
    crd,
    cronjob,
    devices,
    events,
    job,
    node,
    others,
    pod,
    policy,
    rbac,
    reviews,
    scheduling,
    storage,
)
from pykueue.embedded.kinds.base import Kind

_MODULES: tuple[ModuleType, ...] = (
    core,
    events,
    pod,
    node,
    apps,
    job,
    cronjob,
    autoscaling,
    others,
    storage,
    admissionpolicies,
    devices,
    policy,
    rbac,
    reviews,
    crd,
)
#: Modules whose kinds are served only when a feature gate is open, by the gate.
_GATED: dict[str, tuple[ModuleType, ...]] = {scheduling.GATE: (scheduling,)}


class View(NamedTuple):
    """A kind that is another version of a stored one, in both directions."""

    kind: type[Kind]
    stored: type[Kind]
    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]
    #: The version whose published schema it has, if not its own.
    schema_version: str = ""


VIEWS = (
    View(events.Event, events.CoreEvent, events.to_core, events.from_core),
    View(
        autoscaling.HorizontalPodAutoscalerV1,
        autoscaling.HorizontalPodAutoscaler,
        autoscaling.to_v2,
        autoscaling.from_v2,
    ),
    *(
        View(old, reviews.SelfSubjectReview, reviews.to_version("v1"), reviews.to_version(old.version), "v1")
        for old in (reviews.SelfSubjectReviewBeta, reviews.SelfSubjectReviewAlpha)
    ),
)


def builtin_kinds(feature_gates: Collection[str] = ()) -> list[Kind]:
    """One instance of every stored kind defined in this package, as far as its gate is open."""
    gated = [module for gate in feature_gates for module in _GATED.get(gate, ())]
    views = {view.kind for view in VIEWS}
    return [
        found()
        for module in (*_MODULES, *gated)
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, Kind)
        and found.__module__ == module.__name__
        and found.plural
        and found not in views
    ]
