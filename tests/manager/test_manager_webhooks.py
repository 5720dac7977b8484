"""What is filled in and what is refused when jobs and queues are written."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from pykueue.api.yaml import load_documents
from pykueue.jobs.job import BatchJob
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.manager.ancestors import Owner
from pykueue.manager.configuration import parse
from pykueue.manager.webhooks import Registration, webhooks

Object = dict[str, Any]
PREFIX = "kueue.x-k8s.io/"
SAMPLES = Path(__file__).parents[1] / "jobs" / "samples"


@dataclass
class Cluster:
    """A cluster as the rules see it."""

    managed: bool = True
    default_queue: bool = False
    default_priority: bool = False
    elsewhere: bool = False
    owner: Object | None = None
    asked: list[str] = field(default_factory=list)

    def manages_namespace(self, namespace: str) -> bool:
        self.asked.append(namespace)
        return self.managed

    def has_default_queue(self, namespace: str) -> bool:
        return self.default_queue

    def has_default_priority_class(self) -> bool:
        return self.default_priority

    def runs_elsewhere(self, namespace: str, queue: str) -> bool:
        return self.elsewhere

    def queued_owner(self, obj: Mapping[str, Any]) -> Owner | None:
        return None if self.owner is None or obj is self.owner else Owner(self.owner)


def hook(name: str, cluster: Cluster | None = None, configuration: str = "") -> Registration:
    text = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{configuration}"
    found = webhooks(parse(text), cluster or Cluster(), JobKinds([BatchJob()]))
    return next(registration for registration in found if registration.name == name)


def ask(registration: Registration, obj: Object, old: Object | None = None) -> Object:
    request = {"uid": "r", "operation": "UPDATE" if old else "CREATE", "object": obj, "oldObject": old}
    answer = asyncio.run(registration.review({"apiVersion": "admission.k8s.io/v1", "request": request}))
    assert answer["response"]["uid"] == "r"
    response: Object = answer["response"]
    return response


def filled(obj: Object, cluster: Cluster | None = None, configuration: str = "") -> Object:
    response = ask(hook("mjob.kb.io", cluster, configuration), obj)
    for operation in orjson.loads(base64.b64decode(response.get("patch", b"W10="))):
        obj = {**obj, operation["path"].removeprefix("/"): operation["value"]}
    return obj


def refusals(obj: Object, old: Object | None = None, **cluster: Any) -> list[str]:
    response = ask(hook("vjob.kb.io", Cluster(**cluster)), obj, old)
    causes = response.get("status", {}).get("details", {}).get("causes", [])
    assert response["allowed"] is not bool(causes)
    return [f"{cause['field']}: {cause['message']}" for cause in causes]


def job(
    queue: str | None = "lq",
    suspend: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    own = {f"{PREFIX}queue-name": queue} if queue is not None else {}
    return {
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "labels": {**own, **{PREFIX + key: value for key, value in (labels or {}).items()}},
            "annotations": {PREFIX + key: value for key, value in (annotations or {}).items()},
        },
        "spec": {"parallelism": 4, "suspend": suspend, "template": {"spec": {}}, **spec},
    }


class TestFillingIn:
    def test_a_queued_job_is_suspended(self) -> None:
        assert filled(job())["spec"]["suspend"] is True

    def test_a_job_without_a_queue_is_left_alone(self) -> None:
        assert filled(job(None)) == job(None)

    def test_every_job_is_suspended_where_all_are_managed(self) -> None:
        configuration = "manageJobsWithoutQueueName: true\n"
        assert filled(job(None), configuration=configuration)["spec"]["suspend"] is True
        unmanaged = Cluster(managed=False)
        assert filled(job(None), unmanaged, configuration) == job(None)

    def test_the_deprecated_annotation_counts_where_there_is_no_label(self) -> None:
        assert filled(job(None, annotations={"queue-name": "lq"}))["spec"]["suspend"] is True

    def test_the_default_queue_and_priority_are_taken_where_none_is_named(self) -> None:
        labels = filled(job(None), Cluster(default_queue=True, default_priority=True))["metadata"]["labels"]
        assert labels == {f"{PREFIX}queue-name": "default", f"{PREFIX}priority-class": "default"}
        kept = filled(
            job(labels={"priority-class": "high"}), Cluster(default_queue=True, default_priority=True)
        )
        assert kept["metadata"]["labels"][f"{PREFIX}queue-name"] == "lq"
        assert kept["metadata"]["labels"][f"{PREFIX}priority-class"] == "high"

    def test_job_owned_by_a_managed_job_is_not_queued(self) -> None:
        assert filled(job(), Cluster(owner=job())) == job()
        assert filled(job(), Cluster(owner=job(None)))["spec"]["suspend"] is True

    def test_job_of_another_cluster_gets_managed_by(self) -> None:
        assert filled(job(), Cluster(elsewhere=True))["spec"]["managedBy"] == f"{PREFIX}multikueue"
        foreign = job(managedBy="example.com/other")
        assert filled(foreign, Cluster(elsewhere=True))["spec"]["managedBy"] == "example.com/other"


class TestRefusing:
    @pytest.mark.parametrize(
        ("obj", "field"),
        [
            (job("Not A Name"), "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value"),
            (job(labels={"prebuilt-workload-name": "X_"}), "prebuilt-workload-name"),
            (job(labels={"max-exec-time-seconds": "0"}), "max-exec-time-seconds"),
            (job(labels={"max-exec-time-seconds": "1h"}), "max-exec-time-seconds"),
            (job(annotations={"admission-gated-by": "nodomain"}), "admission-gated-by"),
            (job(annotations={"admission-gated-by": "a.b/c,a.b/c"}), "Duplicate value"),
            (job(suspend=True, annotations={"job-min-parallelism": "4"}), "a whole number from 1 to 3"),
            (
                job(parallelism=1, suspend=True, annotations={"job-min-parallelism": "-3"}),
                "must be at least 1 and less than spec.parallelism, which must be 2 or more",
            ),
            (job(annotations={"job-min-parallelism": "x"}), "job-min-parallelism"),
            (job(annotations={"job-completions-equal-parallelism": "yes"}), "Unsupported value"),
            (
                job(annotations={"job-completions-equal-parallelism": "true"}),
                "needs spec.completionMode Indexed",
            ),
        ],
    )
    def test_a_new_job_with_a_wrong_field_is_named(self, obj: Object, field: str) -> None:
        assert field in "\n".join(refusals(obj))

    def test_labels_of_a_job_without_a_queue_are_checked_too(self) -> None:
        (refusal,) = refusals(job(None, labels={"max-exec-time-seconds": "x"}))
        assert refusal.startswith(f"metadata.labels[{PREFIX}max-exec-time-seconds]: ")

    @pytest.mark.parametrize(
        ("new", "old", "refused"),
        [
            (job("b"), job("a"), True),
            (job("b", suspend=True), job("a", suspend=True), False),
            (job(None), job("a"), True),
            (job(None, suspend=True), job("a", suspend=True), False),
            (job(labels={"priority-class": "b"}), job(labels={"priority-class": "a"}), False),
            (job(labels={"priority-class": "b"}), job(), True),
            (job(suspend=True, labels={"priority-class": "b"}), job(suspend=True), False),
            (job(suspend=True), job(suspend=True, labels={"priority-class": "a"}), True),
            (job(labels={"max-exec-time-seconds": "5"}), job(), True),
            (job(annotations={"admission-gated-by": "a.b/c"}), job(), True),
            (job(), job(annotations={"admission-gated-by": "a.b/c"}), False),
            (job(annotations={"elastic-job": "true"}, suspend=True), job(suspend=True), True),
            (
                job(annotations={"job-min-parallelism": "2"}, parallelism=3),
                job(annotations={"job-min-parallelism": "2"}),
                True,
            ),
        ],
    )
    def test_mutable_fields_depend_on_whether_the_job_runs(
        self, new: Object, old: Object, refused: bool
    ) -> None:
        assert bool(refusals(new, old)) is refused

    def test_the_end_of_a_stop_passes_whatever_parallelism_the_user_wrote_meanwhile(self) -> None:
        """The minimum does not bind while a job stops, and no other write comes before that."""

        def suspended(parallelism: int, **more: str) -> Object:
            annotations = {"job-min-parallelism": "1", **more}
            return job(suspend=True, annotations=annotations, parallelism=parallelism)

        assert refusals(suspended(1), suspended(1, stopping="true")) == []
        assert "job-min-parallelism" in refusals(suspended(1), suspended(4))[0]

    def test_a_queue_cannot_be_dropped_where_another_would_be_filled_in(self) -> None:
        found = refusals(job(None, suspend=True), job("a", suspend=True), default_queue=True)
        assert "default LocalQueue" in found[0]

    def test_job_that_is_being_deleted_passes(self) -> None:
        dying = job("Not A Name")
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert refusals(dying) == []

    def test_the_deprecated_annotation_is_warned_of(self) -> None:
        response = ask(hook("vjob.kb.io"), job(None, annotations={"queue-name": "lq"}))
        assert response["allowed"] is True
        assert "deprecated" in response["warnings"][0]


def test_queues_and_flavors_get_the_finalizer_that_keeps_them_in_use() -> None:
    obj = {"apiVersion": f"{PREFIX}v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {}}
    response = ask(hook("mclusterqueue.kb.io"), obj)
    (operation,) = [o for o in orjson.loads(base64.b64decode(response["patch"])) if o["path"] == "/metadata"]
    assert operation["value"]["finalizers"] == [f"{PREFIX}resource-in-use"]


def test_a_queue_that_breaks_a_rule_is_refused_with_the_field() -> None:
    quota = {"name": "cpu", "nominalQuota": "1", "lendingLimit": "2"}
    flavors = [{"name": "f", "resources": [quota]}]
    obj = {
        "apiVersion": f"{PREFIX}v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"cohortName": "c", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]},
    }
    response = ask(hook("vclusterqueue.kb.io"), obj)
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert "lendingLimit" in response["status"]["message"]


def test_quota_that_is_rounded_up_gets_a_warning() -> None:
    def queue(gpus: str) -> Object:
        resources = [
            {"name": "cpu", "nominalQuota": "500m"},
            {"name": "nvidia.com/gpu", "nominalQuota": gpus},
        ]
        group = {
            "coveredResources": ["cpu", "nvidia.com/gpu"],
            "flavors": [{"name": "f", "resources": resources}],
        }
        metadata = {"name": "cq"}
        spec = {"resourceGroups": [group]}
        return {"apiVersion": f"{PREFIX}v1beta2", "kind": "ClusterQueue", "metadata": metadata, "spec": spec}

    (warning,) = ask(hook("vclusterqueue.kb.io"), queue("4800m"))["warnings"]
    assert "nominalQuota 4800m of nvidia.com/gpu in flavor f counts as 5" in warning
    assert "warnings" not in ask(hook("vclusterqueue.kb.io"), queue("4800m"), queue("4800m"))
    assert "warnings" not in ask(hook("vclusterqueue.kb.io"), queue("5"))


def test_system_namespaces_are_left_alone_and_rules_name_what_they_are_for() -> None:
    registration = hook("vworkload.kb.io")
    assert registration.rules[0]["resources"] == ["workloads", "workloads/status"]
    assert registration.namespace_selector is None
    assert registration.path == "/validate-kueue-x-k8s-io-v1beta2-workload"
    selector = hook("mjob.kb.io").namespace_selector
    assert selector is not None
    assert selector["matchExpressions"][0]["values"] == ["kube-system", "kueue-system"]


@pytest.mark.parametrize(("before", "after", "allowed"), [(2, 0, True), (0, 3, True), (2, 3, False)])
def test_a_stateful_set_is_scaled_from_or_to_zero(before: int, after: int, allowed: bool) -> None:
    class WithSet(Cluster):
        def stateful_set(self, namespace: str, name: str) -> Object:
            labels = {f"{PREFIX}queue-name": "q"}
            return {
                "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
            }

    def scale(replicas: int) -> Object:
        # A server leaves zero out.
        spec = {"replicas": replicas} if replicas else {}
        metadata = {"name": "web", "namespace": "default"}
        return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec}

    found = webhooks(
        parse("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"), WithSet(), BUILT_IN
    )
    registration = next(one for one in found if one.name == "vstatefulset.kb.io")
    assert ask(registration, scale(after), scale(before))["allowed"] is allowed


def allowed(webhook: str, gates: str, frameworks: str, obj: Object, old: Object) -> bool:
    configuration = f"integrations: {{frameworks: [{frameworks}]}}\nfeatureGates: {{{gates}}}\n"
    text = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{configuration}"
    found = webhooks(parse(text), Cluster(), BUILT_IN)
    (registration,) = [one for one in found if one.path == webhook]
    return bool(ask(registration, obj, old)["allowed"])


@pytest.mark.parametrize("on", ["true", "false"])
def test_ray_cluster_that_leaves_its_queue_is_checked_by_its_gate(on: str) -> None:
    (old,) = load_documents((SAMPLES / "raycluster.yaml").read_text(), "sample")
    new = {**old, "metadata": {**old["metadata"], "labels": {f"{PREFIX}queue-name": ""}}}
    new["spec"] = {**old["spec"], "suspend": False}
    gate = f"ValidateRayAndSparkJobUpdates: {on}"
    path = "/validate-ray-io-v1-raycluster"
    assert allowed(path, gate, "ray.io/raycluster", new, old) is (on == "false")


@pytest.mark.parametrize("on", ["true", "false"])
def test_size_of_a_queued_leader_worker_set_is_fixed_by_its_gate(on: str) -> None:
    (old,) = load_documents((SAMPLES / "leaderworkerset.yaml").read_text(), "sample")
    template = old["spec"]["leaderWorkerTemplate"]
    spec = {**old["spec"], "leaderWorkerTemplate": {**template, "size": int(template.get("size", 1)) + 1}}
    gate, path = f"LWSImmutableGroupSize: {on}", "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
    frameworks = "leaderworkerset.x-k8s.io/leaderworkerset, pod"
    assert allowed(path, gate, frameworks, {**old, "spec": spec}, old) is (on == "false")
