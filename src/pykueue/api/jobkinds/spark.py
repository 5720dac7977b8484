"""The Spark operator's applications: a driver that makes its executors (docs/reference/operators.md 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.objects import Object
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
