"""Pods that start together or not at all: the members of each group, and how many are missing.

What a group asks for is in its PodGroup object, of one of several APIs (`modes`); what its pods do comes from
their watch. Nothing is decided here, and all state can be read from the API again after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pykueue.api.objects import Object, is_deleting
from pykueue.api.pods import is_terminal
from pykueue.embedded.kinds.podspec import Amounts
from pykueue.embedded.podscheduler.podinfo import PodInfo

#: What a member does, as far as its group is concerned.
HELD, WAITING, PLACED, RUNNING, LEAVING, SUCCEEDED, FAILED = (
    "held",
    "waiting",
    "placed",
    "running",
    "leaving",
    "succeeded",
    "failed",
)
#: Members that count towards the minimum: what has ended well is not needed again.
_READY = (PLACED, RUNNING, SUCCEEDED)


class GroupKey(NamedTuple):
    """Names a group: the API it belongs to, and its PodGroup object."""

    mode: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Terms:
    """What a PodGroup object asks for."""

    #: So many members at once, or none.
    min_member: int
    #: Further minimums by the members' task.
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    min_resources: Amounts | None = None
    queue: str = ""
    priority_class: str = ""
    #: Seconds that nodes may be held for members that wait for others to leave.
    patience: float = 60.0
    #: Members above the minimum are placed in the same go, not later one by one.
    all_in_one_go: bool = True
    #: Whether the group may be placed at all now.
    open: bool = True


class _Member:
    __slots__ = ("state", "task")

    def __init__(self, state: str, task: str) -> None:
        self.state = state
        self.task = task


class Gang:
    """One group. It stands in the scheduler's queue as a whole until its minimum is met."""

    __slots__ = (
        "_kinds",
        "alone",
        "class_priority",
        "counts",
        "deadline",
        "key",
        "members",
        "object",
        "promised",
        "tasks",
        "terms",
        "uid",
        "verdict",
        "waiting",
    )

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.uid = "/".join(key)
        #: The PodGroup object and what it says; None while there is none.
        self.object: Object | None = None
        self.terms: Terms | None = None
        self.members: dict[str, _Member] = {}
        #: Members that may be placed, in the order in which they came.
        self.waiting: dict[str, PodInfo] = {}
        #: Members by state, and ready ones by task.
        self.counts: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        #: Nodes kept for members until others have left them, and until when (loop time).
        self.promised: dict[str, str] = {}
        self.deadline = 0.0
        #: Why the last attempt failed, "" after one that succeeded.
        self.verdict = ""
        #: The value of its priority class, if it names one.
        self.class_priority: int | None = None
        #: Whether its members stand in the queue one by one, since the minimum is met.
        self.alone = False
        self._kinds: list[PodInfo] | None = None

    # As an item of the queue

    @property
    def priority(self) -> int:
        """That of its class, else of its most important waiting member."""
        if self.class_priority is not None:
            return self.class_priority
        return max((pod.priority for pod in self.waiting.values()), default=0)

    @property
    def begun(self) -> bool:
        """Some members have places already: the rest goes before everybody else.

        After a crash between two bindings this gives the group back the room it had been given before.
        """
        return bool(self.counts[PLACED] or self.counts[RUNNING])

    @property
    def tie(self) -> str:
        """Decides between groups of the same second (docs/reference/cluster-workloads.md 3.6)."""
        return f"{self.key.namespace}/{self.key.name}"

    # Counting

    @property
    def ready(self) -> int:
        """Members that count towards the minimum."""
        return sum(self.counts[state] for state in _READY)

    @property
    def in_use(self) -> bool:
        """Whether there are members that have not ended."""
        return len(self.members) > self.counts[SUCCEEDED] + self.counts[FAILED]

    @property
    def lacking(self) -> int:
        """How many members must still find a place before the minimum is met."""
        if self.terms is None:
            return 0
        by_task = sum(self.lacking_by_task().values())
        return max(0, self.terms.min_member - self.ready, by_task)

    def lacking_by_task(self) -> dict[str, int]:
        """The same for tasks that have a minimum of their own, as long as those are within the group's."""
        assert self.terms is not None
        minimums = self.terms.min_task_member
        if not minimums or self.terms.min_member < sum(minimums.values()):
            return {}
        missing = {task: least - self.tasks[task] for task, least in minimums.items()}
        return {task: count for task, count in missing.items() if count > 0}

    def task_of(self, uid: str) -> str:
        """The task that a member, given by UID, belongs to. KeyError for other pods."""
        return self.members[uid].task

    @property
    def complete(self) -> bool:
        """Whether enough members wait to reach the minimum."""
        lacking = self.lacking
        if lacking > len(self.waiting):
            return False
        by_task = self.lacking_by_task()
        if not by_task:
            return True
        there = Counter(self.members[uid].task for uid in self.waiting)
        return all(there[task] >= count for task, count in by_task.items())

    def kinds(self) -> list[PodInfo]:
        """One waiting member of each kind, as far as fitting on nodes goes."""
        if self._kinds is None:
            found = {(pod.shape, pod.related): pod for pod in self.waiting.values()}
            self._kinds = list(found.values())
        return self._kinds

    def composition(self) -> frozenset[tuple[object, object, int]]:
        """How many of which kind wait: groups that are equal in this meet with the same refusals."""
        counts = Counter((pod.shape, pod.related) for pod in self.waiting.values())
        return frozenset((*kind, count) for kind, count in counts.items())

    def put(self, uid: str, state: str, task: str, pod: PodInfo | None) -> None:
        """A member is in `state` now; `pod` goes with WAITING."""
        self.drop(uid)
        self.members[uid] = _Member(state, task)
        self.counts[state] += 1
        if state in _READY:
            self.tasks[task] += 1
        if state == WAITING:
            assert pod is not None
            self.waiting[uid] = pod
            self._kinds = None

    def drop(self, uid: str) -> None:
        """The member is one no longer."""
        known = self.members.pop(uid, None)
        if known is None:
            return
        self.counts[known.state] -= 1
        if known.state in _READY:
            self.tasks[known.task] -= 1
        if self.waiting.pop(uid, None) is not None:
            self._kinds = None


class Gangs:
    """All groups, by key and by the uids of their members."""

    def __init__(self) -> None:
        self._gangs: dict[GroupKey, Gang] = {}
        self._of: dict[str, Gang] = {}

    def __len__(self) -> int:
        return len(self._gangs)

    def get(self, key: GroupKey) -> Gang | None:
        """The gang of a key, or None."""
        return self._gangs.get(key)

    def all(self) -> Iterable[Gang]:
        """Every group with an object or a member."""
        return self._gangs.values()

    def of(self, uid: str) -> Gang | None:
        """The group the pod belongs to."""
        return self._of.get(uid)

    def describe(self, key: GroupKey, manifest: Object, terms: Terms) -> Gang:
        """The PodGroup object appeared or changed."""
        gang = self._gang(key)
        gang.object, gang.terms = manifest, terms
        return gang

    def undescribe(self, key: GroupKey) -> Gang | None:
        """The PodGroup object went."""
        gang = self._gangs.get(key)
        if gang is not None:
            gang.object = gang.terms = gang.class_priority = None
            self._tidy(gang)
        return gang

    def put(self, key: GroupKey, uid: str, state: str, task: str = "", pod: PodInfo | None = None) -> Gang:
        """A pod is a member of that group and in that state."""
        known = self._of.get(uid)
        if known is not None and known.key != key:
            self.drop(uid)
        gang = self._of[uid] = self._gang(key)
        gang.put(uid, state, task, pod)
        return gang

    def drop(self, uid: str) -> Gang | None:
        """The pod is gone."""
        gang = self._of.pop(uid, None)
        if gang is not None:
            gang.drop(uid)
            self._tidy(gang)
        return gang

    def _gang(self, key: GroupKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def _tidy(self, gang: Gang) -> None:
        if gang.object is None and not gang.members:
            self._gangs.pop(gang.key, None)


def state_of(manifest: Object) -> str:
    """What a pod does, by its object; WAITING when nothing keeps it from being placed."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    phase = status.get("phase")
    if is_terminal(manifest):
        return SUCCEEDED if phase == "Succeeded" else FAILED
    leaving = is_deleting(manifest)
    if spec.get("nodeName"):
        if leaving:
            return LEAVING
        return RUNNING if phase == "Running" else PLACED
    return HELD if leaving or spec.get("schedulingGates") else WAITING
