"""What the server itself fills into pods and refuses: classes, accounts, limits, quotas."""

from __future__ import annotations

from typing import Any

import pytest
from apiserver_harness import CONFIG_MAPS, PODS, Api, config_map, pod, with_server
from jobcontroller_cluster import Cluster, story

from pykueue.api.resources import PODS as POD_RESOURCE
from pykueue.api.resources import RESOURCE_QUOTAS
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts"
LIMITS = "/api/v1/namespaces/default/limitranges"


def asking(name: str, limits: Object | None = None, **requests: str) -> Object:
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return pod(name, containers=[{"name": "main", "image": "busybox", "resources": resources}])


class TestPriority:
    def test_comes_from_the_class(self) -> None:
        async def tell(api: Api) -> None:
            plain = await api.create(PODS, pod("plain"))
            assert (plain["spec"]["priority"], plain["spec"]["preemptionPolicy"]) == (
                0,
                "PreemptLowerPriority",
            )
            quiet = {"metadata": {"name": "quiet"}, "value": 7, "preemptionPolicy": "Never"}
            await api.create(CLASSES, quiet)
            spec = (await api.create(PODS, pod("a", priorityClassName="quiet")))["spec"]
            assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
            spec = (await api.create(PODS, pod("b", priorityClassName="system-node-critical")))["spec"]
            assert spec["priority"] == 2_000_001_000
            error = await api.refused(api.create(PODS, pod("c", priorityClassName="none")))
            assert (error.code, error.message) == (
                403,
                'pods "c" is forbidden: no PriorityClass with name none was found',
            )
            error = await api.refused(api.create(PODS, pod("d", priority=5)))
            assert "the integer value of priority (5) must not be provided in pod spec" in error.message
            error = await api.refused(
                api.create(PODS, pod("e", priorityClassName="quiet", preemptionPolicy="PreemptLowerPriority"))
            )
            assert "the string value of PreemptionPolicy" in error.message

        with_server(tell)

    def test_the_global_default_is_for_pods_without_a_class_and_there_is_one(self) -> None:
        async def tell(api: Api) -> None:
            await api.create(CLASSES, {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})
            spec = (await api.create(PODS, pod("a")))["spec"]
            assert (spec["priority"], spec["priorityClassName"]) == (3, "usual")
            error = await api.refused(
                api.create(CLASSES, {"metadata": {"name": "more"}, "value": 4, "globalDefault": True})
            )
            assert error.message == (
                'priorityclasses.scheduling.k8s.io "more" is forbidden: PriorityClass usual is already '
                "marked as default. Only one default can exist"
            )
            await api.patch(f"{CLASSES}/usual", {"description": "for all"})

        with_server(tell)


class TestRuntimeClass:
    def test_brings_overhead_and_where_it_runs(self) -> None:
        async def tell(api: Api) -> None:
            scheduling = {
                "nodeSelector": {"vm": "yes"},
                "tolerations": [{"key": "vm", "operator": "Exists"}],
            }
            await api.create(
                RUNTIMES,
                {
                    "metadata": {"name": "vm"},
                    "handler": "kata",
                    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
                    "scheduling": scheduling,
                },
            )
            spec = (await api.create(PODS, pod("a", runtimeClassName="vm")))["spec"]
            assert spec["overhead"] == {"cpu": "250m", "memory": "120Mi"}
            assert spec["nodeSelector"] == {"vm": "yes"}
            assert scheduling["tolerations"][0] in spec["tolerations"]
            await api.create(
                PODS, pod("same", runtimeClassName="vm", overhead={"cpu": "0.25", "memory": "120Mi"})
            )
            for name, wrong, text in (
                ("b", {"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
                ("c", {"overhead": {"cpu": "1"}}, "without corresponding RuntimeClass"),
                ("d", {"runtimeClassName": "vm", "overhead": {"cpu": "1"}}, "doesn't match RuntimeClass's"),
                ("e", {"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}, "conflict: runtimeClass"),
            ):
                error = await api.refused(api.create(PODS, pod(name, **wrong)))
                assert error.code == 403
                assert text in error.message

        with_server(tell)


class TestServiceAccount:
    def test_every_namespace_has_one_and_every_pod_uses_one(self) -> None:
        async def tell(api: Api) -> None:
            await api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
            assert await api.names(ACCOUNTS.format("team")) == ["default"]
            await api.delete(ACCOUNTS.format("team") + "/default")
            assert await api.names(ACCOUNTS.format("team")) == ["default"]
            assert (await api.create(PODS, pod("a")))["spec"]["serviceAccountName"] == "default"
            error = await api.refused(api.create(PODS, pod("b", serviceAccountName="robot")))
            assert error.message == (
                'pods "b" is forbidden: error looking up service account default/robot: serviceaccount '
                '"robot" not found'
            )
            secrets = {"imagePullSecrets": [{"name": "registry"}]}
            await api.create(ACCOUNTS.format("default"), {"metadata": {"name": "robot"}, **secrets})
            spec = (await api.create(PODS, pod("b", serviceAccountName="robot")))["spec"]
            assert spec["imagePullSecrets"] == secrets["imagePullSecrets"]

        with_server(tell)


class TestLimitRange:
    def test_fills_in_what_containers_do_not_say(self) -> None:
        async def tell(api: Api) -> None:
            limit = {
                "type": "Container",
                "default": {"cpu": "2", "memory": "1Gi"},
                "defaultRequest": {"cpu": "1"},
            }
            await api.create(LIMITS, {"metadata": {"name": "usual"}, "spec": {"limits": [limit]}})
            made = await api.create(PODS, pod("a"))
            assert made["spec"]["containers"][0]["resources"] == {
                "limits": {"cpu": "2", "memory": "1Gi"},
                "requests": {"cpu": "1", "memory": "1Gi"},
            }
            assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
                "LimitRanger plugin set: cpu, memory request for container main; cpu, memory limit for "
                "container main"
            )
            assert made["status"]["qosClass"] == "Burstable"
            own = await api.create(PODS, asking("b", {"cpu": "3"}))
            assert own["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "3"

        with_server(tell)

    @pytest.mark.parametrize(
        ("limit", "asked", "text"),
        [
            (
                {"type": "Container", "min": {"cpu": "1"}},
                asking("p", cpu="500m"),
                "minimum cpu usage per Container is 1, but request is 500m",
            ),
            (
                {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}},
                asking("p", {"cpu": "2"}),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
                asking("p", {"cpu": "4"}, cpu="1"),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            ),
            (
                {"type": "Pod", "max": {"memory": "1Gi"}},
                pod("p"),
                "maximum memory usage per Pod is 1Gi.  No limit is specified",
            ),
        ],
    )
    def test_refuses_what_is_out_of_bounds(self, limit: Object, asked: Object, text: str) -> None:
        async def tell(api: Api) -> None:
            await api.create(LIMITS, {"metadata": {"name": "usual"}, "spec": {"limits": [limit]}})
            error = await api.refused(api.create(PODS, asked))
            assert (error.code, error.message) == (403, f'pods "p" is forbidden: {text}')

        with_server(tell)

    def test_bounds_claims_too(self) -> None:
        async def tell(api: Api) -> None:
            limit = {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}
            await api.create(LIMITS, {"metadata": {"name": "usual"}, "spec": {"limits": [limit]}})
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
            path = "/api/v1/namespaces/default/persistentvolumeclaims"
            error = await api.refused(api.create(path, {"metadata": {"name": "c"}, "spec": spec}))
            assert (
                "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi" in error.message
            )

        with_server(tell)


async def quota(cluster: Cluster, name: str = "q", namespace: str = "default", **spec: Any) -> None:
    meta = {"name": name, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec}
    await cluster.client.create(RESOURCE_QUOTAS, body)


async def used(cluster: Cluster, name: str = "q") -> Object:
    found = await cluster.client.get(RESOURCE_QUOTAS, name, "default")
    return dict(found["status"]["used"])


async def make(cluster: Cluster, body: Object) -> Object:
    return await cluster.client.create(
        POD_RESOURCE, {**body, "metadata": {**body["metadata"], "namespace": "default"}}
    )


class TestResourceQuota:
    def test_rejects_writes_above_the_hard_limit_and_releases_ended_pods(self) -> None:
        async def tell(cluster: Cluster) -> None:
            await quota(cluster, hard={"pods": "5", "requests.nvidia.com/gpu": "4", "memory": "4Gi"})
            with pytest.raises(ApiError, match="status unknown for quota: q, resources: "):
                await make(cluster, asking("early", {"nvidia.com/gpu": "1"}, memory="1Gi"))
            await cluster.wait(1)
            first = await make(cluster, asking("a", {"nvidia.com/gpu": "3"}, memory="1Gi"))
            assert await used(cluster) == {"pods": "1", "requests.nvidia.com/gpu": "3", "memory": "1Gi"}
            with pytest.raises(ApiError) as refused:
                await make(cluster, asking("b", {"nvidia.com/gpu": "2"}, memory="1Gi"))
            assert (refused.value.code, refused.value.message) == (
                403,
                'pods "b" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=2, used: '
                "requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4",
            )
            with pytest.raises(ApiError, match="failed quota: q: must specify memory for: main"):
                await make(cluster, pod("c"))
            await cluster.bind(first)
            await cluster.succeed(first)
            await cluster.wait(1)
            assert await used(cluster) == {"pods": "0", "requests.nvidia.com/gpu": "0", "memory": "0"}
            await make(cluster, asking("b", {"nvidia.com/gpu": "2"}, memory="1Gi"))

        story(tell)

    def test_counts_objects_of_any_kind(self) -> None:
        async def tell(cluster: Cluster) -> None:
            await quota(cluster, hard={"count/jobs.batch": "1", "configmaps": "1"})
            await cluster.wait(1)
            await cluster.create_job("one", suspend=True)
            with pytest.raises(ApiError, match=r"exceeded quota: q, requested: count/jobs.batch=1"):
                await cluster.create_job("two", suspend=True)
            assert await used(cluster) == {"count/jobs.batch": "1", "configmaps": "0"}

        story(tell)

    def test_a_scope_narrows_what_is_counted(self) -> None:
        async def tell(cluster: Cluster) -> None:
            await quota(cluster, hard={"pods": "1"}, scopes=["BestEffort"])
            matches = [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]
            await quota(cluster, "critical", hard={"pods": "0"}, scopeSelector={"matchExpressions": matches})
            await cluster.wait(1)
            await make(cluster, pod("a"))
            await make(cluster, asking("b", cpu="1"))
            with pytest.raises(ApiError, match="exceeded quota: q, requested: pods=1, used: pods=1"):
                await make(cluster, pod("c"))
            with pytest.raises(ApiError, match="exceeded quota: critical"):
                await make(
                    cluster,
                    {
                        **asking("d", cpu="1"),
                        "spec": {**asking("d", cpu="1")["spec"], "priorityClassName": "system-node-critical"},
                    },
                )

        story(tell)

    def test_jobs_are_let_in_and_their_pods_wait(self) -> None:
        async def tell(cluster: Cluster) -> None:
            await quota(cluster, hard={"pods": "4"})
            await cluster.wait(1)
            await cluster.create_job("wide", parallelism=8, completions=8)
            await cluster.wait(5)
            assert len(await cluster.pods("wide")) == 4
            told = [note for _, reason, note in await cluster.events("wide") if reason == "FailedCreate"]
            assert any(
                "exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4" in one for one in told
            )

        story(tell)

    def test_a_dry_run_is_checked_and_not_counted(self) -> None:
        async def tell(api: Api) -> None:
            path = "/api/v1/namespaces/default/resourcequotas"
            await api.create(path, {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}})
            status = {"hard": {"configmaps": "1"}, "used": {"configmaps": "0"}}
            await api.patch(f"{path}/q/status", {"status": status})
            await api.create(CONFIG_MAPS, config_map("a"), dryRun="All")
            await api.create(CONFIG_MAPS, config_map("a"))
            assert (await api.refused(api.create(CONFIG_MAPS, config_map("b"), dryRun="All"))).code == 403

        with_server(tell)
