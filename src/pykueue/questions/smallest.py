"""The smallest amounts that satisfy a check, by trying: bisection, and a look at one unit less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

#: How often all amounts are lowered in turn before the outcome is called not monotonic.
PASSES_MAX: Final = 3

Amounts = tuple[int, ...]


class Smallest(NamedTuple):
    """Amounts that satisfy a check."""

    amounts: Amounts
    is_smallest: bool
    """Each amount lowered by one, the others as they are, does not satisfy it."""


def smallest(
    satisfies: Callable[[Amounts], bool],
    guesses: Iterable[Sequence[int]],
    ceiling: Sequence[int],
    grid: Sequence[int] = (),
) -> Smallest | None:
    """Amounts of at most `ceiling` that satisfy a check which all zeros do not.

    `guesses` are tried in order; where none is good, the search begins at the ceiling. None if that is not
    good either. Where the first good one is too much, those after it are tried before the search begins.
    Where the check is monotonic, no amount of the result can be lowered.
    `grid`: of each amount, a number of which the smallest one is probably a multiple; it saves trials.
    """
    steps = grid or (1,) * len(ceiling)
    known: dict[Amounts, bool] = {(0,) * len(ceiling): False}

    def good(amounts: Amounts) -> bool:
        found = known.get(amounts)
        if found is None:
            found = known[amounts] = satisfies(amounts)
        return found

    candidates = list(map(tuple, (*guesses, ceiling)))
    amounts = next((each for each in candidates if good(each)), None)
    if amounts is None:
        return None
    if not any(good(_with(amounts, index, amount - 1)) for index, amount in enumerate(amounts) if amount > 0):
        return Smallest(amounts, True)
    start = candidates.index(amounts)
    amounts = next((each for each in candidates[start + 1 : -1] if good(each)), amounts)
    for _ in range(PASSES_MAX):
        before = amounts
        for index in range(len(amounts)):
            amounts = _lowered(good, amounts, index, steps[index])
        if amounts == before:
            break
    minimal = all(
        not good(_with(amounts, index, amount - 1)) for index, amount in enumerate(amounts) if amount > 0
    )
    return Smallest(amounts, minimal)


def _lowered(good: Callable[[Amounts], bool], amounts: Amounts, index: int, step: int) -> Amounts:
    """With one amount lowered to where it satisfies the check and one less does not."""
    high = amounts[index]
    if high <= 0 or not good(_with(amounts, index, high - 1)):
        return amounts
    if good(_with(amounts, index, 0)):
        return _with(amounts, index, 0)

    def is_good(amount: int) -> bool:
        return good(_with(amounts, index, amount))

    low, high = 0, high - 1
    most = (high - 1) // step
    if step > 1 and most > 0 and is_good(most * step):
        low, high = (each * step for each in bisected(lambda number: is_good(number * step), 0, most))
    elif step > 1:
        low = most * step
    if high - 1 > low and is_good(high - 1):
        _, high = bisected(is_good, low, high - 1)
    return _with(amounts, index, high)


def bisected(is_good: Callable[[int], bool], low: int, high: int) -> tuple[int, int]:
    """Two numbers next to each other, of which the lower one is not good; `low` is not, and `high` is."""
    while high - low > 1:
        middle = (low + high) // 2
        if is_good(middle):
            high = middle
        else:
            low = middle
    return low, high


def _with(amounts: Amounts, index: int, amount: int) -> Amounts:
    return (*amounts[:index], amount, *amounts[index + 1 :])
