"""Node pool files, and the nodes they become."""

from collections import Counter

import pytest
from nodes_stage import condition, play

from pykueue.api.resources import NODES
from pykueue.embedded.nodes.pool import PoolError, load_pools, parse_pools

ZONE = "topology.kubernetes.io/zone"
RACK = "cloud.provider.com/topology-rack"


def test_a_pool_becomes_numbered_nodes_with_everything_it_says():
    (pool,) = parse_pools("""
seed: 7
pools:
- name: gpu
  count: 2
  allocatable: {cpu: 16000m, memory: 64Gi, pods: 110, nvidia.com/gpu: 8}
  capacity: {cpu: 18}
  labels: {gpu: a100}
  annotations: {note: mine}
  taints: [{key: gpu, effect: NoSchedule}]
  unschedulable: true
  simulation: {startDelay: 1s-2s, runTime: 10, exitCode: 3, failureRate: 0.5, ignoresSigterm: true}
""")
    first, second = pool.nodes()
    assert second["metadata"]["name"] == "gpu-1"
    assert first["metadata"] == {
        "name": "gpu-0",
        "labels": {
            "kubernetes.io/hostname": "gpu-0",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "sim.pykueue.io/pool": "gpu",
            "gpu": "a100",
        },
        "annotations": {
            "sim.pykueue.io/start-delay": "1s-2s",
            "sim.pykueue.io/run-time": "10s",
            "sim.pykueue.io/exit-code": "3",
            "sim.pykueue.io/failure-rate": "0.5",
            "sim.pykueue.io/ignores-sigterm": "true",
            "sim.pykueue.io/seed": "7",
            "note": "mine",
        },
    }
    assert first["spec"] == {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": True}
    assert first["status"] == {
        "capacity": {"cpu": "18"},
        "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"},
    }


def test_zones_and_further_levels_divide_a_pool_evenly():
    (pool,) = parse_pools(f"""
pools:
- name: n
  count: 12
  allocatable: {{cpu: 1}}
  zones: [a, b]
  topology: [{{label: {RACK}, count: 3}}]
""")
    places = [(node["metadata"]["labels"][ZONE], node["metadata"]["labels"][RACK]) for node in pool.nodes()]
    assert places == sorted(places)
    assert Counter(places) == {(zone, f"{zone}-rack-{rack}"): 2 for zone in "ab" for rack in range(3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pools: [", "f.yaml: line 2, column 1: "),
        ("[]", "f.yaml: the document: [] is not accepted; accepted: a section with fields"),
        ("{}", "f.yaml: the document: Object missing required field `pools`"),
        ("pools: [{name: n}]", "f.yaml: pools[0]: Object missing required field `allocatable`"),
        (
            "pools: [{name: n, allocatable: {}, cout: 1}]",
            "f.yaml: pools[0].cout: unknown field; accepted: name, allocatable, capacity, count, labels, ",
        ),
        (
            "pools: [{name: n, allocatable: {}, count: x}]",
            'f.yaml: pools[0].count: "x" is not accepted; accepted: a whole number',
        ),
        ("pools: [{name: n, allocatable: {}, count: -1}]", "f.yaml: pools[0].count: -1 is not from 0 to"),
        ("pools: [{name: N, allocatable: {}}]", "f.yaml: pools[0].name: 'N' is not lower case"),
        ("pools: [{name: n, allocatable: {cpu: much}}]", "f.yaml: pools[0].allocatable.cpu: 'much' is not"),
        ("pools: [{name: n, allocatable: {cpu: -1}}]", "f.yaml: pools[0].allocatable.cpu: -1 is negative"),
        (
            "pools: [{name: n, allocatable: {}}, {name: n, allocatable: {}}]",
            "f.yaml: pools[1].name: 'n' is the name of another pool too",
        ),
        (
            "pools: [{name: n, allocatable: {}, taints: [{key: k, effect: Never}]}]",
            'f.yaml: pools[0].taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule"',
        ),
        (
            "pools: [{name: n, allocatable: {}, simulation: {startDelay: soon}}]",
            "f.yaml: pools[0].simulation.startDelay: 'soon' is neither a duration",
        ),
        (
            "pools: [{name: n, allocatable: {}, topology: [{label: l, count: 0}]}]",
            "f.yaml: pools[0].topology[0].count: 0 is not at least 1",
        ),
        ("pools: 3", "f.yaml: pools: 3 is not accepted; accepted: a list"),
        ("- 3", "f.yaml: the document: [3] is not accepted; accepted: a section with fields"),
        (
            "pools: [{name: n, allocatable: {}}, {name: m, allocatable: {}, count: two}]",
            'f.yaml: pools[1].count: "two" is not accepted; accepted: a whole number',
        ),
        (
            "pools: [{name: n, allocatable: {}, labels: {a: b, tier.x/y: 3}}]",
            "f.yaml: pools[0].labels.tier.x/y: 3 is not accepted; accepted: text",
        ),
        (
            "pools: [{name: n, allocatable: {cpu: [1]}}]",
            "f.yaml: pools[0].allocatable.cpu: [1] is not accepted; accepted: a whole number or a number or ",
        ),
        (
            "pools: [{name: n, allocatable: {}, topology: [{label: l, count: 1, step: 2}]}]",
            "f.yaml: pools[0].topology[0].step: unknown field; accepted: label, count",
        ),
        ("nodes: []", "f.yaml: nodes: unknown field; accepted: pools, seed"),
    ],
)
def test_mistakes_are_named_by_their_place(text, message):
    with pytest.raises(PoolError) as caught:
        parse_pools(text, "f.yaml")
    assert str(caught.value).startswith(message)


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_bytes(b"pools: \xff")
    with pytest.raises(PoolError, match=r"f\.yaml: not UTF-8 text: byte 7 "):
        load_pools(file)


TWO = "pools: [{name: n, count: 2, allocatable: {cpu: 4, memory: 8Gi, old: 1}, labels: {a: b}}]"


def test_declared_nodes_register_and_become_ready():
    async def story(stage):
        await stage.clock.sleep(1)
        nodes = (await stage.client.list(NODES)).items
        assert [node["metadata"]["name"] for node in nodes] == ["n-0", "n-1"]
        assert all(condition(node, "Ready") == ("True", "KubeletReady") for node in nodes)
        assert all(condition(node, "MemoryPressure")[0] == "False" for node in nodes)
        addresses = {node["status"]["addresses"][0]["address"] for node in nodes}
        assert len(addresses) == 2
        assert nodes[0]["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")

    play(story, pools=TWO)


def test_declaring_again_changes_only_what_the_file_says():
    async def story(stage):
        await stage.clock.sleep(1)
        before = (await stage.client.list(NODES)).items
        await stage.declare(TWO)
        assert (await stage.client.list(NODES)).items == before
        await stage.client.patch(NODES, "n-0", None, {"metadata": {"labels": {"mine": "kept"}}})
        await stage.declare(
            "pools: [{name: n, count: 3, allocatable: {cpu: 8, memory: 8Gi}, labels: {a: c},"
            " taints: [{key: k, effect: NoSchedule}]}]"
        )
        await stage.clock.sleep(1)
        first, _, third = (await stage.client.list(NODES)).items
        assert first["metadata"]["labels"]["a"] == "c"
        assert first["metadata"]["labels"]["mine"] == "kept"
        assert first["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
        assert first["status"]["allocatable"] == {"cpu": "8", "memory": "8Gi"}
        assert condition(third, "Ready") == ("True", "KubeletReady")

    play(story, pools=TWO)


def test_a_node_made_by_hand_is_simulated_too_unless_it_says_no():
    async def story(stage):
        def node(name, **annotations):
            return {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "annotations": annotations},
                "status": {"allocatable": {"cpu": "1"}},
            }

        await stage.client.create(NODES, node("by-hand"))
        await stage.client.create(NODES, node("other", **{"sim.pykueue.io/simulated": "false"}))
        await stage.clock.sleep(1)
        by_hand = await stage.client.get(NODES, "by-hand")
        assert condition(by_hand, "Ready") == ("True", "KubeletReady")
        assert by_hand["metadata"]["labels"]["kubernetes.io/hostname"] == "by-hand"
        assert by_hand["status"]["capacity"] == {"cpu": "1"}
        assert condition(await stage.client.get(NODES, "other"), "Ready") is None

    play(story)


MISTAKES = """
seed: [1]
pool: x
pools:
- name: N
  count: -1
  cout: 2
  allocatable: {cpu: much, memory: -1}
  taints: [{key: k, effect: Never, on: x}]
- {count: two, labels: {a: 1}, runtime: real, simulation: {startDelay: soon}, life: {failEvery: x, often: y}}
- 5
- {name: 7, allocatable: {}, topology: [{label: l, count: 0}, {count: a}], zones: [1]}
- {name: ok, allocatable: {}}
- {name: ok, allocatable: {}}
"""


def test_all_errors_of_a_file_are_reported_at_once():
    with pytest.raises(PoolError) as caught:
        parse_pools(MISTAKES, "f.yaml")
    places = [line.removeprefix("f.yaml: ").split(": ")[0] for line in str(caught.value).splitlines()]
    assert sorted(places) == [
        "pool",
        "pools[0].allocatable.cpu",
        "pools[0].allocatable.memory",
        "pools[0].count",
        "pools[0].cout",
        "pools[0].name",
        "pools[0].taints[0].effect",
        "pools[0].taints[0].on",
        "pools[1]",
        "pools[1]",
        "pools[1].count",
        "pools[1].labels.a",
        "pools[1].life.failEvery",
        "pools[1].life.often",
        "pools[1].runtime",
        "pools[1].simulation.startDelay",
        "pools[2]",
        "pools[3].name",
        "pools[3].topology[0].count",
        "pools[3].topology[1]",
        "pools[3].topology[1].count",
        "pools[3].zones[0]",
        "pools[5].name",
        "seed",
    ]


def test_faults_that_are_reported_are_limited():
    with pytest.raises(PoolError) as caught:
        parse_pools(f"pools: [{', '.join(['5'] * 1000)}]", "f.yaml")
    assert len(str(caught.value).splitlines()) == 50
