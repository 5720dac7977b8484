"""The pods that operators make from the templates of a job, and what they read from pods.

Names and labels come from the kind's description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.jobkinds import JobKind, Slot, filled, value_at
from pykueue.api.objects import Object, get, is_deleting, labels_of
from pykueue.api.pods import is_ready, phase

#: Says how long a simulated program runs; for programs that an operator itself puts into a pod.
RUN_TIME = "sim.pykueue.io/run-time"


def from_slot(job: Mapping[str, Any], kind: JobKind, slot: Slot, index: int = 0, suffix: str = "") -> Object:
    """A pod of a pod set: its template, with the name and labels that the kind's operator gives it."""
    values = {"role": slot.name, "written": slot.written, "index": str(index), "random": suffix}
    template: Object = value_at(job, slot.template) or {}
    labels = {
        label: filled(text, job, **values) or "" for label, text in (*kind.pod_labels, *slot.paths.pod_labels)
    }
    return templated(template, (filled(slot.paths.pod_name, job, **values) or "").lower(), labels)


def templated(template: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> Object:
    """A pod of a template, with further labels; without a name it is a template again."""
    given = template.get("metadata") or {}
    kept = {key: given[key] for key in ("annotations", "finalizers") if given.get(key)}
    return {
        "metadata": {
            **({"name": name} if name else {}),
            **kept,
            "labels": {**(given.get("labels") or {}), **labels},
        },
        "spec": dict(template.get("spec") or {}),
    }


def with_variables(pod: Object, variables: Mapping[str, str], container: str | None = None) -> Object:
    """The pod with environment variables after those of the template, in one container or in all."""
    added = [{"name": name, "value": value} for name, value in variables.items()]
    containers = [
        {**one, "env": [*(one.get("env") or ()), *added]} if container in (None, one.get("name")) else one
        for one in pod["spec"].get("containers") or ()
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def annotated_by_default(pod: Object, key: str, value: str) -> Object:
    """The pod with an annotation, unless its template has it."""
    metadata = pod["metadata"]
    annotations = {key: value, **(metadata.get("annotations") or {})}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def is_running(pod: Mapping[str, Any]) -> bool:
    """Whether it runs and is not being deleted."""
    return phase(pod) == "Running" and not is_deleting(pod)


def stays(pods: Iterable[Object]) -> list[Object]:
    """Those that are not being deleted."""
    return [pod for pod in pods if not is_deleting(pod)]


def running(pods: Iterable[Object]) -> int:
    """How many run and are not being deleted."""
    return sum(map(is_running, pods))


def in_phase(pods: Iterable[Object], *phases: str) -> int:
    """How many are in one of these phases."""
    return sum(phase(pod) in phases for pod in pods)


def ready(pods: Iterable[Object]) -> int:
    """How many run and are ready."""
    return sum(is_running(pod) and is_ready(pod) for pod in pods)


def index_of(pod: Mapping[str, Any], label: str) -> int | None:
    """The index in a label; None where there is none."""
    text = labels_of(pod).get(label, "")
    return int(text) if text.isdecimal() else None


def exit_code(pod: Mapping[str, Any], container: str = "") -> int | None:
    """The exit code of a container, or of the first that ended; None while none has."""
    for one in get(dict(pod), "status", "containerStatuses") or ():
        code = get(one, "state", "terminated", "exitCode")
        if code is not None and container in ("", one.get("name")):
            return int(code)
    return None


def restarts(pods: Iterable[Object]) -> int:
    """Container restarts, init containers included."""
    statuses = (
        one
        for pod in pods
        for field in ("containerStatuses", "initContainerStatuses")
        for one in get(pod, "status", field) or ()
    )
    return sum(int(one.get("restartCount") or 0) for one in statuses)


def headless_service(name: str, selector: Mapping[str, str], **spec: Any) -> Object:
    """A Service without an address of its own, for the names of pods."""
    return {
        "metadata": {"name": name, "labels": dict(selector)},
        "spec": {"clusterIP": "None", "selector": dict(selector), **spec},
    }
