"""What a job kind must be able to say about itself to be queued: one integration per kind.

Integrations are pure. They read jobs and return what a job should look like; `manager` turns the difference
into writes. Jobs are plain dictionaries, because re-encoding a typed view would lose the user's other fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pykueue.api.validation import FieldError
from pykueue.kube.resources import Resource

from .objects import Object
from .podsets import PodSetInfo


@dataclass(frozen=True)
class Outcome:
    """How a finished job ended."""

    succeeded: bool
    message: str


@dataclass(frozen=True)
class Write:
    """One write that brings a job nearer to what it should be: the whole object as it should become.

    `subresource` is "" for the object itself and "status" for its status. `delete`: the object cannot be
    stopped otherwise than by deleting it.
    """

    desired: Object
    subresource: str = ""
    delete: bool = False


class JobKind(Protocol):
    """What can stand behind a Workload."""

    #: As in `integrations.frameworks` of the configuration.
    name: str
    resource: Resource

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        """Its `spec.podSets` as a Workload."""
        ...

    def priority_class(self, job: Mapping[str, Any]) -> str:
        """The pods' PriorityClass; empty where they name none."""
        ...


class JobIntegration(JobKind, Protocol):
    """One job kind that is started and stopped by changing its objects."""

    #: Label selector of the objects that can be jobs at all; None: all of the kind.
    selector: str | None
    #: Whether the job may name an existing Workload instead of getting one.
    prebuilt: bool
    #: Whether a CustomResourceDefinition brings the kind: a cluster may not serve it (yet).
    custom: bool
    #: `spec.managedBy` of the kind's ordinary controller, as if it were absent.
    controller: str

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        """Whether it is stopped completely; a stop that was interrupted half-way does not count."""
        ...

    def suspended(self, job: Mapping[str, Any]) -> Object:
        """The job with nothing changed but that it may not run."""
        ...

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        """The job as it must be to run as admitted. Raises PodSetConflictError when that is impossible."""
        ...

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """The next write of stopping it; None when nothing is left to write for now.

        `originals` are the Workload's pod sets, whose templates are restored; None where nobody knows them.
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

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        """Pods per pod set that will not run again although the job goes on."""
        ...

    def default(self, job: Mapping[str, Any]) -> Object:
        """Kind-specific defaults of a job that is managed here."""
        ...

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        """What else is wrong with a managed job of this kind; `old` is None on creation."""
        ...


class Registry:
    """The integrations that are switched on, found by kind."""

    def __init__(self, integrations: Iterable[JobIntegration]) -> None:
        self._by_kind = {(i.resource.group, i.resource.kind): i for i in integrations}

    def __iter__(self) -> Any:
        return iter(self._by_kind.values())

    def for_kind(self, api_version: str, kind: str) -> JobIntegration | None:
        """The integration of an object or owner reference; None where its kind is not managed."""
        group, slash, _ = api_version.partition("/")
        return self._by_kind.get((group if slash else "", kind))
