"""The pods that wait for a node: in turn, backing off, or asleep until something could help them.

A pod that no node takes goes to sleep together with all pods like it (same shape, same priority, same
relations to others). When something happens that could help, one of them is woken as a scout; only when it
finds a place is the next one tried. So a change costs one attempt however many pods wait, and none is ever
lost: a group that may be helped stays marked until a scout has failed, and all are tried again after five
minutes.
Times are seconds of any one clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from pykueue.api.backoff import exponential_delay


class Item(Protocol):
    """A pod, or a group of pods that is placed as a whole."""

    @property
    def uid(self) -> str:
        """Identifies the pod or the group."""

    @property
    def priority(self) -> int:
        """Higher ones are scheduled first."""

    @property
    def begun(self) -> bool:
        """Whether part of it has its place, so that the rest comes before everything else."""
        ...

    @property
    def tie(self) -> str:
        """Decides between items that entered at the same time; those that are equal keep their order."""
        ...


T = TypeVar("T", bound=Item)
#: What makes pods alike: equal for those that the same thing would help.
K = TypeVar("K", bound=Hashable)

#: Wait after the first failed attempt; doubles with each up to the largest.
BACKOFF_BASE = 1.0
BACKOFF_CAP = 10.0
#: A pod nothing happened for is tried again after this.
STALE = 300.0

_ACTIVE, _WAITING, _SLEEPING, _IN_CYCLE = "active", "waiting", "sleeping", "in cycle"


class _Entry(Generic[T, K]):
    __slots__ = ("attempts", "group", "pod", "since", "state", "until", "version")

    def __init__(self, pod: T, now: float) -> None:
        self.pod = pod
        #: When it entered the queue, or failed last.
        self.since = now
        self.attempts = 0
        #: Back-off ends here.
        self.until = now
        self.state = _ACTIVE
        #: Grows with every change of state, so that heap entries of earlier ones can be told.
        self.version = 0
        self.group: Group[T, K] | None = None


class Group(Generic[T, K]):
    """Pods for which the same thing was missing."""

    __slots__ = ("key", "members", "resting", "scout", "woken")

    def __init__(self, key: K) -> None:
        self.key = key
        #: By uid, in the order in which they failed.
        self.members: dict[str, _Entry[T, K]] = {}
        #: The member that is being tried.
        self.scout: _Entry[T, K] | None = None
        #: Something happened that could help.
        self.woken = False
        #: Woken, but every member backs off.
        self.resting = False

    @property
    def example(self) -> T:
        """Any one of the members."""
        return next(iter(self.members.values())).pod


class Queue(Generic[T, K]):
    """Hands out one pod at a time, by priority, then by the time it entered.

    A group of pods that is placed as a whole stands in it as one item, which has all these rules apply to it.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T, K]] = {}
        self._groups: dict[K, Group[T, K]] = {}
        self._active: list[tuple[bool, int, float, str, int, _Entry[T, K], int]] = []
        self._backoff: list[tuple[float, int, _Entry[T, K], int]] = []
        #: Groups whose members all back off, by the time the first of them may be tried.
        self._resting: list[tuple[float, int, Group[T, K]]] = []
        self._stale: deque[tuple[float, _Entry[T, K], int]] = deque()
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    # What happens to pods

    def add(self, pod: T, now: float, since: float | None = None) -> None:
        """A pod without a node: new, or changed so that it deserves another try at once.

        A new one counts as having entered at `since`, now by default.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(pod, now if since is None else since)
        else:
            entry.pod = pod
            if entry.state in (_ACTIVE, _IN_CYCLE):
                return
            self._leave_group(entry)
        self._activate(entry)

    def refresh(self, pod: T) -> None:
        """The pod changed in a way that does not matter to where it fits."""
        entry = self._entries.get(pod.uid)
        if entry is not None:
            entry.pod = pod

    def remove(self, uid: str, now: float) -> None:
        """The pod went, or got a node without the scheduler."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            entry.version += 1
            self._leave_group(entry)
            self._next_scout(entry, now, found_place=False)

    # The cycle

    def pop(self, now: float) -> T | None:
        """The next pod to place; report back with `placed`, `failed` or `retry`."""
        self._pass_time(now)
        while self._active:
            *_, entry, version = heapq.heappop(self._active)
            if entry.version == version:
                self._turn(entry, _IN_CYCLE)
                return entry.pod
        return None

    def placed(self, uid: str, now: float) -> None:
        """The pod has a node."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            entry.version += 1
            self._next_scout(entry, now, found_place=True)

    def failed(self, uid: str, alike: K, now: float) -> None:
        """No node takes the pod: asleep with those `alike` until woken."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        self._back_off(entry, now)
        # A scout that turned out to be different says nothing about those it left behind.
        scouted = entry.group
        self._next_scout(entry, now, found_place=scouted is not None and scouted.key != alike)
        group = self._groups.get(alike)
        if group is None:
            group = self._groups[alike] = Group(alike)
        entry.group = group
        group.members[uid] = entry
        self._turn(entry, _SLEEPING)
        self._stale.append((now + STALE, entry, entry.version))

    def retry(self, pod: T, now: float) -> None:
        """The node was found but could not be had: again after a back-off, whatever happens meanwhile."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(pod, now)
        self._leave_group(entry)
        self._back_off(entry, now)
        self._turn(entry, _WAITING)
        self._count += 1
        heapq.heappush(self._backoff, (entry.until, self._count, entry, entry.version))

    # Waking

    def groups(self) -> Iterable[Group[T, K]]:
        """The groups that sleep; none is empty."""
        return [group for group in self._groups.values() if not group.woken and group.members]

    def wake(self, group: Group[T, K], now: float) -> None:
        """Something happened that may help the group."""
        group.woken = True
        self._send_scout(group, now)

    def wake_all(self, now: float) -> None:
        """Something happened that may help anyone."""
        for group in list(self._groups.values()):
            self.wake(group, now)

    def next_time(self) -> float | None:
        """When `pop` has something to look at although nothing happens until then."""
        times = []
        while self._backoff and self._backoff[0][2].version != self._backoff[0][3]:
            heapq.heappop(self._backoff)
        if self._backoff:
            times.append(self._backoff[0][0])
        if self._resting:
            times.append(self._resting[0][0])
        while self._stale and self._stale[0][1].version != self._stale[0][2]:
            self._stale.popleft()
        if self._stale:
            times.append(self._stale[0][0])
        return min(times, default=None)

    def _pass_time(self, now: float) -> None:
        while self._backoff and self._backoff[0][0] <= now:
            _, _, entry, version = heapq.heappop(self._backoff)
            if entry.version == version:
                self._activate(entry)
        while self._resting and self._resting[0][0] <= now:
            group = heapq.heappop(self._resting)[2]
            group.resting = False
            if group.woken and group.members:
                self._send_scout(group, now)
        while self._stale and self._stale[0][0] <= now:
            _, entry, version = self._stale.popleft()
            if entry.version == version and entry.group is not None:
                self.wake(entry.group, now)

    def _send_scout(self, group: Group[T, K], now: float) -> None:
        if group.scout is not None or group.resting:
            return
        soonest: float | None = None
        for entry in group.members.values():
            if entry.until <= now:
                del group.members[entry.pod.uid]
                group.scout = entry
                self._activate(entry)
                return
            if soonest is None or entry.until < soonest:
                soonest = entry.until
        if soonest is not None:
            group.resting = True
            self._count += 1
            heapq.heappush(self._resting, (soonest, self._count, group))

    def _next_scout(self, entry: _Entry[T, K], now: float, *, found_place: bool) -> None:
        """The entry is out of its cycle: if it was a scout, its group goes on or back to sleep."""
        group = entry.group
        if group is None or group.scout is not entry:
            return
        entry.group = None
        group.scout = None
        if not group.members:
            self._drop(group)
        elif found_place or entry.pod.uid not in self._entries:
            # It took a place, or went before it was tried: the next one may fit as well.
            self._send_scout(group, now)
        else:
            group.woken = False

    def _leave_group(self, entry: _Entry[T, K]) -> None:
        group = entry.group
        if group is not None and group.scout is not entry:
            group.members.pop(entry.pod.uid, None)
            entry.group = None
            if not group.members and group.scout is None:
                self._drop(group)

    def _drop(self, group: Group[T, K]) -> None:
        if self._groups.get(group.key) is group:
            del self._groups[group.key]

    def _activate(self, entry: _Entry[T, K]) -> None:
        self._turn(entry, _ACTIVE)
        self._count += 1
        pod = entry.pod
        item: Any = (
            not pod.begun,
            -pod.priority,
            entry.since,
            pod.tie,
            self._count,
            entry,
            entry.version,
        )
        heapq.heappush(self._active, item)

    @staticmethod
    def _turn(entry: _Entry[T, K], state: str) -> None:
        entry.state = state
        entry.version += 1

    @staticmethod
    def _back_off(entry: _Entry[T, K], now: float) -> None:
        entry.attempts += 1
        entry.since = now
        entry.until = now + exponential_delay(BACKOFF_BASE, BACKOFF_CAP, entry.attempts - 1)
