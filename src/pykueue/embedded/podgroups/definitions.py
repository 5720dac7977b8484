"""The CustomResourceDefinitions of Volcano's PodGroup and Queue and of coscheduling's PodGroup.

Fields and columns: docs/reference/cluster-workloads.md 3.2, 3.3 and 3.6.
"""

from __future__ import annotations

from functools import cache

from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.embedded.objects.definitions import AGE, custom_resource_definition

VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True)
VOLCANO_QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", False)
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", True)
NATIVE_POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", True)
NATIVE_WORKLOADS = Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload", True)

_STRING: Object = {"type": "string"}
_COUNT: Object = {"type": "integer", "format": "int32", "minimum": 0}
_AMOUNTS: Object = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
        r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    },
}
_ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TIME: Object = {"type": "string", "format": "date-time"}


def _object(**properties: Object) -> Object:
    return {"type": "object", "properties": properties}


def _definition(
    resource: Resource, short_names: list[str], spec: Object, status: Object, columns: list[Object]
) -> Object:
    version: Object = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": _object(
                apiVersion=_STRING, kind=_STRING, metadata={"type": "object"}, spec=spec, status=status
            )
        },
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return custom_resource_definition(resource, [version], {}, shortNames=short_names)


def _column(name: str, type_: str, path: str, priority: int = 0) -> Object:
    return {"name": name, "type": type_, "jsonPath": path, "priority": priority}


_VOLCANO_POD_GROUP = _definition(
    VOLCANO_POD_GROUPS,
    ["pg", "podgroup-v1beta1"],
    spec=_object(
        minMember=_COUNT,
        minTaskMember={"type": "object", "additionalProperties": _COUNT},
        queue={**_STRING, "default": "default"},
        priorityClassName=_STRING,
        minResources=_AMOUNTS,
        networkTopology=_ANYTHING,
        subGroupPolicy={"type": "array", "items": _ANYTHING},
    ),
    status=_object(
        phase=_STRING,
        running=_COUNT,
        succeeded=_COUNT,
        failed=_COUNT,
        conditions={
            "type": "array",
            "items": _object(
                type=_STRING,
                status=_STRING,
                reason=_STRING,
                message=_STRING,
                transitionID=_STRING,
                lastTransitionTime=_TIME,
            ),
        },
    ),
    columns=[
        _column("STATUS", "string", ".status.phase"),
        _column("minMember", "integer", ".spec.minMember"),
        _column("RUNNINGS", "integer", ".status.running"),
        AGE,
        _column("QUEUE", "string", ".spec.queue", priority=1),
    ],
)

_VOLCANO_QUEUE = _definition(
    VOLCANO_QUEUES,
    ["q", "queue-v1beta1"],
    spec=_object(
        weight={"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535, "default": 1},
        capability=_AMOUNTS,
        deserved=_AMOUNTS,
        guarantee=_object(resource=_AMOUNTS),
        reclaimable={"type": "boolean", "default": True},
        parent=_STRING,
        priority={"type": "integer", "format": "int32"},
        dequeueStrategy={"type": "string", "enum": ["fifo", "traverse"]},
        affinity=_ANYTHING,
        type=_STRING,
    ),
    status=_object(state={"type": "string", "enum": ["", "Open", "Closing", "Closed", "Unknown"]}),
    columns=[
        _column("WEIGHT", "integer", ".spec.weight"),
        _column("STATE", "string", ".status.state"),
        _column("PARENT", "string", ".spec.parent"),
        AGE,
    ],
)

_COSCHEDULING_POD_GROUP = _definition(
    COSCHEDULING_POD_GROUPS,
    ["pg", "pgs"],
    spec=_object(
        minMember={**_COUNT, "minimum": 1},
        minResources=_AMOUNTS,
        scheduleTimeoutSeconds=_COUNT,
    ),
    status=_object(
        phase=_STRING,
        occupiedBy=_STRING,
        scheduled=_COUNT,
        running=_COUNT,
        succeeded=_COUNT,
        failed=_COUNT,
        scheduleStartTime=_TIME,
    ),
    columns=[
        _column("PHASE", "string", ".status.phase"),
        _column("MINMEMBER", "integer", ".spec.minMember"),
        _column("RUNNING", "integer", ".status.running"),
        _column("SUCCEEDED", "integer", ".status.succeeded"),
        _column("FAILED", "integer", ".status.failed"),
        AGE,
    ],
)


@cache
def definitions() -> tuple[Object, ...]:
    """The definitions. Shared: do not change them."""
    return _VOLCANO_POD_GROUP, _VOLCANO_QUEUE, _COSCHEDULING_POD_GROUP


#: The queue that groups are in unless they say otherwise.
DEFAULT_QUEUE: Object = {
    "apiVersion": VOLCANO_QUEUES.api_version,
    "kind": VOLCANO_QUEUES.kind,
    "metadata": {"name": "default"},
    "spec": {"weight": 1},
}
