"""KubeRay's services: a cluster that serves, replaced as a whole by one of a changed specification.

Source: docs/reference/operators.md 8. There are no Serve applications: they count as running once the
cluster is ready. Suspending or resuming the service does the same to its clusters.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.jobkinds.ray import RAY_CLUSTERS, RAY_SERVICE
from pykueue.api.objects import Object, annotations_of, condition_of, is_deleting, labels_of, true_condition
from pykueue.api.resources import SERVICES
from pykueue.embedded.operators.raycluster import CLUSTER_LABEL, direct, head_service_name
from pykueue.embedded.operators.rayjob import origin
from pykueue.embedded.operators.reconciliation import Operator, Pass, hash_of

FINALIZER = "ray.io/rayservice-finalizer"
_HASH = "ray.io/hash-without-replicas-and-workers-to-delete"
#: Seconds that a replaced cluster stays, where the service does not say.
DELETION_DELAY = 60.0
#: Fields of a specification that do not lead to a new cluster, wherever they are.
_IN_PLACE = frozenset(
    ("suspend", "replicas", "minReplicas", "maxReplicas", "workersToDelete", "tolerations", "schedulingGates")
)


class RayServiceOperator(Operator):
    """Carries out RayServices."""

    kind = RAY_SERVICE
    owns = (RAY_CLUSTERS, SERVICES)
    finalizer = FINALIZER

    def reconcile(self, work: Pass) -> None:
        """Bring the active cluster, or the pending one that takes its place, to serve."""
        clusters = work.owned(RAY_CLUSTERS)
        if work.deleting:
            if not clusters:
                work.finalize(FINALIZER, present=False)
            work.delete_all(RAY_CLUSTERS, clusters)
        elif work.finalize(FINALIZER, present=True):
            _Sync(work).run()


def _relevant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _relevant(one) for key, one in value.items() if key not in _IN_PLACE}
    return [_relevant(one) for one in value] if isinstance(value, list) else value


class _Sync:
    """One pass over a service."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        self._config: Object = work.spec.get("rayClusterConfig") or {}
        self._hash = hash_of(_relevant(self._config))

    def run(self) -> None:
        active, pending = self._cluster("activeServiceStatus"), self._cluster("pendingServiceStatus")
        if pending is not None and annotations_of(pending).get(_HASH) != self._hash:
            self._work.delete(RAY_CLUSTERS, pending)
            self._work.put(pendingServiceStatus=None)
            pending = None
        changed = active is not None and annotations_of(active).get(_HASH) != self._hash
        for cluster in (active, pending):
            if cluster is not None:
                self._align(cluster, changed and cluster is active)
        suspended = bool(self._config.get("suspend"))
        if pending is None and (active is None or (changed and not suspended)):
            self._prepare()
        if pending is not None and _is_ready(pending):
            self._serve(pending)
            active, pending = pending, None
        self._report(active, pending)
        self._delete_replaced(active, pending)

    def _cluster(self, field: str) -> Object | None:
        name = (self._work.status.get(field) or {}).get("rayClusterName")
        found = self._work.child(RAY_CLUSTERS, name) if name else None
        return None if found is None or is_deleting(found) else found

    def _align(self, cluster: Object, replaced: bool) -> None:
        """Suspend the cluster, or let it run as it is specified now, unless another is to replace it."""
        suspended = bool(self._config.get("suspend"))
        if bool(cluster["spec"].get("suspend")) is suspended or (replaced and not suspended):
            return
        spec = {"suspend": True} if suspended else {**self._config, "suspend": False}
        self._work.patch(RAY_CLUSTERS, cluster, {"spec": spec})

    def _prepare(self) -> None:
        """Name the pending cluster, and then create it."""
        work = self._work
        known = work.status.get("pendingServiceStatus") or {}
        if not known.get("rayClusterName"):
            work.put(pendingServiceStatus={"rayClusterName": f"{work.name}-{work.suffix()}"})
            return
        metadata = {
            "name": known["rayClusterName"],
            "labels": {**labels_of(work.job), **origin(work)},
            "annotations": {**annotations_of(work.job), _HASH: self._hash},
        }
        work.create(RAY_CLUSTERS, {"metadata": metadata, "spec": self._config})

    def _serve(self, cluster: Object) -> None:
        """Point the Services to a cluster that has become ready."""
        work, name = self._work, cluster["metadata"]["name"]
        for service in (head_service_name(work.name), f"{work.name}-serve-svc"):
            direct(work, service, {CLUSTER_LABEL: name}, "serve")
        work.put(activeServiceStatus={"rayClusterName": name}, pendingServiceStatus=None)

    def _report(self, active: Object | None, pending: Object | None) -> None:
        work = self._work
        for field, cluster in (("activeServiceStatus", active), ("pendingServiceStatus", pending)):
            if cluster is not None:
                known = work.status.get(field) or {}
                work.put(**{field: {**known, "rayClusterStatus": cluster.get("status") or {}}})
        endpoints = 0
        if active is not None and true_condition(active.get("status"), "HeadPodReady") is not None:
            endpoints = 1 + int((active.get("status") or {}).get("readyWorkerReplicas") or 0)
        if endpoints:
            work.set_condition("Ready", True, "NonZeroServeEndpoints", "Number of serve endpoints is not 0")
        elif work.is_true("Ready"):
            work.set_condition("Ready", False, "ZeroServeEndpoints", "Number of serve endpoints is 0")
        elif active is None:
            work.set_condition("Ready", False, "Initializing", "RayService is initializing")
        if active is None:
            work.set_condition("UpgradeInProgress", "Unknown", "NoActiveCluster")
        elif pending is not None or work.status.get("pendingServiceStatus"):
            work.set_condition("UpgradeInProgress", True, "BothActivePendingClustersExist")
        else:
            work.set_condition("UpgradeInProgress", False, "NoPendingCluster")
        work.put(
            serviceStatus="Running" if work.is_true("Ready") else None,
            numServeEndpoints=endpoints or None,
            observedGeneration=work.generation,
        )

    def _delete_replaced(self, active: Object | None, pending: Object | None) -> None:
        """Delete clusters that are neither active nor pending, some time after they were replaced."""
        work = self._work
        fields = ("activeServiceStatus", "pendingServiceStatus")
        kept = {(work.status.get(field) or {}).get("rayClusterName") for field in fields}
        kept |= {one["metadata"]["name"] for one in (active, pending) if one is not None}
        given = work.spec.get("rayClusterDeletionDelaySeconds")
        delay = DELETION_DELAY if given is None else float(given)
        upgrade = condition_of(work.status, "UpgradeInProgress")
        since = None if upgrade is None else upgrade["lastTransitionTime"]
        for cluster in work.owned(RAY_CLUSTERS):
            if cluster["metadata"]["name"] not in kept and work.has_elapsed(delay, since):
                work.delete(RAY_CLUSTERS, cluster)


def _is_ready(cluster: Object) -> bool:
    return bool((cluster.get("status") or {}).get("state") == "ready")
