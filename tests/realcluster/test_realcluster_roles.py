"""Who may do what, as the API server's own authorizer decides (docs/reference/kueue-api.md 10.3)."""

from __future__ import annotations

from typing import Any

import pytest
from realcluster_install import NAMESPACE, USER, Installation
from realcluster_plane import Kubectl, Plane

KUEUE = "kueue.x-k8s.io"
TEAM = "team"
READ, WRITE = ("get", "list", "watch"), ("create", "delete", "patch", "update")

#: User -> the ClusterRole bound to it in the namespace TEAM, or everywhere where it begins with a star.
USERS = {
    "ada": "*kueue-batch-admin-role",
    "ben": "kueue-batch-user-role",
    "eve": "kueue-job-editor-role",
    "vic": "kueue-localqueue-viewer-role",
    "reader": "view",
    "owner": "*admin",
}


@pytest.fixture(scope="module", autouse=True)
def _bound(installed: Installation) -> None:
    objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}]
    for user, role in USERS.items():
        everywhere = role.startswith("*")
        binding: dict[str, Any] = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if everywhere else "RoleBinding",
            "metadata": {"name": f"test-{user}", **({} if everywhere else {"namespace": TEAM})},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role.lstrip("*"),
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        objects.append(binding)
    installed.plane.kubectl.apply(*objects)


def can_i(kubectl: Kubectl, user: str, verb: str, resource: str, *more: str) -> bool:
    done = kubectl.run("auth", "can-i", verb, resource, "--as", user, *more)
    answer = done.stdout.strip()
    assert answer in ("yes", "no"), done.stderr
    return answer == "yes"


class Question(dict[str, str]):
    """Attributes of one access; what is left out is empty."""

    def __init__(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> None:
        plain, _, subresource = resource.partition("/")
        attributes = {
            "verb": verb,
            "group": group,
            "resource": plain,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }
        super().__init__({key: value for key, value in attributes.items() if value})


def allowed(plane: Plane, user: str, question: Question) -> bool:
    groups = ["system:authenticated"]
    if user == USER:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": dict(question)},
    }
    answer = plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def check(plane: Plane, user: str, expected: dict[bool, list[Question]]) -> None:
    for answer, questions in expected.items():
        wrong = [question for question in questions if allowed(plane, user, question) != answer]
        assert not wrong, f"{user}: expected {answer} of {wrong}"


def each(verbs: tuple[str, ...], group: str, *resources: str, namespace: str = "") -> list[Question]:
    return [Question(verb, group, resource, namespace) for verb in verbs for resource in resources]


class TestPeople:
    def test_kubectl_auth_can_i_answers(self, kubectl: Kubectl) -> None:
        assert can_i(kubectl, "ada", "create", "clusterqueues.kueue.x-k8s.io")
        assert not can_i(kubectl, "ben", "create", "clusterqueues.kueue.x-k8s.io")
        assert can_i(kubectl, "ben", "create", "jobs.batch", "-n", TEAM)
        assert not can_i(kubectl, "ben", "create", "jobs.batch", "-n", "default")
        assert can_i(kubectl, "vic", "list", "localqueues.kueue.x-k8s.io", "-n", TEAM)
        assert not can_i(kubectl, "vic", "patch", "localqueues.kueue.x-k8s.io", "-n", TEAM)

    def test_batch_admins_keep_queues_everywhere(self, plane: Plane) -> None:
        queues = ("clusterqueues", "cohorts", "resourceflavors", "topologies", "localqueues", "workloads")
        check(
            plane,
            "ada",
            {
                True: [
                    *each((*READ, *WRITE), KUEUE, *queues),
                    *each((*READ, *WRITE), "batch", "jobs"),
                    *each((*READ, *WRITE), "jobset.x-k8s.io", "jobsets"),
                    *each((*READ, *WRITE), "ray.io", "rayjobs", "rayclusters", "rayservices"),
                    *each(
                        READ,
                        "visibility.kueue.x-k8s.io",
                        "clusterqueues/pendingworkloads",
                        "localqueues/pendingworkloads",
                    ),
                    *each(("get",), KUEUE, "clusterqueues/status", "workloads/status"),
                ],
                False: [
                    *each(("patch", "update"), KUEUE, "workloads/status", "clusterqueues/status"),
                    *each(WRITE, KUEUE, "workloadpriorityclasses", "admissionchecks", "multikueueclusters"),
                    *each(READ, "", "secrets", "pods"),
                    *each(WRITE, "rbac.authorization.k8s.io", "clusterroles"),
                ],
            },
        )

    def test_batch_users_run_jobs_in_their_namespace(self, plane: Plane) -> None:
        here = {"namespace": TEAM}
        check(
            plane,
            "ben",
            {
                True: [
                    *each((*READ, *WRITE), "batch", "jobs", **here),
                    *each((*READ, *WRITE), "jobset.x-k8s.io", "jobsets", **here),
                    *each((*READ, *WRITE), "kubeflow.org", "pytorchjobs", "mpijobs", **here),
                    *each((*READ, *WRITE), "ray.io", "rayjobs", "rayclusters", **here),
                    *each(READ, KUEUE, "localqueues", "workloads", **here),
                    *each(READ, "visibility.kueue.x-k8s.io", "localqueues/pendingworkloads", **here),
                    *each(("get",), "visibility.kueue.x-k8s.io", "workloads/why", **here),
                ],
                False: [
                    *each(WRITE, KUEUE, "localqueues", "workloads", **here),
                    *each(READ, KUEUE, "clusterqueues", "resourceflavors", "cohorts"),
                    *each(READ, "visibility.kueue.x-k8s.io", "clusterqueues/pendingworkloads"),
                    *each((*READ, *WRITE), "batch", "jobs"),
                    *each(READ, KUEUE, "workloads", namespace="default"),
                    *each(("patch", "update"), "batch", "jobs/status", **here),
                ],
            },
        )

    def test_an_editor_of_one_kind_edits_that_kind(self, plane: Plane) -> None:
        check(
            plane,
            "eve",
            {
                True: each((*READ, *WRITE), "batch", "jobs", namespace=TEAM),
                False: [
                    *each(READ, "jobset.x-k8s.io", "jobsets", namespace=TEAM),
                    *each(READ, KUEUE, "workloads", namespace=TEAM),
                ],
            },
        )

    def test_a_viewer_of_one_kind_views_that_kind(self, plane: Plane) -> None:
        check(
            plane,
            "vic",
            {
                True: each(READ, KUEUE, "localqueues", namespace=TEAM),
                False: [
                    *each(WRITE, KUEUE, "localqueues", namespace=TEAM),
                    *each(READ, KUEUE, "workloads", namespace=TEAM),
                ],
            },
        )

    def test_the_roles_every_cluster_has_see_queues(self, plane: Plane) -> None:
        check(
            plane,
            "reader",
            {
                True: [
                    *each(READ, KUEUE, "localqueues", "workloads", namespace=TEAM),
                    *each(READ, "jobset.x-k8s.io", "jobsets", namespace=TEAM),
                ],
                False: [
                    *each(WRITE, KUEUE, "localqueues", "workloads", namespace=TEAM),
                    *each(READ, KUEUE, "clusterqueues"),
                ],
            },
        )
        check(
            plane,
            "owner",
            {True: each(READ, KUEUE, "clusterqueues", "cohorts", "resourceflavors", "workloads")},
        )


class TestTheManager:
    def test_it_may_do_its_work(self, plane: Plane) -> None:
        check(
            plane,
            USER,
            {
                True: [
                    *each((*READ, "create", "patch", "delete"), KUEUE, "workloads"),
                    *each((*READ, "patch"), "batch", "jobs"),
                    *each(READ, "", "namespaces", "limitranges"),
                    *each(READ, "", "secrets", namespace=NAMESPACE),
                    *each(READ, "apiextensions.k8s.io", "customresourcedefinitions"),
                    Question("update", "", "secrets", NAMESPACE, "kueue-webhook-server-cert"),
                    Question(
                        "update",
                        "apiextensions.k8s.io",
                        "customresourcedefinitions",
                        name="workloads.kueue.x-k8s.io",
                    ),
                    Question("create", "authentication.k8s.io", "tokenreviews"),
                    Question("create", "authorization.k8s.io", "subjectaccessreviews"),
                    Question("create", "coordination.k8s.io", "leases", NAMESPACE),
                    Question("get", "", "configmaps", "kube-system", "extension-apiserver-authentication"),
                ]
            },
        )

    def test_it_may_do_nothing_else(self, plane: Plane) -> None:
        admission = "admissionregistration.k8s.io"
        check(
            plane,
            USER,
            {
                False: [
                    # Secrets of others, and its own beyond filling it.
                    *each((*READ, *WRITE), "", "secrets", namespace="default"),
                    *each(("create", "delete"), "", "secrets", namespace=NAMESPACE),
                    Question("update", "", "secrets", NAMESPACE, "another"),
                    # Other definitions and webhooks, and its own beyond their certificate authority.
                    Question(
                        "update",
                        "apiextensions.k8s.io",
                        "customresourcedefinitions",
                        name="widgets.example.org",
                    ),
                    *each(("create", "delete", "patch"), "apiextensions.k8s.io", "customresourcedefinitions"),
                    Question("update", admission, "validatingwebhookconfigurations", name="others"),
                    *each(("create", "delete"), admission, "mutatingwebhookconfigurations"),
                    Question("update", "apiregistration.k8s.io", "apiservices", name="v1.apps"),
                    # More rights for itself or others.
                    *each(
                        (*WRITE, "bind", "escalate"),
                        "rbac.authorization.k8s.io",
                        "clusterroles",
                        "clusterrolebindings",
                        "roles",
                        "rolebindings",
                    ),
                    *each(("impersonate",), "", "users", "groups", "serviceaccounts"),
                    *each(("create",), "", "serviceaccounts/token"),
                    # The cluster's machines and workloads.
                    *each(WRITE, "", "nodes", "namespaces", "configmaps", "services"),
                    *each(("create",), "", "pods", "pods/exec", "pods/eviction"),
                    *each(("create",), "batch", "jobs"),
                    *each(WRITE, "apps", "deployments", "daemonsets"),
                    # Queues are the administrator's.
                    *each(("create", "delete"), KUEUE, "clusterqueues", "localqueues", "resourceflavors"),
                    *each(("patch", "update"), KUEUE, "localqueues", "workloadpriorityclasses", "cohorts"),
                    # Leases of others.
                    Question("update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
                    Question("update", "coordination.k8s.io", "leases", NAMESPACE, "another"),
                ]
            },
        )
