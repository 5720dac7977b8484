"""Points for spreading, given to many nodes together, are those of the formula for each node."""

import random
from math import log

import pytest
from test_podscheduler_placing import HOST, ZONE, Books, node, pod

from pykueue.embedded.podscheduler.relations import spread_scores

RACK = "rack"


def constraint(key, skew, **more):
    selector = {"matchLabels": {"app": "a"}}
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
        **more,
    }


def formula(placed, spreads, nodes, eligible):
    """docs/reference/cluster-workloads.md, 4.7, node by node. `placed` are names of nodes with such a pod."""
    keys = [one["topologyKey"] for one in spreads]
    has_all = {name: all(key in labels for key in keys) for name, labels in nodes.items()}
    raw = {}
    for name, labels in nodes.items():
        total = 0.0
        for one in spreads if has_all[name] else ():
            key = one["topologyKey"]
            alike = [other for other, its in nodes.items() if its.get(key) == labels[key]]
            if key == HOST:
                size, alike = sum(has_all.values()), [name]
            else:
                size = len({its[key] for its in nodes.values() if key in its})
                alike = [other for other in alike if has_all[other] and eligible(other)]
            count = sum(placed.count(other) for other in alike)
            total = total + count * log(size + 2) + (one["maxSkew"] - 1)
        raw[name] = round(total)
    seen = [raw[name] for name in nodes if has_all[name]]
    low, high = min(seen, default=0), max(seen, default=0)
    return {
        name: (2 * (100 * (high + low - raw[name]) // high) if high else 200) if has_all[name] else 0
        for name in nodes
    }


@pytest.mark.parametrize("seed", range(60))
def test_points_for_spreading_are_those_of_the_formula(seed):
    rng = random.Random(seed)
    labels = {}
    for number in range(rng.randint(1, 12)):
        own = {ZONE: rng.choice("ab"), RACK: rng.choice("12345"), HOST: f"n{number}"}
        labels[f"n{number}"] = {key: value for key, value in own.items() if rng.random() < 0.9}
    tainted = {name for name in labels if rng.random() < 0.3}
    honor = rng.random() < 0.5
    taints = [{"key": "k", "effect": "NoSchedule"}]
    books = Books(
        *(
            {
                "metadata": {"name": name, "labels": own},
                "spec": {"taints": taints if name in tainted else []},
                "status": node(name)["status"],
            }
            for name, own in labels.items()
        )
    )
    more = {"nodeTaintsPolicy": "Honor"} if honor else {}
    spreads = [
        constraint(key, rng.randint(1, 4), **more)
        for key in rng.sample([HOST, ZONE, RACK], rng.randint(1, 3))
    ]
    placed = []
    for _ in range(rng.randint(0, 20)):
        where, app = rng.choice(list(labels)), rng.choice("aab")
        books.put(where, pod(labels={"app": app}))
        placed += [where] if app == "a" else []
    if placed and rng.random() < 0.3:  # what is counted follows pods that go
        gone = next(uid for uid, one in books.cluster.pods.items() if one.labels == {"app": "a"})
        placed.remove(books.cluster.pods[gone].node)
        books.cluster.remove_pod(gone)
    asked = books.read(pod(labels={"app": "a"}, topologySpreadConstraints=spreads))
    found = spread_scores(
        books.cluster,
        asked,
        asked.relations.soft_spread,
        list(range(len(labels))),
        by_default=False,
    )
    wanted = formula(placed, spreads, labels, lambda name: not (honor and name in tainted))
    if found is None:  # all the same
        assert len(set(wanted.values())) == 1
    else:
        assert found == list(wanted.values())


def test_counts_of_a_kind_of_pod_are_found_by_its_label_after_others_were_counted():
    books = Books(*(node(f"n{number}", labels={ZONE: "a"}) for number in range(4)))
    chosen = [
        books.place(
            pod(labels={"app": app}, topologySpreadConstraints=[{**constraint(HOST, 1), **selected(app)}])
        )
        for app in "abcabcabcabc"
    ]
    for first in range(3):
        assert sorted(chosen[first::3]) == ["n0", "n1", "n2", "n3"]


def test_a_node_that_moves_to_another_zone_is_counted_there():
    books = Books(
        *(node(name, labels={ZONE: zone}) for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")))
    )
    spread = constraint(ZONE, 1)
    labels = {"app": "a"}
    for name in ("n0", "n0", "n0", "n2"):
        books.put(name, pod(labels=labels))
    assert books.place(pod(labels=labels, topologySpreadConstraints=[spread])) == "n2"
    books.cluster.set_node(node("n1", labels={ZONE: "c"}))
    assert books.place(pod(labels=labels, topologySpreadConstraints=[spread])) == "n1"


def selected(app):
    return {"labelSelector": {"matchLabels": {"app": app}}}
