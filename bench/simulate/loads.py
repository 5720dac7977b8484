"""What is simulated, and one run of it. Apart from the command, so that other processes can import it."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path
from typing import Any

import yaml

from pykueue.simulate.figures import figure
from pykueue.simulate.prepare import prepare
from pykueue.simulate.runs import run
from pykueue.simulate.scenario.reading import parse

TEAMS = ("a", "b", "c", "d")
#: Racks, nodes of each, and CPUs of a node: 640 nodes.
RACKS, NODES, CPUS = 10, 64, 8
_API = "kueue.x-k8s.io/v1beta2"
#: CPUs of a queue: a job has 2.5 on average and runs for 35 minutes.
_QUOTA = {"quota": 100, "topology": RACKS * NODES * CPUS // len(TEAMS)}
_JOB_CPU_HOURS = 2.5 * 35 / 60


def objects(shape: str) -> list[dict[str, Any]]:
    """Flavor and queues, with nodes for the topology."""
    topology = shape == "topology"
    spec = {"nodeLabels": {"pool": "batch"}, "topologyName": "racks"} if topology else {}
    found: list[dict[str, Any]] = [
        {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": spec}
    ]
    if topology:
        levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
        found.append(
            {
                "apiVersion": _API,
                "kind": "Topology",
                "metadata": {"name": "racks"},
                "spec": {"levels": levels},
            }
        )
        found += [node(f"n-{rack}-{number}", rack) for rack in range(RACKS) for number in range(NODES)]
    for team in TEAMS:
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(_QUOTA[shape])}]}
        queue = {
            "cohortName": "company",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        }
        found.append({"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": team}, "spec": queue})
        metadata = {"name": "jobs", "namespace": team}
        local = {"clusterQueue": team}
        found.append({"apiVersion": _API, "kind": "LocalQueue", "metadata": metadata, "spec": local})
    return found


def node(name: str, rack: int) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "rack": f"r{rack}", "pool": "batch"}
    status = {
        "allocatable": {"cpu": str(CPUS), "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


def scenario(shape: str, jobs: int) -> dict[str, Any]:
    """So many jobs at 90 % of the capacity."""
    topologies: tuple[dict[str, Any], ...] = ({},)
    if shape == "topology":
        topologies = ({"topology": {"required": "rack"}}, {"topology": {"preferred": "rack"}})
    arrivals = []
    for team in TEAMS:
        classes = [
            {
                "name": f"{cpus} CPUs {priority}",
                "queue": f"{team}/jobs",
                "podSets": [{"count": cpus, "requests": {"cpu": 1}, **where}],
                "runTime": {"uniform": {"minimum": "10m", "maximum": "1h"}},
                "priority": priority,
            }
            for cpus, priority in ((1, 0), (2, 0), (3, 1), (4, 0))
            for where in topologies
        ]
        rate = 0.9 * _QUOTA[shape] / _JOB_CPU_HOURS
        arrivals.append({"generator": {"perHour": rate, "count": jobs // len(TEAMS), "jobs": classes}})
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": shape}
    return {**head, "manifests": ["objects.yaml"], "arrivals": arrivals}


def measured(shape: str, jobs: int) -> dict[str, Any]:
    """One run in this process."""
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as name:
        folder = Path(name)
        (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects(shape)))
        prepared = prepare(parse(yaml.safe_dump(scenario(shape, jobs))), folder)
        outcome = run(prepared, prepared.variants[0], 1, folder)
    finished = int(figure(outcome, "finished"))
    return {
        "shape": shape,
        "finished": finished,
        "preemptions": int(figure(outcome, "preemptions")),
        "hours": outcome.end / 3600,
        "cpu_seconds": outcome.cpu,
        "lives_a_minute": 60 * finished / outcome.cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
