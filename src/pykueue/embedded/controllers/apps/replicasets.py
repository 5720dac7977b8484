"""ReplicaSets: so many pods of one template, replaced as they end."""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.pods import is_ready
from pykueue.api.resources import REPLICA_SETS
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps.children import Children
from pykueue.embedded.controllers.apps.conditions import with_condition, without_condition
from pykueue.embedded.controllers.apps.pods import active_pods, from_template, removal_order, until_available
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import Informer

WORKERS = 5
#: Most pods one sync creates or deletes.
MAX_PODS_PER_SYNC = 500
REPLICA_FAILURE = "ReplicaFailure"


class ReplicaSetController:
    """Keyed by namespace and name; run by `run`."""

    def __init__(
        self, client: Client, replica_sets: Informer, pods: Informer, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._replica_sets = replica_sets
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "replicaset",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[replica_sets.synced, pods.synced],
        )
        self._children = Children(client, replica_sets, pods, recorder, self._controller.queue.add)
        replica_sets.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        self._controller.queue.add(key_of(new if new is not None else old))

    async def _sync(self, key: Key) -> float | None:
        replica_set = self._replica_sets.get(*key)
        if replica_set is None:
            return None
        pods = active_pods(await self._children.claim(replica_set))
        error, failure = None, ""
        if not is_deleting(replica_set):
            difference = len(pods) - int(replica_set["spec"]["replicas"])
            if difference < 0:
                failure = "FailedCreate"
                error = await self._create(replica_set, min(-difference, MAX_PODS_PER_SYNC))
            elif difference > 0:
                failure = "FailedDelete"
                gone = removal_order(pods)[: min(difference, MAX_PODS_PER_SYNC)]
                error = await self._children.delete_all(replica_set, gone)
        wake = await self._report(replica_set, failure if error is not None else "", str(error))
        if error is not None:
            raise error
        return wake

    async def _create(self, replica_set: Object, count: int) -> Exception | None:
        namespace, name = key_of(replica_set)
        owner = self._children.reference(replica_set)
        pod = from_template(replica_set["spec"]["template"], namespace, owner, generateName=f"{name}-")
        return await self._children.create_all(replica_set, [pod] * count)

    async def _report(self, replica_set: Object, failure: str, message: str) -> float | None:
        """Write the status; seconds until a ready pod counts as available."""
        spec, now = replica_set["spec"], self._clock.time()
        pods = active_pods(self._children.of(replica_set))
        wanted = ((spec["template"].get("metadata") or {}).get("labels") or {}).items()
        waits = [until_available(pod, int(spec.get("minReadySeconds") or 0), now) for pod in pods]
        counts = {
            "fullyLabeledReplicas": sum(wanted <= (p["metadata"].get("labels") or {}).items() for p in pods),
            "readyReplicas": sum(is_ready(pod) for pod in pods),
            "availableReplicas": sum(wait == 0.0 for wait in waits),
        }
        old: Object = replica_set.get("status") or {}
        status: Object = {
            **{key: value for key, value in old.items() if key not in counts},
            **{key: value for key, value in counts.items() if value},
            "replicas": len(pods),
            "observedGeneration": replica_set["metadata"]["generation"],
        }
        if failure:
            status = with_condition(status, REPLICA_FAILURE, "True", failure, message, now)
        else:
            status = without_condition(status, REPLICA_FAILURE)
        if status != old:
            written = await self._client.update(
                REPLICA_SETS, {**replica_set, "status": status}, subresource="status"
            )
            self._replica_sets.note(written)
        return min((wait for wait in waits if wait), default=None)
