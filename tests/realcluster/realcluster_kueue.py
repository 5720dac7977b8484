"""A cluster as Kueue leaves it: its definitions, installation and objects, down to who wrote which field.

Seen at Kueue 0.11.4 on Kubernetes 1.32, installed by its chart.
"""

from __future__ import annotations

from typing import Any

import yaml
from realcluster_install import NAMESPACE
from realcluster_jobs import QUEUE_LABEL, job, now
from realcluster_plane import Plane, until

from pykueue.api.crds import crds

GROUP = "kueue.x-k8s.io"
#: Kinds that it has in v1alpha1 only; all others it has in v1beta1 only.
IN_V1ALPHA1 = {"Cohort", "Topology"}

Object = dict[str, Any]

_CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
integrations: {frameworks: [batch/job, kubeflow.org/mpijob]}
"""

_INSTALLATION = f"""
{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: kueue-controller-manager, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{control-plane: controller-manager, app.kubernetes.io/instance: kueue}}}}
  template:
    metadata: {{labels: {{control-plane: controller-manager, app.kubernetes.io/instance: kueue}}}}
    spec: {{containers: [{{name: manager, image: kueue}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: kueue-webhook-service, namespace: {NAMESPACE}}}
spec:
  selector: {{control-plane: controller-manager, app.kubernetes.io/instance: kueue}}
  ports: [{{port: 443, targetPort: 9443}}]
---
apiVersion: v1
kind: Secret
metadata:
  name: sh.helm.release.v1.kueue.v1
  namespace: {NAMESPACE}
  labels: {{owner: helm, name: kueue}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: v1beta1.visibility.kueue.x-k8s.io}}
spec:
  group: visibility.kueue.x-k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {{name: kueue-visibility-server, namespace: {NAMESPACE}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{name: kueue-mutating-webhook-configuration}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: kueue-validating-webhook-configuration}}
webhooks:
- name: vjob.kb.io
  clientConfig: {{service: {{name: kueue-webhook-service, namespace: {NAMESPACE}}}}}
  rules: [{{apiGroups: [batch], apiVersions: [v1], operations: ["*"], resources: [jobs]}}]
  admissionReviewVersions: [v1]
  sideEffects: None
"""


def _definition(crd: Object) -> Object:
    """One version, and a converter whatever the kind."""
    service = {"name": "kueue-webhook-service", "namespace": NAMESPACE, "path": "/convert", "port": 443}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    spec = crd["spec"]
    version = "v1alpha1" if spec["names"]["kind"] in IN_V1ALPHA1 else "v1beta1"
    (found,) = (one for one in spec["versions"] if one["name"] == version)
    only = {**found, "served": True, "storage": True}
    return {
        **crd,
        "spec": {**spec, "conversion": {"strategy": "Webhook", "webhook": webhook}, "versions": [only]},
    }


def _is_established(crd: Object) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def condition(type: str, status: str = "True", reason: str | None = None) -> Object:
    return {
        "type": type,
        "status": status,
        "reason": reason or type,
        "message": "",
        "lastTransitionTime": now(),
        "observedGeneration": 1,
    }


class Kueue:
    """Does what Kueue does, as far as it is seen in the objects."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        published = (crd for crd in crds() if crd["spec"]["group"] == GROUP)
        self._create("helm", *map(_definition, published))
        until(lambda: all(map(_is_established, plane.kubectl.list("crds"))), "definitions established")

    def install(self) -> None:
        """The rest of the installation. From then on its webhooks have no endpoint."""
        name = {"name": "kueue-manager-config", "namespace": NAMESPACE}
        data = {"controller_manager_config.yaml": _CONFIGURATION}
        configuration = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}
        self._create("helm", *yaml.safe_load_all(_INSTALLATION), configuration)

    def _create(self, manager: str, *objects: Object) -> None:
        text = yaml.safe_dump_all(objects)
        self._plane.kubectl("create", f"--field-manager={manager}", "-f", "-", stdin=text)

    def queue(self, kind: str, name: str, in_use: bool = False, **content: Any) -> None:
        """An object that an administrator made."""
        version = "v1alpha1" if kind in IN_V1ALPHA1 else "v1beta1"
        metadata: Object = {"name": name}
        if in_use:
            metadata["finalizers"] = [f"{GROUP}/resource-in-use"]
        if kind == "LocalQueue":
            metadata["namespace"] = "default"
        self._create(
            "kubectl-create",
            {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, **content},
        )

    def waiting(self, name: str, queue: str, pods: int = 1, least: int = 1, **spec: Any) -> Object:
        """A suspended job and its Workload, which waits; the Workload."""
        wanted = job(name, queue, pods=pods)
        wanted["spec"]["suspend"] = True
        if least < pods:
            wanted["metadata"]["annotations"] = {f"{GROUP}/job-min-parallelism": str(least)}
        self._create("kubectl-create", wanted)
        found = self._plane.call("GET", f"/apis/batch/v1/namespaces/default/jobs/{name}")
        uid = found["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        pod_set = {"name": "main", "count": pods, "template": {"spec": found["spec"]["template"]["spec"]}}
        if least < pods:
            pod_set["minCount"] = least
        workload = {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": "Workload",
            "metadata": {
                "name": f"job-{name}-0792a",
                "namespace": "default",
                "labels": {f"{GROUP}/job-uid": uid},
                "finalizers": [f"{GROUP}/resource-in-use"],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {
                "active": True,
                "podSets": [pod_set],
                "queueName": wanted["metadata"]["labels"][QUEUE_LABEL],
                "priority": 0,
                "priorityClassSource": "",
                **spec,
            },
        }
        self._create("kueue", workload)
        self._say(
            "kueue-admission", workload, {"conditions": [condition("QuotaReserved", "False", "Pending")]}
        )
        return workload

    def admit(self, workload: Object, cluster_queue: str, flavor: str, pods: int) -> None:
        """Give it quota for this many pods and start its job."""
        name = workload["metadata"]["ownerReferences"][0]["name"]
        given = {
            "name": "main",
            "count": pods,
            "flavors": {"cpu": flavor},
            "resourceUsage": {"cpu": str(pods)},
        }
        admission = {"clusterQueue": cluster_queue, "podSetAssignments": [given]}
        conditions = [condition("QuotaReserved"), condition("Admitted")]
        self._say("kueue-admission", workload, {"admission": admission, "conditions": conditions})
        template = {
            "metadata": {
                "labels": {f"{GROUP}/podset": "main"},
                "annotations": {f"{GROUP}/workload": workload["metadata"]["name"]},
            },
            "spec": {"nodeSelector": {"pool": flavor}},
        }
        patch = yaml.safe_dump({"spec": {"suspend": False, "parallelism": pods, "template": template}})
        self._plane.kubectl("patch", "job", name, "--field-manager=kueue", "--patch", patch)

    def finish(self, workload: Object) -> None:
        """Note that its job has ended."""
        finished = {"conditions": [condition("Finished", reason="Succeeded")]}
        self._say("kueue-job-controller-Finished", workload, finished)

    def _say(self, manager: str, workload: Object, status: Object) -> None:
        """Its status, as one of the parts of Kueue applies it."""
        name = workload["metadata"]["name"]
        path = f"/apis/{GROUP}/v1beta1/namespaces/default/workloads/{name}/status"
        kept = {key: workload[key] for key in ("apiVersion", "kind")}
        content = {**kept, "metadata": {"name": name, "namespace": "default"}, "status": status}
        self._plane.call(
            "PATCH", f"{path}?fieldManager={manager}&force=true", content, "application/apply-patch+yaml"
        )
