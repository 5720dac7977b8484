"""Rules for ResourceFlavors, ClusterQueues and Cohorts. Source: docs/reference/kueue-api.md 1.1 to 1.4."""

from __future__ import annotations

from collections.abc import Sequence

from pykueue.api.hybrid_losses import parse_loss_policy
from pykueue.api.kueue import (
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    FairSharing,
    ResourceFlavor,
    ResourceGroup,
)
from pykueue.api.kueue.common import FlavorQuotas, ResourceQuota
from pykueue.api.kueue.names import HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION, HYBRID_LOSS_POLICY_ANNOTATION
from pykueue.api.quantity import Quantity
from pykueue.api.selectors import SelectorError
from pykueue.api.validation.fields import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    FieldError,
    too_many,
)
from pykueue.api.validation.gates import Gates, on
from pykueue.api.validation.syntax import (
    label_errors,
    qualified_name,
    subdomain,
    taint_errors,
    toleration_errors,
)

#: Distinct flavors, and distinct resources, over all groups of a queue or cohort.
MAX_FLAVORS = 256
MAX_RESOURCES = 256
#: Flavors times resources in one group.
MAX_QUOTAS_PER_GROUP = 512
#: Flavors of a queue with concurrent admission.
MAX_CONCURRENT_FLAVORS = 16

_SMALLEST_WEIGHT = Quantity(1)


def resource_flavor_errors(flavor: ResourceFlavor) -> list[FieldError]:
    """What is wrong with a ResourceFlavor."""
    spec = flavor.spec
    return [
        *label_errors(spec.node_labels, "spec.nodeLabels"),
        *taint_errors(spec.node_taints, "spec.nodeTaints"),
        *toleration_errors(spec.tolerations, "spec.tolerations"),
    ]


def cluster_queue_errors(queue: ClusterQueue, old: ClusterQueue | None, gates: Gates) -> list[FieldError]:
    """What is wrong with a ClusterQueue, or with its change from `old`."""
    spec = queue.spec
    errors = [
        *_name_errors(spec.cohort_name, "spec.cohortName"),
        *_group_errors(
            spec.resource_groups, above=spec.cohort_name, above_field="cohortName", lends_at_most_nominal=True
        ),
        *_percent_errors(spec),
        *_selector_errors(spec),
        *_preference_errors(spec),
        *_preemption_errors(spec),
        *fair_sharing_errors(spec.fair_sharing, "spec.fairSharing"),
        *_check_errors(spec, old.spec if old else None, gates),
    ]
    errors += _concurrency_errors(spec, old.spec if old else None, gates)
    errors += _hybrid_errors(queue, old)
    return errors


def _hybrid_errors(queue: ClusterQueue, old: ClusterQueue | None) -> list[FieldError]:
    name = HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION
    value = queue.metadata.annotations.get(name)
    path = f"metadata.annotations[{name}]"
    if value not in (None, "true", "false"):
        # What is stored already keeps no other change from being made.
        known = old is not None and old.metadata.annotations.get(name) == value
        return [] if known else [FieldError(path, INVALID, value, "must be true or false")]
    if value == "true" and queue.spec.concurrent_admission_policy is not None:
        return [FieldError(path, FORBIDDEN, value, "cannot be combined with spec.concurrentAdmissionPolicy")]
    return _loss_errors(queue, old)


def _loss_errors(queue: ClusterQueue, old: ClusterQueue | None) -> list[FieldError]:
    name = HYBRID_LOSS_POLICY_ANNOTATION
    text = queue.metadata.annotations.get(name)
    if text is None or (old is not None and old.metadata.annotations.get(name) == text):
        return []
    path = f"metadata.annotations[{name}]"
    try:
        parse_loss_policy(text)
    except ValueError as error:
        return [FieldError(path, INVALID, text, str(error))]
    if queue.metadata.annotations.get(HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION) != "true":
        detail = f"needs the annotation {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION}: true"
        return [FieldError(path, FORBIDDEN, text, detail)]
    return []


def cohort_errors(cohort: Cohort) -> list[FieldError]:
    """What is wrong with a Cohort."""
    spec = cohort.spec
    return [
        *_name_errors(spec.parent_name, "spec.parentName"),
        *_group_errors(
            spec.resource_groups,
            above=spec.parent_name,
            above_field="parentName",
            lends_at_most_nominal=False,
        ),
        *fair_sharing_errors(spec.fair_sharing, "spec.fairSharing"),
    ]


def fair_sharing_errors(sharing: FairSharing | None, path: str) -> list[FieldError]:
    """A weight is 0 or more than one nano."""
    if sharing is None:
        return []
    weight = sharing.weight
    if weight.nanos < 0:
        return [FieldError(f"{path}.weight", INVALID, str(weight), "must be greater than or equal to 0")]
    if weight and weight <= _SMALLEST_WEIGHT:
        return [FieldError(f"{path}.weight", INVALID, str(weight), "must be 0 or greater than 1n")]
    return []


def _name_errors(name: str | None, path: str) -> list[FieldError]:
    problem = subdomain(name) if name else None
    return [FieldError(path, INVALID, name, problem)] if problem else []


def _group_errors(
    groups: Sequence[ResourceGroup], *, above: str | None, above_field: str, lends_at_most_nominal: bool
) -> list[FieldError]:
    errors: list[FieldError] = []
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(groups):
        path = f"spec.resourceGroups[{index}]"
        for at, name in enumerate(group.covered_resources):
            where = f"{path}.coveredResources[{at}]"
            problem = qualified_name(name)
            if problem:
                errors.append(FieldError(where, INVALID, name, problem))
            if name in resources:
                errors.append(FieldError(where, DUPLICATE, name, "a resource can be in one group only"))
            resources.add(name)
        for at, flavor in enumerate(group.flavors):
            where = f"{path}.flavors[{at}]"
            errors += _name_errors(flavor.name, f"{where}.name")
            if flavor.name in flavors:
                errors.append(
                    FieldError(f"{where}.name", DUPLICATE, flavor.name, "a flavor can be in one group only")
                )
            flavors.add(flavor.name)
            errors += _flavor_errors(flavor, group, where, above, above_field, lends_at_most_nominal)
        quotas = len(group.flavors) * len(group.covered_resources)
        if quotas > MAX_QUOTAS_PER_GROUP:
            errors.append(
                FieldError(
                    path,
                    INVALID,
                    quotas,
                    f"flavors times coveredResources must be at most {MAX_QUOTAS_PER_GROUP}",
                )
            )
    if len(flavors) > MAX_FLAVORS:
        errors.append(too_many("spec.resourceGroups", len(flavors), MAX_FLAVORS, "flavors in all groups"))
    if len(resources) > MAX_RESOURCES:
        errors.append(
            too_many("spec.resourceGroups", len(resources), MAX_RESOURCES, "resources in all groups")
        )
    return errors


def _flavor_errors(
    flavor: FlavorQuotas,
    group: ResourceGroup,
    path: str,
    above: str | None,
    above_field: str,
    lends_at_most_nominal: bool,
) -> list[FieldError]:
    errors: list[FieldError] = []
    covered = group.covered_resources
    if len(flavor.resources) != len(covered):
        errors.append(
            FieldError(
                f"{path}.resources",
                INVALID,
                [quota.name for quota in flavor.resources],
                "must have the same number of resources as coveredResources",
            )
        )
    for index, quota in enumerate(flavor.resources):
        where = f"{path}.resources[{index}]"
        if index < len(covered) and quota.name != covered[index]:
            errors.append(
                FieldError(
                    f"{where}.name",
                    INVALID,
                    quota.name,
                    f"must be {covered[index]}: resources stand in the order of coveredResources",
                )
            )
        errors += _quota_errors(quota, where, above, above_field, lends_at_most_nominal)
    return errors


def _quota_errors(
    quota: ResourceQuota, path: str, above: str | None, above_field: str, lends_at_most_nominal: bool
) -> list[FieldError]:
    errors = _negative(quota.nominal_quota, f"{path}.nominalQuota")
    for field, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
        if limit is None:
            continue
        errors += _negative(limit, f"{path}.{field}")
        if not above:
            errors.append(
                FieldError(
                    f"{path}.{field}", INVALID, str(limit), f"must be unset when {above_field} is unset"
                )
            )
    lent = quota.lending_limit
    if lends_at_most_nominal and lent is not None and lent > quota.nominal_quota:
        errors.append(
            FieldError(
                f"{path}.lendingLimit",
                INVALID,
                str(lent),
                f"must be less than or equal to the nominalQuota {quota.nominal_quota}",
            )
        )
    return errors


def _negative(amount: Quantity, path: str) -> list[FieldError]:
    if amount.nanos >= 0:
        return []
    return [FieldError(path, INVALID, str(amount), "must be greater than or equal to 0")]


def _percent_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    errors: list[FieldError] = []
    borrow, lend = spec.borrowing_limit_percent, spec.lendable_percent
    if borrow is not None and borrow < 0:
        errors.append(
            FieldError("spec.borrowingLimitPercent", INVALID, borrow, "must be greater than or equal to 0")
        )
    if lend is not None and not 0 <= lend <= 100:
        errors.append(FieldError("spec.lendablePercent", INVALID, lend, "must be between 0 and 100"))
    return errors


def _selector_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    selector = spec.namespace_selector
    if selector is None:
        return []
    errors = label_errors(selector.match_labels, "spec.namespaceSelector.matchLabels")
    for index, term in enumerate(selector.match_expressions):
        path = f"spec.namespaceSelector.matchExpressions[{index}]"
        problem = qualified_name(term.key)
        if problem:
            errors.append(FieldError(f"{path}.key", INVALID, term.key, problem))
    try:
        selector.selector()
    except SelectorError as error:
        errors.append(
            FieldError(
                "spec.namespaceSelector.matchExpressions",
                INVALID,
                [f"{term.key} {term.operator}" for term in selector.match_expressions],
                str(error),
            )
        )
    return errors


def _preference_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    fungibility = spec.flavor_fungibility
    if fungibility.preference is None or (
        fungibility.when_can_borrow == fungibility.when_can_preempt == "TryNextFlavor"
    ):
        return []
    return [
        FieldError(
            "spec.flavorFungibility.preference",
            INVALID,
            fungibility.preference,
            "needs both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        )
    ]


def _preemption_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    preemption = spec.preemption
    if preemption.reclaim_within_cohort != "Never" or preemption.borrow_within_cohort.policy == "Never":
        return []
    return [
        FieldError(
            "spec.preemption.borrowWithinCohort.policy",
            INVALID,
            preemption.borrow_within_cohort.policy,
            "must be Never when reclaimWithinCohort is Never",
        )
    ]


def _flavor_names(spec: ClusterQueueSpec) -> list[str]:
    return [flavor.name for group in spec.resource_groups for flavor in group.flavors]


def _check_errors(spec: ClusterQueueSpec, old: ClusterQueueSpec | None, gates: Gates) -> list[FieldError]:
    """Flavors a check is limited to must be flavors of the queue.

    A rule that was wrong before is let be while neither it nor the set of flavors changes, so that other
    fields of an old queue can still be changed (gate RejectUpdatesToCQWithInvalidOnFlavors: off).
    """
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return []
    flavors = set(_flavor_names(spec))
    tolerated = []
    if (
        old is not None
        and old.admission_checks_strategy is not None
        and not on(gates, "RejectUpdatesToCQWithInvalidOnFlavors")
        and set(_flavor_names(old)) == flavors
    ):
        tolerated = old.admission_checks_strategy.admission_checks
    return [
        FieldError(
            f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{at}]",
            NOT_FOUND,
            flavor,
            "the ClusterQueue has no such flavor",
        )
        for index, rule in enumerate(strategy.admission_checks)
        if rule not in tolerated
        for at, flavor in enumerate(rule.on_flavors)
        if flavor not in flavors
    ]


def _concurrency_errors(
    spec: ClusterQueueSpec, old: ClusterQueueSpec | None, gates: Gates
) -> list[FieldError]:
    policy = spec.concurrent_admission_policy
    path = "spec.concurrentAdmissionPolicy"
    errors: list[FieldError] = []
    if old is not None and old.concurrent_admission_policy != policy:
        errors.append(FieldError(path, FORBIDDEN, None, "field is immutable"))
    if policy is None:
        return errors
    flavors = _flavor_names(spec)
    constraints = policy.migration.constraints
    last = constraints.last_acceptable_flavor_name if constraints else None
    if last is not None:
        where = f"{path}.migration.constraints.lastAcceptableFlavorName"
        if policy.migration.mode != "TryPreferredFlavors":
            errors.append(FieldError(where, INVALID, last, "needs mode TryPreferredFlavors"))
        if last not in flavors:
            errors.append(FieldError(where, NOT_FOUND, last, "the ClusterQueue has no such flavor"))
    if on(gates, "ConcurrentAdmission"):
        if len(spec.resource_groups) != 1:
            errors.append(
                FieldError(
                    "spec.resourceGroups",
                    INVALID,
                    len(spec.resource_groups),
                    "exactly one resource group is needed with concurrentAdmissionPolicy",
                )
            )
        if len(flavors) > MAX_CONCURRENT_FLAVORS:
            errors.append(
                too_many(
                    "spec.resourceGroups",
                    len(flavors),
                    MAX_CONCURRENT_FLAVORS,
                    "flavors with concurrentAdmissionPolicy",
                )
            )
        if spec.queueing_strategy == "StrictFIFO":
            errors.append(
                FieldError(
                    "spec.queueingStrategy",
                    INVALID,
                    spec.queueing_strategy,
                    "StrictFIFO cannot be used with concurrentAdmissionPolicy",
                )
            )
    return errors
