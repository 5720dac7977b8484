"""Questions about pod sets that are split over flavors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pykueue.api import decode
from pykueue.api.hybrid import parts_of
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION, HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION
from pykueue.cli.schedule import schedule
from pykueue.engine import Admit, Engine, Upsert
from pykueue.engine.reduction import reduced
from pykueue.questions.cluster_state import ClusterState
from pykueue.questions.pseudonyms import Pseudonyms
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "hybrid"
TIME = "2026-01-01T00:00:00Z"


def objects(pods: int = 20) -> list[Object]:
    """A queue with 12 reserved and 10 spot cpus, and a Workload that may use both."""
    queue = cluster_queue("q", {"reserved": {"cpu": 12}, "spot": {"cpu": 10}})
    queue["metadata"]["annotations"] = {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"}
    request = json.dumps({"flavors": [{"name": "reserved"}, {"name": "spot"}]})
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {HYBRID_ASSIGNMENT_ANNOTATION: request}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default", "uid": "u", "creationTimestamp": TIME},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": pods, "template": template}]},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    return [namespace, flavor("reserved"), flavor("spot"), queue, local_queue("q"), workload]


def admitted(engine: Engine) -> list[int] | None:
    """Pods by part of the Workload; None where it is not admitted, empty where it has one flavor."""
    for decision in engine.cycle(1_800_000_000.0):
        if isinstance(decision, Admit):
            (given,) = decision.admission.pod_set_assignments
            return [part.pods for part in parts_of(given)]
    return None


def test_pseudonyms_rename_the_flavors_of_a_request_and_the_decision_stays() -> None:
    items = [reduced(each) for each in objects()]
    names = Pseudonyms(items, b"key")
    renamed = [names.renamed(each) for each in items]
    assert "reserved" not in json.dumps(renamed)
    engine = Engine()
    for each in renamed:
        engine.apply(Upsert(decode(each)))
    assert admitted(engine) == [12, 8]


def test_beside_kueue_questions_decide_as_kueue_does() -> None:
    for own, pods, expected in ((True, 20, [12, 8]), (False, 20, None), (False, 10, [])):
        state = ClusterState(manifests=objects(pods), has_own_kinds=own)
        assert admitted(state.engine()) == expected


def test_schedule_prints_the_pods_of_each_flavor() -> None:
    files = [argument for name in ("queues", "train") for argument in ("-f", str(EXAMPLE / f"{name}.yaml"))]
    found = CliRunner().invoke(schedule, [*files, "-o", "table"], env={"COLUMNS": "200"})
    assert "nvidia.com/gpu 20 on reserved (pods 0-11) and spot (pods 12-19)" in found.output
