"""How many pods of a pod set go to each of its flavors.

As many slices as possible go to the most preferred flavor, then to the next one, such that each flavor gets
at least its minimum. The caller says how much each flavor has room for. Source of the rules:
docs/reference/policies.md 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pykueue.api.hybrid import HybridRequest


class Slices:
    """A number of pods in slices, and the fewest and the most slices of each flavor."""

    __slots__ = ("bounds", "pods", "size", "total")

    def __init__(self, pods: int, request: HybridRequest) -> None:
        self.pods = pods
        self.size = request.slice_size
        #: The last one may be smaller, once pods need no quota any more; it is placed as a whole one.
        self.total = -(-pods // self.size)
        self.bounds = request.bounds(pods)

    def in_pods(self, pods: int | None) -> int:
        """Slices that fit where so many pods fit; None: any number."""
        return self.total if pods is None or pods >= self.pods else pods // self.size

    def pods_at_most(self, slices: int, index: int) -> int:
        """Pods that a flavor can get that has room for so many slices."""
        return min(self.pods, min(slices, self.bounds[index][1]) * self.size)

    def fill(self, room: Sequence[int]) -> list[int] | None:
        """Slices by flavor, as many as possible of the first ones; None where there is not enough room."""
        least = [low for low, _ in self.bounds]
        most = [min(high, space) for (_, high), space in zip(self.bounds, room, strict=True)]
        if sum(most) < self.total or any(low > high for low, high in zip(least, most, strict=True)):
            return None
        left = self.total - sum(least)
        if left < 0:
            return None
        found = least
        for index, high in enumerate(most):
            more = min(left, high - found[index])
            found[index] += more
            left -= more
        return found

    def fill_with_preemption(
        self,
        available: Sequence[int] | None,
        potential: Sequence[int],
        preempts: Callable[[int, int], bool],
    ) -> list[int]:
        """Slices by flavor where others have to be preempted; `fill(potential)` must be possible.

        Where `available` is given, it is used first, and workloads are preempted for the rest only.
        `preempts` says whether a flavor could serve so many slices by preemption. What is lacking then is
        added to the first flavors that could ever have it.
        """
        found = [low for low, _ in self.bounds]
        most = [min(high, space) for (_, high), space in zip(self.bounds, potential, strict=True)]
        left = self.total - sum(found)

        def add(index: int, more: int) -> None:
            nonlocal left
            more = max(0, min(left, more))
            found[index] += more
            left -= more

        for index, space in enumerate(available or ()):
            add(index, min(most[index], space) - found[index])
        for index, high in enumerate(most):
            low, high = found[index], min(high, found[index] + left)
            if high > low and not preempts(index, high):
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if preempts(index, middle) else (low, middle)
                high = low
            add(index, high - found[index])
        for index, high in enumerate(most):
            add(index, high - found[index])
        return found

    def parts(self, slices: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(index of the flavor, pods) of the flavors that get any."""
        left = self.pods
        for index, count in enumerate(slices):
            pods = min(left, count * self.size)
            if pods:
                yield index, pods
            left -= pods
