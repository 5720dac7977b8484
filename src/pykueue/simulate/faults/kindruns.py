"""Runs in which jobs of all kinds are mixed, carried out by the cluster's controllers and stand-in operators.

Troubles, queues and what users do are those of every run. The jobs are made from the descriptions of their
kinds (`pykueue.api.jobkinds`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import click

from pykueue.api.objects import Object

from .edits import EditingUsers
from .jobkinds import OPERATED, QUEUED, SERVING, description, requests
from .kind_invariants import KindInvariants
from .kindmanifests import manifest
from .run import Report, Run, play_run
from .runtimes import RUNTIME_OBJECTS
from .scenario import Scenario, job_labels, scenario

#: The kinds that there can be in these runs.
ALL = tuple(QUEUED)


def chosen(text: str) -> tuple[str, ...]:
    """The kinds of a list with commas, or `all`. Raises click.BadParameter for an unknown one."""
    found = ALL if text == "all" else tuple(text.split(","))
    for name in found:
        if name not in ALL:
            raise click.BadParameter(f"{name} is no kind; there are {', '.join(ALL)}")
    return found


def kind_scenario(rng: random.Random, kinds: Sequence[str]) -> Scenario:
    """A scenario with jobs of these kinds."""
    plan = scenario(rng)
    room = plan.room()
    jobs: list[tuple[float, Object]] = []
    for number in range(rng.randint(3, 8)):
        labels = job_labels(rng, rng.choice(plan.of_kind("LocalQueue")))
        size, cpu = rng.randint(1, room), rng.choice((1, 1, 2))
        made = _fitting(rng.choice(kinds), f"j{number}", labels, (size, cpu), room)
        jobs.append((rng.uniform(0.0, plan.trouble * 0.6), made))
    plan = plan.with_jobs(jobs, (description(kind).framework for kind in kinds))
    used = {made["kind"] for _, made in jobs}
    if "SparkApplication" in used:
        plan = plan.with_memory()
    if "TrainJob" in used:
        plan = replace(plan, objects=[*RUNTIME_OBJECTS, *plan.objects])
    return replace(plan, kinds=tuple(kind for kind in kinds if kind in OPERATED or kind in SERVING))


def _fitting(kind: str, name: str, labels: dict[str, str], shape: tuple[int, int], room: int) -> Object:
    """A job of about so many pods with so many cpu each that does not request more than there is."""
    size, cpu = shape
    while True:
        made = manifest(kind, name, labels, size, cpu)
        if requests(made)["cpu"] <= room * 1000:
            return made
        size, cpu = (size - 1, cpu) if size > 1 else (size, cpu - 1)


class KindRun(Run):
    """A run of jobs of these kinds."""

    invariants_class = KindInvariants


class EditedKindRun(KindRun):
    """The same with users who also edit by hand what controllers own."""

    users_class = EditingUsers


def play_kinds(seed: int, kinds: Sequence[str] = ALL, edits: bool = False) -> Report:
    """Play the run of this seed with jobs of these kinds, in virtual time; `edits` as for other runs."""
    rng = random.Random(seed)
    report = play_run(EditedKindRun if edits else KindRun, seed, kind_scenario(rng, kinds), rng, True)
    text = "all" if tuple(kinds) == ALL else ",".join(kinds)
    return replace(report, options=f" --kinds {text}" + " --edits" * edits)
