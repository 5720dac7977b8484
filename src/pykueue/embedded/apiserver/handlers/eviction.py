"""POST of an Eviction: a DELETE of a pod that respects disruption budgets.

Source: docs/reference/kubernetes-api-machinery.md, section 14; the Kubernetes documentation, "API-initiated
Eviction" and "Specifying a Disruption Budget".
"""

from __future__ import annotations

from typing import Any

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, is_deleting
from pykueue.api.pods import is_ready
from pykueue.embedded.apiserver.registry.call import Answer, Call, Target, delete_options, write_options
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.objects.errors import bad_request, forbidden_request, not_found, success
from pykueue.embedded.objects.selectors import selector_matches
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import JSON

from .decoding import subresource_body
from .deletion import Deletion
from .writes import Writes

#: Evictions of one budget that its controller has not seen through yet.
_UNCONFIRMED_LIMIT = 2000
#: Seconds after which a budget will have been looked at.
_PROCESSING_DELAY = 10.0
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_CONDITION = ("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")


class Evictions:
    """The action behind pods/eviction."""

    def __init__(self, core: Core, writes: Writes, deletion: Deletion) -> None:
        self._core = core
        self._writes = writes
        self._deletion = deletion

    async def evict(self, call: Call) -> Answer:
        """Mark the pod as disrupted and delete it. 429 when a budget does not allow it now."""
        body = subresource_body(call, {} if call.body is None else call.body)
        target = call.target
        named = (body.get("metadata") or {}).get("name") or target.name
        if named != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        main = Target(call.endpoint, target.namespace, target.name, "")
        inner = Call(
            "DELETE", main, {}, call.user, body.get("deleteOptions") or {}, JSON, call.agent, call.warnings
        )
        options = delete_options(inner)
        if call.query.get("dryRun") == "All":
            options = options._replace(dry_run=True)
        record = call.endpoint.table.get((target.namespace, target.name))
        if record is None:
            raise not_found("", "pods", target.name)
        pod = record.object
        self._deletion.check_preconditions(call.endpoint, options, pod)
        finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        leaving = is_deleting(pod)
        if not finished and not leaving:
            if (pod.get("status") or {}).get("phase") != "Pending":
                self._spend(pod, options.dry_run)
            if not options.dry_run:
                await self._mark(call)
        while (record := call.endpoint.table.get((target.namespace, target.name))) is not None:
            if await self._deletion.remove(inner, options, record) is not None:
                break
        return Answer(201, None, success())

    async def _mark(self, call: Call) -> None:
        now = self._core.clock.time()

        def make(pod: Object) -> Object:
            status = pod.get("status") or {}
            conditions = set_condition(status.get("conditions") or (), *_CONDITION, now)
            return {**pod, "status": {**status, "conditions": conditions}}

        await self._writes.modify(call, write_options(call, "CreateOptions"), make, internal=True)

    def _spend(self, pod: Object, dry_run: bool) -> None:
        """Count the eviction against the pod's budget. Raises ApiError (429, 403, 500)."""
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        found = [
            budget
            for budget in self._core.all("policy", "poddisruptionbudgets", meta["namespace"])
            if selector_matches((budget.get("spec") or {}).get("selector"), labels)
        ]
        if len(found) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
            text += "support."
            raise ApiError(500, "InternalError", text)
        for budget in found:
            if not _is_free(budget, pod):
                spent = self._spent(budget, meta["name"])
                if not dry_run:
                    self._store(budget, spent)

    def _spent(self, budget: Object, pod: str) -> Object:
        """The status of the budget after one more eviction. Raises ApiError."""
        meta, status = budget["metadata"], budget.get("status") or {}
        name = meta["name"]
        if status.get("observedGeneration", 0) < meta.get("generation", 0):
            text = f"The disruption budget {name} is still being processed by the server."
            raise _refused(text, _PROCESSING_DELAY)
        allowed = status.get("disruptionsAllowed", 0)
        unconfirmed = status.get("disruptedPods") or {}
        if allowed < 0:
            raise forbidden_request("policy", "poddisruptionbudgets", name, "disruptions allowed is negative")
        if len(unconfirmed) > _UNCONFIRMED_LIMIT:
            text = "too many evictions are not confirmed by the controller yet"
            raise forbidden_request("policy", "poddisruptionbudgets", name, text)
        if allowed == 0:
            raise _refused(
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods"
                f" and has {status.get('currentHealthy', 0)} currently"
            )
        return {
            **status,
            "disruptionsAllowed": allowed - 1,
            "disruptedPods": {**unconfirmed, pod: self._core.now_text()},
        }

    def _store(self, budget: Object, status: Object) -> None:
        storage = self._core.registry.storage("policy", "poddisruptionbudgets")
        assert storage is not None
        key = (budget["metadata"]["namespace"], budget["metadata"]["name"])
        changed = {**budget, "metadata": dict(budget["metadata"]), "status": status}
        self._core.store.put(storage.table, key, changed)


def _is_free(budget: Object, pod: Object) -> bool:
    """Whether the pod, being unhealthy, may go whatever the budget has left."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _refused(text: str, retry_after: float | None = None) -> ApiError:
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    return ApiError(429, "TooManyRequests", _REFUSED, details, retry_after)
