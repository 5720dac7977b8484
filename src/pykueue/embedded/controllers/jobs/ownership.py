"""Which pods are a Job's: adopting, letting go, and freeing those whose Job is over or gone.

A Job's pods name it as their controller and match its selector. Pods that match and have no controller are
adopted, those that no longer match are released. A pod that no Job will count must lose the tracking
finalizer, or it could never be deleted (docs/reference/cluster-workloads.md, 1.3 and 1.7).
"""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.objects import Key, Object, controller_of, controller_reference, is_deleting
from pykueue.api.resources import JOBS, PODS
from pykueue.clock import Clock
from pykueue.embedded.controllers.jobs.pods import TRACKING_FINALIZER, is_tracked
from pykueue.embedded.controllers.jobs.status import is_finished
from pykueue.embedded.kinds.job import CONTROLLER_UID_LABEL
from pykueue.embedded.objects.selectors import selector_matches
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import STRATEGIC_PATCH

MANAGED_BY = "kubernetes.io/job-controller"

_BY_OWNER = "job by uid"
_WITHOUT_OWNER = "without a controller"
_ADOPTERS = "by what its pods are found"


class Ownership:
    """Keeps owner references and tracking finalizers of pods as they should be."""

    def __init__(self, client: Client, jobs: Informer, pods: Informer, clock: Clock) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._controller: Controller[Key] = Controller(
            "job-pods", self._free, clock=clock, wait_for=[jobs.synced, pods.synced]
        )
        pods.add_index(_BY_OWNER, _owning_job, of_metadata=True)
        pods.add_index(_WITHOUT_OWNER, _where_found, of_metadata=True)
        jobs.add_index(_ADOPTERS, lambda job: [_where_to_look(job)])

    async def run(self) -> None:
        """Free pods until cancelled."""
        await self._controller.run()

    async def claim(self, job: Object) -> list[Object]:
        """The pods of a Job, after adopting and letting go what must be."""
        selector = job["spec"].get("selector")
        owned: list[Object] = []
        for pod in self._pods.by_index(_BY_OWNER, job["metadata"]["uid"]):
            if _matches(selector, pod):
                owned.append(pod)
            elif not is_deleting(job):
                await self._release(job, pod)
        if not is_deleting(job):
            for pod in self._pods.by_index(_WITHOUT_OWNER, _where_to_look(job)):
                if _matches(selector, pod):
                    adopted = await self._adopt(job, pod)
                    if adopted is not None:
                        owned.append(adopted)
        return owned

    def possible_owners(self, pod: Object) -> Iterable[Object]:
        """The Jobs that would adopt a pod that has no controller."""
        for key in _where_found(pod):
            for job in self._jobs.by_index(_ADOPTERS, key):
                if _matches(job["spec"].get("selector"), pod) and not is_finished(job):
                    yield job

    def check(self, pod: Object) -> None:
        """Remove the tracking finalizer of a pod that no Job counts."""
        if not self._is_counted(pod):
            self._controller.queue.add((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def job_ended(self, job: Object) -> None:
        """See to the pods of a Job that is finished or gone."""
        for pod in self._pods.by_index(_BY_OWNER, job["metadata"]["uid"]):
            if is_tracked(pod):
                self.check(pod)

    def _is_counted(self, pod: Object) -> bool:
        """Whether a Job that is still being worked on has the pod."""
        owner = controller_of(pod)
        if owner is None:
            return any(True for _ in self.possible_owners(pod))
        if owner.get("kind") != JOBS.kind:
            return False
        job = self._jobs.get(pod["metadata"]["namespace"], owner["name"])
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            return False
        return not is_finished(job) or job["spec"].get("managedBy") not in (None, MANAGED_BY)

    async def _free(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is not None and is_tracked(pod) and not self._is_counted(pod):
            await untrack(self._client, self._pods, pod)

    async def _adopt(self, job: Object, pod: Object) -> Object | None:
        current = await self._client.get(JOBS, job["metadata"]["name"], job["metadata"]["namespace"])
        if current["metadata"]["uid"] != job["metadata"]["uid"] or is_deleting(current):
            return None
        change = {
            "ownerReferences": [controller_reference(job, "batch/v1", "Job")],
            "finalizers": [TRACKING_FINALIZER],
        }
        return await self._change(pod, change)

    async def _release(self, job: Object, pod: Object) -> None:
        await self._change(
            pod,
            {
                "ownerReferences": [{"$patch": "delete", "uid": job["metadata"]["uid"]}],
                "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
            },
        )

    async def _change(self, pod: Object, change: Object) -> Object | None:
        return await change_metadata(self._client, self._pods, pod, change)


async def untrack(client: Client, pods: Informer, pod: Object) -> None:
    """Take the tracking finalizer from a pod."""
    await change_metadata(client, pods, pod, {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]})


async def change_metadata(client: Client, pods: Informer, pod: Object, change: Object) -> Object | None:
    """Change a pod's metadata; None when that very pod is no more."""
    metadata = pod["metadata"]
    patch = {"metadata": {"uid": metadata["uid"], **change}}
    try:
        changed = await client.patch(
            PODS, metadata["name"], metadata["namespace"], patch, content_type=STRATEGIC_PATCH, given=True
        )
    except ApiError as error:
        if error.not_found or (error.code in (409, 422) and "uid" in error.message.lower()):
            return None
        raise
    if is_deleting(changed) and not changed["metadata"].get("finalizers") and not _graceful(changed):
        # That was the last hold: the pod is gone, and the watch will say so.
        return None
    pods.note(changed)
    return changed


def _graceful(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionGracePeriodSeconds"))


def _matches(selector: Object | None, pod: Object) -> bool:
    return selector_matches(selector, pod["metadata"].get("labels") or {})


def _owning_job(pod: Object) -> list[str]:
    owner = controller_of(pod)
    return [owner["uid"]] if owner is not None and owner.get("kind") == JOBS.kind else []


def _where_to_look(job: Object) -> tuple[str, str]:
    """The index key under which pods that the Job might adopt stand.

    Generated selectors ask for the Job's UID; only for those a user wrote must a whole namespace be looked
    through.
    """
    metadata = job["metadata"]
    uid = "" if job["spec"].get("manualSelector") else metadata["uid"]
    return metadata["namespace"], uid


def _where_found(pod: Object) -> list[tuple[str, str]]:
    """The index keys of a pod without a controller."""
    if controller_of(pod) is not None or is_deleting(pod):
        return []
    metadata = pod["metadata"]
    uid = (metadata.get("labels") or {}).get(CONTROLLER_UID_LABEL)
    keys = [(metadata["namespace"], "")]
    return [*keys, (metadata["namespace"], uid)] if uid else keys
