"""Recorded scenarios of kind `preemption`: which workloads one given workload preempts."""

from __future__ import annotations

from typing import Any

from replay import start

from pykueue.engine.preemption.classical import PreemptionRequest


def targets(scenario: dict[str, Any]) -> dict[str, str]:
    """Workloads (and why) that are preempted for the pending one, given the flavors it was assumed to get."""
    engine = start({**scenario, "objects": [_filled_in(item) for item in scenario["objects"]]}).engine
    state, evaluator = engine._state, engine._evaluator
    state.settle()
    info = next(
        info
        for info in state.workloads.values()
        if info.local is not None and info.local.key.endswith("/incoming")
    )
    queue, scheduling_class = info.queue, info.scheduling_class
    assert queue is not None
    assert scheduling_class is not None
    assumed = scenario["assumedAssignment"]
    requests: dict[int, int] = {}
    needed: set[int] = set()
    for index, pods in enumerate(scheduling_class.pod_sets):
        for resource, amount in pods.total.items():
            if "flavor" in assumed:
                flavor, mode = assumed["flavor"], 1
            else:
                choice = assumed[index]["Flavors"].get(resource)
                if choice is None:
                    continue
                flavor, mode = choice["Name"], choice["Mode"]
            flavor_resource = state.flavor_resources.index_of(flavor, resource)
            if amount:
                requests[flavor_resource] = requests.get(flavor_resource, 0) + amount
            if mode == 1:
                needed.add(flavor_resource)
    request = PreemptionRequest(
        info,
        queue,
        [(queue.flavor_usages[flavor_resource], amount) for flavor_resource, amount in requests.items()],
        needed,
        evaluator.usage_of,
    )
    targets, _ = evaluator.search(request)
    engine.check()
    # The recordings list what is evicted again.
    return {info.key: reason for info, reason in targets if not info.evicted}


def expected_targets(scenario: dict[str, Any]) -> dict[str, str]:
    found = {}
    for target in scenario["expected"]["targets"]:
        if isinstance(target, str):
            name, _, reason = target.rpartition(":")
            found[name if not name.startswith("/") else f"default{name}"] = reason
        else:
            found[target["workload"]] = target["reason"]
    return found


def _filled_in(item: dict[str, Any]) -> dict[str, Any]:
    """The object with what some recordings leave out or have too much."""
    if item.get("spec", {}).get("queueName") == "incoming":
        # One recording gave the incoming workload a reservation it did not have.
        return {key: value for key, value in item.items() if key != "status"}
    if item["kind"] == "ClusterQueue":
        return {**item, "spec": _with_quotas(item["spec"])}
    return item


def _with_quotas(spec: dict[str, Any]) -> dict[str, Any]:
    """Some recordings leave out quotas of 0, which the API does not allow."""
    groups = []
    for group in spec.get("resourceGroups") or ({"flavors": [{"name": "default"}]},):
        covered = group.get("coveredResources") or ["cpu", "memory"]
        flavors = [
            {
                "name": flavor["name"],
                "resources": flavor.get("resources")
                or [{"name": name, "nominalQuota": "0"} for name in covered],
            }
            for flavor in group["flavors"]
        ]
        groups.append({"coveredResources": covered, "flavors": flavors})
    return {**spec, "resourceGroups": groups}
