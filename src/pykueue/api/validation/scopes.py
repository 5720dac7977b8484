"""Policies that apply to ClusterQueues, a cohort or all: no two of a kind may apply with equal precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import Model
from pykueue.api.validation.fields import DUPLICATE, FieldError


class Scope(Protocol):
    """What a policy applies to."""

    @property
    def cluster_queues(self) -> Sequence[str]: ...

    @property
    def cohort(self) -> str | None: ...


class Policy(Protocol):
    """A policy of any kind."""

    metadata: ObjectMeta

    @property
    def spec(self) -> Scope: ...


def overlap_errors(
    kind: type[Model], policy: Policy, others: Iterable[Mapping[str, Any]]
) -> list[FieldError]:
    """Which other policies are for the same queues, with equal precedence; `others` are manifests of all."""
    errors: list[FieldError] = []
    for manifest in others:
        try:
            other: Any = decode_as(kind, manifest)
        except DecodeError:
            continue
        if other.metadata.name != policy.metadata.name:
            errors += _overlap(policy.spec, other.spec, f"{kind.__name__} {other.metadata.name}")
    return errors


def _overlap(spec: Scope, other: Scope, name: str) -> list[FieldError]:
    def error(field: str, value: Any, what: str) -> FieldError:
        return FieldError(field, DUPLICATE, value, f"{name} is for {what} already")

    if spec.cluster_queues:
        taken = set(other.cluster_queues)
        return [
            error(f"spec.clusterQueues[{index}]", queue, f"ClusterQueue {queue}")
            for index, queue in enumerate(spec.cluster_queues)
            if queue in taken
        ]
    if other.cluster_queues or spec.cohort != other.cohort:
        return []
    if spec.cohort is not None:
        return [error("spec.cohort", spec.cohort, f"cohort {spec.cohort}")]
    return [error("spec", "{}", "all ClusterQueues")]
