"""Which pod goes to which domain (docs/reference/topology-aware-scheduling.md 14 and 19.10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pykueue.api.decoding import decode_as, encode
from pykueue.api.kueue import Admission, PodSet
from pykueue.api.topologies import HOSTNAME, Domain, compress
from pykueue.manager.topology.ranks import placements, spans

INDEX, GROUP = "index", "group"
GATE = {"name": "kueue.x-k8s.io/topology"}
Object = dict[str, Any]


def pod(name: str, host: str = "", offset: str = "", **labels: int | str) -> Object:
    """A gated pod, or one that was let to a host."""
    metadata: Object = {"name": name, "labels": {key: str(value) for key, value in labels.items()}}
    if offset:
        metadata["annotations"] = {"kueue.x-k8s.io/pod-index-offset": offset}
    spec: Object = {"nodeSelector": {HOSTNAME: host}} if host else {"schedulingGates": [GATE]}
    return {"metadata": metadata, "spec": spec}


def pods(*indexes: int | str) -> list[Object]:
    return [pod(f"p{number}", index=index) for number, index in enumerate(indexes)]


def placed(
    hosts: Mapping[str, int],
    members: list[Object],
    request: Object | None = None,
    size: int | None = None,
    group: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """The host of each gated pod of the pod set `w`; `group` are the sizes of all pod sets of its group."""
    count = sum(hosts.values()) if size is None else size
    asked = {"podIndexLabel": INDEX} if request is None else request
    sizes = group or {"w": count}
    if group:
        asked = {**asked, "required": "rack", "podSetGroupName": "g"}
    pod_sets = [
        decode_as(PodSet, {"name": name, "count": number, "template": {}, "topologyRequest": asked})
        for name, number in sizes.items()
    ]
    assignment = encode(compress([HOSTNAME], [Domain((host,), n) for host, n in hosts.items()]))
    given = [
        {"name": name, "count": number, **({"topologyAssignment": assignment} if name == "w" else {})}
        for name, number in sizes.items()
    ]
    admission = decode_as(Admission, {"clusterQueue": "q", "podSetAssignments": given})
    (mine,) = (one for one in admission.pod_set_assignments if one.name == "w")
    (pod_set,) = (one for one in pod_sets if one.name == "w")
    found = placements(pod_set, mine, spans(pod_sets, admission)["w"], members)
    return {one.pod["metadata"]["name"]: one.node_labels[HOSTNAME] for one in found}


H22 = {"h1": 2, "h2": 2}
#: In order, whatever the indexes.
GREEDY = {"p0": "h1", "p1": "h1", "p2": "h2", "p3": "h2"}
REVERSED = {"p0": "h2", "p1": "h2", "p2": "h1", "p3": "h1"}


def test_case_86_pods_go_by_index() -> None:
    assert placed(H22, pods(3, 2, 1, 0)) == REVERSED


def test_case_87_the_jobs_of_a_set_follow_one_another() -> None:
    request = {"podIndexLabel": INDEX, "subGroupIndexLabel": GROUP, "subGroupCount": 2}
    members = [pod(f"j{job}-{index}", index=index, group=job) for job in (1, 0) for index in (1, 0)]
    found = placed({"h1": 3, "h2": 1}, members, request)
    assert found == {"j0-0": "h1", "j0-1": "h1", "j1-0": "h1", "j1-1": "h2"}


def test_case_88_workers_are_ranked_after_their_leader() -> None:
    found = placed({"h1": 1, "h2": 2}, pods(3, 2, 1), group={"l": 1, "w": 3})
    assert found == {"p0": "h2", "p1": "h2", "p2": "h1"}


def test_case_89_a_pod_that_runs_elsewhere_makes_all_go_in_order() -> None:
    assert placed(H22, [pod("x", "h1", index=2), *pods(3, 1, 0)]) == {"p0": "h1", "p1": "h2", "p2": "h2"}


@pytest.mark.parametrize(
    "indexes",
    [
        (3, 3, 1, 0),  # case 90: an index twice
        (3, "x", 1, 0),
        (4, 2, 1, 0),
        (-1, 2, 1, 0),
        ("", 2, 1, 0),
    ],
)
def test_pods_without_usable_ranks_go_in_order(indexes: tuple[int | str, ...]) -> None:
    assert placed(H22, pods(*indexes)) == GREEDY


def test_pods_without_an_index_label_go_in_order() -> None:
    assert placed(H22, pods(3, 2, 1, 0), {"unconstrained": True}) == GREEDY


def test_ranks_beyond_the_assignment_and_sub_groups_without_a_count_make_all_go_in_order() -> None:
    assert placed({"h1": 2, "h2": 1}, pods(3, 2, 1, 0), size=4) == {"p0": "h1", "p1": "h1", "p2": "h2"}
    request = {"podIndexLabel": INDEX, "subGroupIndexLabel": GROUP}
    assert placed(H22, pods(3, 2, 1, 0), request) == GREEDY


def test_an_offset_is_taken_off_the_index() -> None:
    members = [pod(f"p{number}", offset="1", index=4 - number) for number in range(4)]
    assert placed(H22, members) == REVERSED


def test_members_of_a_group_whose_indexes_begin_again_go_in_order() -> None:
    assert placed({"h1": 1, "h2": 2}, pods(2, 1, 0), group={"l": 1, "w": 3}) == {
        "p0": "h1",
        "p1": "h2",
        "p2": "h2",
    }


def test_a_replacement_goes_where_a_pod_is_missing() -> None:
    present = [pod("a", "h1"), pod("b", "h2"), pod("c", "h2")]
    assert placed(H22, [*present, pod("new")], {"unconstrained": True}) == {"new": "h1"}
    assert placed(H22, [*present, pod("d", "h1"), pod("more")], {"unconstrained": True}) == {}
