"""KubeRay's clusters: a head, groups of workers, and the Services they are found by.

Source: docs/reference/operators.md 6. Workers do not wait for the head: there is no program to ask for its
health, so a cluster is ready when its pods are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import quantity
from pykueue.api.jobkinds import Slot, pod_set_slots, value_at
from pykueue.api.jobkinds.ray import RAY_CLUSTER
from pykueue.api.objects import Object, condition_of, is_deleting, labels_of
from pykueue.api.pods import is_ready, is_terminal, phase
from pykueue.api.resources import PODS, SERVICES
from pykueue.embedded.operators.pods import (
    from_slot,
    headless_service,
    in_phase,
    index_of,
    ready,
    stays,
    with_variables,
)
from pykueue.embedded.operators.reconciliation import Operator, Pass

CLUSTER_LABEL, TYPE_LABEL, GROUP_LABEL = "ray.io/cluster", "ray.io/node-type", "ray.io/group"
IDENTIFIER_LABEL = "ray.io/identifier"
REPLICA_INDEX_LABEL = "ray.io/worker-group-replica-index"
_REPLICA_NAME_LABEL, _HOST_INDEX_LABEL = "ray.io/worker-group-replica-name", "ray.io/replica-host-index"
_COMMON_LABELS = {
    "ray.io/is-ray-node": "yes",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
#: Name and number of the head's ports.
HEAD_PORTS = {"client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": 8080, "serve": 8000}
_SUSPENDING, _SUSPENDED, _PROVISIONED = (
    "RayClusterSuspending",
    "RayClusterSuspended",
    "RayClusterProvisioned",
)
_UNLIMITED = 2147483647


class RayClusterOperator(Operator):
    """Carries out RayClusters."""

    kind = RAY_CLUSTER
    owns = (PODS, SERVICES)

    def reconcile(self, work: Pass) -> None:
        """One pass, in the order of docs/reference/operators.md 6.2."""
        _Sync(work).run()

    def report_failure(self, work: Pass, error: Exception) -> None:
        """Report the pods that there are: the status rests on nothing else."""
        self.reconcile(work)


def head_service_name(cluster: str) -> str:
    """The Service of a cluster's head."""
    return f"{cluster}-head-svc"


def direct(work: Pass, service: str, selector: Object, port: str) -> None:
    """Create a Service for one of the head's ports, or point the one that exists to other pods."""
    known = work.child(SERVICES, service)
    if known is None:
        spec = {"selector": selector, "ports": [{"name": port, "port": HEAD_PORTS[port]}]}
        work.create(SERVICES, {"metadata": {"name": service}, "spec": spec})
    elif known["spec"].get("selector") != selector:
        work.patch(SERVICES, known, {"spec": {"selector": selector}})


class _Sync:
    """One pass over a cluster."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        self._pods = work.pods()
        self._heads = [pod for pod in self._pods if labels_of(pod).get(TYPE_LABEL) == "head"]
        self._workers = [pod for pod in self._pods if labels_of(pod).get(TYPE_LABEL) == "worker"]
        head, *groups = pod_set_slots(work.job, RAY_CLUSTER)
        self._head, self._groups = head, groups

    def run(self) -> None:
        work = self._work
        self._ensure_services()
        if work.is_true(_SUSPENDING):
            self._suspend()
        elif work.is_true(_SUSPENDED):
            if work.spec.get("suspend") is False:
                work.set_condition(_SUSPENDED, False, _SUSPENDED)
        elif work.spec.get("suspend"):
            work.set_condition(_SUSPENDING, True, _SUSPENDING)
            work.set_condition(_SUSPENDED, False, _SUSPENDED)
        else:
            self._reconcile_pods()
        self._report()

    # Suspending

    def _suspend(self) -> None:
        """Delete all pods; the cluster is suspended once they are gone."""
        work = self._work
        if self._pods:
            if work.delete_all(PODS, self._pods):
                work.event("DeletedPod", f"Deleted Pods of RayCluster {work.name} because it is suspended")
            return
        work.set_condition(_PROVISIONED, False, "RayClusterPodsProvisioning")
        work.set_condition(_SUSPENDING, False, _SUSPENDING)
        work.set_condition(_SUSPENDED, True, _SUSPENDED)
        self._set_state("suspended")

    # Objects

    def _ensure_services(self) -> None:
        work = self._work
        selector = {
            CLUSTER_LABEL: work.name,
            TYPE_LABEL: "head",
            IDENTIFIER_LABEL: f"{work.name}-head",
            **{key: value for key, value in _COMMON_LABELS.items() if key.startswith("app")},
        }
        ports = [
            {"name": name, "port": port, "appProtocol": "tcp"} for name, port in sorted(HEAD_PORTS.items())
        ]
        name = head_service_name(work.name)
        work.ensure(SERVICES, headless_service(name, selector, ports=ports, publishNotReadyAddresses=True))
        if any(_hosts(slot) > 1 for slot in self._groups):
            workers = {CLUSTER_LABEL: work.name, TYPE_LABEL: "worker"}
            name = f"{work.name}-headless"
            work.ensure(SERVICES, headless_service(name, workers, publishNotReadyAddresses=True))

    def _reconcile_pods(self) -> None:
        work = self._work
        if not self._without_ended(self._heads, "Head"):
            work.create(PODS, self._pod(self._head))
        for slot in self._groups:
            self._reconcile_group(slot)

    def _without_ended(self, pods: list[Object], role: str) -> list[Object]:
        """The pods that stay; those that ended are deleted and replaced when they are gone."""
        work = self._work
        for pod in pods:
            if is_terminal(pod) and work.delete(PODS, pod):
                name = pod["metadata"]["name"]
                work.event(
                    f"Deleted{role}Pod", f"Deleted {role.lower()} Pod {name}; Pod status: {phase(pod)}"
                )
        return [pod for pod in pods if not is_deleting(pod) and not is_terminal(pod)]

    def _reconcile_group(self, slot: Slot) -> None:
        """As many replicas as the group says, of so many hosts; a replica that lost one is replaced whole."""
        work, hosts = self._work, _hosts(slot)
        pods = [pod for pod in self._workers if labels_of(pod).get(GROUP_LABEL) == slot.written]
        by_replica: dict[int, list[Object]] = {}
        for pod in self._without_ended(pods, "Worker"):
            by_replica.setdefault(index_of(pod, REPLICA_INDEX_LABEL) or 0, []).append(pod)
        if hosts > 1:
            for index, members in list(by_replica.items()):
                if len(members) < hosts:
                    work.delete_all(PODS, by_replica.pop(index))
        wanted = _replicas(slot.element)
        for index in sorted(by_replica)[: max(0, len(by_replica) - wanted)]:
            work.delete_all(PODS, by_replica.pop(index))
        free = (index for index in range(wanted + len(by_replica)) if index not in by_replica)
        for _ in range(wanted - len(by_replica)):
            index, replica = next(free), work.suffix()
            for host in range(hosts):
                pod = self._pod(slot)
                labels = pod["metadata"]["labels"]
                labels[REPLICA_INDEX_LABEL] = str(index)
                if hosts > 1:
                    labels[_REPLICA_NAME_LABEL] = f"{slot.written}-{replica}"
                    labels[_HOST_INDEX_LABEL] = str(host)
                work.create(PODS, pod)

    def _pod(self, slot: Slot) -> Object:
        work = self._work
        role = "head" if slot is self._head else "worker"
        pod = from_slot(work.job, RAY_CLUSTER, slot, suffix=work.suffix())
        labels = {**_COMMON_LABELS, IDENTIFIER_LABEL: f"{work.name}-{role}", **pod["metadata"]["labels"]}
        pod["metadata"]["labels"] = labels
        address = f"{head_service_name(work.name)}.{work.namespace}.svc.cluster.local"
        variables = {
            "RAY_CLUSTER_NAME": work.name,
            "RAY_CLUSTER_NAMESPACE": work.namespace,
            "RAY_PORT": str(HEAD_PORTS["gcs-server"]),
            "RAY_ADDRESS": f"{'127.0.0.1' if role == 'head' else address}:{HEAD_PORTS['gcs-server']}",
        }
        if role == "worker":
            variables |= {"FQ_RAY_IP": address, "RAY_IP": head_service_name(work.name)}
        containers = pod["spec"].get("containers") or [{}]
        return with_variables(pod, variables, containers[0].get("name"))

    # Status

    def _set_state(self, state: str) -> None:
        work = self._work
        if work.status.get("state") != state:
            times = {**(work.status.get("stateTransitionTimes") or {}), state: work.time}
            work.put(state=state, stateTransitionTimes=times)

    def _report(self) -> None:
        work, workers = self._work, stays(self._workers)
        desired = {slot.written: _replicas(slot.element) * _hosts(slot) for slot in self._groups}
        suspended = bool(work.spec.get("suspend"))
        before = dict(work.status)
        work.put(
            desiredWorkerReplicas=0 if suspended else sum(desired.values()),
            minWorkerReplicas=sum(
                int(slot.element.get("minReplicas") or 0) * _hosts(slot) for slot in self._groups
            ),
            maxWorkerReplicas=min(
                _UNLIMITED,
                sum(int(slot.element.get("maxReplicas", _UNLIMITED)) * _hosts(slot) for slot in self._groups),
            ),
            availableWorkerReplicas=in_phase(workers, "Running"),
            readyWorkerReplicas=ready(workers),
            endpoints={name: str(port) for name, port in HEAD_PORTS.items()},
            observedGeneration=work.generation,
            **self._desired_resources(),
        )
        self._report_head()
        if not suspended and not work.is_true(_SUSPENDED) and not work.is_true(_SUSPENDING):
            self._report_readiness(stays(self._pods), sum(desired.values()))
        if work.status != before:
            work.put(lastUpdateTime=work.time)

    def _report_readiness(self, pods: list[Object], desired: int) -> None:
        work = self._work
        all_ready = bool(pods) and all(is_ready(pod) for pod in pods)
        if not work.is_true(_PROVISIONED):
            if all_ready:
                work.set_condition(_PROVISIONED, True, "AllPodRunningAndReadyFirstTime")
            else:
                work.set_condition(_PROVISIONED, False, "RayClusterPodsProvisioning")
        if all_ready and len(pods) == desired + 1:
            self._set_state("ready")

    def _report_head(self) -> None:
        work = self._work
        head = next(iter([*stays(self._heads), *self._heads]), None)
        if head is None:
            work.set_condition("HeadPodReady", False, "HeadPodNotFound")
            return
        known = condition_of(head.get("status"), "Ready") or {}
        value = known.get("status") == "True"
        reason = "HeadPodRunningAndReady" if value else known.get("reason") or "ContainersNotReady"
        work.set_condition("HeadPodReady", value, reason)
        service = head_service_name(work.name)
        status: Object = head.get("status") or {}
        found = {"podName": head["metadata"]["name"], "podIP": status.get("podIP"), "serviceName": service}
        work.put(head={key: value for key, value in found.items() if value})

    def _desired_resources(self) -> dict[str, str]:
        """What all pods together request, by the columns that show it."""
        totals = {"cpu": quantity.parse(0), "memory": quantity.parse(0), "nvidia.com/gpu": quantity.parse(0)}
        for slot in (self._head, *self._groups):
            count = 1 if slot is self._head else int(slot.element.get("replicas") or 0) * _hosts(slot)
            containers = value_at(self._work.job, (*slot.template, "spec", "containers"))
            for container in containers or ():
                resources = container.get("resources") or {}
                wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
                for name, total in totals.items():
                    if name in wanted:
                        totals[name] = quantity.parse(wanted[name]) * count + total
        fields = dict(zip(totals, ("desiredCPU", "desiredMemory", "desiredGPU"), strict=True))
        return {fields[name]: str(total) for name, total in totals.items()}


def _hosts(slot: Slot) -> int:
    return max(1, int(slot.element.get("numOfHosts") or 1))


def _replicas(group: Mapping[str, Any]) -> int:
    """How many replicas a worker group has: what it says, within its limits."""
    if group.get("suspend"):
        return 0
    least, most = int(group.get("minReplicas") or 0), int(group.get("maxReplicas", _UNLIMITED))
    given = group.get("replicas")
    return min(max(least if given is None else int(given), least), most)
