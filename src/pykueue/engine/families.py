"""Parents and their variants in memory: what the controller of concurrent admission would make of them.

Every function takes Workloads and returns them as they should be; the originals are not touched. Source of
the rules: docs/reference/kueue-semantics.md 11.10, docs/reference/kueue-api.md 5.10.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pykueue.api import kueue, variants
from pykueue.api.kueue.names import (
    ADMITTED,
    ALLOWED_FLAVORS_ANNOTATION,
    BLOCKED_ON_GATES,
    CONCURRENT_ADMISSION_GATE,
    CONCURRENT_ADMISSION_PARENT_LABEL,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
)
from pykueue.api.meta import ObjectMeta, OwnerReference, find_condition, format_time, parse_time
from pykueue.engine import lifecycle
from pykueue.engine.options import Options
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.workload import Facts

#: Longest name of a variant: that of any object.
_NAME_LIMIT: Final = 253


def flavor(variant: kueue.Workload) -> str:
    """The flavor that a variant asks for."""
    return variants.flavor_of(variant.metadata.annotations)


def is_parent(workload: kueue.Workload) -> bool:
    """Whether it is marked as the parent of variants."""
    return variants.is_parent(workload.metadata.labels)


def parent_key(workload: kueue.Workload) -> str:
    """The key of the parent of a variant; empty for other Workloads."""
    owner = variants.parent_owner(workload.metadata)
    return f"{workload.metadata.namespace}/{owner.name}" if owner is not None else ""


def becomes_parent(workload: kueue.Workload, queue: ClusterQueue | None) -> bool:
    """Whether variants are to be created for a Workload of this ClusterQueue.

    One that holds quota keeps it, and goes on without variants.
    """
    return (
        queue is not None
        and queue.variants is not None
        and not is_parent(workload)
        and not parent_key(workload)
        and variants.may_be_parent(workload.metadata.annotations)
        and not workload.condition_is(QUOTA_RESERVED)
        and not workload.condition_is(FINISHED)
    )


def marked(workload: kueue.Workload) -> kueue.Workload:
    """The Workload, marked as the parent of variants."""
    labels = {**workload.metadata.labels, CONCURRENT_ADMISSION_PARENT_LABEL: "true"}
    return replace(workload, metadata=replace(workload.metadata, labels=labels))


def new_variant(parent: kueue.Workload, name: str, number: int, now: float) -> kueue.Workload:
    """The variant of a parent for the flavor `name`, the `number`-th of its ClusterQueue."""
    metadata = parent.metadata
    gates = [gate for gate in parent.spec.preemption_gates if gate.name != CONCURRENT_ADMISSION_GATE]
    return kueue.Workload(
        metadata=ObjectMeta(
            name=variants.variant_name(metadata.name, metadata.uid, name, _NAME_LIMIT),
            namespace=metadata.namespace,
            uid=f"{metadata.uid}-{number}",
            creation_timestamp=format_time(now),
            generation=1,
            labels={
                key: value
                for key, value in metadata.labels.items()
                if key != CONCURRENT_ADMISSION_PARENT_LABEL
            },
            annotations={**metadata.annotations, ALLOWED_FLAVORS_ANNOTATION: name},
            owner_references=[
                OwnerReference(
                    api_version=kueue.V1BETA2,
                    kind="Workload",
                    name=metadata.name,
                    uid=metadata.uid,
                    controller=True,
                    block_owner_deletion=True,
                )
            ],
        ),
        spec=replace(
            parent.spec,
            active=True,
            preemption_gates=[*gates, kueue.PreemptionGate(name=CONCURRENT_ADMISSION_GATE)],
        ),
    )


def settled(
    parent: kueue.Workload, family: Sequence[kueue.Workload], queue: ClusterQueue, now: float
) -> Iterator[kueue.Workload]:
    """The members that are not as they should be, as they should be; the parent among them.

    `family` are the variants of the parent, the most preferred first. To be called again until nothing
    changes, each time with what follows from the change.
    """
    finish = find_condition(parent.status.conditions, FINISHED)
    if finish is not None and finish.status == "True":
        for variant in family:
            if not variant.condition_is(FINISHED):
                yield lifecycle.finished(variant, finish.reason, now)
        return
    admitted = next((each for each in family if each.condition_is(ADMITTED)), None)
    yield from _with_activity(parent, family, queue, flavor(admitted) if admitted is not None else "")
    mirrored = _mirrored(parent, admitted, now)
    if mirrored is not parent:
        yield mirrored
    ready = find_condition(parent.status.conditions, PODS_READY)
    if admitted is not None and ready is not None and parent.condition_is(ADMITTED):
        variant = lifecycle.with_condition(admitted, PODS_READY, ready.status == "True", ready.reason, now)
        if variant is not admitted:
            yield variant


def _with_activity(
    parent: kueue.Workload, family: Sequence[kueue.Workload], queue: ClusterQueue, admitted: str
) -> Iterator[kueue.Workload]:
    """The variants that are to be deactivated or activated, the former first."""
    wanted = variants.wanted_flavors(queue.variants, queue.flavor_order(), admitted)
    for active in (False, True):
        for variant in family:
            is_wanted = parent.spec.active and flavor(variant) in wanted
            if is_wanted == active and variant.spec.active != active:
                yield replace(variant, spec=replace(variant.spec, active=active))


def _mirrored(parent: kueue.Workload, admitted: kueue.Workload | None, now: float) -> kueue.Workload:
    """The parent with the admission of its admitted variant, or evicted where none is admitted any more."""
    has_quota = parent.condition_is(QUOTA_RESERVED)
    if admitted is None:
        if has_quota and not parent.condition_is(EVICTED):
            return lifecycle.evicted(parent, variants.NO_VARIANT, now)
        return parent
    if has_quota or not parent.spec.active or admitted.status.admission is None:
        return parent
    return lifecycle.reserved(parent, admitted.status.admission, True, now)


def with_open_gate(
    family: Sequence[kueue.Workload], options: Options, evaluated: Collection[str], now: float
) -> tuple[kueue.Workload | None, float | None]:
    """The variant that may preempt from now on, its gate open, and when to ask again (seconds since 1970).

    `evaluated` are the keys of the variants that a cycle has looked at.
    """
    queued = {flavor(each): each for each in family if Facts(each, options).may_queue}
    name, again = variants.gate_to_open(
        (_of_gate(each, each.metadata.key in evaluated) for each in queued.values()), now
    )
    if not name:
        return None, again
    variant = queued[name]
    state = kueue.PreemptionGateState(
        name=CONCURRENT_ADMISSION_GATE, position="Open", last_transition_time=format_time(now)
    )
    others = [gate for gate in variant.status.preemption_gates if gate.name != CONCURRENT_ADMISSION_GATE]
    return replace(variant, status=replace(variant.status, preemption_gates=[*others, state])), again


def _of_gate(variant: kueue.Workload, evaluated: bool) -> variants.Variant:
    opened = next(
        (
            parse_time(gate.last_transition_time)
            for gate in variant.status.preemption_gates
            if gate.name == CONCURRENT_ADMISSION_GATE
            and gate.position == "Open"
            and gate.last_transition_time is not None
        ),
        None,
    )
    return variants.Variant(
        flavor(variant),
        evaluated or find_condition(variant.status.conditions, QUOTA_RESERVED) is not None,
        variant.condition_is(BLOCKED_ON_GATES),
        opened,
    )


class Families:
    """The keys of the variants of each parent, by flavor."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, str]] = {}

    def add(self, variant: kueue.Workload) -> None:
        """Index a variant, which may be indexed already."""
        self._members.setdefault(parent_key(variant), {})[flavor(variant)] = variant.metadata.key

    def of(self, parent: str, workloads: Mapping[str, kueue.Workload]) -> dict[str, kueue.Workload]:
        """The variants of a parent (its key) by flavor, as far as they are among `workloads`."""
        members = self._members.get(parent, {})
        return {name: workloads[key] for name, key in members.items() if key in workloads}

    def forget(self, parent: str) -> None:
        """A parent is gone."""
        self._members.pop(parent, None)
