"""What an admitted Workload gives to the pods of its job (docs/reference/kueue-integrations.md 9.3,
"Start")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pykueue.api.hybrid import parts_in
from pykueue.api.kueue import names
from pykueue.api.objects import Object, get, labels_of, section
from pykueue.jobs import slices
from pykueue.jobs.podsets import PodSetInfo
from pykueue.jobs.workload import is_label_value


class MissingFlavorError(LookupError):
    """A flavor of the admission does not exist (any more)."""


#: The requests for topology that a pod template says with an annotation.
_REQUESTS = ("required", "preferred", "unconstrained")


def pod_set_infos(
    workload: Mapping[str, Any],
    flavor: Callable[[str], Object | None],
    queue_labels: bool,
    elastic_jobs: bool = False,
    topology: bool = True,
) -> list[PodSetInfo]:
    """What each pod set gains, in the order of the Workload's spec.

    `queue_labels`: pods are labelled with their queues too (gate AssignQueueLabelsForPods). `elastic_jobs`:
    those of elastic jobs are gated until they have quota (gate ElasticJobsViaWorkloadSlices). `topology`:
    pods name their Workload, and are gated if they have domains (gate TopologyAwareScheduling); those that
    are split over flavors are gated in any case. Raises
    MissingFlavorError, and PodSetConflictError when flavors or checks contradict each other.
    """
    elastic = elastic_jobs and slices.is_elastic(workload)
    annotations = {names.WORKLOAD_SLICE_NAME_ANNOTATION: slices.chain_name(workload)} if elastic else {}
    assignments = {
        assignment.get("name"): assignment
        for assignment in get(workload, "status", "admission", "podSetAssignments") or ()
    }
    labels: dict[str, str] = {}
    if names.MULTIKUEUE_ORIGIN_LABEL in labels_of(workload):
        labels[names.MULTIKUEUE_POD_LABEL] = "true"
    if queue_labels:
        local = str(get(workload, "spec", "queueName") or "")
        cluster = str(get(workload, "status", "admission", "clusterQueue") or "")
        if local and is_label_value(local):
            labels[names.LOCAL_QUEUE_LABEL] = local
        if cluster and is_label_value(cluster):
            labels[names.CLUSTER_QUEUE_LABEL] = cluster
    infos = []
    for pod_set in get(workload, "spec", "podSets") or ():
        name = str(pod_set.get("name"))
        assignment = assignments.get(name, {})
        count = assignment.get("count", pod_set.get("count", 1))
        own = {names.POD_SET_LABEL: name, **labels}
        template = section(pod_set, "template")
        gates = (slices.GATE,) if elastic and slices.is_gated_pod_set(workload, name) else ()
        info = PodSetInfo(name, int(count), own, annotations, scheduling_gates=gates, template=template)
        split = {part.flavor for part in parts_in(assignment)}
        if topology or split:
            info = _with_topology(info, workload, pod_set, assignment)
        for flavor_name in dict.fromkeys((assignment.get("flavors") or {}).values()):
            if flavor_name in split:
                continue  # each pod gets the flavor of its part when it is ungated
            found = flavor(flavor_name)
            if found is None:
                raise MissingFlavorError(f"ResourceFlavor {flavor_name} doesn't exist")
            info = info.with_flavor(found)
        for check in get(workload, "status", "admissionChecks") or ():
            for update in check.get("podSetUpdates") or ():
                if update.get("name") == name:
                    info = info.merged(
                        update.get("labels"),
                        update.get("annotations"),
                        update.get("nodeSelector"),
                        update.get("tolerations") or (),
                    )
        infos.append(info)
    return infos


def _with_topology(
    info: PodSetInfo, workload: Mapping[str, Any], pod_set: Object, assignment: Mapping[str, Any]
) -> PodSetInfo:
    """With the name of the Workload and, where the pods have domains, what keeps them until then."""
    annotations = {names.WORKLOAD_ANNOTATION: str(workload["metadata"]["name"])}
    if not assignment.get("topologyAssignment"):
        return info.merged(annotations=annotations)
    if not parts_in(assignment) and all(
        get(pod_set, "topologyRequest", field) is None for field in _REQUESTS
    ):
        annotations[names.UNCONSTRAINED_TOPOLOGY_ANNOTATION] = "true"
    gates = (*info.scheduling_gates, {"name": names.TOPOLOGY_GATE})
    return replace(info, scheduling_gates=gates).merged(annotations=annotations)
