"""Claims of devices between the scheduler's books and the API: what is read, and what a decision writes."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from typing import Any

from pykueue.api.objects import Key, Object, key_of
from pykueue.api.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from pykueue.embedded.kinds.devices import EXTENDED_CLAIM_ANNOTATION, FINALIZER, claims_of
from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import InformerFactory
from pykueue.kube.transport import STRATEGIC_PATCH

log = logging.getLogger(__name__)


class Claims:
    """Keeps the books on devices up to date, and writes allocations.

    `on_pod` is called with a pod whose claims exist now, `on_change` when devices may have become free.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        cluster: Cluster,
        rng: random.Random,
        on_pod: Callable[[Object], None],
        on_change: Callable[[], None],
    ) -> None:
        self._client = client
        self._pods = informers.informer(PODS)
        self._cluster = cluster
        self._books = cluster.devices
        self._rng = rng
        self._on_pod = on_pod
        self._on_change = on_change
        #: Pods of which not all claims exist.
        self._held: set[Key] = set()
        # Kubernetes serves them since 1.34, and rules of taints only with a feature gate.
        informers.informer(RESOURCE_SLICES, optional=True).on_event(self._slice_changed)
        informers.informer(DEVICE_TAINT_RULES, optional=True).on_event(self._rule_changed)
        informers.informer(DEVICE_CLASSES, optional=True).on_event(self._class_changed)
        informers.informer(RESOURCE_CLAIMS, optional=True).on_event(self._claim_changed)

    def ready(self, pod: Object) -> bool:
        """Whether all claims of a pod exist. If not, `on_pod` is called when they may do so."""
        claims = claims_of(pod)
        if claims is not None and all(self._books.claim(key) is not None for key in claims):
            self._held.discard(key_of(pod))
            return True
        self._held.add(key_of(pod))
        return False

    def _slice_changed(self, _type: str, old: Any, new: Any) -> None:
        self._books.set_slice((new or old)["metadata"]["name"], new)
        self._on_change()

    def _rule_changed(self, _type: str, old: Any, new: Any) -> None:
        self._books.set_rule((new or old)["metadata"]["name"], new)
        self._on_change()

    def _class_changed(self, _type: str, old: Any, new: Any) -> None:
        self._cluster.set_device_class((new or old)["metadata"]["name"], new)
        self._on_change()

    def _claim_changed(self, _type: str, old: Any, new: Any) -> None:
        if self._books.set_claim(key_of(new or old), new):
            self._on_change()
        if new is None or not self._held:
            return
        owners = [
            (new["metadata"]["namespace"], owner["name"])
            for owner in new["metadata"].get("ownerReferences") or ()
            if owner.get("kind") == "Pod"
        ]
        for key in sorted(self._held.intersection(owners) if owners else self._held):
            pod = self._pods.get(*key)
            if pod is None:
                self._held.discard(key)
            else:
                self._on_pod(pod)

    async def write(self, pod: PodInfo) -> None:
        """Write the devices that were decided for a pod, and that it uses its claims.

        Raises ApiError where a claim has changed meanwhile.
        """
        decided = self._books.decided(pod.uid)
        await self._write_extended(pod)
        user = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        for key in pod.claims:
            claim = self._books.claim(key)
            if claim is None:
                continue  # the binding fails, or the pod stays pending, as with any deleted claim
            status = claim.get("status") or {}
            reserved = status.get("reservedFor") or []
            change: Object = {}
            if status.get("allocation") is None and key in decided:
                change["allocation"] = self._with_ids(decided[key])
            if not any(one.get("uid") == pod.uid for one in reserved):
                change["reservedFor"] = [*reserved, user]
            if not change:
                continue
            namespace, name = key
            metadata = claim["metadata"]
            finalizers = metadata.get("finalizers") or []
            if "allocation" in change and FINALIZER not in finalizers:
                patch: Object = {
                    "metadata": {
                        "resourceVersion": metadata["resourceVersion"],
                        "finalizers": [*finalizers, FINALIZER],
                    }
                }
                metadata = (await self._client.patch(RESOURCE_CLAIMS, name, namespace, patch))["metadata"]
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": change}
            await self._client.patch(RESOURCE_CLAIMS, name, namespace, patch, subresource="status")

    async def _write_extended(self, pod: PodInfo) -> None:
        """Create the claim with the devices that were decided for the extended resources of a pod."""
        decided = self._books.extended(pod)
        if decided is None or self._books.is_written(pod.uid):
            return
        await self.withdraw(pod)
        wanted, allocation = decided
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        claim: Object = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {
                "generateName": f"{pod.name}-extended-resources-",
                "namespace": pod.namespace,
                "annotations": {EXTENDED_CLAIM_ANNOTATION: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": wanted.spec,
        }
        created = await self._client.create(RESOURCE_CLAIMS, claim)
        namespace, name = key_of(created)
        self._books.set_claim((namespace, name), created)  # so that it is found if the rest fails
        status = {
            "allocation": self._with_ids(allocation),
            "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}],
        }
        patch: Object = {
            "metadata": {"resourceVersion": created["metadata"]["resourceVersion"]},
            "status": status,
        }
        written = await self._client.patch(RESOURCE_CLAIMS, name, namespace, patch, subresource="status")
        self._books.set_written(pod.uid, written, (namespace, name))
        shown = {"resourceClaimName": name, "requestMappings": wanted.mappings}
        patch = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": shown}}
        await self._client.patch(
            PODS, pod.name, pod.namespace, patch, content_type=STRATEGIC_PATCH, subresource="status"
        )

    async def withdraw(self, pod: PodInfo) -> None:
        """Delete the claim for extended resources that an attempt created which did not bind the pod."""
        key = self._books.extended_key(pod.uid)
        if key is None:
            return
        namespace, name = key
        try:
            await self._client.patch(RESOURCE_CLAIMS, name, namespace, {"metadata": {"finalizers": None}})
            await self._client.delete(RESOURCE_CLAIMS, name, namespace)
        except ApiError as error:
            if not error.not_found:
                raise
        self._books.set_claim(key, None)

    async def discard(self, pod: PodInfo) -> None:
        """The same where the API can be reached; otherwise the next attempt does it."""
        try:
            await self.withdraw(pod)
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("claim for extended resources of pod %s is not deleted: %s", pod.key, error)

    def _with_ids(self, allocation: Object) -> Object:
        """With an identity for each share of a device that several claims may have."""
        devices = allocation["devices"]
        results = [
            {**each, "shareID": str(uuid.UUID(int=self._rng.getrandbits(128), version=4))}
            if "consumedCapacity" in each
            else each
            for each in devices["results"]
        ]
        return {**allocation, "devices": {**devices, "results": results}}
