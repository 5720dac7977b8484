"""`questions.smallest`: amounts that satisfy a check and cannot be lowered, with few trials."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykueue.questions.smallest import smallest

amounts = st.lists(st.integers(0, 200), min_size=1, max_size=3)


@given(amounts, st.data())
def test_amounts_of_a_monotonic_check_are_the_needed_ones(needed: list[int], data: st.DataObject) -> None:
    if not any(needed):
        needed[0] = 1
    ceiling = [each + data.draw(st.integers(0, 300)) for each in needed]
    guesses = [
        [data.draw(st.integers(0, most)) for most in ceiling] for _ in range(data.draw(st.integers(0, 3)))
    ]
    grid = [data.draw(st.integers(1, 20)) for _ in needed]
    found = smallest(
        lambda tried: all(each >= least for each, least in zip(tried, needed, strict=True)),
        guesses,
        ceiling,
        grid,
    )
    assert found is not None
    assert (list(found.amounts), found.is_smallest) == (needed, True)


@given(st.sets(st.integers(1, 60), min_size=1), st.integers(1, 60))
def test_one_less_of_a_result_never_satisfies_any_check_of_one_amount(good: set[int], ceiling: int) -> None:
    found = smallest(lambda tried: tried[0] in good, [], [ceiling])
    assert (found is None) == (ceiling not in good)
    if found is not None:
        assert found.amounts[0] in good
        assert found.amounts[0] - 1 not in good


def test_right_guess_takes_a_trial_and_one_for_each_amount() -> None:
    tried: list[tuple[int, ...]] = []

    def check(each: tuple[int, ...]) -> bool:
        tried.append(each)
        return each >= (5,) and each[1] >= 7

    found = smallest(check, [(5, 7)], (1000, 1000))
    assert found is not None
    assert (found.amounts, len(tried)) == ((5, 7), 3)


def test_nothing_up_to_the_ceiling_is_none() -> None:
    assert smallest(lambda _: False, [(3,)], (9,)) is None
