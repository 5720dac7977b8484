"""Short and long forms of topology assignments. docs/reference/topology-aware-scheduling.md 11."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.api import decode_as, encode
from pykueue.api.kueue import TopologyAssignment
from pykueue.api.topologies import HOSTNAME, Domain, compress, count_domains, expand


def column(*values: str) -> Any:
    """How the values of one level are written."""
    domains = [Domain((value,), 1) for value in values]
    (part,) = encode(compress(["rack"], domains))["slices"]
    assert part["domainCount"] == len(values)
    (result,) = part["valuesPerLevel"]
    return result


@pytest.mark.parametrize(
    ("values", "written"),
    [
        # Case 91 of the reference.
        (("kind-worker", "kind-worker2"), {"individual": {"prefix": "kind-worker", "roots": ["", "2"]}}),
        (
            ("n1.pool-a", "n2.pool-a"),
            {"individual": {"prefix": "n", "suffix": ".pool-a", "roots": ["1", "2"]}},
        ),
        (("ababa", "aba"), {"individual": {"suffix": "aba", "roots": ["ab", ""]}}),
        (("x1",), {"universal": "x1"}),
        (("x1", "x1"), {"universal": "x1"}),
        (("a", "b"), {"individual": {"roots": ["a", "b"]}}),
        (("aa", "aaaa"), {"individual": {"suffix": "aa", "roots": ["", "aa"]}}),
    ],
)
def test_values_of_a_level(values: tuple[str, ...], written: Any) -> None:
    assert column(*values) == written


def test_counts_are_written_once_when_they_are_equal() -> None:
    def counts(*pods: int) -> Any:
        domains = [Domain((f"n{index}",), count) for index, count in enumerate(pods)]
        return encode(compress(["rack"], domains))["slices"][0]["podCounts"]

    assert counts(2, 2) == {"universal": 2}
    assert counts(8, 8, 8) == {"universal": 8}  # case 92 of the reference
    assert counts(4, 2) == {"individual": [4, 2]}  # case 91
    assert counts(2, 1) == {"individual": [2, 1]}
    assert counts(2, 0, 1) == {"individual": [2, 1]}


def test_only_the_host_name_is_kept_where_it_is_the_lowest_level() -> None:
    assignment = compress(["block", HOSTNAME], [Domain(("b1", "n1"), 1)])
    assert encode(assignment) == {
        "levels": [HOSTNAME],
        "slices": [
            {"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 1}}
        ],
    }
    both = compress(["block", "rack"], [Domain(("b1", "r1"), 1), Domain(("b1", "r2"), 1)])
    assert both.levels == ["block", "rack"]
    assert expand(both) == [Domain(("b1", "r1"), 1), Domain(("b1", "r2"), 1)]


def hosts(*names: str) -> list[int]:
    """Sizes of the slices that host names are written in."""
    return [part.domain_count for part in compress([HOSTNAME], [Domain((name,), 1) for name in names]).slices]


def test_host_names_are_cut_into_runs_of_a_common_prefix_when_that_is_shorter() -> None:
    assert hosts("pool-a-0", "pool-a-1", "pool-b-0") == [3]
    long = [
        f"cluster-with-a-long-name-pool-{pool}-host-{host:03}"
        for pool in ("aaaa", "bbbb")
        for host in range(50)
    ]
    assert hosts(*long) == [50, 50]
    assert [
        part.domain_count
        for part in compress(
            [HOSTNAME], [Domain((name,), 1) for name in long], by_hostname_prefix=False
        ).slices
    ] == [100]


def test_an_assignment_without_pods_has_no_slices() -> None:
    empty = compress([HOSTNAME], [Domain(("n",), 0)])
    assert encode(empty) == {"levels": [HOSTNAME]}
    assert expand(empty) == []


def test_more_slices_than_allowed_are_not_written() -> None:
    names = [f"{pool}-x{index}" for index in range(1500) for pool in ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb")]
    assert hosts(*names) == [3000]


def test_slices_hold_a_hundred_thousand_domains_at_most() -> None:
    assert hosts(*(f"n{index}" for index in range(100_001))) == [100_000, 1]


_name = st.text(alphabet="ab-1", min_size=1, max_size=8)
_domains = st.lists(st.tuples(_name, _name, st.integers(0, 3)), max_size=12)


@given(_domains, st.booleans(), st.booleans())
def test_what_is_written_reads_the_same(rows: list[tuple[str, str, int]], hostname: bool, cut: bool) -> None:
    lowest = HOSTNAME if hostname else "rack"
    assignment = compress(["block", lowest], [Domain((a, b), pods) for a, b, pods in rows], cut)
    kept = [Domain((b,) if hostname else (a, b), pods) for a, b, pods in rows if pods]
    assert expand(assignment) == kept
    assert count_domains(assignment) == len(kept)
    assert decode_as(TopologyAssignment, encode(assignment)) == assignment


def test_lengths_that_differ_are_an_error() -> None:
    part = {"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1]}}
    with pytest.raises(ValueError, match="zip"):
        expand(decode_as(TopologyAssignment, {"levels": ["rack"], "slices": [part]}))
