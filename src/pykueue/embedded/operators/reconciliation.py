"""What an operator sees of one job, and what it decides to do about it.

Operators are pure: they read from a `Pass`, note in it what is to be written, and return. The controller
carries it out: deletions first, then patches, creations, and last the status, which is written only if all
else was.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from pykueue.api.jobkinds import JobKind
from pykueue.api.meta import new_condition
from pykueue.api.objects import (
    Object,
    condition_of,
    controller_of,
    controller_reference,
    is_deleting,
    replaced,
    true_condition,
)
from pykueue.api.resources import PODS, Resource
from pykueue.api.times import format_time, parse_time
from pykueue.embedded.controllers.apps.conditions import without_condition
from pykueue.kube.events import NORMAL


class Reads(Protocol):
    """What can be read beside the job itself."""

    def owned(self, resource: Resource, uid: str) -> list[Object]:
        """The objects whose controller has this uid."""

    def labelled(self, resource: Resource, namespace: str, label: str, value: str) -> list[Object]:
        """The objects of a namespace with this value of a label; which labels, the operator declares."""

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """An object of a resource that the operator reads; None where there is none."""


class Operator(ABC):
    """The stand-in for the operator of one kind."""

    kind: JobKind
    #: Resources whose objects the job may control; a change of one wakes the job.
    owns: tuple[Resource, ...] = (PODS,)
    #: A label of these objects that names the job, for those it does not control itself.
    label = ""
    #: Further resources that are read.
    reads: tuple[Resource, ...] = ()
    #: The finalizer by which it cleans up after deleted jobs; empty: it ignores jobs that are being deleted.
    finalizer = ""

    @abstractmethod
    def reconcile(self, work: Pass) -> None:
        """Decide what is to be done about a job now."""

    def report_failure(self, work: Pass, error: Exception) -> None:
        """Put into the status of `work` that a write of the last pass failed; nothing else of it is written.

        What the pass decided to report is dropped: it rests on the write. Most operators return the error
        and report nothing.
        """
        return


def hash_of(value: Any) -> str:
    """Hexadecimal hash of a JSON value, by which a change of a specification is noticed."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Patch(NamedTuple):
    """A merge patch of an object."""

    resource: Resource
    obj: Object
    patch: Object
    subresource: str | None = None


class Pass:
    """One pass over a job: reads, and the writes decided on."""

    def __init__(
        self, job: Object, kind: JobKind, reads: Reads, now: float, suffix: Callable[[], str]
    ) -> None:
        self.job = job
        self.kind = kind
        self.now = now
        #: Five random characters, as in generated names.
        self.suffix = suffix
        self.status: Object = dict(job.get("status") or {})
        self.deletes: list[tuple[Resource, Object]] = []
        self.patches: list[Patch] = []
        self.creates: list[tuple[Resource, Object]] = []
        #: Type, reason and message of events, recorded once everything is written.
        self.events: list[tuple[str, str, str]] = []
        #: Seconds until the next pass, if nothing changes before.
        self.again: float | None = None
        self._reads = reads

    # The job

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the job."""
        return str(self.job["metadata"]["namespace"])

    @property
    def spec(self) -> Object:
        """Its specification; empty where it has none."""
        return self.job.get("spec") or {}

    @property
    def generation(self) -> int:
        """Generation of the job; 0 where it has none."""
        return int(self.job["metadata"].get("generation", 0))

    @property
    def deleting(self) -> bool:
        """Whether the job is being deleted."""
        return is_deleting(self.job)

    def reference(self) -> Object:
        """The owner reference of what the job controls."""
        return controller_reference(self.job, self.kind.resource.api_version, self.kind.resource.kind)

    # Other objects

    def owned(self, resource: Resource, owner: Mapping[str, Any] | None = None) -> list[Object]:
        """The objects that the job, or another owner, controls, those being deleted included."""
        return self._reads.owned(resource, str((owner or self.job)["metadata"]["uid"]))

    def child(self, resource: Resource, name: str) -> Object | None:
        """The object of that name if the job controls it."""
        found = self.find(resource, name)
        owner = None if found is None else controller_of(found)
        return found if owner is not None and owner["uid"] == self.job["metadata"]["uid"] else None

    def labelled(self, resource: Resource, label: str) -> list[Object]:
        """The objects of the job's namespace whose label names it."""
        return self._reads.labelled(resource, self.namespace, label, self.name)

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """An object of the job's namespace, or of another one; "" for cluster-scoped objects."""
        return self._reads.find(resource, self.namespace if namespace is None else namespace, name)

    # Decisions

    def create(self, resource: Resource, obj: Object) -> None:
        """Create an object; without owner references the job becomes its controller."""
        metadata = {"namespace": self.namespace, "ownerReferences": [self.reference()], **obj["metadata"]}
        self.creates.append(
            (
                resource,
                {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": metadata},
            )
        )

    def ensure(self, resource: Resource, obj: Object) -> bool:
        """Create an object of a fixed name unless the job has it; whether it was there already."""
        if self.child(resource, obj["metadata"]["name"]) is not None:
            return True
        self.create(resource, obj)
        return False

    def delete(self, resource: Resource, obj: Object) -> bool:
        """Delete an object; whether that was not under way already."""
        if is_deleting(obj):
            return False
        self.deletes.append((resource, obj))
        return True

    def delete_all(self, resource: Resource, objects: Iterable[Object]) -> bool:
        """Delete objects; whether any was not being deleted already."""
        before = len(self.deletes)
        for one in objects:
            self.delete(resource, one)
        return len(self.deletes) > before

    def patch(self, resource: Resource, obj: Object, patch: Object, subresource: str | None = None) -> None:
        """Merge a patch into this very object."""
        self.patches.append(Patch(resource, obj, patch, subresource))

    def finalize(self, finalizer: str, present: bool) -> bool:
        """Give the job a finalizer, or take it away; whether it was so already."""
        known = list(self.job["metadata"].get("finalizers") or ())
        if (finalizer in known) is present:
            return True
        rest = [one for one in known if one != finalizer]
        wanted = [*rest, finalizer] if present else rest
        version = self.job["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": wanted, "resourceVersion": version}}
        self.patch(self.kind.resource, self.job, patch)
        return False

    def event(self, reason: str, message: str, type_: str = NORMAL) -> None:
        """Record an event about the job."""
        self.events.append((type_, reason, message))

    def look_again(self, seconds: float) -> None:
        """Look at the job again after so many seconds at the latest."""
        if seconds < math.inf and (self.again is None or seconds < self.again):
            self.again = max(0.0, seconds)

    def has_elapsed(self, seconds: float, since: str | None) -> bool:
        """Whether so many seconds have passed since a time of the API; if not, look again when they have.

        Without a time they begin now.
        """
        left = parse_time(since) + seconds - self.now if since else seconds
        if left > 0:
            self.look_again(left)
        return left <= 0

    # The status

    @property
    def time(self) -> str:
        """Now, as the API writes it."""
        return format_time(self.now)

    def put(self, **fields: Any) -> None:
        """Set fields of the status; None removes them."""
        for field, value in fields.items():
            self.status = replaced(self.status, (field,), value)

    def is_true(self, type_: str) -> bool:
        """Whether a condition of the status holds."""
        return true_condition(self.status, type_) is not None

    def set_condition(
        self,
        type_: str,
        value: bool | str,
        reason: str,
        message: str = "",
        *,
        append: bool = False,
    ) -> bool:
        """Set a condition; whether its status or reason changed.

        With `append` a changed condition moves to the end of the list and has the time of its last update,
        as Kubeflow's operators keep it; otherwise it stays in its place.
        """
        text = value if isinstance(value, str) else str(value)
        known = condition_of(self.status, type_)
        if known is not None and (known["status"], known.get("reason")) == (text, reason):
            return False
        dated = {"lastUpdateTime": self.time} if append else {}
        condition = new_condition(known, type_, text, reason, message, self.now, **dated)
        conditions = list(self.status.get("conditions") or ())
        if append or known is None:
            conditions = [*(one for one in conditions if one is not known), condition]
        else:
            conditions = [condition if one is known else one for one in conditions]
        self.put(conditions=conditions)
        return True

    def deny(
        self, type_: str, reason: str | None = None, message: str | None = None, *, append: bool = False
    ) -> bool:
        """Set a condition to False if the status has it; whether that changed its status or reason.

        Without a reason or a message it keeps the one it has.
        """
        known = condition_of(self.status, type_)
        if known is None:
            return False
        reason = known.get("reason", "") if reason is None else reason
        message = known.get("message", "") if message is None else message
        return self.set_condition(type_, False, reason, message, append=append)

    def remove_condition(self, type_: str) -> None:
        """Remove a condition from the status."""
        self.status = without_condition(self.status, type_)

    # Pods

    def pods(self) -> list[Object]:
        """The pods that the job controls, those being deleted included."""
        return self.owned(PODS)
