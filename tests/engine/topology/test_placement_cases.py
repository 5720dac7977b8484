"""The worked cases of docs/reference/topology-aware-scheduling.md 19.1 to 19.5, by their numbers."""

from __future__ import annotations

import pytest
from topology_notation import place, result, tree_of

from pykueue.engine.topology.requests import TopologyRules

A = "H h1:3,h2:3,h3:2,h4:1"
T = "BRH b1{r1{a1:2,a2:1},r2{a3:2,a4:1}},b2{r1{c1:1,c2:1},r2{c3:1}}"
P = "H h1:8/3,h2:2"
S = "RH r1{h1:6},r2{h2:5},r3{h3:4},r4{h4:3},r5{h5:2}"
U = "RH r1{h1:3,h2:3},r2{h3:4,h4:1}"
V = "RH r1{h1:3,h2:3},r2{h3:2,h4:2}"
W = "RH r1{h1:4,h2:1,h3:1}"
X = "BRH b1{r1{h1:2,h2:2},r2{h3:5},r3{h4:1}}"
G = "RH r1{h1:4},r2{h2:3}"
L = "BRH b1{r1{h1:6,h2:2},r2{h3:5}}"
D = "RH r1{h1:4,h2:4},r2{h3:4,h4:4}"


@pytest.mark.parametrize(
    ("case", "tree", "request_text", "pods", "expected"),
    [
        (1, A, "preferred H", 7, "h1:3 h2:3 h4:1"),
        (2, A, "unconstrained", 7, "h1:3 h2:1 h3:2 h4:1"),
        (4, A, "unconstrained", 2, "h3:2"),
        (5, A, "required H", 3, "h1:3"),
        (5, A, "required H", 4, "fails: 3 of 4"),
        (6, A, "preferred H", 5, "h1:3 h3:2"),
        (6, A, "unconstrained", 5, "h1:2 h3:2 h4:1"),
        (7, T, "preferred rack", 4, "a1:2 a3:2"),
        (8, T, "preferred rack", 3, "a1:2 a2:1"),
        (9, T, "preferred rack", 2, "c1:1 c2:1"),
        (10, T, "required rack", 4, "fails: 3 of 4"),
        (11, T, "required block", 5, "a1:2 a2:1 a3:2"),
        (12, T, "preferred rack", 8, "a1:2 a2:1 a3:2 a4:1 c1:1 c2:1"),
        (13, T, "preferred rack", 10, "fails: 9 of 10"),
        (14, T, "unconstrained", 3, "a2:1 a4:1 c1:1"),
        (15, "BRH b1{r1{x1:4},r2{x2:4}},b2{r1{x3:6},r2{x4:1}}", "preferred block", 12, "x1:4 x2:2 x3:6"),
        (16, "BRH b1{r1{x1:4},r2{x2:4}},b2{r1{x3:6},r2{x4:1}}", "required block", 7, "x3:6 x4:1"),
        (17, "RH r1{h1:4,h2:4},r2{h3:1,h4:2}", "preferred H", 5, "h1:4 h2:1"),
        (17, "RH r1{h1:4,h2:4},r2{h3:1,h4:2}", "unconstrained", 5, "h1:2 h3:1 h4:2"),
        (18, "H h1:1,h10:1,h2:1", "preferred H", 2, "h1:1 h10:1"),
        (19, P, "preferred H", 4, "h1:3 h2:1"),
        (19, P, "preferred H", 6, "fails: 5 of 6"),
        (21, S, "slice rack/2", 12, "h2:4 h3:4 h4:2 h5:2"),
        (22, S, "preferred rack slice rack/2", 12, "h1:6 h3:4 h5:2"),
        (23, S, "slice rack/2", 10, "h2:2 h3:4 h4:2 h5:2"),
        (23, S, "slice rack/2", 6, "h1:6"),
        (23, S, "slice rack/2", 4, "h3:4"),
        (24, "RH r1{h1:5},r2{h2:4}", "required rack slice rack/2", 4, "h2:4"),
        (25, S, "required rack slice rack/2", 5, "h3:4"),
        (26, U, "preferred rack slice H/2", 4, "h3:4"),
        (26, U, "preferred rack slice H/2", 6, "h1:2 h3:4"),
        (27, U, "required rack slice H/2", 6, "fails: 2 of 3"),
        (28, X, "required rack slice block/2", 4, "the level of slices is above the level of the pods"),
        (29, V, "slice rack/4", 8, "h1:3 h2:1 h3:2 h4:2"),
        (30, W, "required rack", 4, "h1:4"),
        (30, W, "required rack slice rack/4", 4, "h1:2 h2:1 h3:1"),
        (31, W, "required rack", 5, "h1:4 h2:1"),
        (31, W, "required rack slice rack/1", 5, "h1:3 h2:1 h3:1"),
        (32, X, "required block", 6, "h3:5 h4:1"),
        (32, X, "required block slice block/6", 6, "h1:2 h2:2 h3:1 h4:1"),
        (33, V, "slice rack/4 H/2", 8, "h1:2 h2:2 h3:2 h4:2"),
        (34, "BRH b1{r1{h1:3,h2:3}}", "required block slice rack/6 H/2", 6, "fails: 0 of 1"),
        (35, L, "required block slice block/8 H/4", 8, "h1:4 h3:4"),
        (36, L, "required block slice block/8 rack/4", 8, "h1:2 h2:2 h3:4"),
        (
            37,
            "BRH b1{r1{h1:3,h2:3},r2{h3:2,h4:2}},b2{r3{h5:8}}",
            "preferred block slice rack/4 H/2",
            12,
            "h1:2 h2:2 h5:8",
        ),
    ],
)  # fmt: skip
def test_pods_go_where_the_case_says(
    case: int, tree: str, request_text: str, pods: int, expected: str
) -> None:
    levels, _, nodes = tree.partition(" ")
    assert result(place(tree_of(levels, nodes), request_text, pods)) == expected


def test_case_3_best_fit_everywhere_without_the_mixed_profile() -> None:
    tree = tree_of("H", A.partition(" ")[2])
    rules = TopologyRules(least_free_first=False)
    assert result(place(tree, "unconstrained", 7, rules=rules)) == "h1:3 h2:3 h4:1"


def racks(text: str) -> str:
    """`[20,10] [15,15]` as racks a, b, ... with hosts a1, a2, ..."""
    groups = [group.strip("[]").split(",") for group in text.split()]
    return ",".join(
        f"r{rack}{{" + ",".join(f"{rack}{host}:{cpu}" for host, cpu in enumerate(group, 1)) + "}"
        for rack, group in zip("abc", groups, strict=False)
    )


@pytest.mark.parametrize(
    ("case", "tree", "request_text", "pods", "expected"),
    [
        (47, "[15] [15]", "preferred rack", 25, "a1:13 b1:12"),
        (48, "[15,13,10]", "preferred rack", 23, "a1:12 a2:11"),
        (49, "[20,10] [15,15]", "preferred rack", 22, "b1:11 b2:11"),
        (50, "[20,10] [15,15]", "preferred rack", 20, "a1:20"),
        (51, "[10,5] [5,5,5]", "preferred rack", 15, "b1:5 b2:5 b3:5"),
        (52, "[15,15] [15,15]", "preferred rack slice H/5", 25, "a1:15 a2:10"),
        (53, "[8] [8] [8]", "preferred rack", 17, "a1:7 b1:5 c1:5"),
        (54, "[6,6] [8,1]", "preferred rack", 9, "a1:5 a2:4"),
    ],
)  # fmt: skip
def test_a_balanced_request_is_spread_as_the_case_says(
    case: int, tree: str, request_text: str, pods: int, expected: str
) -> None:
    rules = TopologyRules(balanced=True)
    assert result(place(tree_of("RH", racks(tree)), request_text, pods, rules=rules)) == expected


def test_case_20_pods_without_requests_are_limited_by_the_pods_of_the_node() -> None:
    tree = tree_of("H", "h1:8/3,h2:2/2")
    assert result(place(tree, "preferred H", 5, cpu=0)) == "h1:3 h2:2"
    assert result(place(tree, "preferred H", 6, cpu=0)) == "fails: 5 of 6"


@pytest.mark.parametrize(
    ("case", "tree", "request_text", "pods", "leader", "expected"),
    [
        (38, G, "required rack", 4, 1, "fails: 4 of 4"),
        (39, "RH r1{h1:5,h2:1},r2{h3:3,h4:3}", "required rack", 5, 3, "fails: 6 of 5"),
        (40, G, "required rack", 3, 1, "leader h1, workers h1:3"),
        (41, G, "required rack", 3, 0, "leader h2, workers h2:3"),
        (42, G, "preferred rack", 4, 1, "leader h1, workers h1:3 h2:1"),
        (43, G, "preferred rack", 3, 4, "leader h1, workers h2:3"),
        (44, D, "required rack slice H/2", 6, 1, "leader h1, workers h1:2 h2:4"),
        (45, D, "required rack slice H/4", 8, 1, "fails: 2 of 2"),
    ],
)  # fmt: skip
def test_a_leader_and_its_workers_go_where_the_case_says(
    case: int, tree: str, request_text: str, pods: int, leader: int, expected: str
) -> None:
    levels, _, nodes = tree.partition(" ")
    assert result(place(tree_of(levels, nodes), request_text, pods, leader)) == expected
