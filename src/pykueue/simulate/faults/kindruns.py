"""Runs in which jobs of all kinds are mixed, carried out by the cluster's controllers and stand-in operators.

Troubles, queues and what users do are those of every run. The jobs are made from the descriptions of their
kinds (`pykueue.api.jobkinds`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from pykueue.api.jobkinds import JobKind, PodSetPaths, with_value
from pykueue.api.objects import Object, get

from .jobkinds import KINDS, OPERATED, integration, requests
from .run import EditedRun, Report, Run, play_run
from .scenario import NAMESPACE, Scenario, job, job_labels, jobset, scenario

#: What jobs of a kind need besides their pods.
_SPECS: dict[str, Object] = {
    "RayJob": {"entrypoint": "main", "shutdownAfterJobFinishes": True},
    "RayService": {"serveConfigV2": "applications: []"},
}


def _is_described(kind: JobKind) -> bool:
    """Whether its pods follow from the job alone, so that a job can be made from the description."""
    return bool(kind.pod_sets) and not kind.references and not any(one.partial for one in kind.pod_sets)


#: The kinds that there can be in these runs.
ALL = ("Job", "JobSet", *(name for name, kind in OPERATED.items() if _is_described(kind)))


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
    plan = plan.with_jobs(jobs, (integration(kind).kind.framework for kind in kinds))
    return replace(plan, kinds=tuple(kind for kind in kinds if kind in OPERATED))


def _fitting(kind: str, name: str, labels: dict[str, str], shape: tuple[int, int], room: int) -> Object:
    """A job of about so many pods with so many cpu each that does not request more than there is."""
    size, cpu = shape
    while True:
        made = manifest(kind, name, labels, size, cpu)
        if requests(made)["cpu"] <= room * 1000:
            return made
        size, cpu = (size - 1, cpu) if size > 1 else (size, cpu - 1)


def manifest(kind: str, name: str, labels: Mapping[str, str], size: int, cpu: int) -> Object:
    """A job of a kind: one pod for each of its pod sets, the rest of `size` in the last."""
    if kind == "Job":
        return job(name, dict(labels), {}, size, cpu, size)
    if kind == "JobSet":
        return jobset(name, dict(labels), size, cpu)
    metadata = {"name": name, "namespace": NAMESPACE, "labels": dict(labels)}
    resource = KINDS[kind]
    made: Object = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": dict(_SPECS.get(kind, {})),
    }
    pod_sets = OPERATED[kind].pod_sets
    left = size - sum(not paths.each for paths in pod_sets)
    for paths in pod_sets:
        made = _with_pods(made, paths, left, cpu)
    return made


def _with_pods(made: Object, paths: PodSetPaths, size: int, cpu: int) -> Object:
    """The job with the pods of one pod set, or of a collection of pod sets."""
    if not paths.each:
        return dict(with_value(made, paths.template, _template(cpu)))
    if not paths.keys:
        if size < 1:
            return made
        element = _element(paths, size, cpu)
        return dict(with_value(made, paths.each, [with_value(element, (paths.name,), "workers")]))
    first, *others = paths.keys
    counts = {first: size if not others else 1}
    if size > 1 and others:
        counts["Worker"] = size - 1
    elements = {key: _element(paths, count, cpu) for key, count in counts.items()}
    return dict(with_value(made, paths.each, elements))


def _element(paths: PodSetPaths, count: int, cpu: int) -> Object:
    element: Any = with_value({}, paths.template, _template(cpu))
    for number, factor in enumerate(paths.counts):
        element = with_value(element, factor[0], 1 if number else count)
    return dict(element)


def _template(cpu: int) -> Object:
    """What `job` gives to pods of Jobs."""
    made = job("", {}, {}, 1, cpu, 1)
    containers: list[Object] = get(made, "spec", "template", "spec", "containers")
    return {"spec": {"containers": containers}}


def play_kinds(seed: int, kinds: Sequence[str] = ALL, edits: bool = False) -> Report:
    """Play the run of this seed with jobs of these kinds, in virtual time; `edits` as for other runs."""
    rng = random.Random(seed)
    report = play_run(EditedRun if edits else Run, seed, kind_scenario(rng, kinds), rng, True)
    text = "all" if tuple(kinds) == ALL else ",".join(kinds)
    return replace(report, options=f" --kinds {text}" + " --edits" * edits)
