"""Runs whose jobs are plain pods and pod groups, on the cluster's own scheduler and nodes.

Troubles, queues and most of what users do are those of every run; what must hold of pods is added.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from pykueue.api.kueue import names
from pykueue.api.objects import Object

from .pod_edits import EditingPodUsers
from .pod_invariants import PodInvariants
from .pod_users import PodUsers, pod_manifest
from .run import Report, Run, play_run
from .scenario import Scenario, job_labels, scenario


def pod_scenario(rng: random.Random) -> Scenario:
    """A scenario of which the jobs are pods."""
    plan = scenario(rng)
    jobs: list[tuple[float, Object]] = []
    for number in range(rng.randint(3, 8)):
        at = rng.uniform(0.0, plan.trouble * 0.6)
        labels = job_labels(rng, rng.choice(plan.of_kind("LocalQueue")))
        if rng.random() < 0.5:
            jobs.append((at, pod_manifest(f"p{number}", labels, {}, rng.randint(1, 2))))
            continue
        total = rng.randint(1, plan.room())
        labels[names.POD_GROUP_NAME_LABEL] = f"g{number}"
        annotations = {names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(total)}
        if rng.random() < 0.2:
            annotations[names.POD_GROUP_FAST_ADMISSION_ANNOTATION] = "true"
        for index in range(total):
            later = at + rng.uniform(0.0, 3.0)
            jobs.append((later, pod_manifest(f"g{number}-{index}", labels, annotations, 1)))
    return plan.with_jobs(jobs, ("batch/job", "pod"))


class PodRun(Run):
    """A run of pods."""

    invariants_class = PodInvariants
    users_class = PodUsers

    async def _story(self) -> None:
        story = super()._story()
        async with asyncio.TaskGroup() as group:
            replacing = group.create_task(self._replace_lost())
            await story
            replacing.cancel()

    async def _replace_lost(self) -> None:
        assert isinstance(self.users, PodUsers)
        await self.users.replace_lost()


class EditedPodRun(PodRun):
    """A run of pods whose users also edit by hand what controllers own."""

    users_class = EditingPodUsers


def play_pods(seed: int, edits: bool = False) -> Report:
    """Play the run of this seed, in virtual time; `edits` as for other runs."""
    rng = random.Random(seed)
    report = play_run(EditedPodRun if edits else PodRun, seed, pod_scenario(rng), rng, True)
    return replace(report, options=" --plain-pods" + " --edits" * edits)
