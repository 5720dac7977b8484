"""Claims of devices: made of templates for pods, released when the pods have ended.

Source: the Kubernetes documentation of dynamic resource allocation.
"""

from __future__ import annotations

from typing import Any, Final

from pykueue.api.objects import (
    Key,
    Object,
    annotations_of,
    controller_of,
    controller_reference,
    is_deleting,
    key_of,
)
from pykueue.api.pods import is_terminal
from pykueue.api.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps.children import BY_CONTROLLER, controller_uids
from pykueue.embedded.kinds.devices import FINALIZER, claims_of, extended_claim_of
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.kube.transport import STRATEGIC_PATCH

#: On a claim: which of the pod's claims it is.
POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"


class ClaimController:
    """Creates the claims of pods from templates, and releases claims that no pod uses; run by `run`.

    Its keys are ("pod" or "claim", (namespace, name)).
    """

    def __init__(
        self, client: Client, pods: Informer, claims: Informer, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._recorder = recorder
        self._controller: Controller[tuple[str, Key]] = Controller(
            "resource-claim", self._sync, clock=clock, workers=4, wait_for=[pods.synced, claims.synced]
        )
        claims.add_index(BY_CONTROLLER, controller_uids, of_metadata=True)
        pods.on_event(self._on_pod)
        claims.on_event(self._on_claim)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_pod(self, _type: str, old: Any, new: Any) -> None:
        pod = old if new is None else new
        extended = extended_claim_of(pod)
        if extended is not None and (new is None or is_terminal(new)):
            self._controller.queue.add(("claim", extended))
        if not pod["spec"].get("resourceClaims"):
            return
        if new is not None and not is_terminal(new) and not is_deleting(new):
            if claims_of(new) is None:
                self._controller.queue.add(("pod", key_of(new)))
            return
        if new is None or is_terminal(new):
            for key in claims_of(pod) or ():
                self._controller.queue.add(("claim", key))

    def _on_claim(self, _type: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add(("claim", key_of(new)))
            return
        owner = controller_of(old)
        if owner is not None and owner.get("kind") == PODS.kind:  # one that was deleted by hand is made again
            self._controller.queue.add(("pod", (key_of(old)[0], str(owner.get("name")))))

    async def _sync(self, key: tuple[str, Key]) -> None:
        if key[0] == "pod":
            pod = self._pods.get(*key[1])
            if pod is not None and not is_terminal(pod) and not is_deleting(pod):
                await self._create(pod)
        else:
            claim = self._claims.get(*key[1])
            if claim is not None:
                await self._release(claim)

    async def _create(self, pod: Object) -> None:
        """Create the claims of a pod from its templates, and list them in its status."""
        metadata = pod["metadata"]
        known = {
            one["name"]
            for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
            if await self._exists(metadata["namespace"], one.get("resourceClaimName"))
        }
        mine = {
            annotations_of(claim).get(POD_CLAIM_ANNOTATION): claim
            for claim in self._claims.by_index(BY_CONTROLLER, metadata["uid"])
        }
        made = []
        for wanted in pod["spec"].get("resourceClaims") or ():
            template, name = wanted.get("resourceClaimTemplateName"), wanted["name"]
            if template is None or name in known:
                continue
            claim = mine.get(name)
            if claim is None:
                claim = await self._create_claim(pod, name, template)
            made.append({"name": name, "resourceClaimName": claim["metadata"]["name"]})
        if made:
            patch = {"metadata": {"uid": metadata["uid"]}, "status": {"resourceClaimStatuses": made}}
            name, namespace = metadata["name"], metadata["namespace"]
            await self._client.patch(
                PODS, name, namespace, patch, content_type=STRATEGIC_PATCH, subresource="status"
            )

    async def _exists(self, namespace: str, name: str | None) -> bool:
        """Whether a claim that a pod lists is there; without a name the pod needs none."""
        if not name or self._claims.get(namespace, name) is not None:
            return True
        # The cache may be behind the pod.
        return await self._client.find(RESOURCE_CLAIMS, name, namespace) is not None

    async def _create_claim(self, pod: Object, name: str, template_name: str) -> Object:
        metadata = pod["metadata"]
        template = await self._client.find(RESOURCE_CLAIM_TEMPLATES, template_name, metadata["namespace"])
        if template is None:
            note = f"PodResourceClaim {name}: resource claim template {template_name} not found"
            self._recorder.event(pod, WARNING, "FailedResourceClaimCreation", note)
            raise ApiError(404, "NotFound", note)
        given = template["spec"].get("metadata") or {}
        claim = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {
                "generateName": f"{metadata['name']}-{name}-",
                "namespace": metadata["namespace"],
                "labels": given.get("labels") or {},
                "annotations": {**(given.get("annotations") or {}), POD_CLAIM_ANNOTATION: name},
                "ownerReferences": [controller_reference(pod, PODS.api_version, PODS.kind)],
            },
            "spec": template["spec"]["spec"],
        }
        return await self._client.create(RESOURCE_CLAIMS, claim)

    async def _release(self, claim: Object) -> None:
        """Take pods that ended off a claim; one that no pod uses gives its devices back."""
        metadata, status = claim["metadata"], claim.get("status") or {}
        namespace, name = key_of(claim)
        users = status.get("reservedFor") or []
        # A claim with the finalizer and without devices is about to get them from the scheduler.
        allocated = status.get("allocation") is not None
        left = [one for one in users if await self._uses(namespace, one)]
        if left != users or (allocated and not left):
            change: Object = {"reservedFor": left or None}
            if not left:
                change["allocation"] = None
            patch: Object = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": change}
            claim = await self._client.patch(RESOURCE_CLAIMS, name, namespace, patch, subresource="status")
            metadata = claim["metadata"]
        finalizers = metadata.get("finalizers") or []
        if not left and FINALIZER in finalizers and (allocated or is_deleting(claim)):
            rest = [one for one in finalizers if one != FINALIZER]
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": rest}}
            await self._client.patch(RESOURCE_CLAIMS, name, namespace, patch)
        if not left and not is_deleting(claim) and self._has_ended(claim):
            await self._client.delete(RESOURCE_CLAIMS, name, namespace)

    async def _uses(self, namespace: str, user: Object) -> bool:
        """Whether the pod that a claim is reserved for may still use it."""
        if user.get("resource") != "pods" or user.get("apiGroup"):
            return True
        pod = self._pods.get(namespace, user["name"])
        if pod is None or pod["metadata"]["uid"] != user["uid"]:
            # The cache may be behind the claim.
            pod = await self._client.find(PODS, user["name"], namespace)
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and not is_terminal(pod)

    def _has_ended(self, claim: Object) -> bool:
        """Whether a claim was made for a pod that has ended."""
        owner = controller_of(claim)
        if owner is None or owner.get("kind") != PODS.kind:
            return False
        pod = self._pods.get(claim["metadata"]["namespace"], owner["name"])
        return pod is not None and pod["metadata"]["uid"] == owner["uid"] and is_terminal(pod)
