"""The controller of an admission check: a namespace's jobs start while its budget lasts.

The annotation `example.com/budget` of a namespace is the number of pods that its admitted Workloads may have
together; without it there is no limit. Usage: python budget.py   (with a kubeconfig, or in a pod)
"""

import asyncio
from datetime import UTC, datetime

from kubernetes_asyncio import client, config, watch

GROUP, VERSION, CONTROLLER = "kueue.x-k8s.io", "v1beta2", "example.com/budget"
APPLY = {"field_manager": CONTROLLER, "force": True, "_content_type": "application/apply-patch+yaml"}


def is_true(obj, kind):
    conditions = obj.get("status", {}).get("conditions", [])
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def pods(workload):
    return sum(one["count"] for one in workload["status"]["admission"]["podSetAssignments"])


def decide(cost, used, limit):
    if cost > limit:
        return {"state": "Rejected", "message": f"{cost} pods exceed the budget of {limit:g}"}
    if used + cost > limit:
        message = f"{used} of {limit:g} pods are used, {cost} more needed"
        return {"state": "Retry", "message": message, "requeueAfterSeconds": 300}
    return {"state": "Ready", "message": "Within budget"}


async def apply_status(api, kind, obj, **status):
    """Apply some fields of the status, unless another client wrote meanwhile: the watch shows that next."""
    metadata = {
        k: obj["metadata"][k] for k in ("name", "namespace", "resourceVersion") if k in obj["metadata"]
    }
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "status": status}
    where = [GROUP, VERSION, metadata.get("namespace"), f"{kind.lower()}s", metadata["name"]]
    scope = "namespaced" if where[2] else "cluster"
    patch = getattr(api, f"patch_{scope}_custom_object_status")
    try:
        await patch(*[one for one in where if one], body, **APPLY)
    except client.ApiException as error:
        if error.status not in (404, 409):
            raise


async def answer(api, core, workload, check):
    """Answer a check that is Pending, only while the Workload has quota and is not losing it."""
    listed = {one["name"]: one for one in workload.get("status", {}).get("admissionChecks", [])}
    if listed.get(check, {}).get("state") != "Pending":
        return
    if not is_true(workload, "QuotaReserved") or is_true(workload, "Evicted"):
        return
    namespace = workload["metadata"]["namespace"]
    budget = (await core.read_namespace(namespace)).metadata.annotations or {}
    others = await api.list_namespaced_custom_object(GROUP, VERSION, namespace, "workloads")
    used = sum(pods(w) for w in others["items"] if is_true(w, "Admitted") and not is_true(w, "Finished"))
    state = decide(pods(workload), used, float(budget.get("example.com/budget", "inf")))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    state |= {"name": check, "lastTransitionTime": now}
    if state["state"] == "Ready":
        names = [one["name"] for one in workload["spec"]["podSets"]]
        state["podSetUpdates"] = [{"name": n, "annotations": {CONTROLLER: "charged"}} for n in names]
    await apply_status(api, "Workload", workload, admissionChecks=[state])


async def run(connection):
    api, core = client.CustomObjectsApi(connection), client.CoreV1Api(connection)
    while True:
        checks = (await api.list_cluster_custom_object(GROUP, VERSION, "admissionchecks"))["items"]
        ours = [one for one in checks if one["spec"]["controllerName"] == CONTROLLER]
        for check in ours:
            if not is_true(check, "Active"):  # until then its ClusterQueues admit nothing
                active = {
                    "type": "Active",
                    "status": "True",
                    "reason": "Active",
                    "message": "Budgets are checked",
                }
                active["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                await apply_status(api, "AdmissionCheck", check, conditions=[active])
        workloads = watch.Watch().stream(
            api.list_cluster_custom_object, GROUP, VERSION, "workloads", timeout_seconds=5
        )
        async for event in workloads:
            for check in ours if event["type"] != "DELETED" else ():
                await answer(api, core, event["object"], check["metadata"]["name"])


async def main():
    await config.load_config()
    async with client.ApiClient() as connection:
        await run(connection)


if __name__ == "__main__":
    asyncio.run(main())
