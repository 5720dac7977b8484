"""One JobSet and its Jobs, sorted, counted and judged by its policies. Pure: nothing is written here.

Source: docs/reference/cluster-workloads.md 2.4, 2.6, 2.7 and 2.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from pykueue.api.objects import Object, is_deleting, true_condition
from pykueue.api.regex import RegexError, compile_regex
from pykueue.api.times import parse_time
from pykueue.embedded.jobset.names import (
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
    job_name,
    job_pods,
    replicas,
)

FAIL = "FailJobSet"
RESTART = "RestartJobSet"
RESTART_UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"
#: Characters of a failure's message in which the patterns of a failure policy are looked for.
MAX_MESSAGE = 4096


class Counts(NamedTuple):
    """How far the Jobs of one replicated job are."""

    ready: int
    succeeded: int
    failed: int
    active: int
    suspended: int

    @property
    def started(self) -> int:
        """Jobs that have come so far that what waits for their start may go on."""
        return self.ready + self.succeeded + self.failed


class Verdict(NamedTuple):
    """What the failure policy says to a failed Job; the rule's name is None where none matched."""

    action: str
    rule: str | None
    job: str


class JobSetState:
    """A JobSet with the Jobs it controls, as the caches show them."""

    def __init__(self, jobset: Object, jobs: Iterable[Object]) -> None:
        self.jobset = jobset
        self.spec: Object = jobset["spec"]
        self.status: Object = jobset.get("status") or {}
        self.replicated_jobs: list[Object] = self.spec.get("replicatedJobs") or []
        self.suspended = bool(self.spec.get("suspend"))
        self.restarts = int(self.status.get("restarts") or 0)
        policy = self.spec.get("failurePolicy") or {}
        self.waits_for_all = policy.get("restartStrategy") == "BlockingRecreate"
        startup = self.spec.get("startupPolicy") or {}
        self.in_order = startup.get("startupPolicyOrder") == "InOrder"
        #: Jobs by what has become of them; `previous` belong to an attempt before the current one.
        self.active: list[Object] = []
        self.successful: list[Object] = []
        self.failed: list[Object] = []
        self.previous: list[Object] = []
        self.names: set[str] = set()
        for job in jobs:
            self.names.add(job["metadata"]["name"])
            self._sort(job).append(job)

    def _sort(self, job: Object) -> list[Object]:
        if _label(job, RESTART_ATTEMPT) != str(self.restarts):
            return self.previous
        if _true(job, "Complete") is not None:
            return self.successful
        return self.active if _true(job, "Failed") is None else self.failed

    # Counting

    @cached_property
    def counts(self) -> dict[str, Counts]:
        """By replicated job."""
        found = {str(one["name"]): [0, 0, 0, 0, 0] for one in self.replicated_jobs}
        for job in self.active:
            count = found.get(_label(job, REPLICATED_JOB_NAME))
            if count is None:
                continue
            status = job.get("status") or {}
            done = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
            count[0] += done >= job_pods(job["spec"])
            count[3] += bool(status.get("active"))
            count[4] += bool(job["spec"].get("suspend"))
        for place, jobs in ((1, self.successful), (2, self.failed)):
            for job in jobs:
                count = found.get(_label(job, REPLICATED_JOB_NAME))
                if count is not None:
                    count[place] += 1
        return {name: Counts(*count) for name, count in found.items()}

    def replicated_jobs_status(self) -> list[Object]:
        """As the status shows it."""
        return [{"name": name, **count._asdict()} for name, count in self.counts.items()]

    @property
    def all_ready(self) -> bool:
        """Whether every Job is ready or has succeeded."""
        return all(
            self.counts[one["name"]].ready + self.counts[one["name"]].succeeded >= replicas(one)
            for one in self.replicated_jobs
        )

    @property
    def has_stopped(self) -> bool:
        """Whether every Job has the condition Suspended: only then are all of its pods counted.

        A Job whose pods are just being created shows none of them yet.
        """
        return all(_true(job, "Suspended") is not None for job in self.active if not is_deleting(job))

    # Policies

    def is_successful(self) -> bool:
        """Whether the success policy is met."""
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or list(self.counts)
        succeeded = sum(self.counts[name].succeeded for name in targets if name in self.counts)
        if policy.get("operator") == "Any":
            return succeeded > 0
        return succeeded >= sum(replicas(one) for one in self.replicated_jobs if one["name"] in targets)

    @property
    def first_failed(self) -> Object:
        """The Job that failed first."""
        return min(self.failed, key=lambda job: (_ended_at(job), job["metadata"]["name"]))

    def verdict(self) -> Verdict | None:
        """What the failure policy says to the first failed Job; None where there is no policy."""
        policy = self.spec.get("failurePolicy")
        if policy is None:
            return None
        job = self.first_failed
        failure = _true(job, "Failed") or {}
        for rule in policy.get("rules") or ():
            if _matches(rule, failure, _label(job, REPLICATED_JOB_NAME)):
                return Verdict(str(rule["action"]), str(rule["name"]), job["metadata"]["name"])
        return Verdict(RESTART, None, job["metadata"]["name"])

    # Starting

    def startable(self) -> Iterator[Object]:
        """The replicated jobs whose Jobs may exist, and run unless the set is suspended, in order."""
        for one in self.replicated_jobs:
            if all(self._reached(dependency) for dependency in one.get("dependsOn") or ()):
                yield one
            if self.in_order and not self.suspended and not self.has_started(one):
                return

    def _reached(self, dependency: Object) -> bool:
        name = dependency["name"]
        wanted = next(replicas(one) for one in self.replicated_jobs if one["name"] == name)
        count = self.counts[name]
        return (count.started if dependency["status"] == "Ready" else count.succeeded) >= wanted

    def has_started(self, replicated_job: Object) -> bool:
        """Whether all its Jobs are ready or have ended."""
        return self.counts[replicated_job["name"]].started >= replicas(replicated_job)

    def missing(self, replicated_job: Object) -> list[int]:
        """Indexes of its Jobs that are to be created; those that a previous Job stands in the way of wait."""
        if self.waits_for_all and self.previous:
            return []
        name = self.jobset["metadata"]["name"]
        return [
            index
            for index in range(replicas(replicated_job))
            if job_name(name, replicated_job["name"], index) not in self.names
        ]

    def suspended_jobs(self, replicated_job: Object) -> list[Object]:
        """Its Jobs that are to run again."""
        return [
            job
            for job in self.active
            if _label(job, REPLICATED_JOB_NAME) == replicated_job["name"] and job["spec"].get("suspend")
        ]


def _label(job: Object, name: str) -> str:
    return str((job["metadata"].get("labels") or {}).get(name))


def _true(job: Object, type_: str) -> Object | None:
    """The condition of a Job, if it is True."""
    return true_condition(job.get("status"), type_)


def _ended_at(job: Object) -> float:
    return parse_time((_true(job, "Failed") or {})["lastTransitionTime"])


def _matches(rule: Object, failure: Object, replicated_job: str) -> bool:
    reasons = rule.get("onJobFailureReasons")
    patterns = rule.get("onJobFailureMessagePatterns")
    targets = rule.get("targetReplicatedJobs")
    return (
        (not reasons or failure.get("reason") in reasons)
        and (not patterns or _contains_one(failure.get("message") or "", patterns))
        and (not targets or replicated_job in targets)
    )


def _contains_one(message: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns matches in the beginning of a message."""
    beginning = message[:MAX_MESSAGE]
    for pattern in patterns:
        try:
            if compile_regex(pattern).matches(beginning):
                return True
        except RegexError:  # stored by a version that accepted it: it matches nothing
            continue
    return False
