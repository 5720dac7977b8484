"""Groups of pods for tests: the kinds that make them, and how far they have come."""

import nodes_stage
from nodes_stage import pod

from pykueue.embedded.podgroups.definitions import (
    COSCHEDULING_POD_GROUPS,
    DEFAULT_QUEUE,
    NATIVE_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    definitions,
)

EIGHT = "pools: [{name: n, count: 8, allocatable: {cpu: 1, pods: 110}, simulation: {startDelay: 1s}}]"
LABEL = "scheduling.x-k8s.io/pod-group"
ANNOTATION = "scheduling.k8s.io/group-name"


def play(story, **options):
    """With all kinds of groups served."""
    return nodes_stage.play(story, feature_gates=("GenericWorkload",), **options)


async def serve(stage):
    """The kinds of both APIs, and the queue groups are in by default."""
    await stage.server.install_crds(definitions())
    await stage.client.create(VOLCANO_QUEUES, DEFAULT_QUEUE)
    # The scheduler looks for kinds that were not served from time to time.
    await stage.clock.sleep(6)


def group(resource, name, **spec):
    if resource is NATIVE_POD_GROUPS:
        spec = {"schedulingPolicy": {"gang": {"minCount": spec["minMember"]}}}
    return {
        "apiVersion": resource.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def coscheduled(name, count, *command, first=0, **options):
    """Pods that name their group by label."""
    labels = {LABEL: name, **options.pop("labels", {})}
    return [
        pod(f"{name}-{i}", *(command or ("sleep", "30")), cpu="1", labels=labels, **options)
        for i in range(first, first + count)
    ]


def volcanic(name, count, *command, first=0, tasks=(), annotations=None, **options):
    """Pods for Volcano that name their group by annotation."""
    found = []
    for i in range(first, first + count):
        one = pod(f"{name}-{i}", *(command or ("sleep", "30")), cpu="1", schedulerName="volcano", **options)
        one["metadata"]["annotations"] |= {ANNOTATION: name, **(annotations or {})}
        if tasks:
            one["metadata"]["annotations"]["volcano.sh/task-spec"] = tasks[i]
        found.append(one)
    return found


def native(name, count, *command, first=0, **options):
    """Pods that name their group in a field."""
    member = {"schedulingGroup": {"podGroupName": name}, **options}
    return [
        pod(f"{name}-{i}", *(command or ("sleep", "30")), cpu="1", **member)
        for i in range(first, first + count)
    ]


MODES = {
    "coscheduling": (COSCHEDULING_POD_GROUPS, coscheduled),
    "volcano": (VOLCANO_POD_GROUPS, volcanic),
    "native": (NATIVE_POD_GROUPS, native),
}


async def bound(stage, name):
    """How many pods of a group have a node."""
    return sum(
        1
        for one in await stage.pods()
        if one["metadata"]["name"].rpartition("-")[0] == name and one["spec"].get("nodeName")
    )


async def phase(stage, resource, name):
    return (await stage.client.get(resource, name, "default")).get("status", {}).get("phase")


def never_a_part(stage, name, least):
    """Whether at the end of every moment none or at least `least` pods of the group had nodes."""
    counts = {}
    with_node = set()
    for at, type_, one in stage.seen:
        if one["metadata"]["name"].rpartition("-")[0] != name:
            continue
        key = one["metadata"]["uid"]
        if type_ != "DELETED" and one["spec"].get("nodeName"):
            with_node.add(key)
        counts[at] = len(with_node)
    return all(count == 0 or count >= least for count in counts.values())
