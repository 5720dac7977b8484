"""What a job kind must answer about its objects to be queued: one integration per kind.

Integrations are pure. They read jobs and return what a job should look like; `manager` turns the difference
into writes. Jobs are plain dictionaries, because re-encoding a typed view would lose the user's other fields.
Most of an integration follows from the kind's description (`described`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pykueue.api.jobkinds import JobKind
from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.api.validation import FieldError

from .podsets import PodSetInfo

#: Reads another object that a job refers to, by resource, namespace and name; None where it does not exist.
Reader = Callable[[Resource, str, str], Object | None]


def no_objects(resource: Resource, namespace: str, name: str) -> None:
    """The reader where there is nothing but the job."""


class MissingReferenceError(LookupError):
    """A job refers to an object that does not exist (yet)."""


class UnreadableJobError(ValueError):
    """A job does not say what its description reads of it."""


@dataclass(frozen=True)
class Outcome:
    """How a finished job ended."""

    succeeded: bool
    message: str


@dataclass(frozen=True)
class Write:
    """One write towards the desired state of a job: the whole object as it should become.

    `subresource` is "" for the object itself and "status" for its status. `delete`: the object can only be
    stopped by deleting it.
    """

    desired: Object
    subresource: str = ""
    delete: bool = False


class WorkloadSource(Protocol):
    """What a Workload is built from."""

    @property
    def kind(self) -> JobKind:
        """The description of the kind."""
        ...

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        """Its `spec.podSets` as a Workload. Raises MissingReferenceError."""
        ...

    def priority_class(self, job: Mapping[str, Any]) -> str:
        """The pods' PriorityClass; empty where they name none. Raises MissingReferenceError."""
        ...


class JobIntegration(WorkloadSource, Protocol):
    """One job kind that is started and stopped by changing its objects."""

    def bound(self, read: Reader) -> JobIntegration:
        """The integration that reads what its jobs refer to in this way."""
        ...

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        """Whether it is stopped completely; a stop that was interrupted half-way does not count."""
        ...

    def is_stopping(self, job: Mapping[str, Any]) -> bool:
        """Whether a stop of it has begun that takes several writes and has not come to its end."""
        ...

    def runs(self, job: Mapping[str, Any]) -> bool:
        """Whether it was started and has neither stopped completely nor ended."""
        ...

    def suspend_requested(self, job: Mapping[str, Any]) -> bool:
        """Whether it does not run, or is about to stop."""
        ...

    def suspended(self, job: Mapping[str, Any]) -> Object:
        """The job with nothing changed but that it may not run."""
        ...

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        """The job as it must be to run as admitted. Raises PodSetConflictError when that is impossible.

        With a record of what this adds, where the kind needs one to remove it again (`additions`).
        """
        ...

    def has_record(self, job: Mapping[str, Any]) -> bool:
        """Whether it says itself what its last start added."""
        ...

    def original(self, job: Mapping[str, Any]) -> Object:
        """The job without what its last start added, as far as its record says."""
        ...

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """The next write of stopping it; None when nothing is left to write for now.

        `originals` are the Workload's pod sets, whose templates are restored where the job has no record of
        what its start added; None where they are unknown.
        """
        ...

    def queued(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Object:
        """The job as it was when it was queued: suspended, with its original pod templates.

        `originals` as for `stop`.
        """
        ...

    def is_active(self, job: Mapping[str, Any]) -> bool:
        """Whether pods of it run, or may still appear."""
        ...

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        """Whether every pod of it is ready or has succeeded."""
        ...

    def outcome(self, job: Mapping[str, Any]) -> Outcome | None:
        """How it ended; None while it has not."""
        ...

    def on_hold(self, job: Mapping[str, Any]) -> str:
        """Why the job is not to be queued now, although it is managed; empty: it is."""
        ...

    def shrunk(self, job: Mapping[str, Any], counts: Mapping[str, int]) -> Object:
        """The running job with at most so many pods per pod set, where its kind allows fewer at that time."""
        ...

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        """Pods per pod set that will not run again although the job goes on."""
        ...

    def default(self, job: Mapping[str, Any]) -> Object:
        """Kind-specific defaults of a job that is managed here."""
        ...

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        """What else is wrong with a managed job of this kind; `old` is None on creation."""
        ...


class PodOwner(WorkloadSource, Protocol):
    """A kind that is not suspended itself: the pods it makes queue, each for itself or as groups."""

    #: Whether Workloads are made ahead of its pods.
    makes_workloads: bool

    def workloads(
        self, job: Mapping[str, Any], priority: int, reference: Mapping[str, str] | None, limit: int
    ) -> list[Object]:
        """The Workloads made ahead of its pods, one per pod group; names have at most `limit` characters.

        Empty for kinds whose pods get Workloads one by one.
        """
        ...
