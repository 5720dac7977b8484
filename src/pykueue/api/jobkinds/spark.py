"""The Spark operator's applications: a driver that makes its executors (docs/reference/operators.md 11)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from pykueue.api.objects import Object, get, replaced, section
from pykueue.api.resources import Resource

from .description import AllOf, CountIn, FieldIn, JobKind, PodSetPaths, Rule

_STATE = ("status", "applicationState", "state")
_ROLE_LABEL = "spark-role"


def no_template(job: Mapping[str, Any]) -> Object:
    """The template of a role without one: other fields of the role say what its pods are."""
    return {}


_INSTANCES = ("spec", "executor", "instances")
SPARK_APPLICATION = JobKind(
    framework="sparkoperator.k8s.io/sparkapplication",
    resource=Resource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication", True),
    pod_sets=(
        PodSetPaths(
            ("spec", "driver", "template"),
            name="driver",
            annotations=("spec", "driver", "annotations"),
            default_template=no_template,
            partial=True,
            pod_name="{name}-driver",
            pod_labels=((_ROLE_LABEL, "driver"),),
        ),
        PodSetPaths(
            ("spec", "executor", "template"),
            counts=((_INSTANCES,),),
            default_count=0,
            name="executor",
            annotations=("spec", "executor", "annotations"),
            default_template=no_template,
            partial=True,
            pod_name="{name}-exec-{index}",
            pod_labels=((_ROLE_LABEL, "executor"), ("spark-exec-id", "{index}")),
        ),
    ),
    succeeded=(FieldIn(_STATE, ("COMPLETED",)),),
    failed=(FieldIn(_STATE, ("FAILED", "SUBMISSION_FAILED")),),
    message=("status", "applicationState", "errorMessage"),
    active=(FieldIn(_STATE, ("RUNNING",)),),
    ready=(
        AllOf(
            FieldIn(_STATE, ("RUNNING",)),
            CountIn(("status", "executorState", "*"), ("RUNNING", "COMPLETED"), _INSTANCES),
        ),
    ),
    rules=(
        Rule("spec.mode", FieldIn(("spec", "mode"), ("client", "in-cluster-client")), "must be cluster"),
        Rule(
            "spec.dynamicAllocation.enabled",
            FieldIn(("spec", "dynamicAllocation", "enabled"), (True,)),
            "the number of executors of a queued application is fixed",
        ),
    ),
    prebuilt=False,
    pod_labels=(("sparkoperator.k8s.io/app-name", "{name}"),),
    gate="SparkApplicationIntegration",
)


# What the pods of a role are

_MIB = 2**20
#: Memory beside the heap in MiB: the larger of this and a share of the heap, unless the role says how much.
_LEAST_OVERHEAD = 384
_OVERHEAD, _OVERHEAD_OF_OTHER_LANGUAGES = 0.1, 0.4
#: Spark's units of memory; without one it is counted in MiB.
_UNITS = {"b": 1, "k": 2**10, "kb": 2**10, "m": _MIB, "mb": _MIB, "g": 2**30, "gb": 2**30}
_UNITS |= {"t": 2**40, "tb": 2**40}
_DEFAULT_MEMORY, _DEFAULT_CORES = "1g", 1


def spark_bytes(text: str) -> int | None:
    """An amount of memory as Spark writes it; None for what it would not accept."""
    digits = text.strip().lower()
    unit = digits.lstrip("0123456789")
    number = digits[: len(digits) - len(unit)]
    factor = _UNITS.get(unit) if unit else _MIB
    return int(number) * factor if number and factor else None


def _memory(role: Mapping[str, Any], language: str) -> str | None:
    """What a pod of the role requests: heap and overhead, which Spark counts in whole MiB."""
    heap = spark_bytes(str(role.get("memory") or _DEFAULT_MEMORY))
    if heap is None:
        return None
    size = ceil(heap / _MIB)
    text = role.get("memoryOverhead")
    if text is None:
        share = _OVERHEAD if language in ("Java", "Scala") else _OVERHEAD_OF_OTHER_LANGUAGES
        return f"{size + max(_LEAST_OVERHEAD, int(size * share))}Mi"
    overhead = spark_bytes(str(text))
    return None if overhead is None else f"{size + ceil(overhead / _MIB)}Mi"


def role_template(job: Mapping[str, Any], role_name: str, template: Mapping[str, Any]) -> Object:
    """The pods of a role: its pod template, with what the role's and the application's fields say."""
    role = section(dict(job), "spec", role_name)
    merged = dict(template)
    for field, path in (("labels", ("metadata", "labels")), ("annotations", ("metadata", "annotations"))):
        if section(role, field):
            merged = replaced(merged, path, {**section(template, *path), **section(role, field)})
    selector = {**section(dict(job), "spec", "nodeSelector"), **section(role, "nodeSelector")}
    if selector:
        path = ("spec", "nodeSelector")
        merged = replaced(merged, path, {**section(template, *path), **selector})
    if role.get("tolerations"):
        known = get(merged, "spec", "tolerations") or []
        added = [one for one in role["tolerations"] if one not in known]
        merged = replaced(merged, ("spec", "tolerations"), [*known, *added])
    priority = get(dict(job), "spec", "batchSchedulerOptions", "priorityClassName")
    for field, value in (("affinity", role.get("affinity")), ("priorityClassName", priority)):
        if value:
            merged = replaced(merged, ("spec", field), value)
    return replaced(merged, ("spec", "containers"), _containers(job, role_name, merged))


def _containers(job: Mapping[str, Any], role_name: str, template: Mapping[str, Any]) -> list[Object]:
    """The template's containers, of which the first (or a new one) runs Spark."""
    role = section(dict(job), "spec", role_name)
    containers = get(dict(template), "spec", "containers") or []
    own: Object = dict(containers[0]) if containers else {"name": f"spark-kubernetes-{role_name}"}
    image = role.get("image") or get(dict(job), "spec", "image")
    if image:
        own["image"] = image
    cores = role.get("cores")
    memory = _memory(role, str(get(dict(job), "spec", "type") or ""))
    requests: Object = {
        "cpu": str(role.get("coreRequest") or (_DEFAULT_CORES if cores is None else cores)),
        **({"memory": memory} if memory else {}),
    }
    gpu = section(role, "gpu")
    if gpu.get("name"):
        requests[str(gpu["name"])] = str(gpu.get("quantity") or 0)
    own["resources"] = {**section(own, "resources"), "requests": requests}
    sidecars = role.get("sidecars") or []
    return [own, *containers[1:], *sidecars]
