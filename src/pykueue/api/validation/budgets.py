"""Rules of Budgets beyond their schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykueue.api.budgets import Budget, BudgetSpec
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import parse_time
from pykueue.api.preemption_policies import seconds
from pykueue.api.validation.fields import DUPLICATE, FORBIDDEN, INVALID, NOT_SUPPORTED, FieldError

#: The shortest rolling window, in seconds.
_ROLLING_MIN = 3600.0


def budget_errors(budget: Budget) -> list[FieldError]:
    """What contradicts itself within a Budget."""
    return [*_resources(budget.spec), *_window(budget.spec), *_thresholds(budget.spec), *_rest(budget.spec)]


def duplicate_errors(budget: Budget, others: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Which other Budgets limit a resource of the same workloads in the same window.

    `others` are manifests of all Budgets. Of two such limits only the lower one would have an effect.
    """
    errors: list[FieldError] = []
    for manifest in others:
        try:
            other = decode_as(Budget, manifest)
        except DecodeError:
            continue
        spec, theirs = budget.spec, other.spec
        if other.metadata.name == budget.metadata.name:
            continue
        if theirs.selector != spec.selector or theirs.window != spec.window:
            continue
        limited = {each.name for each in theirs.resources}
        errors += [
            FieldError(
                f"spec.resources[{index}].name",
                DUPLICATE,
                each.name,
                f"Budget {other.metadata.name} limits it for the same workloads in the same window already",
            )
            for index, each in enumerate(spec.resources)
            if each.name in limited
        ]
    return errors


def _resources(spec: BudgetSpec) -> Iterator[FieldError]:
    for index, resource in enumerate(spec.resources):
        path = f"spec.resources[{index}]"
        if resource.hours.nanos <= 0:
            yield FieldError(f"{path}.hours", INVALID, str(resource.hours), "must be greater than 0")
        for number, given in enumerate(resource.flavor_weights):
            if given.weight.nanos < 0 or given.weight.nanos % 1_000_000:
                why = "must be a multiple of 1m that is not negative"
                yield FieldError(f"{path}.flavorWeights[{number}].weight", INVALID, str(given.weight), why)


def _window(spec: BudgetSpec) -> Iterator[FieldError]:
    window = spec.window
    if window is None:
        return
    from zoneinfo import ZoneInfo  # few Budgets have a window

    try:
        ZoneInfo(window.time_zone)
    except (KeyError, OSError, ValueError):
        why = "must be the name of a time zone of the IANA database, such as Europe/Berlin"
        yield FieldError("spec.window.timeZone", NOT_SUPPORTED, window.time_zone, why)
    if window.rolling is not None and seconds(window.rolling) < _ROLLING_MIN:
        yield FieldError("spec.window.rolling", INVALID, window.rolling, "must be at least 1h")


def _thresholds(spec: BudgetSpec) -> Iterator[FieldError]:
    first: dict[str, tuple[int, int]] = {}
    for index, each in enumerate(spec.thresholds):
        path = f"spec.thresholds[{index}]"
        if each.grace is not None and each.action != "Evict":
            yield FieldError(
                f"{path}.grace", FORBIDDEN, None, f"accepted with action Evict, not {each.action}"
            )
        if each.action != "Warn":
            if each.action in first:
                why = f"spec.thresholds[{first[each.action][0]}] has the action {each.action} already"
                yield FieldError(f"{path}.action", DUPLICATE, each.action, why)
            first.setdefault(each.action, (index, each.percent))
    for milder, stricter in (
        ("NoBorrowing", "NoAdmission"),
        ("NoBorrowing", "Evict"),
        ("NoAdmission", "Evict"),
    ):
        if milder in first and stricter in first and first[stricter][1] <= first[milder][1]:
            index, percent = first[milder]
            other, theirs = first[stricter]
            if percent == theirs and (milder, stricter) == ("NoAdmission", "Evict"):
                continue
            why = (
                f"{milder} has no effect at {percent} percent: spec.thresholds[{other}] "
                f"has the stricter action {stricter} at {theirs} percent"
            )
            yield FieldError(f"spec.thresholds[{index}].percent", INVALID, percent, why)


def _rest(spec: BudgetSpec) -> Iterator[FieldError]:
    if spec.default_maximum is not None:
        if spec.reservation != "Declared":
            why = "accepted with spec.reservation Declared only"
            yield FieldError("spec.defaultMaximum", FORBIDDEN, None, why)
        elif seconds(spec.default_maximum) < 1:
            yield FieldError("spec.defaultMaximum", INVALID, spec.default_maximum, "must be at least 1s")
    if spec.carry_over is not None and (spec.window is None or spec.window.calendar is None):
        yield FieldError("spec.carryOver", FORBIDDEN, None, "accepted with spec.window.calendar only")
    names = {each.name for each in spec.resources}
    for index, credit in enumerate(spec.credits):
        path = f"spec.credits[{index}]"
        if credit.resource not in names:
            why = f"must be one of spec.resources: {', '.join(sorted(names))}"
            yield FieldError(f"{path}.resource", INVALID, credit.resource, why)
        if credit.hours.nanos <= 0:
            yield FieldError(f"{path}.hours", INVALID, str(credit.hours), "must be greater than 0")
        if credit.value is not None and spec.selector.label is None:
            yield FieldError(f"{path}.value", FORBIDDEN, None, "accepted with spec.selector.label only")
        before, after = credit.not_before, credit.not_after
        if before and after and parse_time(after) <= parse_time(before):
            yield FieldError(f"{path}.notAfter", INVALID, after, f"must be after notBefore ({before})")
