"""Deployments: one ReplicaSet per version of the pod template, the newest taking over from the older ones.

Each sync takes one step and leaves the next to the events it causes, so that a crash in between costs
nothing. How far a step may go is in `rollout`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykueue.api.objects import Key, Object, condition_of, controller_of, is_deleting, key_of
from pykueue.api.pods import is_terminal
from pykueue.api.resources import DEPLOYMENTS, REPLICA_SETS
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps import rollout
from pykueue.embedded.controllers.apps.children import BY_CONTROLLER, Children
from pykueue.embedded.controllers.apps.conditions import stamped, with_condition, without_condition
from pykueue.embedded.controllers.apps.replicasets import REPLICA_FAILURE
from pykueue.embedded.controllers.apps.rollout import Limits, counted, size, total
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer

WORKERS = 5
AVAILABLE = "Available"
PROGRESSING = "Progressing"
PAUSED = "DeploymentPaused"
FINISHED = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"


class DeploymentController:
    """Keyed by namespace and name; run by `run`."""

    def __init__(
        self,
        client: Client,
        deployments: Informer,
        replica_sets: Informer,
        pods: Informer,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._replica_sets = replica_sets
        self._pods = pods
        self._recorder = recorder
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "deployment",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[deployments.synced, replica_sets.synced, pods.synced],
        )
        self._children = Children(client, deployments, replica_sets, recorder, self._controller.queue.add)
        deployments.on_event(self._changed)
        pods.on_event(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        self._controller.queue.add(key_of(new if new is not None else old))

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        """Replacement by recreation waits until the old pods are gone."""
        if old is None or (new is not None and not is_terminal(new)):
            return
        owner = controller_of(old)
        if owner is not None and owner["kind"] == REPLICA_SETS.kind:
            replica_set = self._replica_sets.get(old["metadata"]["namespace"], owner["name"])
            parent = None if replica_set is None else controller_of(replica_set)
            if parent is not None and parent["kind"] == DEPLOYMENTS.kind:
                self._controller.queue.add((old["metadata"]["namespace"], parent["name"]))

    # One sync

    async def _sync(self, key: Key) -> float | None:
        deployment = self._deployments.get(*key)
        if deployment is None:
            return None
        owned = sorted(await self._children.claim(deployment), key=rollout.age_order)
        if is_deleting(deployment):
            return await self._report(deployment, owned, self._newest(deployment, owned))
        status = self._with_pause(deployment)
        if status is not (deployment.get("status") or {}):
            deployment = await self._write_status(deployment, status)
        limits = Limits(deployment)
        new = self._newest(deployment, owned)
        if deployment["spec"].get("paused") or _was_resized(owned, limits):
            if new is not None:
                new = await self._followed(deployment, new, owned, limits)
            await self._resize(deployment, owned, new, limits)
            if deployment["spec"].get("paused"):
                await self._forget_old(deployment, [one for one in owned if one is not new])
        elif limits.rolling:
            new = await self._roll(deployment, owned, new, limits)
        else:
            new = await self._recreate(deployment, owned, new, limits)
        owned = self._children.of(deployment)
        current = self._newest(deployment, owned)
        wake = await self._report(deployment, owned, current)
        if current is not None and not deployment["spec"].get("paused"):
            latest = self._deployments.get(*key)
            if latest is not None and _is_complete(limits, latest):
                await self._forget_old(deployment, [one for one in owned if one is not current])
        return wake

    def _newest(self, deployment: Object, owned: Iterable[Object]) -> Object | None:
        """The ReplicaSet of the template as it is; of several the oldest."""
        template = rollout.template_of(deployment)
        found = (one for one in owned if rollout.template_of(one) == template)
        return min(found, key=rollout.age_order, default=None)

    def _with_pause(self, deployment: Object) -> Object:
        status: Object = deployment.get("status") or {}
        if deployment["spec"].get("progressDeadlineSeconds") is None:
            return status
        known = condition_of(status, PROGRESSING)
        paused = known is not None and known.get("reason") == PAUSED
        now = self._clock.time()
        if known is not None and known.get("reason") == TIMED_OUT:
            return status
        if deployment["spec"].get("paused") and not paused:
            return stamped(status, PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)
        if not deployment["spec"].get("paused") and paused:
            text = "Deployment is resumed"
            return stamped(status, PROGRESSING, "Unknown", "DeploymentResumed", text, now)
        return status

    async def _roll(
        self, deployment: Object, owned: list[Object], new: Object | None, limits: Limits
    ) -> Object | None:
        old = [one for one in owned if one is not new]
        if new is None:
            grown = min(limits.replicas, max(0, limits.most - total(old)))
            new = await self._create(deployment, owned, grown, limits)
            if new is None or grown:
                return new
        else:
            new = await self._followed(deployment, new, owned, limits)
            grown = rollout.rolled_up(limits, new, [*old, new])
            if grown != size(new):
                return await self._scale(deployment, new, grown, limits)
        for one, fewer in rollout.rolled_down(limits, new, old):
            await self._scale(deployment, one, fewer, limits)
        return new

    async def _recreate(
        self, deployment: Object, owned: list[Object], new: Object | None, limits: Limits
    ) -> Object | None:
        old = [one for one in owned if one is not new]
        running = [one for one in old if size(one)]
        for one in running:
            await self._scale(deployment, one, 0, limits)
        if running or any(not is_terminal(pod) for one in old for pod in self._pods_of(one)):
            return new
        if new is None:
            return await self._create(deployment, owned, limits.replicas, limits)
        new = await self._followed(deployment, new, owned, limits)
        return await self._scale(deployment, new, limits.replicas, limits)

    def _pods_of(self, replica_set: Object) -> list[Object]:
        return self._pods.by_index(BY_CONTROLLER, replica_set["metadata"]["uid"])

    async def _resize(
        self, deployment: Object, owned: list[Object], new: Object | None, limits: Limits
    ) -> None:
        """The Deployment's size has changed, or it is paused: what there is shares it."""
        active = [one for one in owned if size(one)]
        if len(active) <= 1:
            latest = active[0] if active else new or (owned[-1] if owned else None)
            if latest is not None:
                await self._scale(deployment, latest, limits.replicas, limits)
            return
        if new is not None and size(new) == limits.replicas == counted([new], "availableReplicas"):
            for one in active:
                if one["metadata"]["uid"] != new["metadata"]["uid"]:
                    await self._scale(deployment, one, 0, limits)
        elif limits.rolling:
            by_uid = {one["metadata"]["uid"]: one for one in self._children.of(deployment)}
            active = [by_uid.get(one["metadata"]["uid"], one) for one in active]
            for one, wanted in rollout.in_proportion(limits, active):
                await self._scale(deployment, one, wanted, limits)

    # ReplicaSets

    async def _create(
        self, deployment: Object, owned: list[Object], replicas: int, limits: Limits
    ) -> Object | None:
        """The ReplicaSet of a template that has none; None when its name is taken, to be tried again."""
        namespace, name = key_of(deployment)
        status = deployment.get("status") or {}
        template = deployment["spec"]["template"]
        text = rollout.hash_text(template, int(status.get("collisionCount") or 0))
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), rollout.HASH_LABEL: text}
        selector: Object = deployment["spec"]["selector"]
        matched = {**(selector.get("matchLabels") or {}), rollout.HASH_LABEL: text}
        number = max(map(rollout.revision, owned), default=0) + 1
        spec: Object = {
            "replicas": replicas,
            "selector": {**selector, "matchLabels": matched},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        }
        if deployment["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"]
        replica_set: Object = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": f"{name}-{text}",
                "namespace": namespace,
                "labels": labels,
                "annotations": rollout.replica_set_annotations(deployment, None, number, limits),
                "ownerReferences": [self._children.reference(deployment)],
            },
            "spec": spec,
        }
        try:
            created = await self._children.create(deployment, replica_set, emit=False)
        except ApiError as error:
            if error.already_exists:
                return await self._taken(deployment, f"{name}-{text}")
            await self._tell_failure(deployment, error)
            raise
        if created is None:
            return None
        if replicas:
            self._tell_scaled(deployment, created, 0, replicas)
        await self._tell_progress(
            deployment, "NewReplicaSetCreated", f'Created new replica set "{created["metadata"]["name"]}"'
        )
        await self._number(deployment, number)
        return created

    async def _taken(self, deployment: Object, name: str) -> Object | None:
        """The name of a new ReplicaSet exists: it is ours already, or the next hash must differ."""
        namespace = deployment["metadata"]["namespace"]
        found = await self._client.get(REPLICA_SETS, name, namespace)
        owner = controller_of(found)
        ours = owner is not None and owner["uid"] == deployment["metadata"]["uid"]
        if ours and rollout.template_of(found) == rollout.template_of(deployment):
            self._replica_sets.note(found)
            return found
        latest = self._latest(deployment)
        status = latest.get("status") or {}
        collisions = int(status.get("collisionCount") or 0) + 1
        await self._write_status(latest, {**status, "collisionCount": collisions})
        return None

    async def _followed(self, deployment: Object, new: Object, owned: list[Object], limits: Limits) -> Object:
        """The newest ReplicaSet with annotations, revision and readiness time as they should be."""
        others = (rollout.revision(one) for one in owned if one["metadata"]["uid"] != new["metadata"]["uid"])
        number = rollout.revision(new)
        highest = max(others, default=0)
        if number <= highest:
            number = highest + 1
        annotations = rollout.replica_set_annotations(deployment, new, number, limits)
        spec = {**new["spec"]}
        if spec.get("minReadySeconds") != deployment["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = deployment["spec"].get("minReadySeconds") or 0
        if annotations != (new["metadata"].get("annotations") or {}) or spec != new["spec"]:
            wanted = {**new, "metadata": {**new["metadata"], "annotations": annotations}, "spec": spec}
            new = await self._client.update(REPLICA_SETS, wanted)
            self._replica_sets.note(new)
        await self._number(deployment, number)
        known = condition_of(self._latest(deployment).get("status") or {}, PROGRESSING)
        if known is None:
            text = f'Found new replica set "{new["metadata"]["name"]}"'
            await self._tell_progress(deployment, "FoundNewReplicaSet", text)
        return new

    async def _scale(self, deployment: Object, replica_set: Object, replicas: int, limits: Limits) -> Object:
        before = size(replica_set)
        annotations = {
            **(replica_set["metadata"].get("annotations") or {}),
            rollout.DESIRED: str(limits.replicas),
            rollout.MOST: str(limits.most),
        }
        if before == replicas and annotations == replica_set["metadata"].get("annotations"):
            return replica_set
        metadata = {**replica_set["metadata"], "annotations": annotations}
        wanted = {**replica_set, "metadata": metadata, "spec": {**replica_set["spec"], "replicas": replicas}}
        written = await self._client.update(REPLICA_SETS, wanted)
        self._replica_sets.note(written)
        if before != replicas:
            self._tell_scaled(deployment, written, before, replicas)
        return written

    async def _forget_old(self, deployment: Object, old: list[Object]) -> None:
        """Delete the oldest ReplicaSets without pods beyond what the history keeps."""
        kept = deployment["spec"].get("revisionHistoryLimit")
        if kept is None:
            return
        empty = [
            one
            for one in sorted(old, key=lambda one: (rollout.revision(one), rollout.age_order(one)))
            if not size(one) and not counted([one], "replicas") and not is_deleting(one)
        ]
        for one in empty[: max(0, len(empty) - int(kept))]:
            await self._children.delete(deployment, one, emit=False)

    # The Deployment itself

    def _latest(self, deployment: Object) -> Object:
        """As the cache has it, own writes included."""
        found = self._deployments.get(*key_of(deployment))
        return deployment if found is None else found

    async def _number(self, deployment: Object, number: int) -> None:
        latest = self._latest(deployment)
        if rollout.revision(latest) != number:
            annotations = {**(latest["metadata"].get("annotations") or {}), rollout.REVISION: str(number)}
            wanted = {**latest, "metadata": {**latest["metadata"], "annotations": annotations}}
            self._deployments.note(await self._client.update(DEPLOYMENTS, wanted))

    async def _tell_progress(self, deployment: Object, reason: str, message: str) -> None:
        if deployment["spec"].get("progressDeadlineSeconds") is None:
            return
        latest = self._latest(deployment)
        now = self._clock.time()
        status = stamped(latest.get("status") or {}, PROGRESSING, "True", reason, message, now)
        await self._write_status(latest, status)

    async def _tell_failure(self, deployment: Object, error: ApiError) -> None:
        if error.namespace_terminating:
            return
        reason, text = "ReplicaSetCreateError", f"Failed to create new replica set: {error}"
        self._recorder.event(deployment, WARNING, reason, text)
        latest = self._latest(deployment)
        now = self._clock.time()
        status = with_condition(
            latest.get("status") or {}, PROGRESSING, "False", reason, text, now, dated=True
        )
        await self._write_status(latest, status)

    def _tell_scaled(self, deployment: Object, replica_set: Object, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        text = f"Scaled {way} replica set {replica_set['metadata']['name']} from {before} to {after}"
        self._recorder.event(deployment, NORMAL, "ScalingReplicaSet", text)

    async def _write_status(self, deployment: Object, status: Object) -> Object:
        written = await self._client.update(
            DEPLOYMENTS, {**deployment, "status": status}, subresource="status"
        )
        self._deployments.note(written)
        return written

    # Status

    async def _report(self, deployment: Object, owned: list[Object], new: Object | None) -> float | None:
        """Write the status; seconds until the rollout counts as stuck."""
        latest = self._latest(deployment)
        if latest["metadata"]["uid"] != deployment["metadata"]["uid"]:
            return None
        old: Object = latest.get("status") or {}
        limits, now = Limits(deployment), self._clock.time()
        available = counted(owned, "availableReplicas")
        counts = {
            "replicas": counted(owned, "replicas"),
            "updatedReplicas": counted([new], "replicas") if new is not None else 0,
            "readyReplicas": counted(owned, "readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(0, total(owned) - available),
        }
        status: Object = {
            **{key: value for key, value in old.items() if key not in counts},
            **{key: value for key, value in counts.items() if value},
            "observedGeneration": deployment["metadata"]["generation"],
        }
        if available >= limits.least:
            text = "Deployment has minimum availability."
            reason, value = "MinimumReplicasAvailable", "True"
        else:
            text = "Deployment does not have minimum availability."
            reason, value = "MinimumReplicasUnavailable", "False"
        status = with_condition(status, AVAILABLE, value, reason, text, now, dated=True)
        status = _with_failure(status, owned, now)
        status, wake = self._with_progress(deployment, old, status, new, limits)
        if status != old:
            await self._write_status(latest, status)
        return wake

    def _with_progress(
        self, deployment: Object, old: Object, status: Object, new: Object | None, limits: Limits
    ) -> tuple[Object, float | None]:
        deadline = deployment["spec"].get("progressDeadlineSeconds")
        if deadline is None or deadline >= 2**31 - 1:
            return without_condition(status, PROGRESSING), None
        if deployment["spec"].get("paused"):
            return status, None
        now = self._clock.time()
        known = condition_of(status, PROGRESSING)
        rolled_out = status.get("replicas", 0) == status.get("updatedReplicas", 0)
        if known is not None and known.get("reason") == FINISHED and rolled_out:
            return status, None
        subject = deployment["metadata"]["name"] if new is None else new["metadata"]["name"]
        what = f'{"Deployment" if new is None else "ReplicaSet"} "{subject}"'
        if _counts_complete(limits, status):
            text = f"{what} has successfully progressed."
            return stamped(status, PROGRESSING, "True", FINISHED, text, now), None
        if _has_progressed(old, status):
            text = f"{what} is progressing."
            return stamped(status, PROGRESSING, "True", "ReplicaSetUpdated", text, now), float(deadline)
        if known is None or known.get("reason") == TIMED_OUT or known["status"] == "False":
            return status, None
        left = parse_time(known["lastUpdateTime"]) + float(deadline) - now
        if left > 0.0:
            return status, left
        text = f"{what} has timed out progressing."
        return stamped(status, PROGRESSING, "False", TIMED_OUT, text, now), None


def _was_resized(owned: list[Object], limits: Limits) -> bool:
    """Whether ReplicaSets with pods were made for another size of the Deployment."""
    for one in owned:
        desired = (one["metadata"].get("annotations") or {}).get(rollout.DESIRED)
        if size(one) and desired is not None and desired != str(limits.replicas):
            return True
    return False


def _counts_complete(limits: Limits, status: Object) -> bool:
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(int(status.get(field) or 0) == limits.replicas for field in fields)


def _is_complete(limits: Limits, deployment: Object) -> bool:
    status = deployment.get("status") or {}
    observed = int(status.get("observedGeneration") or 0)
    return _counts_complete(limits, status) and observed >= deployment["metadata"]["generation"]


def _has_progressed(old: Object, new: Object) -> bool:
    """More pods of the newest version, fewer of the old ones, or more of them ready or available."""

    def outdated(status: Object) -> int:
        return int(status.get("replicas") or 0) - int(status.get("updatedReplicas") or 0)

    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return outdated(new) < outdated(old) or any(
        int(new.get(field) or 0) > int(old.get(field) or 0) for field in more
    )


def _with_failure(status: Object, owned: list[Object], now: float) -> Object:
    """That a ReplicaSet cannot create pods shows on its Deployment."""
    for one in owned:
        found = condition_of(one.get("status"), REPLICA_FAILURE)
        if found is not None and found["status"] == "True":
            return with_condition(
                status, REPLICA_FAILURE, "True", found["reason"], found["message"], now, dated=True
            )
    return without_condition(status, REPLICA_FAILURE)
