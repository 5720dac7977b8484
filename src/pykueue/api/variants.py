"""Variants of a Workload: which there are, which are active, and which may preempt.

With concurrent admission a Workload, the parent, is not queued itself: for each flavor of its ClusterQueue
there is a variant, a Workload that the parent owns and that may use only this flavor. An earlier flavor of
the ClusterQueue is preferred to a later one. Source of the rules: docs/reference/kueue-semantics.md 11.10,
docs/reference/kueue-api.md 5.10.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pykueue.api.kueue import ConcurrentAdmissionPolicy
from pykueue.api.kueue.common import GROUP
from pykueue.api.kueue.names import (
    ALLOWED_FLAVORS_ANNOTATION,
    CONCURRENT_ADMISSION_PARENT_LABEL,
    ELASTIC_JOB_ANNOTATION,
    WORKLOAD_SLICE_NAME_ANNOTATION,
    WORKLOAD_SLICE_REPLACEMENT_ANNOTATION,
)
from pykueue.api.meta import ObjectMeta, OwnerReference
from pykueue.api.objects import get, labels_of

#: The feature gate.
GATE: Final = "ConcurrentAdmission"
#: Seconds after a preemption gate was opened in which no other variant of the same parent may preempt.
PREEMPTION_TIMEOUT: Final = 300.0
#: Reason of Evicted: another variant with a more preferred flavor can be admitted.
FLAVOR_MIGRATION: Final = "FlavorMigration"
#: Reason of Evicted of a parent: its admitted variant was evicted.
VARIANT_EVICTED: Final = "VariantEvicted"
#: Reason of Evicted of a parent: none of its variants is admitted any more.
NO_VARIANT: Final = "ConcurrentAdmission"
#: What a Workload of an elastic job has, of which there are no variants.
_ELASTIC: Final = (
    ELASTIC_JOB_ANNOTATION,
    WORKLOAD_SLICE_NAME_ANNOTATION,
    WORKLOAD_SLICE_REPLACEMENT_ANNOTATION,
)


def is_parent(labels: Mapping[str, str]) -> bool:
    """Whether a Workload with these labels has variants, which are queued in its place."""
    return labels.get(CONCURRENT_ADMISSION_PARENT_LABEL) == "true"


def may_be_parent(annotations: Mapping[str, str]) -> bool:
    """Whether a Workload with these annotations can have variants; the slices of elastic jobs have none."""
    return not any(annotations.get(name) for name in _ELASTIC)


def _is_workload(api_version: str, kind: str) -> bool:
    """Whether an owner reference names a Workload."""
    return kind == "Workload" and api_version.partition("/")[0] == GROUP


def parent_owner(metadata: ObjectMeta) -> OwnerReference | None:
    """The reference of a variant to its parent; None for other Workloads."""
    for owner in metadata.owner_references:
        if _is_workload(owner.api_version, owner.kind):
            return owner
    return None


def parent_uid(metadata: ObjectMeta) -> str:
    """The uid of the Workload that this is a variant of; empty where it is none."""
    owner = parent_owner(metadata)
    return owner.uid if owner is not None else ""


def parent_reference(workload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference of a variant (a manifest) to its parent; None for other Workloads."""
    for owner in get(workload, "metadata", "ownerReferences") or ():
        if _is_workload(str(owner.get("apiVersion")), str(owner.get("kind"))):
            return owner  # type: ignore[no-any-return]
    return None


def has_variants(workload: Mapping[str, Any]) -> bool:
    """Whether a Workload (a manifest) is marked as the parent of variants."""
    return is_parent(labels_of(workload))


def allowed_flavors(annotations: Mapping[str, str]) -> tuple[str, ...] | None:
    """The flavors that a Workload with these annotations may use; None: all."""
    text = annotations.get(ALLOWED_FLAVORS_ANNOTATION)
    if text is None:
        return None
    return tuple([part.strip() for part in text.split(",") if part.strip()])


def flavor_of(annotations: Mapping[str, str]) -> str:
    """The flavor of a variant with these annotations; empty where it has none."""
    return next(iter(allowed_flavors(annotations) or ()), "")


def flavor_order(queue_spec: Mapping[str, Any]) -> list[str]:
    """The flavors of a ClusterQueue (its spec as a manifest), the most preferred first."""
    groups = queue_spec.get("resourceGroups") or ()
    return [flavor["name"] for group in groups[:1] for flavor in group.get("flavors") or ()]


def may_migrate(policy: ConcurrentAdmissionPolicy | None, order: Sequence[str], flavor: str) -> bool:
    """Whether a workload may leave a less preferred flavor for this one.

    A variant is evaluated once more before it is deactivated, where the first admission is to be retained.
    """
    if policy is not None and policy.migration.mode == "RetainFirstAdmission":
        return False
    constraints = policy.migration.constraints if policy is not None else None
    last = constraints.last_acceptable_flavor_name if constraints is not None else None
    return (
        last is None or flavor not in order or last not in order or order.index(flavor) <= order.index(last)
    )


def wanted_flavors(
    policy: ConcurrentAdmissionPolicy | None, order: Sequence[str], admitted: str
) -> frozenset[str]:
    """The flavors whose variants are to be active while that of `admitted` (empty: none) is admitted."""
    if not admitted or admitted not in order:
        return frozenset(order)
    if policy is not None and policy.migration.mode == "RetainFirstAdmission":
        return frozenset({admitted})
    preferred = order[: order.index(admitted)]
    return frozenset({admitted, *(each for each in preferred if may_migrate(policy, order, each))})


_HASH = re.compile(r"-[0-9a-f]{5}$")


def variant_name(parent: str, uid: str, flavor: str, limit: int) -> str:
    """The name of the variant of a parent (its name and uid) for a flavor, of at most `limit` characters."""
    digest = hashlib.sha1("\n".join((parent, uid, flavor)).encode(), usedforsecurity=False).hexdigest()[:5]
    prefix = f"{_HASH.sub('', parent)}-variant-{flavor}"
    return f"{prefix[: limit - len(digest) - 1]}-{digest}"


class Variant(NamedTuple):
    """What decides whether the preemption gate of a variant is opened."""

    flavor: str
    evaluated: bool
    """The scheduler has looked at it: it has the condition QuotaReserved."""
    needs_preemption: bool
    """It is blocked by a closed preemption gate."""
    opened_at: float | None
    """When its gate was opened, in seconds since 1970; None while it is closed."""


def gate_to_open(variants: Iterable[Variant], now: float) -> tuple[str, float | None]:
    """The flavor whose variant may preempt from now on, and when to ask again.

    `variants` are those that may be queued, the most preferred first. The flavor is empty where no gate is to
    be opened; the time is in seconds since 1970, None: only when something changes.
    """
    opened_at: float | None = None
    candidate = ""
    undecided = False
    for variant in variants:
        if variant.opened_at is not None:
            opened_at = variant.opened_at if opened_at is None else max(opened_at, variant.opened_at)
        elif candidate or undecided:
            continue
        elif variant.needs_preemption:
            candidate = variant.flavor
        elif not variant.evaluated:
            undecided = True  # a more preferred one may need no preemption
    if not candidate:
        return "", None
    if opened_at is not None and now < opened_at + PREEMPTION_TIMEOUT:
        return "", opened_at + PREEMPTION_TIMEOUT
    return candidate, now + PREEMPTION_TIMEOUT
