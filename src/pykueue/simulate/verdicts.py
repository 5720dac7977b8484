"""The assertions of a scenario, judged on its outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pykueue.simulate.figures import NAMES, UnknownFigure, figure, shown
from pykueue.simulate.measures import Outcome
from pykueue.simulate.scenario.reading import ScenarioError
from pykueue.simulate.scenario.types import Assertion, Scenario

#: Relative difference below which two figures are equal.
_EQUAL = 1e-9


class Verdict(NamedTuple):
    """One assertion on one run."""

    text: str
    """What was asserted."""
    holds: bool
    variant: str
    seed: int
    value: str
    """What the run gave."""


def check_names(scenario: Scenario) -> None:
    """Raises ScenarioError for assertions about figures that do not exist."""
    problems = [
        f"assertions[{number}].metric: {UnknownFigure(one.metric)}"
        for number, one in enumerate(scenario.assertions)
        if one.metric not in NAMES
    ]
    if problems:
        raise ScenarioError("\n".join(problems))


def verdicts(scenario: Scenario, outcomes: Iterable[Outcome]) -> Iterator[Verdict]:
    """Every assertion on every run it is about; and a failed verdict for a run that ended before its time."""
    for outcome in outcomes:
        if outcome.ended:
            yield Verdict("the run comes to its end", False, outcome.variant, outcome.seed, outcome.ended)
        for one in scenario.assertions:
            if one.variant in ("", outcome.variant):
                value = figure(outcome, one.metric, one.where)
                yield Verdict(
                    _text(one), _holds(one, value), outcome.variant, outcome.seed, shown(one.metric, value)
                )


def _holds(one: Assertion, value: float) -> bool:
    return not math.isnan(value) and (
        (one.at_most is None or value <= one.at_most)
        and (one.at_least is None or value >= one.at_least)
        and (one.equals is None or math.isclose(value, one.equals, rel_tol=_EQUAL))
    )


def _text(one: Assertion) -> str:
    where = one.where
    selected = [
        f"{name} {value}"
        for name, value in (
            ("ClusterQueue", where.cluster_queue),
            ("class", where.job_class),
            ("flavor", where.flavor),
            ("resource", where.resource),
        )
        if value
    ]
    bounds = [
        f"{name} {shown(one.metric, value)}"
        for name, value in (("at most", one.at_most), ("at least", one.at_least), ("equal to", one.equals))
        if value is not None
    ]
    about = f" of {', '.join(selected)}" if selected else ""
    return f"{one.metric}{about} is {' and '.join(bounds)}"
