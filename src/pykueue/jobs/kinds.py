"""The job kinds that there are, and those of them that a configuration switches on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pykueue.api.jobkinds import DESCRIBED, JobKind
from pykueue.api.resources import Resource

from .appwrapper import AppWrapper
from .base import JobIntegration, PodOwner, Reader
from .described import DescribedJob
from .job import BatchJob
from .jobset import JobSet
from .kubeflow import MpiJob
from .leaderworkerset import LeaderWorkerSet
from .pod import POD, PlainPod
from .pod_owners import Deployment, StatefulSet
from .spark import SparkApplication
from .trainjob import TrainJob


class JobKinds:
    """Integrations by framework name; jobs that are started themselves, and owners whose pods queue."""

    def __init__(self, jobs: Iterable[JobIntegration], pod_owners: Iterable[PodOwner] = ()) -> None:
        self.jobs = {each.kind.framework: each for each in jobs}
        self.pod_owners = {each.kind.framework: each for each in pod_owners}
        self._by_kind = {each.kind.resource.group_kind: each for each in self.jobs.values()}

    def __iter__(self) -> Iterator[JobKind]:
        """The descriptions, jobs first."""
        yield from (each.kind for each in self.jobs.values())
        yield from (each.kind for each in self.pod_owners.values())

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Their names in `integrations.frameworks`."""
        return tuple(kind.framework for kind in self)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """What their jobs are, and the other objects that the jobs are read from."""
        kinds = [each.kind for each in self.jobs.values()]
        found = [*(kind.resource for kind in kinds), *(other for kind in kinds for other in kind.references)]
        return tuple(dict.fromkeys(found))

    def add(self, job: JobIntegration) -> None:
        """Take one more in."""
        self.jobs[job.kind.framework] = job
        self._by_kind[job.kind.resource.group_kind] = job

    def remove(self, job: JobIntegration) -> None:
        """Without one that was added."""
        self.jobs.pop(job.kind.framework, None)
        self._by_kind.pop(job.kind.resource.group_kind, None)

    def with_job(self, job: JobIntegration) -> JobKinds:
        """These and one more."""
        return JobKinds([*self.jobs.values(), job], self.pod_owners.values())

    def enabled(self, frameworks: Iterable[str], gates: Mapping[str, bool] | None = None) -> JobKinds:
        """Those that are named. An owner of pods brings the pods; unknown names are left out.

        `gates` are the feature gates that are set: false switches a kind off that has a gate of its own.
        """
        off = {kind.framework for kind in self if kind.gate and not (gates or {}).get(kind.gate, True)}
        wanted = dict.fromkeys(name for name in frameworks if name not in off)
        owners = [self.pod_owners[name] for name in wanted if name in self.pod_owners]
        if owners:
            wanted[POD.framework] = None
        return JobKinds([self.jobs[name] for name in wanted if name in self.jobs], owners)

    def bound(self, read: Reader) -> JobKinds:
        """The same, reading what jobs refer to in this way."""
        return JobKinds((job.bound(read) for job in self.jobs.values()), self.pod_owners.values())

    def for_kind(self, api_version: str, kind: str) -> JobIntegration | None:
        """The integration of a job or an owner reference; None where its kind is not among these."""
        group, slash, _ = api_version.partition("/")
        return self._by_kind.get((group if slash else "", kind))


#: Kinds that need more than their description, by framework.
_CODED: dict[str, JobIntegration] = {
    job.kind.framework: job for job in (MpiJob(), TrainJob(), AppWrapper(), SparkApplication())
}
BUILT_IN = JobKinds(
    (
        BatchJob(),
        JobSet(),
        *(_CODED.get(kind.framework) or DescribedJob(kind) for kind in DESCRIBED),
        PlainPod(),
    ),
    (Deployment(), StatefulSet(), LeaderWorkerSet()),
)
