"""What the admission webhooks of the group check, as pure functions.

Bounds, patterns and rules a schema can say are in the CRDs. What is here needs more than one field, more than
one object, or a feature gate; some rules are in both, to hold where no API server checked the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pykueue.api.backfill_policies import BackfillPolicy
from pykueue.api.budgets import Budget
from pykueue.api.conversion import ConversionError
from pykueue.api.decoding import DecodeError
from pykueue.api.kinds import decode, kind_of
from pykueue.api.kueue import ClusterQueue, Cohort, ResourceFlavor, Workload
from pykueue.api.model import Model
from pykueue.api.preemption_policies import PreemptionPolicy
from pykueue.api.reservations import Reservation
from pykueue.api.validation.backfill_policies import backfill_policy_errors
from pykueue.api.validation.budgets import budget_errors
from pykueue.api.validation.fields import INVALID, FieldError
from pykueue.api.validation.gates import Gates
from pykueue.api.validation.preemption_policies import preemption_policy_errors
from pykueue.api.validation.quotas import cluster_queue_errors, cohort_errors, resource_flavor_errors
from pykueue.api.validation.reservations import reservation_errors
from pykueue.api.validation.workloads import workload_errors

__all__ = ["FieldError", "validate", "validate_objects"]

Manifest = Mapping[str, Any]


def validate(manifest: Manifest, old: Manifest | None = None, gates: Gates | None = None) -> list[FieldError]:
    """What is wrong with an object of the group (either version), or with its change from `old`.

    `gates` says which feature gates are not at their default. A kind without rules beyond its schema is
    always right; an object of the wrong shape has one error that names the field.
    """
    try:
        new_object = decode(cast(dict[str, Any], manifest))
        old_object = decode(cast(dict[str, Any], old)) if old is not None else None
    except (DecodeError, ConversionError) as error:
        field, _, why = getattr(error, "why", str(error)).partition(": ")
        return [FieldError(field if why else "", INVALID, None, why or field)]
    return validate_objects(new_object, old_object, gates)


def validate_objects(new: Model, old: Model | None = None, gates: Gates | None = None) -> list[FieldError]:
    """The same for typed objects."""
    rules = _RULES.get(kind_of(new))
    return rules(new, old, gates or {}) if rules else []


def _resource_flavor(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return resource_flavor_errors(cast(ResourceFlavor, new))


def _cluster_queue(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return cluster_queue_errors(cast(ClusterQueue, new), cast(ClusterQueue | None, old), gates)


def _cohort(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return cohort_errors(cast(Cohort, new))


def _workload(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return workload_errors(cast(Workload, new), cast(Workload | None, old), gates)


def _backfill_policy(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return backfill_policy_errors(cast(BackfillPolicy, new))


def _reservation(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return reservation_errors(cast(Reservation, new))


def _preemption_policy(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return preemption_policy_errors(cast(PreemptionPolicy, new))


def _budget(new: Model, old: Model | None, gates: Gates) -> list[FieldError]:
    return budget_errors(cast(Budget, new))


_RULES: Final[dict[str, Callable[[Model, Model | None, Gates], list[FieldError]]]] = {
    "BackfillPolicy": _backfill_policy,
    "Budget": _budget,
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "PreemptionPolicy": _preemption_policy,
    "Reservation": _reservation,
    "ResourceFlavor": _resource_flavor,
    "Workload": _workload,
}
