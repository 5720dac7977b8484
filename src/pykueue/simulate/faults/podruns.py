"""Runs whose jobs are plain pods and pod groups, on the cluster's own scheduler and nodes.

Troubles, queues and most of what users do are those of every run; what must hold of pods is added.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, is_deleting, labels_of
from pykueue.api.pods import is_terminal
from pykueue.api.resources import LOCAL_QUEUES, PODS, WORKLOADS
from pykueue.jobs.pod import group_name, is_gated
from pykueue.jobs.podgroup import PodGroup
from pykueue.manager.workloads import conditions

from .invariants import Invariants
from .queue_status import miscounted
from .run import Report, Run, play_run
from .scenario import NAMESPACE, PRIORITIES, Scenario, scenario
from .users import AGAIN, Users

#: Seconds after which the users look whether a group of theirs lacks pods.
LOOK = 5.0


def pod_scenario(rng: random.Random) -> Scenario:
    """A scenario of which the jobs are pods."""
    plan = scenario(rng)
    queues = plan.of_kind("ClusterQueue")
    room = min(
        int(flavor["resources"][0]["nominalQuota"])
        for queue in queues
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]
    )
    jobs: list[tuple[float, Object]] = []
    for number in range(rng.randint(3, 8)):
        at = rng.uniform(0.0, plan.trouble * 0.6)
        queue = rng.choice(plan.of_kind("LocalQueue"))["metadata"]["name"]
        labels = {names.QUEUE_LABEL: queue}
        if rng.random() < 0.5:
            labels[names.PRIORITY_CLASS_LABEL] = rng.choice(list(PRIORITIES))
        if rng.random() < 0.5:
            jobs.append((at, _pod(f"p{number}", labels, {}, rng.randint(1, 2))))
            continue
        total = rng.randint(1, room)
        labels[names.POD_GROUP_NAME_LABEL] = f"g{number}"
        annotations = {names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(total)}
        if rng.random() < 0.2:
            annotations[names.POD_GROUP_FAST_ADMISSION_ANNOTATION] = "true"
        for index in range(total):
            later = at + rng.uniform(0.0, 3.0)
            jobs.append((later, _pod(f"g{number}-{index}", labels, annotations, 1)))
    lines = [
        line for line in plan.configuration.splitlines() if not re.match(r"integrations:|  frameworks:", line)
    ]
    configuration = "\n".join([*lines, "integrations: {frameworks: [batch/job, pod]}", ""])
    return replace(
        plan,
        configuration=configuration,
        jobs=sorted(jobs, key=lambda pair: (pair[0], pair[1]["metadata"]["name"])),
    )


def _pod(name: str, labels: Mapping[str, str], annotations: Mapping[str, str], cpu: int) -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": dict(labels),
        "annotations": dict(annotations),
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _is_let_go(pod: Object) -> bool:
    held = names.MANAGED_FINALIZER in (pod["metadata"].get("finalizers") or ())
    return pod.get("status", {}).get("phase") == "Succeeded" and not held


class PodUsers(Users):
    """They make pods, delete some, and replace what their groups lost."""

    kinds = (PODS,)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._replacements = 0
        self._left = False
        self._acts = (
            self._delete_pod,
            self._delete_pod,
            self._rank_pod,
            self._move_pod,
            self._give_up,
            self._stop_queue,
            self._stop_queue,
            self._stop_local_queue,
            self._change_quota,
            self._change_quota,
            self._deactivate,
            self._deactivate,
            self._activate,
            self._delete_workload,
            self._change_class,
        )

    async def submit(self) -> None:
        start = self._clock.time()
        for at, pod in self._scenario.jobs:
            await self._clock.sleep(start + at - self._clock.time())
            await self._create(PODS, pod)

    async def leave(self) -> None:
        self._left = True
        await super().leave()

    async def replace_lost(self) -> None:
        """Give groups the pods that they lack, until everybody leaves."""
        while True:
            await self._clock.sleep(LOOK + AGAIN * self._rng.random())
            if self._left:
                return
            groups = defaultdict(list)
            for pod in await self._all(PODS):
                if group_name(pod):
                    groups[group_name(pod)].append(pod)
            over = {w["metadata"]["name"] for w in await self._all(WORKLOADS) if conditions.is_finished(w)}
            for name, pods in sorted(groups.items()):
                group = PodGroup.of(pods)
                # Its Workload may have been deleted since it ended: then its pods lost their finalizers.
                ended = name in over or any(map(_is_let_go, pods))
                if ended or group.is_abandoned() or group.outcome() is not None:
                    continue
                for _ in range(group.missing):
                    await self._replace(group.first)

    async def _replace(self, sample: Object) -> None:
        self._replacements += 1
        name = f"{group_name(sample)}-again-{self._replacements}"
        keys = (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL, names.POD_GROUP_NAME_LABEL)
        labels = {key: labels_of(sample)[key] for key in keys if key in labels_of(sample)}
        sample_annotations = annotations_of(sample)
        annotations = {
            key: sample_annotations[key]
            for key in (names.POD_GROUP_TOTAL_COUNT_ANNOTATION, names.POD_GROUP_FAST_ADMISSION_ANNOTATION)
            if key in sample_annotations
        }
        await self._create(PODS, _pod(name, labels, annotations, 1))

    async def _delete_pod(self) -> str:
        pod = await self._one(PODS)
        if pod is None:
            return ""
        await self._client.delete(PODS, pod["metadata"]["name"], NAMESPACE)
        return f"deletes pod {pod['metadata']['name']}"

    async def _give_up(self) -> str:
        """Delete all pods of a group."""
        pod = await self._one(PODS, group_name)
        if pod is None:
            return ""
        for one in await self._all(PODS):
            if group_name(one) == group_name(pod):
                await self._client.delete(PODS, one["metadata"]["name"], NAMESPACE)
        return f"gives up group {group_name(pod)}"

    async def _rank_pod(self) -> str:
        pod, name = await self._one(PODS), self._rng.choice(list(PRIORITIES))
        if pod is None:
            return ""
        await self._patch(PODS, pod, {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: name}}})
        return f"gives pod {pod['metadata']['name']} priority {name}"

    async def _move_pod(self) -> str:
        pod, queue = await self._one(PODS, lambda pod: not group_name(pod)), await self._one(LOCAL_QUEUES)
        if pod is None or queue is None:
            return ""
        name = queue["metadata"]["name"]
        await self._patch(PODS, pod, {"metadata": {"labels": {names.QUEUE_LABEL: name}}})
        return f"moves pod {pod['metadata']['name']} to {name}"


class PodInvariants(Invariants):
    """Pods start only admitted, release quota only when terminating, and none is left gated or finalized."""

    #: Whether the manager can tell when the time is over that pods have to end.
    knows_time: Callable[[], bool] = staticmethod(lambda: True)

    def _pod(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or not is_gated(before) or is_gated(after):
            return
        workload = self._workload_of(after)
        if workload is None or not conditions.is_admitted(workload) or conditions.is_finished(workload):
            self._violate(after, "was let go without an admitted workload")

    def _workload_of(self, pod: Mapping[str, Any]) -> Object | None:
        if group_name(pod):
            return self.find(WORKLOADS, NAMESPACE, group_name(pod))
        uid = pod["metadata"]["uid"]
        owned = (w for w in self.objects(WORKLOADS) if (conditions.owner(w) or {}).get("uid") == uid)
        return next(owned, None)

    def _pods_of(self, workload: Mapping[str, Any]) -> list[Object]:
        name = workload["metadata"]["name"]
        owner = conditions.owner(workload)
        return [
            pod
            for pod in self.objects(PODS)
            if (group_name(pod) == name if owner is None else pod["metadata"]["uid"] == owner.get("uid"))
        ]

    def _quota_returned(self, workload: Object) -> None:
        pods = self._pods_of(workload)
        for pod in pods:
            if not is_gated(pod) and not is_terminal(pod) and not is_deleting(pod):
                self._violate(workload, f"gave its quota back while pod {pod['metadata']['name']} goes on")
        if not pods or conditions.owner(workload) is not None or not self.knows_time():
            return
        if PodGroup.of(pods).is_active(self._clock.time() + 1.0):
            self._violate(workload, "gave its quota back while pods of the group run")

    def unsettled(self) -> list[str]:
        found = list(miscounted(self))
        pods = self.objects(PODS)
        for pod in pods:
            workload = self._workload_of(pod)
            stopped = workload is not None and not conditions.is_active(workload)
            name = pod["metadata"]["name"]
            held = names.MANAGED_FINALIZER in (get(pod, "metadata", "finalizers") or ())
            if not is_terminal(pod) and not stopped:
                found.append(f"pod {name} has not ended")
            elif held and not stopped:
                found.append(f"pod {name} is still held")
            elif stopped and not is_gated(pod) and not is_deleting(pod) and not is_terminal(pod):
                found.append(f"pod {name} goes on though its workload is deactivated")
        living = {pod["metadata"]["uid"] for pod in pods}
        for workload in self.objects(WORKLOADS):
            found += self._open_workload(workload, living)
        return found

    def _open_workload(self, workload: Object, living: set[str]) -> Iterable[str]:
        name = f"workload {workload['metadata']['name']}"
        owners = {one["uid"] for one in get(workload, "metadata", "ownerReferences") or ()}
        if owners.isdisjoint(living):
            yield f"{name} belongs to no pod"
        elif workload["metadata"].get("deletionTimestamp"):
            yield f"{name} is still being deleted"
        elif not conditions.is_finished(workload) and conditions.is_active(workload):
            reserved = conditions.condition(workload, conditions.QUOTA_RESERVED) or {}
            yield f"{name} is not over: {reserved.get('reason')}: {reserved.get('message')}"


class PodRun(Run):
    """A run of pods."""

    invariants_class = PodInvariants
    users_class = PodUsers

    def _start_manager(self) -> None:
        super()._start_manager()
        assert isinstance(self.invariants, PodInvariants)
        self.invariants.knows_time = lambda: self._manager_clock.offset <= 0.0

    async def _story(self) -> None:
        story = super()._story()
        async with asyncio.TaskGroup() as group:
            replacing = group.create_task(self._replace_lost())
            await story
            replacing.cancel()

    async def _replace_lost(self) -> None:
        assert isinstance(self.users, PodUsers)
        await self.users.replace_lost()


def play_pods(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(seed)
    return replace(play_run(PodRun, seed, pod_scenario(rng), rng, True), options=" --plain-pods")
