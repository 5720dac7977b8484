"""JobKinds: kinds of jobs that come, change and go while the manager runs.

Every replica keeps the watch caches of active kinds, as admission rules answer from them; the controllers of
their jobs run on the replica that leads, which also writes the condition Active. A JobKind is looked at again
every `RECHECK` seconds, because neither the manager's rights nor what the API server serves can be watched
without rights that it should not have. What is wrong with one JobKind stops its kind and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, get, is_deleting, replaced
from pykueue.api.resources import SELF_SUBJECT_ACCESS_REVIEWS, Resource
from pykueue.api.userkinds import JOB_KINDS, CompiledKind, JobKindError, schema_errors
from pykueue.clock import Clock
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.user import UserJob, is_built_in, user_job
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import Request
from pykueue.manager.cluster import Cluster
from pykueue.manager.connection import Connection
from pykueue.manager.rights import Rule

#: Seconds between two looks at a JobKind: rights and definitions may have changed.
RECHECK = 10.0
#: Seconds that the first list of a kind's objects may take.
SYNC_TIME = 30.0
ACTIVE = "Active"

log = logging.getLogger(__name__)


class Host(Protocol):
    """What starts and stops the controllers of kinds."""

    def start_kind(self, job: JobIntegration) -> None: ...

    async def stop_kind(self, job: JobIntegration) -> None: ...


class _Refusal(NamedTuple):
    """Why a kind is not queued."""

    reason: str
    message: str


class _Running(NamedTuple):
    """A kind that is queued."""

    spec: Object
    job: UserJob
    informer: asyncio.Task[None]


class JobKindController:
    """Starts and stops kinds as JobKinds say. `fixed` are those of the manager's configuration."""

    def __init__(
        self,
        connection: Connection,
        cluster: Cluster,
        host: Host,
        clock: Clock,
        acts: Callable[[], bool],
        rights: Callable[[UserJob], Iterable[Rule]],
        fixed: Iterable[Object] = (),
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._host = host
        self._clock = clock
        self._acts = acts
        self._rights = rights
        self._fixed = {str(get(obj, "metadata", "name")): obj for obj in fixed}
        self._informer = connection.informer(JOB_KINDS, optional=True)
        self._informer.on_event(self._changed)
        self._running: dict[str, _Running] = {}
        self._tasks: asyncio.TaskGroup | None = None
        #: One at a time: which of two descriptions of a kind is in force depends on both.
        self._controller: Controller[str] = Controller(
            "job kind controller", self._reconcile, clock=clock, workers=1
        )
        cluster.kinds_known.clear()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if old is not None and new is not None and old["metadata"].get("uid") == new["metadata"].get("uid"):
            same = old.get("spec") == new.get("spec")
            if same and not is_deleting(new):
                return  # its condition
        self._controller.queue.add((old if new is None else new)["metadata"]["name"])
        # Another JobKind of the same kind may take its place.
        for name in self._refused_duplicates():
            self._controller.queue.add(name)

    def _refused_duplicates(self) -> list[str]:
        return [name for name in self._names() if name not in self._running]

    def _names(self) -> list[str]:
        return sorted({*self._fixed, *(obj["metadata"]["name"] for obj in self._informer.list())})

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await self._informer.synced()
                for name in self._names():
                    try:
                        again = await self._reconcile(name)
                    except (ApiError, ConnectionError, TimeoutError) as error:
                        log.info("JobKind %s: %s", name, error)
                        again = RECHECK
                    except Exception:
                        log.exception("JobKind %s: unexpected error", name)
                        again = RECHECK
                    if again is not None:
                        self._controller.queue.add_after(name, again)
                self._cluster.kinds_known.set()
                tasks.create_task(self._controller.run())
        finally:
            self._tasks = None

    async def _reconcile(self, name: str) -> float | None:
        """Bring one kind to what its JobKind says; returns when to look again, in seconds."""
        obj = self._fixed.get(name) or self._informer.get(None, name)
        if obj is None or is_deleting(obj):
            await self._stop(name)
            return None
        found = await self._judged(name, obj)
        if isinstance(found, _Refusal):
            await self._stop(name)
            await self._report(name, False, *found)
            return RECHECK
        running = self._running.get(name)
        if running is None or running.spec != obj.get("spec"):
            await self._stop(name)
            refusal = await self._start(name, obj, found)
            if refusal is not None:
                await self._report(name, False, *refusal)
                return RECHECK
        kind = found.kind.resource
        await self._report(name, True, "Ready", f"Jobs of kind {kind.kind} ({kind.api_version}) are queued")
        return RECHECK

    # Whether it can be queued

    async def _judged(self, name: str, obj: Object) -> UserJob | _Refusal:
        try:
            compiled, job = user_job(obj)
        except JobKindError as error:
            return _Refusal("BuiltInKind" if is_built_in(error) else "Invalid", str(error))
        resource = job.kind.resource
        other = self._described_by(resource, name)
        if other:
            return _Refusal("DuplicateKind", f"{resource.kind} is described by JobKind {other}")
        return await self._not_served(compiled) or await self._missing_rights(job) or job

    def _described_by(self, resource: Resource, name: str) -> str:
        """The other JobKind of the same kind that is in force; empty: none."""
        for other, running in self._running.items():
            if other != name and running.job.kind.resource.group_kind == resource.group_kind:
                return other
        return ""

    async def _not_served(self, compiled: CompiledKind) -> _Refusal | None:
        resource = compiled.description.resource
        where = f"{resource.plural}.{resource.group} in version {resource.version}"
        try:
            served = await self._call(f"/apis/{resource.group}/{resource.version}")
        except ApiError as error:
            if not error.not_found:
                raise
            served = {}
        entries = {entry.get("name"): entry for entry in served.get("resources") or ()}
        entry = entries.get(resource.plural)
        if entry is None:
            return _Refusal("NotServed", f"The API server does not serve {where}")
        if entry.get("kind") != resource.kind:
            text = f"spec.kind: Invalid value: {resource.kind!r}: the kind of {where} is {entry.get('kind')}"
            return _Refusal("Invalid", text)
        if not entry.get("namespaced"):
            return _Refusal("Invalid", f"spec.kind: {resource.kind} is not namespaced; jobs have to be")
        errors = schema_errors(compiled, await self._schema(resource))
        return _Refusal("Invalid", "; ".join(map(str, errors))) if errors else None

    async def _schema(self, resource: Resource) -> Object:
        """The published schema of the kind; empty where there is none."""
        try:
            document = await self._call(f"/openapi/v3/apis/{resource.group}/{resource.version}")
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return {}
        wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        for schema in (get(document, "components", "schemas") or {}).values():
            if wanted in (schema.get("x-kubernetes-group-version-kind") or ()):
                return dict(schema)
        return {}

    async def _call(self, path: str) -> Object:
        found: Object = await self._connection.client.call(Request("GET", path))
        return found

    async def _missing_rights(self, job: UserJob) -> _Refusal | None:
        missing = []
        for rule in self._rights(job):
            for resource in rule.resources:
                denied = [verb for verb in rule.verbs if not await self._may(rule.group, resource, verb)]
                if denied:
                    missing.append(f"{', '.join(denied)} {resource}.{rule.group}")
        if not missing:
            return None
        text = f"The manager may not {'; '.join(missing)}; print the rights with: pykueue kind rights"
        return _Refusal("MissingRights", text)

    async def _may(self, group: str, resource: str, verb: str) -> bool:
        plural, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": plural, "subresource": subresource, "verb": verb}
        review: Object = {
            "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SELF_SUBJECT_ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._connection.client.create(SELF_SUBJECT_ACCESS_REVIEWS, review)
        return get(answer, "status", "allowed") is True

    # Starting and stopping

    async def _start(self, name: str, obj: Object, job: UserJob) -> _Refusal | None:
        assert self._tasks is not None
        informer = Informer(self._connection.client, job.kind.resource, clock=self._clock, optional=True)
        task = self._tasks.create_task(informer.run())
        if not await self._in_time(informer.synced()):
            task.cancel()
            return _Refusal("NotSynced", f"Objects of kind {job.kind.resource.kind} cannot be listed")
        self._cluster.add_kind(job, informer)
        self._host.start_kind(job)
        self._running[name] = _Running(dict(obj.get("spec") or {}), job, task)
        log.info("JobKind %s: started", name)
        return None

    async def _in_time(self, synced: Awaitable[None]) -> bool:
        waiting = asyncio.ensure_future(synced)
        sleeping = asyncio.ensure_future(self._clock.sleep(SYNC_TIME))
        try:
            await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()
            sleeping.cancel()

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is None:
            return
        await self._host.stop_kind(running.job)
        self._cluster.remove_kind(running.job)
        running.informer.cancel()
        log.info("JobKind %s: stopped", name)

    async def _report(self, name: str, active: bool, reason: str, message: str) -> None:
        """Write the condition Active; to the log where the JobKind is in the configuration."""
        if name in self._fixed:
            if not active:
                log.warning("JobKind %s of the configuration: %s: %s", name, reason, message)
            return
        if not self._acts():
            return

        def step(obj: Object) -> Mapping[str, Any] | None:
            known = get(obj, "status", "conditions") or ()
            generation = get(obj, "metadata", "generation")
            status = "True" if active else "False"
            changed = set_condition(
                known, ACTIVE, status, reason, message[:32768], self._clock.time(), generation
            )
            return replaced(obj, ("status", "conditions"), changed) if changed != list(known) else None

        await self._connection.writer.update(self._informer, ("", name), step)
