"""JobKinds of a running manager: kinds that come, change and go, and what they may not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from manager_stack import QUEUES, Stack, job, story

import job_kind_manifests
from pykueue.api.kueue import names
from pykueue.api.objects import Object, get
from pykueue.api.resources import CLUSTER_ROLES, CRDS, WORKLOADS, Resource
from pykueue.api.userkinds import JOB_KINDS, compile_kind
from pykueue.clock import Clock, run_virtual
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.client import Client
from pykueue.kube.transport import Request, Transport
from pykueue.manager.install.roles import component_rules
from pykueue.manager.install.userkinds import rights
from pykueue.manager.install_names import InstallNames

CLUSTER_BINDINGS = CLUSTER_ROLES._replace(plural="clusterrolebindings", kind="ClusterRoleBinding")
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", True)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]


def definition(plural: str = "widgets", kind: str = "Widget", scope: str = "Namespaced") -> Object:
    spec = {
        "type": "object",
        "properties": {
            "suspend": {"type": "boolean"},
            "size": {"type": "integer"},
            "template": ANYTHING,
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": ANYTHING}}},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": scope,
            "versions": [version],
        },
    }


def job_kind(**spec: Any) -> Object:
    """A JobKind whose jobs say when they run and when they have succeeded."""
    running = {"path": ".status.phase", "values": ["Running"]}
    states = {"active": running, "ready": running, "succeeded": {"condition": "Done"}}
    return job_kind_manifests.job_kind(**{**states, **spec})


def widget(name: str = "w", size: int = 2, suspend: bool = True, queue: str = "lq") -> Object:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
        },
        "spec": {"size": size, "suspend": suspend, "template": {"spec": {"containers": CONTAINERS}}},
    }


async def active(s: Stack, name: str = "widgets.example.com") -> tuple[str, str, str]:
    """Status, reason and message of the condition Active."""
    obj = await s.client.get(JOB_KINDS, name)
    for condition in get(obj, "status", "conditions") or ():
        return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


async def create(s: Stack, *objects: Object) -> None:
    resources = {"CustomResourceDefinition": CRDS, "JobKind": JOB_KINDS, "Widget": WIDGETS}
    for obj in objects:
        await s.client.create(resources[obj["kind"]], obj)


async def get_widget(s: Stack, name: str = "w") -> Object:
    return await s.client.get(WIDGETS, name, "default")


def test_job_of_a_described_kind_queues_runs_and_finishes() -> None:
    async def test(s: Stack) -> None:
        before = widget()
        await create(s, definition(), job_kind(), before)
        await s.settle()
        assert (await active(s))[:2] == ("True", "Ready")
        obj = await get_widget(s)
        assert obj["spec"]["suspend"] is False
        assert "kueue.x-k8s.io/podset" in obj["spec"]["template"]["metadata"]["labels"]
        workload = await s.workload("w")
        assert workload["spec"]["podSets"][0]["count"] == 2
        status = {"phase": "Running"}
        await s.client.patch(WIDGETS, "w", "default", {"status": status}, subresource="status")
        await s.settle()
        assert (await s.conditions("w"))["PodsReady"][0] == "True"
        # Eviction and restart: templates are what they were.
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
        await s.settle()
        obj = await get_widget(s)
        assert obj["spec"] == before["spec"]
        assert (await s.conditions("w"))["QuotaReserved"][0] == "True", "its pods still run"
        await s.client.patch(WIDGETS, "w", "default", {"status": {"phase": None}}, subresource="status")
        await s.settle()
        assert (await s.conditions("w"))["QuotaReserved"][0] == "False"
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}})
        await s.settle()
        assert (await get_widget(s))["spec"]["suspend"] is False
        done = {"conditions": [{"type": "Done", "status": "True", "message": "well"}]}
        await s.client.patch(WIDGETS, "w", "default", {"status": done}, subresource="status")
        await s.settle()
        assert (await s.conditions("w"))["Finished"] == ("True", "Succeeded")

    story(test)


def test_a_kind_changed_and_removed_at_run_time() -> None:
    async def test(s: Stack) -> None:
        await create(s, definition(), job_kind())
        await s.settle()
        counts = {"podSets": [{"name": "main", "template": ".spec.template", "count": "self.spec.size * 2"}]}
        await s.client.patch(JOB_KINDS, "widgets.example.com", None, {"spec": counts})
        await s.settle()
        await create(s, widget())
        await s.settle()
        assert (await s.workload("w"))["spec"]["podSets"][0]["count"] == 4
        await s.client.delete(JOB_KINDS, "widgets.example.com")
        await s.settle()
        await create(s, widget("x"))
        await s.settle(30)
        assert (await get_widget(s, "x"))["spec"]["suspend"] is True
        assert len(await s.workloads()) == 1, "the Workload of a removed kind stays"
        await s.client.delete(WIDGETS, "w", "default")
        workload = (await s.workloads())[0]
        await s.client.delete(WORKLOADS, workload["metadata"]["name"], "default")
        await s.settle()
        assert not await s.workloads(), "its finalizer does not keep it"
        await create(s, job_kind())
        await s.settle()
        assert (await get_widget(s, "x"))["spec"]["suspend"] is False

    story(test)


def test_a_kind_is_active_again_after_a_restart_before_its_jobs_are_judged() -> None:
    async def test(s: Stack) -> None:
        await create(s, definition(), job_kind(), widget())
        await s.settle()
        before = await get_widget(s)
        await s.stop_manager()
        await s.start_manager()
        await s.settle()
        assert await get_widget(s) == before

    story(test)


def test_a_kind_waits_for_its_definition_and_is_compared_with_it() -> None:
    async def test(s: Stack) -> None:
        await create(s, job_kind(suspend=".spec.paused"))
        await s.settle()
        assert (await active(s))[1] == "NotServed"
        await create(s, definition())
        await s.settle(30)
        status, reason, message = await active(s)
        assert (status, reason) == ("False", "Invalid")
        assert "spec.suspend: Invalid value: \".spec.paused\": .spec has no field 'paused'" in message

    story(test)


@pytest.mark.parametrize(
    ("spec", "name", "reason"),
    [
        ({"group": "ray.io", "kind": "RayJob"}, "rayjobs.ray.io", "BuiltInKind"),
        (
            {"group": "rbac.authorization.k8s.io", "kind": "Role"},
            "roles.rbac.authorization.k8s.io",
            "Invalid",
        ),
        ({"group": "apps", "kind": "DaemonSet"}, "daemonsets.apps", "Invalid"),
        ({"group": "kueue.x-k8s.io", "kind": "Workload"}, "workloads.kueue.x-k8s.io", "Invalid"),
        ({"group": "pykueue.io", "kind": "JobKind"}, "jobkinds.pykueue.io", "Invalid"),
        ({"kind": "Gadget"}, "widgets.example.com", "Invalid"),
        ({"failed": {"cel": "self.a.all(x, self.a.all(y, x == y))"}}, "widgets.example.com", "Invalid"),
    ],
)
def test_what_may_not_be_described_is_inactive_and_stops_nothing_else(
    spec: Object, name: str, reason: str
) -> None:
    async def test(s: Stack) -> None:
        other = job_kind(kind="Gizmo")
        other["metadata"]["name"] = "gizmos.example.com"
        bad = job_kind(**spec)
        bad["metadata"]["name"] = name
        await create(s, definition(), definition("gizmos", "Gizmo"), bad, other)
        await s.settle(30)
        assert (await active(s, name))[:2] == ("False", reason)
        assert (await active(s, "gizmos.example.com"))[0] == "True"
        await s.client.create(WIDGETS, widget())
        await s.settle()
        assert not await s.workloads()

    story(test)


def test_of_two_descriptions_of_a_kind_the_first_is_in_force() -> None:
    async def test(s: Stack) -> None:
        second = job_kind()
        second["metadata"]["name"] = "contraptions.example.com"
        await create(s, definition(), job_kind())
        await s.settle()
        await create(s, second)
        await s.settle()
        status, reason, message = await active(s, "contraptions.example.com")
        assert (status, reason) == ("False", "DuplicateKind")
        assert message == "Widget is described by JobKind widgets.example.com"
        assert (await active(s))[:2] == ("True", "Ready")
        await s.client.delete(JOB_KINDS, "widgets.example.com")
        await s.settle(15)
        status, reason, message = await active(s, "contraptions.example.com")
        assert (status, reason) == ("False", "NotServed"), "judged by itself now"

    story(test)


class _Unlisted:
    """A transport through which no Widgets can be listed while `broken`."""

    broken = True

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.close = inner.close
        self.watch = inner.watch

    async def call(self, request: Request) -> Any:
        if self.broken and request.method == "GET" and request.path.endswith("/example.com/v1/widgets"):
            raise TimeoutError("no answer")
        return await self._inner.call(request)


def test_a_kind_whose_objects_cannot_be_listed_is_inactive_until_they_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[_Unlisted] = []

    def transport(s: Stack) -> Transport:
        made.append(_Unlisted(s.server.transport("pykueue-manager")))
        return made[-1]

    async def test(s: Stack) -> None:
        await create(s, definition(), job_kind())
        await s.settle(45)
        status, reason, message = await active(s)
        assert (status, reason) == ("False", "NotSynced")
        assert message == "Objects of kind Widget cannot be listed"
        await s.apply(job("other"))
        await s.settle()
        assert not await s.suspended("other"), "other kinds go on"
        made[-1].broken = False
        await create(s, widget())
        await s.settle(60)
        assert (await active(s))[:2] == ("True", "Ready")
        assert (await get_widget(s))["spec"]["suspend"] is False

    monkeypatch.setattr(Stack, "manager_transport", transport)
    story(test)


def test_the_server_refuses_paths_outside_of_spec() -> None:
    async def test(s: Stack) -> None:
        for wrong in (
            {"suspend": ".metadata.labels"},
            {"suspend": ".status.x"},
            {"managedBy": {"path": ".x"}},
        ):
            with pytest.raises(Exception, match="should match"):
                await create(s, job_kind(**wrong))

    story(test)


def test_a_cluster_scoped_kind_is_refused() -> None:
    async def test(s: Stack) -> None:
        await create(s, definition(scope="Cluster"), job_kind())
        await s.settle()
        status, reason, message = await active(s)
        assert (status, reason) == ("False", "Invalid")
        assert "not namespaced" in message

    story(test)


def test_an_unreadable_job_stops_no_other() -> None:
    async def test(s: Stack) -> None:
        count = {"podSets": [{"name": "main", "template": ".spec.template", "count": "self.status.more"}]}
        await create(s, definition(), job_kind(**count))
        bad, good = widget("bad"), widget("good")
        await create(s, bad)
        await s.settle()
        assert "ErrWorkloadCompose" in await s.events("bad")
        await s.client.patch(JOB_KINDS, "widgets.example.com", None, job_kind())
        await create(s, good)
        await s.settle()
        assert (await get_widget(s, "good"))["spec"]["suspend"] is False

    story(test)


class Limited(Stack):
    """A manager with the rights of its role and no others."""

    def manager_transport(self) -> Transport:
        return self.server.transport("manager", ())

    async def grant(self, *objects: Object) -> None:
        """Create roles and bindings, given to the manager."""
        client = Client(self.server.transport(), clock=self.clock)
        for obj in objects:
            if obj["kind"] == "ClusterRoleBinding":
                subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "manager"}
                obj = {**obj, "subjects": [subject]}
            await client.create(CLUSTER_ROLES if obj["kind"] == "ClusterRole" else CLUSTER_BINDINGS, obj)

    async def start_manager(self) -> None:
        kinds = BUILT_IN.enabled(self.configuration.integrations.frameworks)
        rules = [rule.object() for rule in component_rules(self.configuration, kinds)]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "m"}
        binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference}
        await self.grant({**role, "metadata": {"name": "m"}}, {**binding, "metadata": {"name": "m"}})
        await super().start_manager()


def test_a_kind_waits_for_rights_that_the_manager_does_not_give_to_itself() -> None:
    async def main(clock: Clock) -> None:
        s = Limited(clock, "", 1)
        await s.start()
        try:
            await s.apply(QUEUES)
            await create(s, definition(), job_kind(), widget())
            await s.settle(60)
            assert await active(s) == (
                "False",
                "MissingRights",
                "The manager may not get, list, watch, patch widgets.example.com; update "
                "widgets/finalizers.example.com; print the rights with: pykueue kind rights",
            )
            assert not await s.workloads()
            kind = compile_kind(job_kind()).description
            await s.grant(*rights(kind, InstallNames.of(s.configuration)))
            await s.settle(20)
            assert (await active(s))[0] == "True"
            assert (await get_widget(s))["spec"]["suspend"] is False
        finally:
            await s.stop()

    run_virtual(main)


def test_a_file_of_the_configuration_describes_kinds_too(tmp_path: Path) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text(yaml.safe_dump(job_kind()))
    configuration = f"""
        integrations:
          frameworks: [batch/job]
          jobKindFiles: ["{file}"]
    """

    async def test(s: Stack) -> None:
        await create(s, definition(), widget())
        await s.settle(20)
        assert (await get_widget(s))["spec"]["suspend"] is False

    story(test, configuration)


def test_starting_changes_nothing_but_suspend_templates_and_the_record_of_them() -> None:
    async def test(s: Stack) -> None:
        before = widget()
        before["metadata"]["annotations"] = {"a": "b"}
        before["spec"]["template"]["metadata"] = {"labels": {"own": "x"}}
        await create(s, definition(), job_kind(), before)
        await s.settle()
        obj = await get_widget(s)
        record = obj["metadata"]["annotations"].pop(names.TEMPLATE_ADDITIONS_ANNOTATION)
        assert names.POD_SET_LABEL in record
        assert obj["metadata"]["annotations"] == {"a": "b"}
        assert obj["metadata"]["labels"] == before["metadata"]["labels"]
        assert not obj["metadata"].get("finalizers")
        assert {**obj["spec"], "suspend": True, "template": None} == {**before["spec"], "template": None}
        assert obj["spec"]["template"]["spec"] == before["spec"]["template"]["spec"] | {
            key: obj["spec"]["template"]["spec"][key]
            for key in ("nodeSelector", "tolerations")
            if key in obj["spec"]["template"]["spec"]
        }

    story(test)
