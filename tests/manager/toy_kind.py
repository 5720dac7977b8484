"""A custom job kind with one template and one suspend switch: all that is needed to queue it."""

from __future__ import annotations

from typing import Any

from pykueue.api.jobkinds import JobKind, PodSetPaths
from pykueue.api.resources import Resource
from pykueue.jobs.described import DescribedJob
from pykueue.jobs.kinds import BUILT_IN

EXPERIMENTS = Resource("science.example.com", "v1", "experiments", "Experiment", True)

EXPERIMENT = DescribedJob(
    JobKind(
        framework="science.example.com/experiment",
        resource=EXPERIMENTS,
        pod_sets=(PodSetPaths(("spec", "runner"), counts=((("spec", "samples"),),)),),
        suspend=("spec", "paused"),
        succeeded=("Concluded",),
        failed=("Aborted",),
        active=(("status", "running"),),
        ready=(("status", "running"),),
    )
)

KINDS = BUILT_IN.with_job(EXPERIMENT)

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "experiments.science.example.com"},
    "spec": {
        "group": EXPERIMENTS.group,
        "scope": "Namespaced",
        "names": {"plural": "experiments", "singular": "experiment", "kind": "Experiment"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _ANYTHING, "status": _ANYTHING},
                    }
                },
            }
        ],
    },
}
