"""Which node a pod gets, and the words for why it gets none."""

import random

import pytest

from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.placer import Placed, Placer, placed_at, sample_size
from pykueue.embedded.podscheduler.podinfo import PodReader
from pykueue.embedded.podscheduler.services import Services

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


class Books:
    """A placer over nodes and pods given as manifests; pods that are placed stay."""

    def __init__(self, *nodes, seed=1):
        self.cluster = Cluster()
        self.placer = Placer(self.cluster, random.Random(seed))
        self.reader = PodReader()
        self.serial = 0
        for one in nodes:
            self.cluster.set_node(one)

    def read(self, pod):
        self.serial += 1
        pod["metadata"].setdefault("name", f"p{self.serial}")
        pod["metadata"].setdefault("uid", f"uid-{self.serial}")
        return self.reader.read(pod)

    def put(self, node, pod):
        info = placed_at(self.read(pod), node)
        self.cluster.add_pod(info)
        return info.uid

    def place(self, pod):
        info = self.read(pod)
        outcome = self.placer.place(info)
        if isinstance(outcome, Placed):
            self.cluster.add_pod(placed_at(info, outcome.node))
            return outcome.node
        return outcome

    def nodes_for(self, count, make):
        return [self.place(make()) for _ in range(count)]


def node(name, cpu="4", memory="8Gi", pods="110", labels=None, taints=None, **amounts):
    return {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": taints or []},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **amounts}},
    }


def pod(cpu=None, memory=None, labels=None, namespace="default", start=None, ports=(), gpu=None, **spec):
    given = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu}
    amounts = {key: value for key, value in given.items() if value}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts}, "ports": list(ports)}
    made = {
        "metadata": {"namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }
    if start:
        made["status"] = {"startTime": start}
    return made


def required(*rules):
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(rules)}


def with_app(app, key=HOST, **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


NO_VICTIMS = "No preemption victims found for incoming pod"


def test_a_pod_that_does_not_fit_hears_why_in_kubernetes_words():
    books = Books(node("n1", memory="8631416Ki"))
    assert books.nodes_for(26, lambda: pod(memory="316Mi")) == ["n1"] * 26
    assert books.place(pod(memory="316Mi")).message == (
        "0/1 nodes are available: 1 Insufficient memory. "
        f"preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."
    )


def test_reasons_are_counted_over_the_nodes_and_sorted():
    books = Books(
        node("a", cpu="1"),
        node("b", memory="1Gi", pods="0"),
        node("c", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("d", cpu="1"),
        {**node("e"), "spec": {"unschedulable": True}},
    )
    for name in ("a", "b", "d"):
        books.put(name, pod(cpu="1", memory="1Gi"))
    assert books.place(pod(cpu="1", memory="1Gi")).message == (
        "0/5 nodes are available: 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu. "
        f"preemption: 0/5 nodes are available: 2 {NO_VICTIMS}, 3 Preemption is not helpful for scheduling."
    )


def test_without_nodes_there_is_a_message_too():
    assert Books().place(pod()).message == "no nodes available to schedule pods"


def test_a_request_above_any_node_is_not_helped_by_preemption():
    message = Books(node("n1", cpu="4")).place(pod(cpu="5")).message
    assert message.endswith(
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_never_preempting_pods_say_so():
    books = Books(node("n1", cpu="1"))
    books.put("n1", pod(cpu="1"))
    assert books.place(pod(cpu="1", priority=5, preemptionPolicy="Never")).message.endswith(
        "preemption: not eligible due to preemptionPolicy=Never."
    )


def test_overhead_and_init_containers_count():
    books = Books(node("n1", cpu="2"))
    init = [{"name": "i", "resources": {"requests": {"cpu": "1900m"}}}]
    assert books.place(pod(cpu="1", initContainers=init, overhead={"cpu": "200m"})).message.startswith(
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    assert books.place(pod(cpu="1", initContainers=init, overhead={"cpu": "100m"})) == "n1"


def test_the_emptiest_node_is_preferred():
    books = Books(node("n1"), node("n2"), node("n3"))
    books.put("n1", pod(cpu="1", memory="1Gi"))
    books.put("n2", pod(cpu="2", memory="2Gi"))
    assert books.place(pod(cpu="1", memory="1Gi")) == "n3"


def test_an_even_use_of_cpu_and_memory_is_preferred():
    books = Books(node("lopsided"), node("even"))
    books.put("lopsided", pod(cpu="2"))
    books.put("even", pod(memory="4Gi"))
    assert books.place(pod(cpu="1")) == "even"


def test_ties_are_broken_by_the_given_random_numbers_alone():
    def run(seed):
        return Books(*(node(f"n{i}") for i in range(20)), seed=seed).nodes_for(20, lambda: pod(cpu="1"))

    assert run(3) == run(3)
    assert run(3) != run(4)
    assert sorted(run(3)) == sorted(f"n{i}" for i in range(20))


def test_extended_resources_are_filled_up_exactly():
    books = Books(
        node("n1", **{"nvidia.com/gpu": "2"}), node("n2", **{"nvidia.com/gpu": "1"}), node("cpu-only")
    )
    assert sorted(books.nodes_for(3, lambda: pod(gpu="1"))) == ["n1", "n1", "n2"]
    assert "3 Insufficient nvidia.com/gpu" in books.place(pod(gpu="1")).message


def test_taints_keep_pods_away_and_soft_ones_push_them():
    books = Books(
        node("tainted", cpu="64", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        node("soft", cpu="64", taints=[{"key": "k", "effect": "PreferNoSchedule"}]),
        node("plain", cpu="4"),
    )
    assert books.place(pod(cpu="1")) == "plain"
    tolerant = [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]
    chosen = books.nodes_for(3, lambda: pod(cpu="30", tolerations=tolerant))
    assert chosen == ["tainted", "tainted", "soft"]


def test_selectors_and_affinity_choose_nodes():
    books = Books(
        node("a", labels={"disk": "ssd", "gen": "3"}), node("b", labels={"disk": "hdd", "gen": "5"})
    )
    assert books.place(pod(nodeSelector={"disk": "ssd"})) == "a"
    newer = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["4"]}]}]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": newer}}
    assert books.place(pod(affinity=wanted)) == "b"
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    wish = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "preference": by_name}]
        }
    }
    books.put("a", pod(cpu="1"))
    assert books.place(pod(affinity=wish)) == "a"
    message = books.place(pod(nodeSelector={"disk": "tape"})).message
    assert "2 node(s) didn't match Pod's node affinity/selector" in message


def test_host_ports_are_taken_once_per_node_and_address():
    books = Books(node("n1"))
    port = {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}
    assert books.place(pod(ports=[{**port, "hostIP": "10.0.0.1"}])) == "n1"
    assert books.place(pod(ports=[{**port, "hostIP": "10.0.0.2"}])) == "n1"
    assert books.place(pod(ports=[{**port, "protocol": "UDP"}])) == "n1"
    assert (
        "1 node(s) didn't have free ports for the requested pod ports"
        in books.place(pod(ports=[port])).message
    )


def test_pods_that_avoid_each_other_get_a_node_each():
    books = Books(*(node(f"n{i}") for i in range(3)))
    apart = {"podAntiAffinity": required(with_app("web"))}
    chosen = books.nodes_for(3, lambda: pod(labels={"app": "web"}, affinity=apart))
    assert sorted(chosen) == ["n0", "n1", "n2"]
    refused = books.place(pod(labels={"app": "web"}, affinity=apart))
    assert "3 node(s) didn't match pod anti-affinity rules" in refused.message
    plain = books.place(pod(labels={"app": "web"}))
    assert "3 node(s) didn't satisfy existing pods anti-affinity rules" in plain.message
    assert books.place(pod(labels={"app": "db"})) in chosen
    assert books.place(pod(labels={"app": "web"}, namespace="other")) in chosen


def test_pods_that_want_company_follow_the_first_of_them():
    zones = {"a": "z1", "b": "z1", "c": "z2"}
    books = Books(*(node(name, labels={ZONE: zone}) for name, zone in zones.items()), node("nowhere"))
    together = {"podAffinity": required(with_app("web", ZONE))}
    first, *rest = books.nodes_for(6, lambda: pod(labels={"app": "web"}, affinity=together))
    assert {zones[one] for one in rest} == {zones[first]}
    lonely = books.place(pod(affinity={"podAffinity": required(with_app("absent", ZONE))}))
    assert "4 node(s) didn't match pod affinity rules" in lonely.message


def test_wished_for_company_outweighs_room():
    books = Books(node("friend", labels={ZONE: "z1"}), node("near", labels={ZONE: "z1"}), node("far"))
    books.put("friend", pod(cpu="3", labels={"app": "web"}))
    books.put("near", pod(cpu="1"))
    wish = {"weight": 100, "podAffinityTerm": with_app("web", ZONE)}
    near = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    away = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    assert books.place(pod(cpu="1", affinity=near)) == "near"
    books.put("far", pod(cpu="2"))
    assert books.place(pod(cpu="1", affinity=away)) == "far"


def test_namespaces_may_be_chosen_by_their_labels():
    books = Books(node("n1"), node("n2"))
    books.cluster.set_namespace("blue", {"team": "blue"})
    books.put("n1", pod(labels={"app": "web"}, namespace="blue"))
    term = with_app("web", namespaceSelector={"matchLabels": {"team": "blue"}})
    assert books.place(pod(affinity={"podAntiAffinity": required(term)})) == "n2"
    books.cluster.set_namespace("blue", {"team": "green"})
    away = books.place(pod(affinity={"podAffinity": required(term)}))
    assert "didn't match pod affinity rules" in away.message


def spread(action="DoNotSchedule", key=ZONE, skew=1, **more):
    selector = {"matchLabels": {"app": "web"}}
    return [
        {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector, **more}
    ]


def test_pods_are_spread_over_zones_within_the_skew():
    nodes = [node(f"{zone}{i}", labels={ZONE: zone}) for zone in "abc" for i in range(2)]
    books = Books(*nodes)
    chosen = books.nodes_for(7, lambda: pod(labels={"app": "web"}, topologySpreadConstraints=spread()))
    per_zone = sorted(sum(name.startswith(zone) for name in chosen) for zone in "abc")
    assert per_zone == [2, 2, 3]


def test_a_full_domain_stops_a_spread_that_is_demanded_but_not_one_that_is_wished_for():
    books = Books(node("a", labels={ZONE: "a"}), node("b", cpu="1", labels={ZONE: "b"}), node("unzoned"))

    def make(action):
        return pod(cpu="1", labels={"app": "web"}, topologySpreadConstraints=spread(action))

    assert sorted(books.nodes_for(3, lambda: make("DoNotSchedule"))) == ["a", "a", "b"]
    assert books.place(make("DoNotSchedule")).message.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, "
        "1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label)."
    )
    assert books.place(make("ScheduleAnyway")) == "a"


def test_minimal_domains_hold_pods_back_until_there_are_enough():
    books = Books(node("a", labels={ZONE: "a"}))

    def make():
        return pod(labels={"app": "web"}, topologySpreadConstraints=spread(minDomains=2))

    assert books.place(make()) == "a"
    assert "topology spread constraints" in books.place(make()).message
    books.cluster.set_node(node("b", labels={ZONE: "b"}))
    assert books.place(make()) == "b"


def test_each_job_of_a_kind_is_spread_by_itself_with_match_label_keys():
    books = Books(node("a"), node("b"))
    rules = spread(key=HOST, matchLabelKeys=["job"])

    def make(job):
        return pod(labels={"app": "web", "job": job}, topologySpreadConstraints=rules)

    books.put("a", make("one"))
    books.put("a", make("one"))
    books.put("b", make("two"))
    assert books.place(make("two")) == "a"
    assert books.place(make("one")) == "b"


def test_what_was_remembered_of_a_node_is_forgotten_when_it_changes():
    books = Books(node("n1", cpu="1"))
    assert books.place(pod(cpu="2")).message.startswith("0/1")
    books.cluster.set_node(node("n1", cpu="2"))
    assert books.place(pod(cpu="2")) == "n1"
    assert books.place(pod(cpu="2")).message.startswith("0/1")
    books.cluster.remove_pod("uid-2")
    assert books.place(pod(cpu="2")) == "n1"
    books.cluster.remove_node("n1")
    assert books.place(pod(cpu="2")).message == "no nodes available to schedule pods"
    books.cluster.set_node(node("n1", cpu="2"))
    assert books.place(pod(cpu="1")).message.startswith("0/1"), "its pods are still there"


@pytest.mark.parametrize(("nodes", "enough"), [(1, 1), (100, 100), (149, 100), (1000, 420), (10000, 500)])
def test_large_clusters_are_sampled(nodes, enough):
    assert sample_size(nodes) == enough


def test_the_least_important_pods_make_room_and_only_as_many_as_needed():
    books = Books(node("n1", cpu="4"), node("n2", cpu="4"))
    low = [books.put("n1", pod(cpu="1", priority=1, start=f"2026-01-01T00:00:0{i}Z")) for i in range(4)]
    books.put("n2", pod(cpu="3", priority=5))
    books.put("n2", pod(cpu="1", priority=1))
    outcome = books.place(pod(cpu="2", priority=10))
    assert outcome.nominated == "n1"
    assert [one.uid for one in outcome.victims] == low[2:]
    assert outcome.message == "0/2 nodes are available: 2 Insufficient cpu."


def test_equals_are_never_pushed_out():
    books = Books(node("n1", cpu="1"))
    books.put("n1", pod(cpu="1", priority=10))
    outcome = books.place(pod(cpu="1", priority=10))
    assert (outcome.nominated, outcome.victims) == ("", ())
    assert outcome.message.endswith(f"1 {NO_VICTIMS}.")


def budget(name, app, allowed, **status):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def test_the_node_where_the_fewest_budgets_are_violated_is_cleared():
    books = Books(node("n1", cpu="2"), node("n2", cpu="2"))
    for name, app, priority in (("n1", "kept", 1), ("n1", "free", 1), ("n2", "free", 5), ("n2", "free", 5)):
        books.put(name, pod(cpu="1", labels={"app": app}, priority=priority))
    assert books.place(pod(cpu="2", priority=10)).nominated == "n1"
    books.cluster.budgets.put(budget("b", "kept", 0))
    assert books.place(pod(cpu="2", priority=10)).nominated == "n2", "although its pods are more important"
    books.cluster.budgets.put(budget("b", "kept", 1))
    assert books.place(pod(cpu="2", priority=10)).nominated == "n1"
    books.cluster.budgets.put(budget("b", "kept", 0, disruptedPods={"p1": "2026-01-01T00:00:00Z"}))
    assert books.place(pod(cpu="2", priority=10)).nominated == "n1", "that one is allowed to go already"
    books.cluster.budgets.put(budget("b", "kept", 0))
    books.cluster.budgets.remove("default", "b")
    assert books.place(pod(cpu="2", priority=10)).nominated == "n1"


def test_on_one_node_the_pods_a_budget_protects_stay_where_others_can_go():
    books = Books(node("n1", cpu="2"))
    books.put("n1", pod(cpu="1", labels={"app": "kept"}, priority=1))
    other = books.put("n1", pod(cpu="1", labels={"app": "free"}, priority=5))
    books.cluster.budgets.put(budget("b", "kept", 0))
    assert [one.uid for one in books.place(pod(cpu="1", priority=10)).victims] == [other]


def test_a_budget_does_not_save_the_last_pods_there_are():
    books = Books(node("n1", cpu="1"))
    kept = books.put("n1", pod(cpu="1", labels={"app": "kept"}, priority=1))
    books.cluster.budgets.put(budget("b", "kept", 0))
    assert [one.uid for one in books.place(pod(cpu="1", priority=10)).victims] == [kept]


def test_room_kept_for_an_equal_counts_as_taken_when_others_are_pushed_aside():
    books = Books(node("n1", cpu="2"))
    low = books.put("n1", pod(cpu="1", priority=1))
    books.placer.nominate(books.read(pod(cpu="1", priority=10)), "n1")
    assert [one.uid for one in books.place(pod(cpu="1", priority=10)).victims] == [low]
    books.placer.nominate(books.read(pod(cpu="1", priority=10)), "n1")
    assert books.place(pod(cpu="1", priority=10)).nominated == "", "both places are kept now"


def test_a_victim_may_be_one_that_repels():
    books = Books(node("n1"))
    repel = {"podAntiAffinity": required(with_app("web"))}
    other = books.put("n1", pod(cpu="1", priority=0, affinity=repel))
    books.put("n1", pod(cpu="1", priority=0))
    outcome = books.place(pod(cpu="1", labels={"app": "web"}, priority=10))
    assert [one.uid for one in outcome.victims] == [other]


def test_room_made_for_one_pod_is_not_taken_by_a_lesser_one():
    books = Books(node("n1", cpu="2"))
    low = books.put("n1", pod(cpu="2", priority=0))
    urgent = books.read(pod(cpu="2", priority=10))
    assert books.placer.place(urgent).nominated == "n1"
    books.placer.nominate(urgent, "n1")
    books.cluster.remove_pod(low)
    assert books.place(pod(cpu="1", priority=0)).message.startswith(
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    assert books.place(pod(cpu="1", priority=20)) == "n1"
    books.placer.forget(urgent.uid)
    assert books.place(pod(cpu="1", priority=0)) == "n1"


def test_the_services_of_a_pod_are_those_whose_whole_selector_it_has():
    services = Services()
    services.put("default", "web", {"app": "web", "tier": "front"})
    services.put("default", "all", {"tier": "front"})
    services.put("other", "web", {"app": "web"})
    services.put("default", "headless", None)
    assert services.labels_of("default", {"app": "web", "tier": "front", "x": "y"}) == {
        "app": "web",
        "tier": "front",
    }
    assert services.labels_of("default", {"app": "web"}) == {}
    services.put("default", "web", {"app": "shop"})
    services.put("default", "all", None)
    assert services.labels_of("default", {"app": "web", "tier": "front"}) == {}
    assert services.labels_of("default", {"app": "shop"}) == {"app": "shop"}
