"""What the API server does to pods: defaults, refusals, allowed changes, deletion, the printed row."""

import copy
import random

import pytest

from pykueue.api.times import parse_time
from pykueue.embedded.kinds.node import Node
from pykueue.embedded.kinds.pod import Pod
from pykueue.embedded.kinds.podspec import default_pod_spec, pod_requests, qos_class
from pykueue.embedded.kinds.podvalidation import validate_pod_spec

NOW = parse_time("2026-01-01T00:10:00Z")


class Context:
    now = NOW
    rng = random.Random(1)
    user = "alice"
    dry_run = False

    def lookup(self, group, plural, namespace, name):
        return None

    def objects(self, group, plural, namespace=""):
        return []


def container(name="main", **fields):
    return {"name": name, "image": "busybox", **fields}


def requests(**amounts):
    return {"resources": {"requests": {key.replace("_", "/"): value for key, value in amounts.items()}}}


def manifest(*containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def created(pod):
    kind = Pod()
    return kind.prepare_create(kind.default(pod), Context())


def texts(causes):
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_a_bare_pod_gets_the_defaults_of_a_cluster():
    pod = created(manifest())
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == "default"
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert [(one["key"], one["tolerationSeconds"]) for one in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_defaults_are_settled_after_one_round_and_leave_the_given_object_alone():
    given = manifest(container(ports=[{"containerPort": 80}], readinessProbe={"httpGet": {"port": 80}}))
    before = copy.deepcopy(given)
    once = created(given)
    assert given == before
    assert Pod().default(once) is once


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("localhost:5000/busybox", "Always"),
        ("localhost:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:0123", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image, policy):
    spec = default_pod_spec({"containers": [container(image=image)]})
    assert spec["containers"][0]["imagePullPolicy"] == policy


def test_missing_requests_are_the_limits_on_pods_but_not_on_templates():
    limited = container(resources={"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1000m"}})
    assert created(manifest(limited))["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    template = default_pod_spec({"containers": [limited]})
    assert template["containers"][0]["resources"]["requests"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"example.com/gpu": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        (
            [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}],
            "Burstable",
        ),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
    ],
)
def test_quality_of_service(resources, qos):
    assert qos_class({"containers": [{"resources": one} for one in resources]}) == qos


def test_a_pod_asks_for_the_larger_of_its_start_up_and_its_running_life_plus_overhead():
    spec = {
        "containers": [container(**requests(cpu="1", memory="1Gi")), container("b", **requests(cpu="500m"))],
        "initContainers": [
            container("first", **requests(cpu="3")),
            container("sidecar", restartPolicy="Always", **requests(cpu="250m")),
            container("second", **requests(memory="2Gi")),
        ],
        "overhead": {"cpu": "100m"},
    }
    assert pod_requests(spec) == {"cpu": 3100, "memory": 2 << 30}
    spec["initContainers"][0] = container("first", **requests(cpu="1"))
    assert pod_requests(spec) == {"cpu": 1850, "memory": 2 << 30}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [container("A")]}, "a lowercase RFC 1123 label must consist of"),
        (
            {"containers": [container("a"), container("a")]},
            'spec.containers[1].name: Duplicate value: "a"',
        ),
        (
            {"containers": [container(**requests(memory="-1"))]},
            'resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"containers": [container(**requests(pods="1"))]},
            'requests[pods]: Invalid value: "pods": must be a standard resource for containers',
        ),
        (
            {"containers": [container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})]},
            'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"containers": [container(resources={"requests": {"nvidia.com/gpu": "1"}})]},
            "resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"containers": [container(resources={"limits": {"nvidia.com/gpu": "500m"}})]},
            'limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
        ),
        (
            {"containers": [container(**requests(cpu="much"))]},
            'requests[cpu]: Invalid value: "much": quantities must match the regular expression',
        ),
        (
            {"containers": [container()], "restartPolicy": "Sometimes"},
            'restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"containers": [container()], "topologySpreadConstraints": [{"maxSkew": 0}]},
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            {"containers": [container()], "tolerations": [{"operator": "Equal", "value": "x"}]},
            "spec.tolerations[0].operator: Invalid value",
        ),
    ],
)
def test_a_bad_spec_is_refused_naming_the_field(spec, text):
    assert any(text in found for found in texts(validate_pod_spec(spec)))


def test_templates_are_refused_with_their_own_path():
    causes = validate_pod_spec({"containers": [container(**requests(memory="-1"))]}, "spec.template.spec")
    assert texts(causes) == [
        "spec.template.spec.containers[0].resources.requests[memory]: "
        'Invalid value: "-1": must be greater than or equal to 0'
    ]


def test_a_pod_of_defaults_is_accepted():
    assert Pod().validate(created(manifest())) == []


def changed_spec(pod, **fields):
    return {**pod, "spec": {**pod["spec"], **fields}}


def test_images_tolerations_and_deadlines_may_change():
    pod = created(manifest())
    image = [{**pod["spec"]["containers"][0], "image": "busybox:2"}]
    more = [*pod["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]
    for new in (
        changed_spec(pod, containers=image),
        changed_spec(pod, tolerations=more),
        changed_spec(pod, activeDeadlineSeconds=5),
    ):
        assert Pod().validate_update(new, pod) == []


def test_other_fields_may_not_change():
    pod = created(manifest())
    for new in (
        changed_spec(pod, nodeName="n1"),
        changed_spec(pod, nodeSelector={"a": "b"}),
        changed_spec(pod, tolerations=[]),
        changed_spec(pod, containers=[container(), container("b")]),
        changed_spec(pod, schedulingGates=[{"name": "g"}]),
        changed_spec(pod, hostname="h"),
    ):
        assert [cause.reason for cause in Pod().validate_update(new, pod)] == ["FieldValueForbidden"]


def test_a_deadline_may_only_come_closer():
    pod = created(manifest(activeDeadlineSeconds=10))
    assert Pod().validate_update(changed_spec(pod, activeDeadlineSeconds=5), pod) == []
    assert Pod().validate_update(changed_spec(pod, activeDeadlineSeconds=20), pod)


def node_affinity(*rules):
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"} for key in rules]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_a_gated_pod_may_be_narrowed_and_released():
    pod = created(manifest(schedulingGates=[{"name": "a"}, {"name": "b"}], affinity=node_affinity("x")))
    scheduled = pod["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"], scheduled["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )
    narrower = changed_spec(
        pod, schedulingGates=[{"name": "b"}], nodeSelector={"zone": "z"}, affinity=node_affinity("x", "y")
    )
    assert Pod().validate_update(narrower, pod) == []
    assert Pod().validate_update(changed_spec(pod, affinity=node_affinity("y")), pod)
    free = dict(pod["spec"])
    del free["schedulingGates"]
    released = Pod().prepare_update({**pod, "spec": free}, pod, Context())
    assert Pod().validate_update(released, pod) == []
    assert released["status"]["conditions"] == []


def with_status(pod, **status):
    return {**pod, "status": {**pod["status"], **status}}


def test_only_a_bound_and_living_pod_gets_time_to_stop():
    pod = created(manifest())
    bound = changed_spec(pod, nodeName="n1")
    kind = Pod()
    assert kind.grace_period(pod, None) == 0
    assert kind.grace_period(bound, None) == 30
    assert kind.grace_period(bound, 5) == 5
    assert kind.grace_period(bound, 0) == 0
    assert kind.grace_period(with_status(bound, phase="Failed"), None) == 0


def status_of(*states, init=(), **fields):
    def one(name, state, **more):
        return {"name": name, "state": state, "restartCount": 0, "ready": "running" in state, **more}

    status = {"containerStatuses": [one(f"c{i}", state) for i, state in enumerate(states)], **fields}
    if init:
        status["initContainerStatuses"] = [one(f"i{i}", state) for i, state in enumerate(init)]
    return status


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("status", "ready", "cell"),
    [
        ({"phase": "Pending"}, "0/2", "Pending"),
        (
            status_of({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"),
            "0/2",
            "ContainerCreating",
        ),
        (status_of(RUNNING, RUNNING, phase="Running"), "2/2", "Running"),
        (status_of(DONE, DONE, phase="Succeeded"), "0/2", "Completed"),
        (status_of({"terminated": {"exitCode": 3, "reason": "Error"}}, phase="Failed"), "0/2", "Error"),
        (status_of({"terminated": {"exitCode": 3}}, phase="Failed"), "0/2", "ExitCode:3"),
        (status_of(DONE, RUNNING, phase="Running", conditions=READY), "1/2", "Running"),
        (status_of(DONE, RUNNING, phase="Running"), "1/2", "NotReady"),
        ({"phase": "Failed", "reason": "Evicted"}, "0/2", "Evicted"),
        (status_of(init=[DONE, RUNNING], phase="Pending"), "0/2", "Init:1/2"),
        (status_of(init=[{"terminated": {"exitCode": 1}}], phase="Pending"), "0/2", "Init:ExitCode:1"),
        (status_of(init=[{"waiting": {"reason": "CrashLoopBackOff"}}]), "0/2", "Init:CrashLoopBackOff"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "0/2",
            "SchedulingGated",
        ),
    ],
)
def test_the_row_of_a_pod(status, ready, cell):
    init = [container(f"i{i}") for i in range(2)] if "initContainerStatuses" in status else []
    pod = {**created(manifest(container("c0"), container("c1"), initContainers=init)), "status": status}
    name, ready_cell, status_cell, restarts, age, *wide = Pod().cells(pod, NOW)
    assert (name, ready_cell, status_cell, restarts, age) == ("p", ready, cell, "0", "10m")
    assert wide == ["<none>", "<none>", "<none>", "<none>"]


def test_a_deleted_pod_is_terminating_until_it_has_ended():
    pod = with_status(created(manifest()), phase="Running")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    assert Pod().cells(pod, NOW)[2] == "Terminating"
    assert Pod().cells(with_status(pod, reason="NodeLost"), NOW)[2] == "Unknown"
    assert Pod().cells(with_status(pod, phase="Succeeded"), NOW)[2] == "Succeeded"


def test_restarts_say_when_the_last_one_was():
    restarted = {
        "name": "c0",
        "restartCount": 2,
        "ready": True,
        "state": RUNNING,
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z", "exitCode": 1}},
    }
    pod = with_status(created(manifest()), phase="Running", containerStatuses=[restarted])
    assert Pod().cells(pod, NOW)[1:4] == ["1/1", "Running", "2 (5m ago)"]


def node(**status):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "labels": {"node-role.kubernetes.io/worker": ""},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {},
        "status": status,
    }


def test_what_a_node_can_give_is_its_capacity_unless_it_says_less():
    kind = Node()
    assert kind.default(node(capacity={"cpu": "4000m"}))["status"]["allocatable"] == {"cpu": "4"}
    both = kind.default(node(capacity={"cpu": "4"}, allocatable={"cpu": "3"}))
    assert both["status"]["allocatable"] == {"cpu": "3"}


def test_the_row_of_a_node():
    one = node(conditions=[{"type": "Ready", "status": "True"}], nodeInfo={"kubeletVersion": "v1.32.0"})
    assert Node().cells(one, NOW)[:6] == ["n1", "Ready", "worker", "10m", "v1.32.0", "<none>"]
    one["spec"]["unschedulable"] = True
    assert Node().cells(one, NOW)[1] == "Ready,SchedulingDisabled"
    assert Node().cells(node(), NOW)[1] == "Unknown"


def test_a_node_with_a_negative_capacity_or_a_bad_taint_is_refused():
    bad = node(capacity={"cpu": "-1"})
    bad["spec"]["taints"] = [{"key": "k", "effect": "Sometimes"}]
    assert texts(Node().validate(bad)) == [
        'spec.taints[0].effect: Unsupported value: "Sometimes": '
        'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        'status.capacity[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ]
