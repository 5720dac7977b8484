"""The PodGroup objects as a client of the API: reads their specs, writes the status of their groups.

What is written follows from what the API says now, about once a second per group that changed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from pykueue.api.objects import Object, controller_of
from pykueue.api.quantity import QuantityError
from pykueue.api.resources import JOBS, PRIORITY_CLASSES, Resource
from pykueue.clock import Clock
from pykueue.embedded.kinds.scheduling import PROTECTION
from pykueue.embedded.podgroups.definitions import VOLCANO_QUEUES
from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.gangs import Gang, Gangs, GroupKey
from pykueue.embedded.podscheduler.modes import GangMode
from pykueue.embedded.podscheduler.modes.coscheduling import Coscheduling
from pykueue.embedded.podscheduler.modes.native import Native
from pykueue.embedded.podscheduler.modes.volcano import Volcano
from pykueue.embedded.podscheduler.reports import Reports
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import InformerFactory
from pykueue.kube.workqueue import WorkQueue

#: Seconds between a change and the look at the group it causes: the period of Volcano's sessions (3.4).
SESSION = 1.0
WORKERS = 4

#: Kinds of controllers whose annotations say something about the groups of their pods.
_OWNERS = {
    (one.api_version, one.kind): one
    for one in (
        JOBS,
        Resource("apps", "v1", "replicasets", "ReplicaSet", True),
        Resource("apps", "v1", "statefulsets", "StatefulSet", True),
    )
}

log = logging.getLogger(__name__)


class Membership(NamedTuple):
    """Which group a pod belongs to, and to which of its tasks."""

    key: GroupKey
    task: str


class PodGroups:
    """Follows the PodGroups of all modes; `on_change` hears of every group whose terms changed."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        clock: Clock,
        rng: random.Random,
        gangs: Gangs,
        cluster: Cluster,
        reports: Reports,
        on_change: Callable[[Gang], None],
        on_queue_change: Callable[[], None],
        *,
        native: bool = False,
    ) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._rng = rng
        self._gangs = gangs
        self._reports = reports
        self._on_change = on_change
        self._on_queue_change = on_queue_change
        self._volcano = Volcano(gangs, cluster)
        modes: list[GangMode] = [self._volcano, Coscheduling(cluster)]
        if native:
            modes.append(Native())
        self.modes = {mode.resource.group: mode for mode in modes}
        self._work: WorkQueue[GroupKey] = WorkQueue(clock)
        self._classes: dict[str, int] = {}
        for name, mode in self.modes.items():
            informers.informer(mode.resource, optional=True).on_event(self._group_handler(name))
        informers.informer(VOLCANO_QUEUES, optional=True).on_event(self._on_queue)
        informers.informer(PRIORITY_CLASSES).on_event(self._on_class)

    # Reading

    def membership(self, pod: Object) -> Membership | None:
        """Where the pod belongs; None for the many that are placed one by one."""
        for name, mode in self.modes.items():
            group = mode.group_of(pod)
            if group:
                return Membership(
                    GroupKey(name, pod["metadata"].get("namespace") or "", group), mode.task_of(pod)
                )
        return None

    def mode(self, gang: Gang) -> GangMode:
        """The gang mode of the group."""
        return self.modes[gang.key.mode]

    def touch(self, gang: Gang) -> None:
        """The group changed: write its status soon."""
        self._work.add_after(gang.key, SESSION)

    def _group_handler(self, mode: str) -> Callable[[str, Any, Any], None]:
        def handle(_type: str, _old: Object | None, new: Object | None) -> None:
            group = new or _old
            assert group is not None
            metadata = group["metadata"]
            key = GroupKey(mode, metadata["namespace"], metadata["name"])
            if new is None:
                gang = self._gangs.undescribe(key)
                if gang is not None:
                    self._on_change(gang)
                return
            try:
                terms = self.modes[mode].terms(new)
            except QuantityError as error:
                log.warning("pod group %s/%s: %s", key.namespace, key.name, error)
                return
            known = self._gangs.get(key)
            before = known.terms if known is not None else None
            gang = self._gangs.describe(key, new, terms)
            gang.class_priority = self._classes.get(terms.priority_class)
            if before != terms:
                self._on_change(gang)
            if metadata.get("deletionTimestamp") is not None:
                self.touch(gang)

        return handle

    def _on_queue(self, _type: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._volcano.queues.pop(old["metadata"]["name"], None)
        else:
            self._volcano.queues[new["metadata"]["name"]] = new
        self._on_queue_change()

    def _on_class(self, _type: str, old: Object | None, new: Object | None) -> None:
        one = new or old
        assert one is not None
        name = one["metadata"]["name"]
        if new is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = new.get("value") or 0
        for gang in self._gangs.all():
            if gang.terms is not None and gang.terms.priority_class == name:
                gang.class_priority = self._classes.get(name)

    # Writing

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(self._worker())
        finally:
            self._work.close()

    async def _worker(self) -> None:
        while True:
            key = await self._work.get()
            try:
                await self._sync(key)
                self._work.forget(key)
            except (ApiError, ConnectionError, TimeoutError) as error:
                log.info("pod group %s/%s: %s", key.namespace, key.name, error)
                self._work.add_rate_limited(key)
            finally:
                self._work.done(key)

    async def _sync(self, key: GroupKey) -> None:
        gang = self._gangs.get(key)
        if gang is None:
            return
        mode = self.modes[key.mode]
        await self._unprotect(gang, mode)
        if gang.object is None or gang.terms is None:
            if not await self._make(gang, mode):
                self._tell_held(gang)
            return
        status = mode.status(gang, self._clock.time(), f"{self._rng.getrandbits(128):032x}")
        if status is None:
            self._tell_held(gang)
            if not gang.terms.open and gang.members:
                # Whether it may enter depends on what all others do: ask again.
                self._work.add_after(key, SESSION)
            return
        patch = {"metadata": {"uid": gang.object["metadata"]["uid"]}, "status": status}
        try:
            await self._client.patch(mode.resource, key.name, key.namespace, patch, subresource="status")
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
        # What this changes is looked at in turn; the members hear of it when nothing changes any more.
        self._work.add_after(key, SESSION)

    async def _unprotect(self, gang: Gang, mode: GangMode) -> None:
        """Remove the finalizer of a PodGroup that is being deleted and has no pods any more."""
        metadata = gang.object["metadata"] if gang.object is not None else {}
        finalizers = metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp") is None or PROTECTION not in finalizers or gang.in_use:
            return
        rest = [one for one in finalizers if one != PROTECTION]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": rest}}
        try:
            await self._client.patch(mode.resource, gang.key.name, gang.key.namespace, patch)
        except ApiError as error:
            if not error.not_found:
                raise

    def _tell_held(self, gang: Gang) -> None:
        """Report on the pods of a group that cannot be tried why they are pending."""
        if gang.terms is None:
            message = f"Pod group {gang.tie} does not exist."
        elif not gang.terms.open:
            message = f"Pod group {gang.tie} is not enqueued in queue {gang.terms.queue} yet."
        elif not gang.complete:
            message = f"Fewer pods of pod group {gang.tie} exist than the {gang.terms.min_member} it needs."
        else:
            return
        for pod in gang.waiting.values():
            self._reports.enqueue(pod, message, every_time=False)

    async def _make(self, gang: Gang, mode: GangMode) -> bool:
        """Create the PodGroup of pods that are to have one without saying so; whether they are."""
        pod = next(iter(gang.waiting.values()), None)
        if pod is None:
            return False
        group = mode.made_for(pod.manifest, await self._owner(pod.manifest))
        if group is None:
            return False
        try:
            await self._client.create(mode.resource, group)
        except ApiError as error:
            if not error.already_exists:
                raise
        return True

    async def _owner(self, pod: Object) -> Object | None:
        reference = controller_of(pod)
        if reference is None:
            return None
        resource = _OWNERS.get((reference["apiVersion"], reference["kind"]))
        if resource is None:
            return None
        owner = await self._client.find(resource, reference["name"], pod["metadata"]["namespace"])
        return owner if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None
