"""StatefulSets: pods with names of their own, made and replaced in order.

Volume claims are created from the templates and named in the pods, and kept or deleted as the set says;
nothing provisions volumes here, so claims stay Pending and pods run without waiting for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.pods import is_ready, is_terminal, phase
from pykueue.api.resources import PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps.children import Children
from pykueue.embedded.controllers.apps.pods import from_template, until_available
from pykueue.embedded.controllers.apps.revisions import REVISION_LABEL, Revisions, Versions, template_of
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer

WORKERS = 5
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_ORDINAL = re.compile(r"(.*)-([0-9]+)")


class StatefulSetController:
    """Keyed by namespace and name; run by `run`."""

    def __init__(
        self,
        client: Client,
        stateful_sets: Informer,
        revisions: Informer,
        pods: Informer,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._sets = stateful_sets
        self._recorder = recorder
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "statefulset",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[stateful_sets.synced, revisions.synced, pods.synced],
        )
        wake = self._controller.queue.add
        self._pods = Children(client, stateful_sets, pods, recorder, wake)
        self._revisions = Revisions(
            client, revisions, Children(client, stateful_sets, revisions, recorder, wake)
        )
        stateful_sets.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        self._controller.queue.add(key_of(new if new is not None else old))

    # One sync

    async def _sync(self, key: Key) -> float | None:
        stateful_set = self._sets.get(*key)
        if stateful_set is None or is_deleting(stateful_set):
            return None
        await self._pods.claim(stateful_set)
        versions = await self._revisions.versions(stateful_set)
        failure: Exception | None = None
        try:
            await self._advance(stateful_set, versions)
        except Exception as error:
            # The status still shows what was done before it.
            failure = error
        wake = await self._report(stateful_set, versions)
        if failure is not None:
            raise failure
        await self._revisions.forget_old(stateful_set, versions, self._pods.of(stateful_set))
        return wake

    async def _advance(self, stateful_set: Object, versions: Versions) -> None:
        """Take the steps that can be taken now: make what is missing, remove what is too much, renew."""
        spec = stateful_set["spec"]
        ordered = spec["podManagementPolicy"] == "OrderedReady"
        by_ordinal = self._by_ordinal(stateful_set)
        wanted = _ordinals(spec)
        for ordinal in wanted:
            pod = by_ordinal.get(ordinal)
            if pod is None:
                if not await self._create(stateful_set, ordinal, versions) or ordered:
                    return
            elif is_terminal(pod) and not is_deleting(pod):
                await self._replace_ended(stateful_set, pod)
                if ordered:
                    return
            elif ordered and not self._is_healthy(stateful_set, pod):
                return
        surplus = [by_ordinal[one] for one in sorted(by_ordinal, reverse=True) if one not in wanted]
        for pod in surplus:
            if not is_deleting(pod):
                await self._delete(stateful_set, pod)
                await self._give_up_claims(stateful_set, pod["metadata"]["name"])
            if ordered:
                return
        await self._renew(stateful_set, versions, by_ordinal)

    async def _renew(self, stateful_set: Object, versions: Versions, by_ordinal: dict[int, Object]) -> None:
        """Replace the highest pod that is of an older version, once those above it are well."""
        spec = stateful_set["spec"]
        if spec["updateStrategy"]["type"] != "RollingUpdate":
            return
        for ordinal in reversed(_ordinals(spec)):
            if ordinal - _start(spec) < _partition(spec):
                return
            pod = by_ordinal.get(ordinal)
            if pod is None:
                return
            if _revision(pod) != versions.update["metadata"]["name"]:
                if not is_deleting(pod):
                    await self._delete(stateful_set, pod)
                return
            if not self._is_healthy(stateful_set, pod):
                return

    def _by_ordinal(self, stateful_set: Object) -> dict[int, Object]:
        found: dict[int, Object] = {}
        for pod in self._pods.of(stateful_set):
            match = _ORDINAL.fullmatch(pod["metadata"]["name"])
            if match and match[1] == stateful_set["metadata"]["name"]:
                found[int(match[2])] = pod
        return found

    def _is_healthy(self, stateful_set: Object, pod: Object) -> bool:
        wait = until_available(pod, int(stateful_set["spec"].get("minReadySeconds") or 0), self._clock.time())
        return phase(pod) == "Running" and wait == 0.0 and not is_deleting(pod)

    # Pods

    async def _create(self, stateful_set: Object, ordinal: int, versions: Versions) -> bool:
        """Create a pod and its claims; whether others may follow."""
        spec = stateful_set["spec"]
        held_back = spec["updateStrategy"]["type"] == "RollingUpdate" and ordinal - _start(spec) < _partition(
            spec
        )
        revision = versions.current if held_back else versions.update
        namespace, owner_name = key_of(stateful_set)
        name = f"{owner_name}-{ordinal}"
        await self._claim_volumes(stateful_set, name)
        pod = from_template(
            template_of(revision),
            namespace,
            self._pods.reference(stateful_set),
            name=name,
            labels={
                REVISION_LABEL: revision["metadata"]["name"],
                POD_NAME_LABEL: name,
                POD_INDEX_LABEL: str(ordinal),
            },
        )
        pod_spec = {**pod["spec"], "hostname": name}
        if spec.get("serviceName"):
            pod_spec["subdomain"] = spec["serviceName"]
        claimed = [
            {
                "name": template["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": _claim(template, name)},
            }
            for template in spec.get("volumeClaimTemplates") or ()
        ]
        if claimed:
            names = {one["name"] for one in claimed}
            others = [one for one in pod_spec.get("volumes") or () if one["name"] not in names]
            pod_spec["volumes"] = [*others, *claimed]
        subject = f"Pod {name} in StatefulSet {owner_name}"
        try:
            created = await self._pods.create(stateful_set, {**pod, "spec": pod_spec}, emit=False)
        except ApiError as error:
            if not error.already_exists:
                text = f"create {subject} failed error: {error}"
                self._recorder.event(stateful_set, WARNING, "FailedCreate", text)
            raise
        if created is None:
            return False
        self._recorder.event(stateful_set, NORMAL, "SuccessfulCreate", f"create {subject} successful")
        return True

    async def _delete(self, stateful_set: Object, pod: Object) -> None:
        await self._pods.delete(stateful_set, pod, emit=False)
        name, owner = pod["metadata"]["name"], stateful_set["metadata"]["name"]
        text = f"delete Pod {name} in StatefulSet {owner} successful"
        self._recorder.event(stateful_set, NORMAL, "SuccessfulDelete", text)

    async def _replace_ended(self, stateful_set: Object, pod: Object) -> None:
        failed = phase(pod) == "Failed"
        subject = f"{'/'.join(key_of(stateful_set))}"
        text = f"StatefulSet {subject} is recreating {'failed' if failed else 'terminated'} Pod"
        reason = "RecreatingFailedPod" if failed else "RecreatingTerminatedPod"
        kind = WARNING if failed else NORMAL
        self._recorder.event(stateful_set, kind, reason, f"{text} {pod['metadata']['name']}")
        await self._delete(stateful_set, pod)

    # Volume claims

    async def _claim_volumes(self, stateful_set: Object, pod_name: str) -> None:
        for claim in _claims(stateful_set, pod_name, self._pods.reference(stateful_set)):
            name = claim["metadata"]["name"]
            subject = f"Claim {name} Pod {pod_name} in StatefulSet {stateful_set['metadata']['name']}"
            try:
                await self._client.create(PERSISTENT_VOLUME_CLAIMS, claim)
            except ApiError as error:
                if error.already_exists or error.namespace_terminating:
                    continue
                text = f"create {subject} failed error: {error}"
                self._recorder.event(stateful_set, WARNING, "FailedCreate", text)
                raise
            self._recorder.event(stateful_set, NORMAL, "SuccessfulCreate", f"create {subject} success")

    async def _give_up_claims(self, stateful_set: Object, pod_name: str) -> None:
        """The set got smaller: claims of the pods it loses go too, if it says so."""
        spec = stateful_set["spec"]
        if (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenScaled") != "Delete":
            return
        namespace = stateful_set["metadata"]["namespace"]
        for template in spec.get("volumeClaimTemplates") or ():
            try:
                await self._client.delete(PERSISTENT_VOLUME_CLAIMS, _claim(template, pod_name), namespace)
            except ApiError as error:
                if not error.not_found:
                    raise

    # Status

    async def _report(self, stateful_set: Object, versions: Versions) -> float | None:
        """Write the status; seconds until a ready pod counts as available."""
        spec, now = stateful_set["spec"], self._clock.time()
        pods = list(self._by_ordinal(stateful_set).values())
        least = int(spec.get("minReadySeconds") or 0)
        running = [pod for pod in pods if phase(pod) == "Running"]
        waits = [until_available(pod, least, now) for pod in running]
        current, update = (one["metadata"]["name"] for one in versions)
        staying = [pod for pod in pods if not is_deleting(pod)]
        old: Object = stateful_set.get("status") or {}
        counts = {
            "readyReplicas": sum(is_ready(pod) for pod in running),
            "currentReplicas": sum(_revision(pod) == current for pod in staying),
            "updatedReplicas": sum(_revision(pod) == update for pod in staying),
        }
        replicas = int(spec["replicas"])
        renewed = counts["updatedReplicas"] == counts["readyReplicas"] == len(pods) == replicas
        if renewed and spec["updateStrategy"]["type"] == "RollingUpdate":
            current, counts["currentReplicas"] = update, counts["updatedReplicas"]
        status: Object = {
            **{key: value for key, value in old.items() if key not in counts},
            **{key: value for key, value in counts.items() if value},
            "replicas": len(pods),
            "availableReplicas": sum(wait == 0.0 for wait in waits),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
            "observedGeneration": stateful_set["metadata"]["generation"],
        }
        if status != old:
            written = await self._client.update(
                STATEFUL_SETS, {**stateful_set, "status": status}, subresource="status"
            )
            self._sets.note(written)
        return min((wait for wait in waits if wait), default=None)


def _start(spec: Object) -> int:
    return int((spec.get("ordinals") or {}).get("start") or 0)


def _ordinals(spec: Object) -> range:
    return range(_start(spec), _start(spec) + int(spec["replicas"]))


def _partition(spec: Object) -> int:
    return int((spec["updateStrategy"].get("rollingUpdate") or {}).get("partition") or 0)


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL) or "")


def _claim(template: Object, pod_name: str) -> str:
    return f"{template['metadata']['name']}-{pod_name}"


def _claims(stateful_set: Object, pod_name: str, owner: Object) -> Iterator[Object]:
    """The volume claims of one pod; those that go with the set are its dependents."""
    spec = stateful_set["spec"]
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    labels = (spec["selector"].get("matchLabels")) or {}
    for template in spec.get("volumeClaimTemplates") or ():
        given = template["metadata"]
        metadata: Object = {
            "name": _claim(template, pod_name),
            "namespace": stateful_set["metadata"]["namespace"],
            "labels": {**(given.get("labels") or {}), **labels},
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        if retention.get("whenDeleted") == "Delete":
            metadata["ownerReferences"] = [owner]
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": template.get("spec") or {},
        }
