"""One small object of every built-in kind with a status, and the status that kube-apiserver 1.36 gives it."""

from __future__ import annotations

from typing import Any, NamedTuple

Object = dict[str, Any]

#: Stands for a time, which differs between servers.
TIME = "TIME"

_TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
_JOB_TEMPLATE = {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
_SELECTED = {"selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE}


class Case(NamedTuple):
    """A collection's path, what is created in it, and the status from the create on."""

    path: str
    body: Object
    status: Object


def _case(
    api_version: str,
    kind: str,
    plural: str,
    status: Object,
    *,
    namespaced: bool = True,
    name: str = "fresh",
    sent: Object | None = None,
    **fields: Any,
) -> Case:
    root = "/api" if "/" not in api_version else "/apis"
    path = f"{root}/{api_version}{'/namespaces/default' if namespaced else ''}/{plural}"
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}
    if sent is not None:
        body["status"] = sent
    return Case(path, body, status)


_BUDGET = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_NODE_INFO = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ),
    "",
)
_ENDPOINT = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}
_HPA_SPEC = {
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "fresh"},
    "maxReplicas": 2,
}

CASES = [
    _case("batch/v1", "Job", "jobs", {}, spec={"suspend": True, "template": _JOB_TEMPLATE}),
    _case(
        "batch/v1",
        "CronJob",
        "cronjobs",
        {},
        spec={"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": _JOB_TEMPLATE}}},
    ),
    _case("apps/v1", "Deployment", "deployments", {}, spec={"replicas": 0, **_SELECTED}),
    _case("apps/v1", "ReplicaSet", "replicasets", {"replicas": 0}, spec={"replicas": 0, **_SELECTED}),
    _case(
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        {"replicas": 0, "availableReplicas": 0},
        spec={"replicas": 0, "serviceName": "fresh", **_SELECTED},
    ),
    _case(
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0},
        spec=_SELECTED,
    ),
    _case(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        {"replicas": 0},
        spec={"replicas": 0, "selector": {"app": "a"}, "template": _TEMPLATE},
    ),
    _case("v1", "ResourceQuota", "resourcequotas", {}, spec={"hard": {"example.com/none": "1"}}),
    _case("v1", "Service", "services", {"loadBalancer": {}}, spec={"ports": [{"port": 80}]}),
    _case(
        "v1",
        "Service",
        "services",
        {"loadBalancer": {}},
        name="elsewhere",
        spec={"type": "ExternalName", "externalName": "example.com"},
    ),
    _case(
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        {"phase": "Pending"},
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    _case(
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        {"phase": "Pending", "lastPhaseTransitionTime": TIME},
        namespaced=False,
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/mnt"},
        },
    ),
    _case(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "volumeattachments",
        {"attached": False},
        namespaced=False,
        spec={"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    ),
    _case("v1", "Namespace", "namespaces", {"phase": "Active"}, namespaced=False),
    _case("v1", "Node", "nodes", {**_ENDPOINT, "nodeInfo": _NODE_INFO}, namespaced=False),
    _case(
        "v1",
        "Node",
        "nodes",
        {
            **_ENDPOINT,
            "nodeInfo": {**_NODE_INFO, "kubeletVersion": "v1"},
            "capacity": {"cpu": "1"},
            "allocatable": {"cpu": "1"},
        },
        namespaced=False,
        name="registered",
        sent={"nodeInfo": {"kubeletVersion": "v1"}, "capacity": {"cpu": "1"}},
    ),
    _case("v1", "Pod", "pods", {"phase": "Pending", "qosClass": "BestEffort"}, spec=_TEMPLATE["spec"]),
    _case(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        {"desiredReplicas": 0, "currentMetrics": None},
        spec=_HPA_SPEC,
    ),
    _case(
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        {"currentReplicas": 0, "desiredReplicas": 0},
        name="older",
        spec=_HPA_SPEC,
    ),
    _case(
        "networking.k8s.io/v1",
        "Ingress",
        "ingresses",
        {"loadBalancer": {}},
        spec={"defaultBackend": {"service": {"name": "fresh", "port": {"number": 80}}}},
    ),
    _case(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        _BUDGET,
        spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    ),
    _case(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "resourceclaims",
        {},
        spec={"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    ),
    _case(
        "resource.k8s.io/v1beta2",
        "DeviceTaintRule",
        "devicetaintrules",
        {},
        namespaced=False,
        spec={"taint": {"key": "example.com/broken", "effect": "NoExecute"}},
    ),
    _case(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        {},
        namespaced=False,
        spec={
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["example.com"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["nothing"],
                    }
                ]
            },
            "validations": [{"expression": "true"}],
        },
    ),
    _case(
        "apiregistration.k8s.io/v1",
        "APIService",
        "apiservices",
        {},
        namespaced=False,
        name="v1.fresh.example.com",
        spec={
            "group": "fresh.example.com",
            "version": "v1",
            "service": {"namespace": "default", "name": "fresh"},
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
        },
    ),
]


def shown(status: Object) -> Object:
    """A status with its times replaced by `TIME`."""
    return {key: TIME if key.endswith("Time") else value for key, value in status.items()}
