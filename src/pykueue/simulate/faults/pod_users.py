"""Users who make plain pods and pod groups, delete some, and replace what groups lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, labels_of
from pykueue.api.pods import phase
from pykueue.api.resources import LOCAL_QUEUES, PODS, WORKLOADS
from pykueue.jobs.identifiers import IDENTIFIERS
from pykueue.jobs.podgroup import PodGroup

from .scenario import NAMESPACE, PRIORITIES
from .users import AGAIN, Users

#: Seconds after which the users look whether a group of theirs lacks pods.
LOOK = 5.0


def pod_manifest(name: str, labels: Mapping[str, str], annotations: Mapping[str, str], cpu: int) -> Object:
    """A pod that asks for so many cpu."""
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
    return phase(pod) == "Succeeded" and not held


class PodUsers(Users):
    """They make pods, delete some, and replace what their groups lost."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kinds = (PODS,)
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

    async def leave(self) -> None:
        self._left = True
        await super().leave()

    async def replace_lost(self) -> None:
        """Give groups the pods that they lack, until the users delete all jobs."""
        while True:
            await self._clock.sleep(LOOK + AGAIN * self._rng.random())
            if self._left:
                return
            groups = defaultdict(list)
            for pod in await self._all(PODS):
                if IDENTIFIERS.group_name(pod):
                    groups[IDENTIFIERS.group_name(pod)].append(pod)
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
        name = f"{IDENTIFIERS.group_name(sample)}-again-{self._replacements}"
        keys = (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL, names.POD_GROUP_NAME_LABEL)
        labels = {key: labels_of(sample)[key] for key in keys if key in labels_of(sample)}
        sample_annotations = annotations_of(sample)
        annotations = {
            key: sample_annotations[key]
            for key in (names.POD_GROUP_TOTAL_COUNT_ANNOTATION, names.POD_GROUP_FAST_ADMISSION_ANNOTATION)
            if key in sample_annotations
        }
        await self._create(PODS, pod_manifest(name, labels, annotations, 1))

    async def _delete_pod(self) -> str:
        pod = await self._one(PODS)
        if pod is None:
            return ""
        await self._client.delete(PODS, pod["metadata"]["name"], NAMESPACE)
        return f"deletes pod {pod['metadata']['name']}"

    async def _give_up(self) -> str:
        """Delete all pods of a group."""
        pod = await self._one(PODS, IDENTIFIERS.group_name)
        if pod is None:
            return ""
        for one in await self._all(PODS):
            if IDENTIFIERS.group_name(one) == IDENTIFIERS.group_name(pod):
                await self._client.delete(PODS, one["metadata"]["name"], NAMESPACE)
        return f"gives up group {IDENTIFIERS.group_name(pod)}"

    async def _rank_pod(self) -> str:
        pod, name = await self._one(PODS), self._rng.choice(list(PRIORITIES))
        if pod is None:
            return ""
        await self._patch(PODS, pod, {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: name}}})
        return f"gives pod {pod['metadata']['name']} priority {name}"

    async def _move_pod(self) -> str:
        pod, queue = (
            await self._one(PODS, lambda pod: not IDENTIFIERS.group_name(pod)),
            await self._one(LOCAL_QUEUES),
        )
        if pod is None or queue is None:
            return ""
        name = queue["metadata"]["name"]
        await self._patch(PODS, pod, {"metadata": {"labels": {names.QUEUE_LABEL: name}}})
        return f"moves pod {pod['metadata']['name']} to {name}"
