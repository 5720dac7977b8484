"""The official Python client against the server: typed API, dynamic client, watches, leader election."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import kubernetes.client as k8s
import pytest
from clients_harness import WIDGETS, config_map, pod
from kubernetes import config, dynamic, utils, watch
from kubernetes.client.rest import ApiException

from pykueue.testing import RunningServer, pykueue_server, running_server  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        server.install_definitions(WIDGETS)
        yield server


@pytest.fixture
def api(server: RunningServer) -> Iterator[k8s.ApiClient]:
    """A client as a program gets it that reads its kubeconfig."""
    api = config.new_client_from_config(str(server.kubeconfig))
    yield api
    api.rest_client.pool_manager.clear()
    api.close()


@pytest.fixture
def namespace(api: k8s.ApiClient) -> str:
    made = k8s.CoreV1Api(api).create_namespace(
        k8s.V1Namespace(metadata=k8s.V1ObjectMeta(generate_name="python-"))
    )
    name: str = made.metadata.name
    return name


def test_a_fresh_server_for_one_test(pykueue_server: RunningServer) -> None:  # noqa: F811
    api = config.new_client_from_config(str(pykueue_server.kubeconfig))
    assert {one.metadata.name for one in k8s.CoreV1Api(api).list_namespace().items} >= {"default"}
    api.rest_client.pool_manager.clear()


class TestTyped:
    def test_the_life_of_a_job(self, api: k8s.ApiClient, namespace: str) -> None:
        batch = k8s.BatchV1Api(api)
        template = k8s.V1PodTemplateSpec(
            spec=k8s.V1PodSpec(
                restart_policy="Never", containers=[k8s.V1Container(name="main", image="busybox")]
            )
        )
        job = k8s.V1Job(
            metadata=k8s.V1ObjectMeta(name="j"), spec=k8s.V1JobSpec(suspend=True, template=template)
        )
        made = batch.create_namespaced_job(namespace, job)
        assert (made.kind, made.api_version, made.spec.parallelism) == ("Job", "batch/v1", 1)
        batch.patch_namespaced_job("j", namespace, {"spec": {"parallelism": 2}})
        read = batch.read_namespaced_job("j", namespace)
        assert read.spec.parallelism == 2
        read.metadata.labels["more"] = "yes"
        replaced = batch.replace_namespaced_job("j", namespace, read)
        with pytest.raises(ApiException) as stale:
            batch.replace_namespaced_job("j", namespace, read)
        assert (stale.value.status, stale.value.reason) == (409, "Conflict")
        replaced.status = k8s.V1JobStatus(active=0)
        assert batch.replace_namespaced_job_status("j", namespace, replaced).metadata.labels["more"] == "yes"
        batch.delete_namespaced_job("j", namespace, propagation_policy="Background")
        with pytest.raises(ApiException) as gone:
            batch.read_namespaced_job("j", namespace)
        assert gone.value.status == 404

    def test_lists_in_pages_and_by_selectors(self, api: k8s.ApiClient, namespace: str) -> None:
        core = k8s.CoreV1Api(api)
        for number in range(5):
            labels = {"odd": str(number % 2)}
            core.create_namespaced_config_map(namespace, config_map(f"c{number}", labels))
        first = core.list_namespaced_config_map(namespace, limit=2)
        assert first.metadata.remaining_item_count == 3
        rest = core.list_namespaced_config_map(namespace, _continue=first.metadata._continue)
        assert [one.metadata.name for one in first.items + rest.items] == [f"c{n}" for n in range(5)]
        odd = core.list_namespaced_config_map(namespace, label_selector="odd=1")
        assert [one.metadata.name for one in odd.items] == ["c1", "c3"]
        core.delete_collection_namespaced_config_map(namespace, label_selector="odd=0")
        assert len(core.list_namespaced_config_map(namespace).items) == 2

    def test_pods_bindings_evictions_and_scale(self, api: k8s.ApiClient, namespace: str) -> None:
        core, apps = k8s.CoreV1Api(api), k8s.AppsV1Api(api)
        core.create_namespaced_pod(namespace, pod("p"))
        target = k8s.V1ObjectReference(kind="Node", name="n")
        binding = k8s.V1Binding(metadata=k8s.V1ObjectMeta(name="p"), target=target)
        core.create_namespaced_pod_binding("p", namespace, binding, _preload_content=False)
        assert core.read_namespaced_pod("p", namespace).spec.node_name == "n"
        eviction = k8s.V1Eviction(metadata=k8s.V1ObjectMeta(name="p"))
        core.create_namespaced_pod_eviction("p", namespace, eviction)
        selector = k8s.V1LabelSelector(match_labels={"a": "b"})
        template = k8s.V1PodTemplateSpec(
            metadata=k8s.V1ObjectMeta(labels={"a": "b"}),
            spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="b")]),
        )
        spec = k8s.V1DeploymentSpec(replicas=0, selector=selector, template=template)
        apps.create_namespaced_deployment(
            namespace, k8s.V1Deployment(metadata=k8s.V1ObjectMeta(name="d"), spec=spec)
        )
        apps.patch_namespaced_deployment_scale("d", namespace, {"spec": {"replicas": 3}})
        assert apps.read_namespaced_deployment_scale("d", namespace).spec.replicas == 3

    def test_custom_objects(self, api: k8s.ApiClient, namespace: str) -> None:
        custom = k8s.CustomObjectsApi(api)
        where = ("example.com", "v1", namespace, "widgets")
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
        assert custom.create_namespaced_custom_object(*where, body)["spec"] == {"size": 3}
        custom.patch_namespaced_custom_object(*where, "w", {"spec": {"size": 4}})
        custom.patch_namespaced_custom_object_status(*where, "w", {"status": {"phase": "On"}})
        read = custom.get_namespaced_custom_object(*where, "w")
        assert (read["spec"], read["status"]) == ({"size": 4}, {"phase": "On"})
        custom.delete_namespaced_custom_object(*where, "w")

    def test_errors_are_status_objects(self, api: k8s.ApiClient, namespace: str) -> None:
        with pytest.raises(ApiException) as refused:
            k8s.CoreV1Api(api).create_namespaced_pod(namespace, pod("p", restartPolicy="Sometimes"))
        assert refused.value.status == 422
        assert '"reason":"Invalid"' in refused.value.body

    def test_reviews_and_discovery(self, api: k8s.ApiClient) -> None:
        review = k8s.V1SelfSubjectAccessReview(
            spec=k8s.V1SelfSubjectAccessReviewSpec(
                resource_attributes=k8s.V1ResourceAttributes(verb="get", resource="pods")
            )
        )
        assert k8s.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed is True
        assert k8s.VersionApi(api).get_code().major == "1"
        assert "batch" in {one.name for one in k8s.ApisApi(api).get_api_versions().groups}
        assert "pods" in {one.name for one in k8s.CoreV1Api(api).get_api_resources().resources}

    def test_manifests(self, api: k8s.ApiClient, namespace: str) -> None:
        utils.create_from_dict(api, config_map("from-dict"), namespace=namespace)
        assert k8s.CoreV1Api(api).read_namespaced_config_map("from-dict", namespace)


class TestWatch:
    def test_replay_then_changes(self, api: k8s.ApiClient, namespace: str) -> None:
        core = k8s.CoreV1Api(api)
        core.create_namespaced_config_map(namespace, config_map("a"))
        seen = []
        watcher = watch.Watch()
        for event in watcher.stream(core.list_namespaced_config_map, namespace, timeout_seconds=60):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                core.patch_namespaced_config_map("a", namespace, {"data": {"x": "y"}})
            elif len(seen) == 2:
                core.delete_namespaced_config_map("a", namespace)
            else:
                watcher.stop()
        assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]

    def test_from_a_list(self, api: k8s.ApiClient, namespace: str) -> None:
        core = k8s.CoreV1Api(api)
        listed = core.list_namespaced_config_map(namespace)
        core.create_namespaced_config_map(namespace, config_map("later"))
        watcher = watch.Watch()
        stream = watcher.stream(
            core.list_namespaced_config_map,
            namespace,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=60,
        )
        assert next(stream)["object"].metadata.name == "later"
        watcher.stop()
        stream.close()

    def test_it_ends_in_time(self, api: k8s.ApiClient, namespace: str) -> None:
        core = k8s.CoreV1Api(api)
        assert list(watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=1)) == []


class TestDynamic:
    @pytest.fixture
    def client(self, api: k8s.ApiClient, tmp_path: Any) -> dynamic.DynamicClient:
        return dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))

    def test_any_kind(self, client: dynamic.DynamicClient, namespace: str) -> None:
        widgets = client.resources.get(api_version="example.com/v1", kind="Widget")
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        widgets.create(body=body, namespace=namespace)
        widgets.patch(
            name="w", namespace=namespace, body={"spec": {"size": 5}},
            content_type="application/merge-patch+json",
        )  # fmt: skip
        assert widgets.get(name="w", namespace=namespace).spec.size == 5
        assert [one.metadata.name for one in widgets.get(namespace=namespace).items] == ["w"]
        widgets.delete(name="w", namespace=namespace)

    def test_server_side_apply(self, client: dynamic.DynamicClient, namespace: str) -> None:
        maps = client.resources.get(api_version="v1", kind="ConfigMap")
        maps.server_side_apply(
            body=config_map("c", a="1"), namespace=namespace, name="c", field_manager="one"
        )
        with pytest.raises(dynamic.exceptions.ConflictError):
            maps.server_side_apply(
                body=config_map("c", a="2"), namespace=namespace, name="c", field_manager="two"
            )
        taken = maps.server_side_apply(
            body=config_map("c", a="2"), namespace=namespace, name="c", field_manager="two",
            force_conflicts=True,
        )  # fmt: skip
        assert taken.data.a == "2"

    def test_a_watch(self, client: dynamic.DynamicClient, namespace: str) -> None:
        maps = client.resources.get(api_version="v1", kind="ConfigMap")
        maps.create(body=config_map("c"), namespace=namespace)
        watcher = watch.Watch()
        for event in maps.watch(namespace=namespace, timeout=60, watcher=watcher):
            assert (event["type"], event["object"].metadata.name) == ("ADDED", "c")
            watcher.stop()


def test_a_leader_is_elected_and_steps_down(server: RunningServer, namespace: str) -> None:
    election = pytest.importorskip("kubernetes.leaderelection.leaderelection")
    from kubernetes.leaderelection import electionconfig
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

    leading, stopping = threading.Event(), threading.Event()

    class Lock(LeaseLock):
        def update(self, *arguments: Any) -> Any:
            return False if stopping.is_set() else super().update(*arguments)

    config.load_kube_config(str(server.kubeconfig))
    settings = electionconfig.Config(
        Lock("lock", namespace, "me"),
        lease_duration=3,
        renew_deadline=2,
        retry_period=1,
        onstarted_leading=leading.set,
        onstopped_leading=None,
    )
    thread = threading.Thread(target=election.LeaderElection(settings).run)
    thread.start()
    try:
        assert leading.wait(60)
        lease = k8s.CoordinationV1Api().read_namespaced_lease("lock", namespace)
        assert lease.spec.holder_identity == "me"
    finally:
        stopping.set()
        thread.join()
