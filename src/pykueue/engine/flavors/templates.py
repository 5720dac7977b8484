"""What of pod templates decides the scheduling class of a workload: equal there, equal class.

Source of the rules: docs/reference/kueue-semantics.md 4.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.core import Container, PodSpec
from pykueue.api.kueue import PodSet
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.pods import CLASS_FIELDS

_CONTAINER_FIELDS: Final = frozenset(("containers", "initContainers"))
_TEXT_FIELDS: Final = _CONTAINER_FIELDS.union(CLASS_FIELDS)


def hybrid_text(template: Mapping[str, Any]) -> str:
    """What a pod template says about the flavors that its pods may be split over; empty: nothing."""
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if metadata else None
    return str(annotations.get(HYBRID_ASSIGNMENT_ANNOTATION) or "") if annotations else ""


def template_text(template: dict[str, Any]) -> str:
    """What a pod template says about its scheduling class. Templates that differ otherwise have equal texts.

    So may have templates that mean the same in another order: then their contents are equal.
    """
    parts: list[Any] = [hybrid_text(template)]
    for field, value in (template.get("spec") or {}).items():
        if field in _TEXT_FIELDS:
            if field in _CONTAINER_FIELDS:
                value = [(c.get("resources"), c.get("ports"), c.get("restartPolicy")) for c in value or ()]
            parts.append((field, value))
    return repr(parts)


def ask_the_same(some: list[PodSet], others: list[PodSet]) -> bool:
    """Whether pod sets have the same scheduling class, found without their texts.

    Those that have, but in another order or with other defaults, may be told apart.
    """
    if len(some) != len(others):
        return False
    for at, one in enumerate(some):
        other = others[at]
        if (
            one.count != other.count
            or one.name != other.name
            or one.min_count != other.min_count
            or one.topology_request != other.topology_request
            or not _templates_ask_the_same(one.template, other.template)
        ):
            return False
    return True


def _templates_ask_the_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one is other:
        return True
    if hybrid_text(one) != hybrid_text(other):
        return False
    fields: dict[str, Any] = one.get("spec") or {}
    other_fields: dict[str, Any] = other.get("spec") or {}
    seen = 0
    for field, value in fields.items():
        if field not in _TEXT_FIELDS:
            continue
        if field not in other_fields:
            return False
        seen += 1
        there = other_fields[field]
        if field not in _CONTAINER_FIELDS:
            if value != there:
                return False
        elif not _containers_ask_the_same(value or [], there or []):
            return False
    return seen == sum([field in _TEXT_FIELDS for field in other_fields])


def _containers_ask_the_same(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    if len(some) != len(others):
        return False
    for at, one in enumerate(some):
        other = others[at]
        if (
            one.get("resources") != other.get("resources")
            or one.get("ports") != other.get("ports")
            or one.get("restartPolicy") != other.get("restartPolicy")
        ):
            return False
    return True


def template_content(spec: PodSpec) -> Any:
    """The same as `template_text`, from decoded fields and independent of the order of keys."""
    return (
        [_container(container) for container in spec.containers],
        [(_container(container), container.restart_policy) for container in spec.init_containers],
        sorted(spec.node_selector.items()),
        spec.affinity,
        spec.tolerations,
        spec.runtime_class_name,
        spec.priority,
        spec.topology_spread_constraints,
        sorted(spec.overhead.items()),
        repr(spec.resource_claims),
        (sorted(spec.resources.requests.items()), sorted(spec.resources.limits.items()))
        if spec.resources is not None
        else None,
    )


def _container(container: Container) -> Any:
    return (
        sorted(container.resources.requests.items()),
        sorted(container.resources.limits.items()),
        repr(container.ports),
    )


def topology_text(pods: PodSet) -> str:
    """What a pod set requests of a topology; empty: nothing."""
    return repr(pods.topology_request) if pods.topology_request is not None else ""
