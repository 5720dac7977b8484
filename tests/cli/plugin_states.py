"""States of a cluster and commands of Kueue's kubectl plugin on them, generated from a seed."""

from __future__ import annotations

import json
import random
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.times import format_time

API = "kueue.x-k8s.io/v1beta2"
NAMESPACES = ("team-a", "team-b")
QUEUES = ("main", "spare", "gone")
CLUSTER_QUEUES = ("cq-a", "cq-b", "cq-c")
FLAVORS = ("on-demand", "spot", "gpu")
JOBS = ("train", "eval", "report")

#: Hours before now: far enough apart that no age of a condition changes while a test runs.
HOURS = (30.5, 52.5, 100.5, 300.5)


def flavor(rng: random.Random, name: str) -> Object:
    labels = {f"label-{i}": f"v{rng.randint(0, 9)}" for i in range(rng.randint(0, 3))}
    return _object("ResourceFlavor", name, {"nodeLabels": labels} if labels else {}, rng)


def cluster_queue(rng: random.Random, name: str) -> Object:
    spec: Object = {"namespaceSelector": {}, "queueingStrategy": rng.choice(["BestEffortFIFO", "StrictFIFO"])}
    if rng.random() < 0.5:
        spec["cohortName"] = rng.choice(["pool", "lab"])
    if rng.random() < 0.3:
        spec["stopPolicy"] = rng.choice(["Hold", "HoldAndDrain", "None"])
    if rng.random() < 0.7:
        flavors = rng.sample(FLAVORS, rng.randint(1, 3))
        quotas = [{"name": "cpu", "nominalQuota": str(rng.randint(0, 99))}]
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": one, "resources": quotas} for one in flavors],
        }
        spec["resourceGroups"] = [group]
    queue = _object("ClusterQueue", name, spec, rng)
    if rng.random() < 0.8:
        active = rng.choice(["True", "False", "Unknown"])
        queue["status"] = {
            "pendingWorkloads": rng.randint(0, 20),
            "admittedWorkloads": rng.randint(0, 20),
            "conditions": [_condition("Active", active, "Ready", rng.choice(HOURS), 0)],
        }
    return queue


def local_queue(rng: random.Random, name: str, namespace: str) -> Object:
    spec: Object = {"clusterQueue": rng.choice([*CLUSTER_QUEUES, "cq-missing"])}
    if rng.random() < 0.3:
        spec["stopPolicy"] = rng.choice(["Hold", "HoldAndDrain", "None"])
    queue = _object("LocalQueue", name, spec, rng, namespace)
    if rng.random() < 0.7:
        queue["status"] = {"pendingWorkloads": rng.randint(0, 9), "admittedWorkloads": rng.randint(0, 9)}
    return queue


def workload(rng: random.Random, name: str, namespace: str, job: Object | None, now: float) -> Object:
    """A Workload in any state, with or without a job."""
    container = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: Object = {"podSets": [{"name": "main", "count": rng.randint(1, 3), "template": template}]}
    if rng.random() < 0.9:
        spec["queueName"] = rng.choice(QUEUES)
    if rng.random() < 0.2:
        spec["active"] = rng.random() < 0.5
    made = _object("Workload", name, spec, rng, namespace)
    if job is not None:
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"], "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
        if rng.random() < 0.7:
            made["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] = job["metadata"]["uid"]
    stage = rng.choice(["new", "pending", "reserved", "admitted", "finished", "evicted"])
    conditions = []
    since = sorted(rng.sample(HOURS, 3), reverse=True)
    if stage == "pending":
        conditions.append(_condition("QuotaReserved", "False", "Pending", since[0], now))
    if stage in ("reserved", "admitted", "finished"):
        conditions.append(_condition("QuotaReserved", "True", "QuotaReserved", since[0], now))
    if stage in ("admitted", "finished"):
        conditions.append(_condition("Admitted", "True", "Admitted", since[1], now))
    if stage == "evicted":
        conditions.append(_condition("QuotaReserved", "False", "Pending", since[1], now))
        conditions.append(_condition("Admitted", "False", "NoReservation", since[1], now))
        conditions.append(_condition("Evicted", "True", "Preempted", since[1], now))
    if stage == "finished":
        conditions.append(_condition("Finished", "True", "Succeeded", since[2], now))
    if conditions:
        made["status"] = {"conditions": conditions}
    if stage in ("reserved", "admitted", "finished"):
        flavors = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1"}, "count": 1}
        made["status"]["admission"] = {
            "clusterQueue": rng.choice(CLUSTER_QUEUES),
            "podSetAssignments": [flavors],
        }
    return made


def job(rng: random.Random, name: str, namespace: str) -> Object:
    container = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    made = _object("Job", name, {"suspend": True, "template": template}, rng, namespace)
    return {**made, "apiVersion": "batch/v1"}


def pod(name: str, namespace: str, labels: dict[str, str]) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def read_command(rng: random.Random) -> list[str]:
    """A `list` command: any type, filters and form."""
    kind = rng.choice(["clusterqueue", "cq", "localqueue", "lq", "workload", "kwl", "rf", "pods", "workload"])
    arguments = ["list", kind]
    namespaced = kind not in ("clusterqueue", "cq", "rf")
    if namespaced:
        arguments += rng.choice([["-n", "team-a"], ["--namespace=team-b"], ["-A"], ["-n", "nowhere"], []])
    if rng.random() < 0.3:
        arguments += rng.choice([["-l", "tier=gold"], ["--selector=tier in (gold,silver)"], ["-l", "!tier"]])
    if rng.random() < 0.15:
        arguments += [f"--field-selector=metadata.name={rng.choice(['main', 'cq-a', 'w1', 'spot'])}"]
    if kind in ("clusterqueue", "cq") and rng.random() < 0.4:
        arguments.append(f"--active={rng.choice(['true', 'false'])}")
    if kind in ("localqueue", "lq", "workload", "kwl") and rng.random() < 0.3:
        arguments += rng.choice([["-c", "cq-a"], ["--clusterqueue=cq-b"]])
    if kind in ("workload", "kwl"):
        if rng.random() < 0.3:
            arguments += ["-q", rng.choice(QUEUES)]
        for _ in range(rng.choice([0, 0, 1, 2])):
            arguments += ["--status", rng.choice(["all", "pending", "QuotaReserved", "admitted", "finished"])]
        if rng.random() < 0.3:
            arguments += ["--for", f"{rng.choice(['job', 'jobs', 'job.batch', 'jobs.v1.batch'])}/train"]
    if kind == "pods":
        arguments += ["--for", rng.choice(["job/train", "jobs.batch/eval", "pod/group-0", "job/nothing"])]
        arguments += rng.choice([[], [], ["-o", "wide"]])
    elif rng.random() < 0.35:
        arguments += rng.choice(
            [
                ["-o", "json"],
                ["-o", "yaml"],
                ["-o", "jsonpath={.items[*].metadata.name}"],
                [
                    "-o",
                    'jsonpath={range .items[*]}{.metadata.name}{"\\t"}{.metadata.labels.tier}{"\\n"}{end}',
                ],
                ["-o", "jsonpath={.items[?(@.metadata.name=='main')].kind}"],
                ["-o", 'go-template={{range .items}}{{.metadata.name}}{{"\\n"}}{{end}}'],
                ["-o", "name"],
            ]
        )
    return arguments


def write_command(rng: random.Random, number: int) -> list[str]:
    """A command that creates, stops, resumes or deletes."""
    name = f"new-{number}" if rng.random() < 0.8 else "cq-a"
    dry = rng.choice([[], [], ["--dry-run=client"], ["--dry-run", "server"]])
    form = rng.choice([[], [], [], ["-o", "json"], ["-o", "yaml"], ["-o", "name"]])
    match rng.choice(["cq", "lq", "rf", "stop", "resume", "delete"]):
        case "cq":
            arguments = ["create", rng.choice(["cq", "clusterqueue"]), name, *_queue_flags(rng)]
        case "lq":
            flags = rng.choice([["-c", "cq-a"], ["--clusterqueue=nope"], ["-c", "nope", "-i"], []])
            arguments = ["create", "lq", name, "-n", rng.choice(NAMESPACES), *flags]
        case "rf":
            arguments = ["create", "rf", name, *_flavor_flags(rng)]
        case "delete":
            names = rng.choice([["w0"], ["w1", "w2"], ["nope"], ["--all"], [], ["w1", "--all"]])
            arguments = ["delete", rng.choice(["workload", "kwl"]), *names, "-n", rng.choice(NAMESPACES)]
            return [*arguments, *rng.choice([["-y"], ["--yes"], dry, []])]
        case verb:
            kind, which, namespaced = rng.choice(
                [
                    ("workload", ["w0", "w1", "nope"], True),
                    ("lq", ["main", "nope"], True),
                    ("cq", ["cq-a", "cq-b", "nope"], False),
                ]
            )
            arguments = [verb, kind, rng.choice(which)]
            arguments += ["-n", rng.choice(NAMESPACES)] if namespaced else []
            if verb == "stop" and kind != "workload" and rng.random() < 0.5:
                arguments.append("--keep-already-running")
    return [*arguments, *dry, *form]


def _queue_flags(rng: random.Random) -> list[str]:
    flags: list[str] = []
    for text in (
        "--cohort=pool",
        "--queuing-strategy=StrictFIFO",
        "--queuing-strategy=Wrong",
        "--namespace-selector=a=b,c=d",
        "--reclaim-within-cohort=Any",
        "--preemption-within-cluster-queue=LowerPriority",
    ):
        if rng.random() < 0.3:
            flags.append(text)
    flags += rng.choice(
        [
            [],
            ["--nominal-quota=spot:cpu=9;memory=36Gi"],
            ["--nominal-quota", "spot:cpu=9;memory=36Gi,gpu:cpu=1;memory=2Gi"],
            ["--nominal-quota=spot:cpu=9", "--nominal-quota=gpu:nvidia.com/gpu=2"],
            ["--nominal-quota=spot:cpu=9;memory=1Gi", "--borrowing-limit=spot:cpu=1;memory=1Gi"],
            ["--nominal-quota=spot:cpu=9", "--lending-limit=spot:cpu=1", "--cohort=lab"],
            ["--nominal-quota=spot:cpu=9", "--lending-limit=spot:memory=1"],
            ["--nominal-quota=spot"],
            ["--nominal-quota=spot:cpu=x9y"],
            ["--nominal-quota=spot:cpu=1;memory=1", "--nominal-quota=gpu:cpu=1"],
        ]
    )
    return flags


def _flavor_flags(rng: random.Random) -> list[str]:
    return rng.choice(
        [
            [],
            ["--node-labels=a=b,c=d"],
            ["--node-taints=key=value:NoSchedule,other:NoExecute"],
            ["--node-taints=key=value"],
            ["--node-taints=key=value:Never"],
            ["--node-taints=a:NoSchedule", "--node-taints=a=b:NoSchedule"],
            ["--tolerations=a=b:NoSchedule,c,:NoExecute,d=e"],
            ["--tolerations==x:NoSchedule"],
            ["--tolerations=a=b=c"],
        ]
    )


def _object(kind: str, name: str, spec: Object, rng: random.Random, namespace: str | None = None) -> Object:
    metadata: dict[str, Any] = {"name": name, "labels": {}}
    if rng.random() < 0.5:
        metadata["labels"]["tier"] = rng.choice(["gold", "silver"])
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def _condition(type: str, status: str, reason: str, hours: float, now: float) -> Object:
    when = format_time(now - hours * 3600)
    return {"type": type, "status": status, "reason": reason, "message": "", "lastTransitionTime": when}


def huge_job(name: str, queue: str) -> str:
    """A Job, as JSON, that requests more than any queue has."""
    resources = {"requests": {"cpu": "1000000"}}
    container = {"name": "main", "image": "i", "resources": resources}
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
