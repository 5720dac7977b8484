"""What the Job controller reads from its pods, and how it makes new ones.

Source: docs/reference/cluster-workloads.md, 1.4, 1.6, 1.8 and 1.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykueue.api.objects import Object, controller_reference
from pykueue.api.pods import is_ready, phase
from pykueue.api.times import parse_time

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
#: Annotation and label with a pod's completion index.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
#: Annotations that carry the failures of an index from a pod to the one that replaces it.
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
#: Longest prefix a generated name may have.
MAX_NAME_PREFIX = 58

_PHASE_RANK = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


# Reading


def is_tracked(pod: Object) -> bool:
    """Not yet counted: its tracking finalizer is still there."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def uid_of(pod: Object) -> str:
    """The UID of a pod."""
    return str(pod["metadata"]["uid"])


def completion_index(pod: Object) -> int | None:
    """The pod's index, None when it has none."""
    return _number((pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX))


def failure_count(pod: Object) -> int:
    """Failures of its index before this pod, those that count."""
    return _number((pod["metadata"].get("annotations") or {}).get(FAILURE_COUNT)) or 0


def ignored_failure_count(pod: Object) -> int:
    """Failures of its index before this pod, those a policy ignored."""
    return _number((pod["metadata"].get("annotations") or {}).get(IGNORED_FAILURE_COUNT)) or 0


def restarts(pod: Object) -> int:
    """Container restarts, init containers included."""
    status = pod.get("status") or {}
    return sum(
        int(one.get("restartCount") or 0)
        for key in ("initContainerStatuses", "containerStatuses")
        for one in status.get(key) or ()
    )


def finish_time(pod: Object) -> float:
    """When the pod ended, in seconds since 1970; the first of several signs that is there (1.8)."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    finished = [
        parse_time(state["finishedAt"])
        for one in status.get("containerStatuses") or ()
        if (state := (one.get("state") or {}).get("terminated")) and state.get("finishedAt")
    ]
    if finished and len(finished) == len(status.get("containerStatuses") or ()):
        return max(finished)
    for condition in status.get("conditions") or ():
        if (
            condition.get("type") == "Ready"
            and condition.get("status") == "False"
            and condition.get("lastTransitionTime")
        ):
            return parse_time(condition["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        grace = metadata.get("deletionGracePeriodSeconds") or 0
        return parse_time(metadata["deletionTimestamp"]) - float(grace)
    return parse_time(metadata["creationTimestamp"])


def removal_order(pod: Object) -> tuple[Any, ...]:
    """Sort key of pods of which some must go, those that go first at the front (1.6)."""
    status = pod.get("status") or {}
    ready = is_ready(pod)
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        _PHASE_RANK.get(phase(pod), 0),
        ready,
        -_ready_since(status) if ready else 0.0,
        -max((int(one.get("restartCount") or 0) for one in status.get("containerStatuses") or ()), default=0),
        -parse_time(pod["metadata"]["creationTimestamp"]),
        pod["metadata"]["name"],
    )


def _ready_since(status: Object) -> float:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("lastTransitionTime"):
            return parse_time(condition["lastTransitionTime"])
    return 0.0


def pods_to_remove(active: list[Object], count: int, completions: int | None) -> list[Object]:
    """At least `count` of the active pods, and of an Indexed Job every one that has no index of its own."""
    rest: list[Object] = active
    chosen: list[Object] = []
    if completions is not None:
        rest = []
        by_index: dict[int, list[Object]] = {}
        for pod in active:
            index = completion_index(pod)
            if index is None or index >= completions:
                chosen.append(pod)
            else:
                by_index.setdefault(index, []).append(pod)
        for sharing in by_index.values():
            if len(sharing) > 1:
                sharing.sort(key=removal_order)
                chosen += sharing[:-1]
            rest.append(sharing[-1])
    if len(chosen) < count:
        chosen = chosen + sorted(rest, key=removal_order)[: count - len(chosen)]
    return chosen


# Making


class PodMaker:
    """Makes the pods of one Job as it is now."""

    def __init__(self, job: Object) -> None:
        self._job = job
        spec = job["spec"]
        template = spec["template"]
        self._indexed = spec.get("completionMode") == "Indexed"
        self._per_index = spec.get("backoffLimitPerIndex") is not None
        metadata = template.get("metadata") or {}
        self._labels: Object = metadata.get("labels") or {}
        self._annotations: Object = metadata.get("annotations") or {}
        finalizers = metadata.get("finalizers") or []
        self._finalizers = [*(one for one in finalizers if one != TRACKING_FINALIZER), TRACKING_FINALIZER]
        self._spec = _with_index_variable(template["spec"]) if self._indexed else template["spec"]

    def make(self, index: int | None, failures: int = 0, ignored: int = 0) -> Object:
        """A pod; `index` for Indexed Jobs, `failures` of that index so far where they are limited."""
        job = self._job["metadata"]
        metadata: Object = {
            "namespace": job["namespace"],
            "generateName": self._prefix(index),
            "labels": self._labels,
            "annotations": self._annotations,
            "finalizers": self._finalizers,
            "ownerReferences": [controller_reference(self._job, "batch/v1", "Job")],
        }
        spec = self._spec
        if index is not None:
            metadata["labels"] = {**self._labels, COMPLETION_INDEX: str(index)}
            annotations = {**self._annotations, COMPLETION_INDEX: str(index)}
            if self._per_index:
                annotations[FAILURE_COUNT] = str(failures)
                if ignored:
                    annotations[IGNORED_FAILURE_COUNT] = str(ignored)
            metadata["annotations"] = annotations
            spec = {**spec, "hostname": f"{job['name']}-{index}"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _prefix(self, index: int | None) -> str:
        name: str = self._job["metadata"]["name"]
        suffix = "-" if index is None else f"-{index}-"
        return name[: MAX_NAME_PREFIX - len(suffix)] + suffix


def _with_index_variable(spec: Object) -> Object:
    """Every container learns its pod's index, unless it has a variable of that name."""
    variable = {
        "name": INDEX_VARIABLE,
        "valueFrom": {
            "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}
        },
    }

    def extended(containers: Iterable[Object]) -> list[Object]:
        return [
            one
            if any(given.get("name") == INDEX_VARIABLE for given in one.get("env") or ())
            else {**one, "env": [*(one.get("env") or ()), variable]}
            for one in containers
        ]

    spec = {**spec, "containers": extended(spec.get("containers") or ())}
    if spec.get("initContainers"):
        spec["initContainers"] = extended(spec["initContainers"])
    return spec


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


def counts_restarts(pod: Object) -> bool:
    """Whether the pod's restarts count as failures of an OnFailure Job."""
    return phase(pod) in ("Running", "Pending")
