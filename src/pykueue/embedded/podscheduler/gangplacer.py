"""One scheduling cycle of a group: places for enough of its members at once, or for none.

Pure: no clock, no requests. A group is tried out on the books and taken off them again when it does not
get what it needs; nothing of an attempt that failed is left, and no other pod can come in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.gangs import Gang
from pykueue.embedded.podscheduler.placer import EquivalenceClass, Placed, Placer, Unplaced, placed_at
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.terms import Spread


class GangPlaced(NamedTuple):
    """These members have places, and are on the books with them."""

    pods: list[PodInfo]
    #: Whether one of them has an anti-affinity term that no other pod has.
    new_term: bool


class Move(NamedTuple):
    """A member's node, and the pods that must be preempted there first."""

    pod: PodInfo
    node: str
    victims: tuple[PodInfo, ...]


class GangUnplaced(NamedTuple):
    """Not enough members fit now. With `moves`, they will when all victims are gone."""

    #: The message for each member, and the one for the group.
    message: str
    verdict: str
    equivalence: EquivalenceClass
    moves: list[Move]


class GangPlacer:
    """Places groups on the books of a `Placer`; `spread_of` says how pods are spread by default."""

    def __init__(
        self, cluster: Cluster, placer: Placer, spread_of: Callable[[PodInfo], tuple[Spread, ...]]
    ) -> None:
        self._cluster = cluster
        self._placer = placer
        self._spread_of = spread_of

    def place(
        self, gang: Gang, objection: Callable[[Gang, Sequence[PodInfo]], str]
    ) -> GangPlaced | GangUnplaced:
        """Try a group that is complete. `objection` says why the given members may not be placed, if so."""
        members = _in_order(gang)
        lacking = gang.lacking
        # Also those of members that waited by themselves before the group lacked others.
        promised = {pod.uid: node for pod in members if (node := self._placer.forget(pod.uid))}
        refused = objection(gang, members[:lacking])
        if refused:
            # What the group lacks is no place for any one member: let it be woken by whatever is set free.
            equivalence = EquivalenceClass(
                members[0].shape, gang.key, gang.priority, preempts=False, repelled_by=()
            )
            return GangUnplaced(refused, refused, equivalence, [])
        placed, new_term, failure = self._try(gang, members, promised)
        if failure is None or _enough(gang, placed):
            return GangPlaced(placed, new_term)
        for pod in reversed(placed):
            self._cluster.remove_pod(pod.uid)
        moves = self._make_room(gang, members, promised)
        for move in moves:
            self._placer.nominate(move.pod, move.node)
        some = "; part of it would fit" if placed else ""
        return GangUnplaced(
            f"{failure.message} Pod group {gang.tie} is placed as a whole or not at all{some}.",
            f"only {len(placed)} of {lacking} fit: {failure.message}",
            failure.equivalence._replace(lacking=lacking, composition=gang.composition()),
            moves,
        )

    def _try(
        self, gang: Gang, members: list[PodInfo], promised: Mapping[str, str]
    ) -> tuple[list[PodInfo], bool, Unplaced | None]:
        """Put members on the books as far as they fit; whether they bring news, and the first refusal."""
        assert gang.terms is not None
        placed: list[PodInfo] = []
        new_term = False
        failure: Unplaced | None = None
        hopeless: set[object] = set()
        for index, pod in enumerate(members):
            if not gang.terms.all_in_one_go and _enough(gang, placed):
                break
            if pod.related is None and pod.shape in hopeless:
                continue
            outcome = self._placer.place(
                pod, self._spread_of(pod), promised=promised.get(pod.uid, ""), preempt=False
            )
            if isinstance(outcome, Placed):
                there = placed_at(pod, outcome.node)
                new_term = self._cluster.add_pod(there) or new_term
                placed.append(there)
                continue
            failure = failure or outcome
            hopeless.add(pod.shape)
            if len(placed) + len(members) - index - 1 < gang.lacking:
                break
        return placed, new_term, failure

    def _make_room(self, gang: Gang, members: list[PodInfo], promised: Mapping[str, str]) -> list[Move]:
        """Who has to leave so that the minimum is met; nothing when that cannot be brought about.

        No pod is preempted for a group that would still not fit as a whole (3.8). What was decided before
        and is still going on counts as done.
        """
        cluster = self._cluster
        if not any(priority < gang.priority for priority in cluster.priorities):
            return []
        removed: list[PodInfo] = []
        added: list[PodInfo] = []
        moves: list[Move] = []
        try:
            for name in sorted(set(promised.values())):
                node = cluster.node(name)
                leaving = [] if node is None else [pod for pod in node.pods.values() if pod.terminating]
                removed += [pod for pod in leaving if pod.priority < gang.priority]
            for pod in removed:
                cluster.remove_pod(pod.uid)
            for pod in members:
                if _enough(gang, added):
                    break
                outcome = self._placer.place(pod, self._spread_of(pod), promised=promised.get(pod.uid, ""))
                if isinstance(outcome, Placed):
                    move = Move(pod, outcome.node, ())
                elif outcome.victims:
                    move = Move(pod, outcome.nominated, outcome.victims)
                else:
                    continue
                for victim in move.victims:
                    cluster.remove_pod(victim.uid)
                    removed.append(victim)
                there = placed_at(pod, move.node)
                cluster.add_pod(there)
                added.append(there)
                moves.append(move)
            return moves if _enough(gang, added) else []
        finally:
            for pod in reversed(added):
                cluster.remove_pod(pod.uid)
            for pod in reversed(removed):
                cluster.add_pod(pod)


def _in_order(gang: Gang) -> list[PodInfo]:
    """The waiting members as they are tried: important ones first, and what tasks lack before the rest."""
    members = sorted(gang.waiting.values(), key=lambda pod: -pod.priority)
    by_task = gang.lacking_by_task()
    if not by_task:
        return members
    first: list[PodInfo] = []
    rest: list[PodInfo] = []
    for pod in members:
        task = gang.task_of(pod.uid)
        if by_task.get(task, 0) > 0:
            by_task[task] -= 1
            first.append(pod)
        else:
            rest.append(pod)
    return first + rest


def _enough(gang: Gang, placed: Sequence[PodInfo]) -> bool:
    """Whether the group's minimums are met with these members."""
    assert gang.terms is not None
    if gang.ready + len(placed) < gang.terms.min_member:
        return False
    if not gang.terms.min_task_member:
        return True
    there = Counter(gang.task_of(pod.uid) for pod in placed)
    return all(there[task] >= count for task, count in gang.lacking_by_task().items())
