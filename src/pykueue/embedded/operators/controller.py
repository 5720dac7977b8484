"""The one controller that runs all stand-in operators.

It ignores jobs whose `managedBy` names another controller, and kinds whose definition lacks the label of
stand-in operators: then a real operator is installed.
Writes of a pass: deletions, patches, creations, status.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

from pykueue.api.jobkinds import value_at
from pykueue.api.objects import Object, controller_of, is_deleting, key_of, labels_of
from pykueue.api.resources import CRDS, Resource
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps.children import BY_CONTROLLER, controller_uids
from pykueue.embedded.controllers.parallel import first_error, outcomes
from pykueue.embedded.objects.metadata import generated_name
from pykueue.embedded.operators.definitions import LABEL, is_ours
from pykueue.embedded.operators.reconciliation import Operator, Pass, Patch
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.kube.transport import Transport
from pykueue.kube.workqueue import WorkQueue

#: Jobs worked on at the same time.
WORKERS = 5
#: Most objects of a job that are created or deleted at the same time.
MAX_PARALLEL = 50
#: Retry after a failed pass, in seconds: doubles from the first to the second.
RETRY_BASE = 0.1
RETRY_CAP = 60.0

_BY_LABEL = "by label"


class _Work(NamedTuple):
    """A job to look at."""

    #: Its place in the list of operators.
    operator: int
    namespace: str
    name: str


class Operators:
    """Runs the stand-in operators of some kinds until cancelled.

    With `informers`, which something else runs, they read from caches that others read from, too.
    """

    def __init__(
        self,
        operators: Iterable[Operator],
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        informers: InformerFactory | None = None,
    ) -> None:
        self._operators = tuple(operators)
        self._client = Client(transport, clock=clock, page_size=None)
        self._clock = clock
        self._rng = rng
        self._runs_informers = informers is None
        self._informers = informers or InformerFactory(self._client, clock=clock)
        self._recorder = EventRecorder(self._client, clock, "stand-in-operator", random.Random(rng.random()))
        self._jobs = [self._informer(one.kind.resource) for one in self._operators]
        self._definitions = self._informers.informer(CRDS, label_selector=LABEL)
        self._by_kind = {one.kind.resource.group_kind: n for n, one in enumerate(self._operators)}
        resources = dict.fromkeys(r for one in self._operators for r in (*one.owns, *one.reads))
        self._others = {resource: self._informer(resource) for resource in resources}
        self._controller: Controller[_Work] = Controller(
            "stand-in operators",
            self._sync,
            queue=WorkQueue(clock, base=RETRY_BASE, cap=RETRY_CAP),
            workers=WORKERS,
            wait_for=[one.synced for one in (*self._jobs, *self._others.values(), self._definitions)],
        )
        self._follow()

    def _informer(self, resource: Resource) -> Informer:
        return self._informers.informer(resource, optional="." in resource.group)

    def _follow(self) -> None:
        """Add the indexes of each resource and the handlers that enqueue jobs."""
        for number, informer in enumerate(self._jobs):
            informer.on_event(partial(self._on_job, number))
        labels: dict[Resource, dict[str, int]] = {resource: {} for resource in self._others}
        for number, operator in enumerate(self._operators):
            for resource in operator.owns if operator.label else ():
                labels[resource][operator.label] = number
        for resource, informer in self._others.items():
            informer.add_index(BY_CONTROLLER, controller_uids, of_metadata=True)
            informer.add_index(_BY_LABEL, partial(_labelled, tuple(labels[resource])), of_metadata=True)
            informer.on_event(partial(self._on_owned, labels[resource]))
        self._definitions.on_event(self._on_definition)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._runs_informers:
                group.create_task(self._informers.run())
            group.create_task(self._recorder.run())
            group.create_task(self._controller.run())

    # Watch events

    def _on_job(self, number: int, type_: str, old: Any, new: Any) -> None:
        self._controller.queue.add(_Work(number, *key_of(new or old)))

    def _on_owned(self, labels: dict[str, int], type_: str, old: Any, new: Any) -> None:
        obj = new or old
        namespace = obj["metadata"].get("namespace") or ""
        owner = controller_of(obj)
        if owner is not None:
            group = str(owner.get("apiVersion")).rpartition("/")[0]
            number = self._by_kind.get((group, str(owner.get("kind"))))
            if number is not None:
                self._controller.queue.add(_Work(number, namespace, owner["name"]))
        own = labels_of(obj) if labels else {}
        for label, number in labels.items():
            if label in own:
                self._controller.queue.add(_Work(number, namespace, own[label]))

    def _on_definition(self, type_: str, old: Any, new: Any) -> None:
        """A definition is now a stand-in's: enqueue the jobs that exist already."""
        if new is None:
            return
        spec = new["spec"]
        number = self._by_kind.get((spec["group"], spec["names"]["kind"]))
        if number is not None:
            for job in self._jobs[number].list():
                self._on_job(number, type_, None, job)

    # Reads of a pass

    def owned(self, resource: Resource, uid: str) -> list[Object]:
        """The objects whose controller has this uid."""
        return self._others[resource].by_index(BY_CONTROLLER, uid)

    def labelled(self, resource: Resource, namespace: str, label: str, value: str) -> list[Object]:
        """The objects of a namespace with this value of a label."""
        return self._others[resource].by_index(_BY_LABEL, (label, namespace, value))

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """An object of a resource that an operator reads."""
        found: Object | None = self._others[resource].get(namespace, name)
        return found

    # One pass

    async def _sync(self, key: _Work) -> float | None:
        operator, jobs = self._operators[key.operator], self._jobs[key.operator]
        job = jobs.get(key.namespace, key.name)
        if job is None or not self._responsible(operator, job):
            return None
        if is_deleting(job) and not operator.finalizer:
            return None  # the garbage collector does the rest
        work = Pass(job, operator.kind, self, self._clock.time(), self._suffix)
        operator.reconcile(work)
        failure = await self._carry_out(work)
        if failure is not None:
            report = Pass(job, operator.kind, self, self._clock.time(), self._suffix)
            operator.report_failure(report, failure)
            await self._write_status(jobs, report)
            raise failure
        await self._write_status(jobs, work)
        for type_, reason, message in work.events:
            self._recorder.event(job, type_, reason, message)
        return work.again

    def _responsible(self, operator: Operator, job: Object) -> bool:
        kind = operator.kind
        definition = self._definitions.get("", f"{kind.resource.plural}.{kind.resource.group}")
        if definition is None or not is_ours(definition):
            return False
        manager = value_at(job, kind.managed_by) if kind.managed_by is not None else None
        return manager in (None, "", kind.controller)

    def _suffix(self) -> str:
        return generated_name("", self._rng)

    async def _carry_out(self, work: Pass) -> Exception | None:
        """Delete, patch and create; the first error."""
        failure = await _first_error(self._delete(*one) for one in work.deletes)
        for patch in work.patches:
            failure = failure or await _first_error([self._patch(patch)])
        if failure is None:
            failure = await _first_error(self._create(work, *one) for one in work.creates)
        return failure

    async def _create(self, work: Pass, resource: Resource, obj: Object) -> None:
        try:
            created = await self._client.create(resource, obj)
        except ApiError as error:
            if error.namespace_terminating:
                return
            reason = f"FailedCreate{resource.kind}"
            self._recorder.event(work.job, WARNING, reason, f"Error creating: {error}")
            raise
        self._note(resource, created)

    async def _delete(self, resource: Resource, obj: Object) -> None:
        namespace, name = key_of(obj)
        try:
            left = await self._client.delete(
                resource, name, namespace, propagation="Background", uid=obj["metadata"]["uid"]
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
            return
        if left.get("kind") == resource.kind:
            self._note(resource, left)

    async def _patch(self, patch: Patch) -> None:
        namespace, name = key_of(patch.obj)
        metadata = {"uid": patch.obj["metadata"]["uid"], **(patch.patch.get("metadata") or {})}
        body = {**patch.patch, "metadata": metadata}
        try:
            changed = await self._client.patch(
                patch.resource, name, namespace, body, subresource=patch.subresource
            )
        except ApiError as error:
            if not error.not_found:
                raise
        else:
            self._note(patch.resource, changed)

    async def _write_status(self, jobs: Informer, work: Pass) -> None:
        """Write the status if it changed; a job that another client changed is looked at again."""
        if work.status == (work.job.get("status") or {}):
            return
        if any(patch.obj is work.job for patch in work.patches):
            return
        try:
            written = await self._client.update(
                jobs.resource, {**work.job, "status": work.status}, subresource="status"
            )
        except ApiError as error:
            if not error.not_found:
                raise
        else:
            jobs.note(written)

    def _note(self, resource: Resource, obj: Object) -> None:
        informer = self._others.get(resource)
        if informer is None and resource.group_kind in self._by_kind:
            informer = self._jobs[self._by_kind[resource.group_kind]]
        if informer is not None:
            informer.note(obj)


async def _first_error(works: Iterable[Coroutine[Any, Any, None]]) -> Exception | None:
    return first_error(await outcomes(works, MAX_PARALLEL))


def _labelled(wanted: tuple[str, ...], obj: Object) -> list[tuple[str, str, str]]:
    """Which of the labels an object has, each with its namespace and the label's value."""
    labels, namespace = labels_of(obj), obj["metadata"].get("namespace") or ""
    return [(label, namespace, labels[label]) for label in wanted if label in labels]
