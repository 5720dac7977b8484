"""How a Job stands: its pods sorted into what they mean for it, and whether it is finished.

Everything here is a function of the Job, its pods and the time; nothing is written. Source:
docs/reference/cluster-workloads.md, 1.4, 1.6, 1.8 to 1.11.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import NamedTuple

from pykueue.api.backoff import exponential_delay
from pykueue.api.objects import Object, is_deleting, true_condition
from pykueue.api.pods import is_ready, is_terminal, phase
from pykueue.api.times import parse_time
from pykueue.embedded.controllers.jobs.pods import (
    completion_index,
    counts_restarts,
    failure_count,
    finish_time,
    ignored_failure_count,
    is_tracked,
    pods_to_remove,
    restarts,
    uid_of,
)
from pykueue.embedded.controllers.jobs.policies import FAIL_INDEX, FAIL_JOB, Verdict, judge, success_rule
from pykueue.embedded.kinds.jobindexes import lenient_indexes

#: Delay after the first failure in seconds; doubles with each, up to the second.
FAILURE_BACKOFF = 10.0
FAILURE_BACKOFF_CAP = 600.0

COMPLETE = "Complete"
FAILED = "Failed"
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
FAILURE_TARGET = "FailureTarget"
SUSPENDED = "Suspended"


class Outcome(NamedTuple):
    """How a Job ends: the terminal condition, and why."""

    type: str
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition that is set first, while pods still terminate."""
        return SUCCESS_CRITERIA_MET if self.type == COMPLETE else FAILURE_TARGET


class Failures(NamedTuple):
    """Failures since the last success, and when the last of them was (seconds since 1970)."""

    number: int = 0
    last: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a pod may be created again."""
        return backoff(self.number, self.last, now)


def backoff(failures: int, last: float, now: float) -> float:
    """Seconds left of the delay that follows the last of `failures`."""
    if failures <= 0:
        return 0.0
    delay = exponential_delay(FAILURE_BACKOFF, FAILURE_BACKOFF_CAP, failures - 1)
    return max(0.0, last + delay - now)


class JobState:
    """One Job and its pods at one moment.

    `deleted` are the UIDs of pods whose deletion the API server has confirmed though the cache does not show
    it.
    """

    def __init__(self, job: Object, pods: list[Object], now: float, deleted: Collection[str] = ()) -> None:
        self.job = job
        self.spec: Object = job["spec"]
        self.status: Object = job.get("status") or {}
        self.pods = pods
        self.now = now
        self._deleted = deleted
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.completions: int | None = self.spec.get("completions")
        self.parallelism: int = self.spec.get("parallelism") or 0
        self.suspended = bool(self.spec.get("suspend"))
        self.per_index = self.indexed and self.spec.get("backoffLimitPerIndex") is not None
        #: Replacements wait until a pod has really failed, instead of only being on its way out.
        self.replaces_failed_only = self.spec.get("podReplacementPolicy") == "Failed"
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        self.uncounted_succeeded: list[str] = list(uncounted.get("succeeded") or ())
        self.uncounted_failed: list[str] = list(uncounted.get("failed") or ())

    # Sorting pods

    def is_going(self, pod: Object) -> bool:
        """Asked to leave."""
        return is_deleting(pod) or uid_of(pod) in self._deleted

    @cached_property
    def active(self) -> list[Object]:
        """Pods that have not terminated and are not being deleted."""
        return [pod for pod in self.pods if not is_terminal(pod) and not self.is_going(pod)]

    @cached_property
    def terminating(self) -> list[Object]:
        """Pods that are being deleted and have not terminated."""
        return [pod for pod in self.pods if not is_terminal(pod) and self.is_going(pod)]

    @cached_property
    def ready(self) -> list[Object]:
        """Active pods whose condition Ready is True."""
        return [pod for pod in self.active if is_ready(pod)]

    def has_failed(self, pod: Object) -> bool:
        """Whether the pod counts as failed (1.7): by its phase, or as soon as it is deleted (see 1.8)."""
        if phase(pod) == "Failed":
            return True
        return not self.replaces_failed_only and phase(pod) != "Succeeded" and is_deleting(pod)

    @cached_property
    def new_succeeded(self) -> list[Object]:
        """Succeeded pods that no counter and no list knows yet."""
        known = set(self.uncounted_succeeded)
        return [
            pod
            for pod in self.pods
            if phase(pod) == "Succeeded" and is_tracked(pod) and uid_of(pod) not in known
        ]

    @cached_property
    def new_failed(self) -> list[Object]:
        """Failed pods that no counter and no list knows yet."""
        known = set(self.uncounted_failed)
        return [
            pod for pod in self.pods if self.has_failed(pod) and is_tracked(pod) and uid_of(pod) not in known
        ]

    def verdict(self, pod: Object) -> Verdict:
        """What the failure policy says about a failed pod."""
        return judge(self.spec.get("podFailurePolicy"), pod)

    # Counting

    @cached_property
    def known_succeeded_indexes(self) -> set[int]:
        """Indexes the status already lists as completed, as far as they still exist."""
        if not self.indexed:
            return set()
        return lenient_indexes(self.status.get("completedIndexes"), self.completions or 0)

    @cached_property
    def succeeded_indexes(self) -> set[int]:
        new = (completion_index(pod) for pod in self.new_succeeded)
        return self.known_succeeded_indexes | {
            index for index in new if index is not None and index < (self.completions or 0)
        }

    @cached_property
    def failed_indexes(self) -> set[int]:
        """Indexes that are given up; only with a limit per index."""
        if not self.per_index:
            return set()
        known = lenient_indexes(self.status.get("failedIndexes"), self.completions or 0)
        limit = self.spec["backoffLimitPerIndex"]
        for pod in self.pods:
            if not is_tracked(pod) or not self.has_failed(pod):
                continue
            index = completion_index(pod)
            if index is None or index >= (self.completions or 0) or index in self.succeeded_indexes:
                continue
            verdict = self.verdict(pod)
            if verdict.action == FAIL_INDEX or (verdict.counts and failure_count(pod) >= limit):
                known.add(index)
        return known

    @cached_property
    def succeeded(self) -> int:
        """`status.succeeded` as it will be once all pods seen are counted."""
        if self.indexed:
            return len(self.succeeded_indexes)
        return (
            int(self.status.get("succeeded") or 0) + len(self.uncounted_succeeded) + len(self.new_succeeded)
        )

    @cached_property
    def failed(self) -> int:
        """`status.failed` as it will be once all pods seen are counted."""
        counted = sum(self.verdict(pod).counts for pod in self.new_failed)
        return int(self.status.get("failed") or 0) + len(self.uncounted_failed) + counted

    # Ending

    def outcome(self) -> Outcome | None:
        """Whether the Job ends whatever its active pods do; the first rule that holds (1.4, step 6)."""
        decided = true_condition(self.status, SUCCESS_CRITERIA_MET, FAILURE_TARGET)
        if decided is not None:
            kind = COMPLETE if decided["type"] == SUCCESS_CRITERIA_MET else FAILED
            return Outcome(kind, decided.get("reason") or "", decided.get("message") or "")
        return self._failure() or self._success_by_policy()

    def _failure(self) -> Outcome | None:
        message = self._fail_job_message()
        if message:
            return Outcome(FAILED, "PodFailurePolicy", message)
        limit = self.spec.get("backoffLimit")
        if limit is not None and (self.failed > limit or self._restarts_exceed(limit)):
            return Outcome(FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        left = self.until_deadline()
        if left is not None and left <= 0.0:
            return Outcome(FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
        if self.per_index:
            most = self.spec.get("maxFailedIndexes")
            if most is not None and len(self.failed_indexes) > most:
                message = "Job has exceeded the specified maximal number of failed indexes"
                return Outcome(FAILED, "MaxFailedIndexesExceeded", message)
            finished = len(self.failed_indexes) + len(self.succeeded_indexes)
            if self.failed_indexes and finished >= (self.completions or 0):
                return Outcome(FAILED, "FailedIndexes", "Job has failed indexes")
        return None

    def _fail_job_message(self) -> str:
        if self.spec.get("podFailurePolicy") is None:
            return ""
        for pod in self.pods:
            if self.has_failed(pod):
                verdict = self.verdict(pod)
                if verdict.action == FAIL_JOB:
                    return verdict.message
        return ""

    def _restarts_exceed(self, limit: int) -> bool:
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        total = sum(restarts(pod) for pod in self.pods if counts_restarts(pod))
        return total >= max(limit, 1)

    def until_deadline(self) -> float | None:
        """Seconds until the deadline, None when there is none or its clock does not run."""
        deadline, start = self.spec.get("activeDeadlineSeconds"), self.status.get("startTime")
        if self.suspended or deadline is None or start is None:
            return None
        return parse_time(start) + float(deadline) - self.now

    def _success_by_policy(self) -> Outcome | None:
        if not self.indexed:
            return None
        rule = success_rule(self.spec.get("successPolicy"), self.succeeded_indexes, self.completions or 0)
        return None if rule is None else Outcome(COMPLETE, "SuccessPolicy", f"Matched rules at index {rule}")

    def completion(self, active: int) -> Outcome | None:
        """Whether the Job is complete, given how many pods are still active (1.4, last test)."""
        if active:
            return None
        if self.completions is None:
            done = self.succeeded > 0
        else:
            done = self.succeeded >= self.completions
        if not done:
            return None
        return Outcome(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods")

    # Pods to have

    def surplus(self) -> list[Object]:
        """Active pods that must go (1.6); all of them while suspended."""
        if self.suspended:
            return self.active
        excess = max(0, len(self.active) - self._wanted())
        return pods_to_remove(self.active, excess, (self.completions or 0) if self.indexed else None)

    def missing(self) -> int:
        """How many pods are to be created, back-off aside."""
        held = len(self.terminating) if self.replaces_failed_only else 0
        return max(0, self._wanted() - held - len(self.active))

    def _wanted(self) -> int:
        if self.completions is None:
            return len(self.active) if self.succeeded > 0 else self.parallelism
        return max(0, min(self.parallelism, self.completions - self.succeeded))

    def pending_indexes(self, count: int) -> list[int]:
        """The lowest `count` indexes that are neither done nor given up nor held by a pod."""
        holders = self.active + (self.terminating if self.replaces_failed_only else [])
        taken = self.succeeded_indexes | self.failed_indexes | {completion_index(pod) for pod in holders}
        found: list[int] = []
        for index in range(self.completions or 0):
            if len(found) >= count:
                break
            if index not in taken:
                found.append(index)
        return found

    @cached_property
    def awaiting_replacement(self) -> dict[int, Object]:
        """Per index the failed pod whose count its replacement carries on.

        Its finalizer stays until that replacement is there, so that the count is never lost (1.9).
        """
        if not self.per_index:
            return {}
        held = {completion_index(pod) for pod in self.active}
        found: dict[int, Object] = {}
        for pod in self.pods:
            index = completion_index(pod)
            if (
                index is None
                or index >= (self.completions or 0)
                or not is_tracked(pod)
                or not self.has_failed(pod)
                or index in held
                or index in self.succeeded_indexes
                or index in self.failed_indexes
            ):
                continue
            known = found.get(index)
            if known is None or _attempts(known) <= _attempts(pod):
                found[index] = pod
        return found

    def index_failures(self, index: int) -> tuple[int, int]:
        """Failures of the index so far: those that count, and those that were ignored."""
        replaced = self.awaiting_replacement.get(index)
        if replaced is None:
            return 0, 0
        counts = self.verdict(replaced).counts
        return (
            failure_count(replaced) + (1 if counts else 0),
            ignored_failure_count(replaced) + (0 if counts else 1),
        )

    def index_wait(self, index: int) -> float:
        """Seconds until a pod of the index may be created."""
        replaced = self.awaiting_replacement.get(index)
        if replaced is None:
            return 0.0
        return backoff(sum(_attempts(replaced)[:2]) + 1, finish_time(replaced), self.now)

    def failures_after(self, before: Failures) -> Failures:
        """`before`, with the newly finished pods added in the order in which they ended."""
        return add_results(before, self.new_succeeded, self.new_failed)


def add_results(before: Failures, succeeded: list[Object], failed: list[Object]) -> Failures:
    """Failures since the last success, after some more pods ended."""
    count, last = before
    ends = [(finish_time(pod), False) for pod in succeeded] + [(finish_time(pod), True) for pod in failed]
    for at, has_failed in sorted(ends):
        count, last = (count + 1, at) if has_failed else (0, 0.0)
    return Failures(count, last)


def _attempts(pod: Object) -> tuple[int, int, float]:
    return failure_count(pod), ignored_failure_count(pod), finish_time(pod)
