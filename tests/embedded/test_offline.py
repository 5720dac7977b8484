"""Objects that are judged without a server: the same is refused, for the same reasons, as by a server."""

from __future__ import annotations

import copy
import random
from typing import Any

import orjson
import pytest
from apiserver_harness import CRDS, Api, with_server

from pykueue.api.crds import crds
from pykueue.api.yaml import load_documents
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.embedded.offline import Offline
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

DEFINITIONS = [*crds(), jobset_definition()]

TEMPLATE = """{
metadata: {labels: {app: a}},
spec: {
restartPolicy: Never,
nodeSelector: {zone: a},
tolerations: [{key: k, operator: Exists, effect: NoSchedule}],
containers: [
{name: c, image: i, ports: [{containerPort: 80}], resources: {requests: {cpu: 1}, limits: {cpu: "2"}}}
]}}"""
RIGHT = """
apiVersion: batch/v1
kind: Job
metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 2
  completionMode: Indexed
  completions: 2
  backoffLimit: 3
  template: TEMPLATE
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: a}
spec:
  replicas: 2
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: a}
spec: {limits: [{type: Container, max: {cpu: 4}, default: {cpu: 1}}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: a}
value: 7
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  cohortName: all
  namespaceSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  flavorFungibility: {whenCanBorrow: MayStopSearch, whenCanPreempt: TryNextFlavor}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: f
      resources: [{name: cpu, nominalQuota: 4, borrowingLimit: 1}, {name: memory, nominalQuota: 4Gi}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: a}
spec: {cohort: all, queueingStrategy: StrictFIFO, admissionChecks: [b]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: a}
spec: {parentName: b, fairSharing: {weight: 2}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: a}
spec: {clusterQueue: a, stopPolicy: None}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: a}
spec: {levels: [{nodeLabel: zone}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: a}
spec:
  queueName: lq
  podSets:
  - {name: main, count: 3, minCount: 2, template: TEMPLATE, topologyRequest: {required: zone}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: a}
spec:
  replicatedJobs:
  - {name: w, replicas: 2, template: {spec: {parallelism: 1, template: TEMPLATE}}}
"""
#: Every kind, with where it is created.
PATHS = {
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "StatefulSet": "/apis/apps/v1/namespaces/default/statefulsets",
    "LimitRange": "/api/v1/namespaces/default/limitranges",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ClusterQueue": "/apis/{}/clusterqueues",
    "Cohort": "/apis/{}/cohorts",
    "LocalQueue": "/apis/{}/namespaces/default/localqueues",
    "Topology": "/apis/{}/topologies",
    "Workload": "/apis/{}/namespaces/default/workloads",
    "JobSet": "/apis/{}/namespaces/default/jobsets",
}
VALUES: tuple[Any, ...] = (None, -1, 0, 2**40, "", "A_b!", "a", "1e30", True, [], {}, ["a"], {"a": "b"}, 1.5)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in an object but what says its kind and name."""
    found = []
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        here = (*path, step)
        if here not in (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")):
            found.append(here)
        found += places(inner, here)
    return found


def changed(manifest: Object, rng: random.Random) -> Object:
    """With one thing removed, replaced, renamed or repeated."""
    result: Object = copy.deepcopy(manifest)
    *above, last = rng.choice(places(result))
    parent: Any = result
    for step in above:
        parent = parent[step]
    match rng.randrange(4):
        case 0:
            del parent[last]
        case 1:
            parent[last] = rng.choice(VALUES)
        case 2 if isinstance(parent, dict):
            parent[f"{last}x"] = parent.pop(last)
        case _ if isinstance(parent, list):
            parent.append(parent[last])
    return result


@pytest.mark.parametrize("seed", range(4))
def test_the_same_is_refused_without_a_server_as_by_one(seed: int) -> None:
    rng = random.Random(seed)
    offline = Offline(DEFINITIONS)
    manifests = load_documents(RIGHT.replace("TEMPLATE", TEMPLATE.replace("\n", " ")))
    differences: list[str] = []
    refused = 0

    async def story(api: Api) -> None:
        nonlocal refused
        for definition in DEFINITIONS:
            await api.create(CRDS, definition)
        for number in range(400):
            right = manifests[number % len(manifests)]
            manifest = right if number < len(manifests) else changed(right, rng)
            path = PATHS[manifest["kind"]].format(manifest["apiVersion"])
            try:
                await api.create(path, manifest, dryRun="All", fieldValidation="Strict")
                strict = None
            except ApiError as error:
                strict = error
            try:
                await api.create(path, manifest, dryRun="All", fieldValidation="Ignore")
                causes: list[tuple[str, str]] = []
            except ApiError as error:
                causes = [(one.get("field", ""), one["message"]) for one in error.details.get("causes", ())]
            unknown = [field.path for field in offline.unknown_fields(manifest)]
            found = [(cause.field, cause.message) for cause in offline.causes(manifest)]
            agree = (
                (strict is None) == (not unknown and not found)
                and causes == found
                and all(
                    strict is not None and f'unknown field "{field}"' in strict.message for field in unknown
                )
            )
            refused += strict is not None
            if not agree:
                shown = orjson.dumps(manifest).decode()
                differences.append(f"{shown}\n  server: {strict} {causes}\n  offline: {unknown} {found}")

    with_server(story)
    assert not differences, "\n".join(differences[:8])
    assert refused > 100
