"""The pace at which failed nodes lose their pods, by how many have failed."""

import pytest

from pykueue.embedded.controllers.nodelife.zones import Zones


def zones(**counts):
    """Zones by name: how many of how many nodes have failed."""
    made = Zones()
    for zone, (failed, total) in counts.items():
        for number in range(total):
            made.put(f"{zone}-{number}", zone, number >= failed)
    return made


@pytest.mark.parametrize(
    ("failed", "total", "rate"),
    [(1, 2, 0.1), (2, 3, 0.1), (3, 4, 0.0), (27, 50, 0.1), (28, 50, 0.0), (55, 100, 0.01), (54, 100, 0.1)],
)
def test_the_rate_of_a_zone_beside_one_that_is_well(failed, total, rate):
    assert zones(a=(failed, total), b=(0, 1)).rate("a") == rate


def test_a_zone_that_fails_as_a_whole_beside_others_goes_on_at_the_usual_rate():
    made = zones(a=(10, 10), b=(0, 10))
    assert (made.rate("a"), made.all_failed) == (0.1, False)
    for number in range(10):
        made.put(f"b-{number}", "b", False)
    assert (made.rate("a"), made.rate("b"), made.all_failed) == (0.0, 0.0, True)
    assert made.turn("a", 0.0) is None


def test_nodes_of_which_nothing_is_known_yet_do_not_count():
    made = zones(a=(0, 1))
    for number in range(10):
        made.put(f"new-{number}", "a", None)
    assert (made.rate("a"), list(made.failed)) == (0.1, [])


def test_turns_come_ten_seconds_apart_in_each_zone():
    made = zones(a=(2, 9), b=(1, 9))
    assert [made.turn("a", 0.0), made.turn("a", 4.0), made.turn("b", 4.0), made.turn("a", 10.0)] == [
        0,
        6,
        0,
        0,
    ]


def test_only_changes_of_the_eviction_rate_are_reported():
    made = zones(a=(0, 4), b=(0, 4))
    assert not made.put("a-0", "a", False)
    assert not made.put("a-1", "a", False)
    assert made.put("a-2", "a", False)
    assert not made.put("a-2", "a", False)
    assert made.remove("a-2")
    assert not made.remove("a-2")
