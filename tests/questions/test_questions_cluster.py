"""Questions to a live cluster, whichever manager runs there and whatever the user may read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from copy import deepcopy
from typing import Any

import pytest
from web_visibility_world import GROUP, World, in_world, workload

from pykueue.cli.why import Question, of_cluster
from pykueue.cli.why_text import lacks_verdict, lines
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import MERGE_PATCH, Request, Transport, WatchEvent
from pykueue.questions import find_workload, from_status, why
from pykueue.questions.cluster_state import ClusterState, read_cluster

CONFIG_MAPS = "/api/v1/namespaces/kueue-system/configmaps"


class BesideKueue:
    """A transport to a cluster whose manager is Kueue: without pykueue's resources, in chosen versions."""

    def __init__(self, world: World, versions: tuple[str, ...]) -> None:
        self._transport: Transport = world._transport
        self._versions = versions
        self.methods: set[str] = set()
        self.paths: list[str] = []

    async def call(self, request: Request) -> Any:
        self.methods.add(request.method)
        self.paths.append(request.path)
        if "/visibility.kueue.x-k8s.io/" in request.path:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        answer = await self._transport.call(request)
        if request.path == "/apis/kueue.x-k8s.io":
            served = [each for each in answer["versions"] if each["version"] in self._versions]
            return {**answer, "versions": served}
        return answer

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        raise AssertionError("questions do not watch")
        yield

    async def close(self) -> None:
        """Nothing to give back."""


async def fill(world: World) -> None:
    """One that runs on the one cpu of the queue, and one that is pending."""
    await world.submit(workload("running"))
    await world.pause()
    await world.submit(workload("waiting", cpu="2500m"))
    await world.pause()


async def read(world: World, *versions: str) -> tuple[ClusterState, BesideKueue]:
    transport = BesideKueue(world, versions or ("v1beta1", "v1beta2"))
    return await read_cluster(Client(transport)), transport


def test_change_applied_to_the_cluster_admits_the_workload() -> None:
    async def story(world: World) -> None:
        await fill(world)
        state, _ = await read(world)
        assert state.unread == []
        answer = why(state.engine(), "default/waiting", world.clock.time())
        assert (answer.state, answer.reason) == ("Pending", "ExceedsMaxQuota")
        assert answer.head is not None
        (change,) = [each for each in answer.head.changes if each.kind == "Quota"]
        (edit,) = change.edits
        assert (edit.before, edit.after) == ("1", "3500m")
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq"
        groups = deepcopy((await world.get(path))["spec"]["resourceGroups"])
        for amount, admitted in (("3499m", ["running"]), ("3500m", ["running", "waiting"])):
            groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = amount
            await world.request("PATCH", path, {"spec": {"resourceGroups": groups}}, MERGE_PATCH)
            await world.pause()
            assert await world.admitted() == admitted

    in_world(story)


def test_clusters_that_serve_v1beta1_only_are_read() -> None:
    async def story(world: World) -> None:
        await fill(world)
        new, _ = await read(world)
        old, transport = await read(world, "v1beta1")
        assert any("/kueue.x-k8s.io/v1beta1/workloads" in path for path in transport.paths)
        assert not any("/kueue.x-k8s.io/v1beta2" in path for path in transport.paths)
        now = world.clock.time()
        assert why(old.engine(), "default/waiting", now) == why(new.engine(), "default/waiting", now)

    in_world(story)


def test_nothing_is_written() -> None:
    async def story(world: World) -> None:
        await fill(world)
        _, transport = await read(world)
        assert transport.methods == {"GET"}

    in_world(story)


def test_configuration_is_read_from_the_config_map_of_the_manager() -> None:
    async def story(world: World) -> None:
        state, _ = await read(world)
        assert "the defaults of Kueue's configuration are assumed" in state.notes[0]
        assert not state.options().fair_sharing
        text = (
            "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
            "fairSharing: {enable: true}\nfeatureGates: {PartialAdmission: false}\n"
        )
        await world.request(
            "POST",
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}},
        )
        await world.request(
            "POST",
            CONFIG_MAPS,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "kueue-manager-config"},
                "data": {"controller_manager_config.yaml": text},
            },
        )
        state, _ = await read(world)
        assert (state.unread, state.notes) == ([], [])
        assert state.options().fair_sharing
        assert not state.options().enabled("PartialAdmission")

    in_world(story)


def test_state_of_the_engine_is_used_where_the_manager_serves_it() -> None:
    async def story(world: World) -> None:
        await fill(world)
        state = await read_cluster(Client(world._transport))
        assert state.engine_state is not None
        answer = why(state.engine(), "default/waiting", world.clock.time())
        assert answer.position is not None
        assert answer.position.inadmissible

    in_world(story)


def test_without_rights_there_is_no_verdict_and_what_is_missing_is_named() -> None:
    async def story(world: World) -> None:
        await fill(world)
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": ["list"]}
        role = {"metadata": {"name": "reader"}, "rules": [rule]}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "eva", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        await world.request("POST", f"{rbac}/clusterroles", role)
        await world.request("POST", f"{rbac}/clusterrolebindings", binding)
        state = await read_cluster(Client(world.as_user("eva")._transport))
        kinds = [each.partition(":")[0] for each in state.unread]
        assert "clusterqueues.kueue.x-k8s.io" in kinds
        assert "ConfigMap kueue-system/kueue-manager-config" in kinds
        assert "workloads.kueue.x-k8s.io" not in kinds
        answer = from_status(find_workload(state.workloads(), "waiting", "default"), state.unread)
        assert (answer.state, answer.reason) == ("Pending", "ExceedsMaxQuota")
        assert (answer.head, answer.place) == (None, None)

    in_world(story)


def test_user_who_may_not_list_workloads_is_refused_and_not_answered_that_there_is_none() -> None:
    async def story(world: World) -> None:
        await fill(world)
        question = Question("waiting", "default", place=False)
        state = await read_cluster(Client(world.as_user("eva")._transport), namespace="default")
        with pytest.raises(ApiError) as refused:
            of_cluster(question, state, world.clock.time())
        assert refused.value.code == 403
        assert 'cannot list resource "workloads"' in refused.value.message
        assert 'in the namespace "default"' in refused.value.message

    in_world(story)


def test_only_a_pending_workload_lacks_a_verdict() -> None:
    async def story(world: World) -> None:
        await fill(world)
        await grant(world, "eva", [("kueue.x-k8s.io", "workloads", "list")], "default")
        state = await read_cluster(Client(world.as_user("eva")._transport), namespace="default")
        now = world.clock.time()
        for name, lacks in (("running", False), ("waiting", True)):
            answer = of_cluster(Question(name, "default", place=False), state, now)
            assert answer.unread
            assert lacks_verdict(answer) == lacks
            assert any(line.startswith("No verdict") for line in lines(answer)) == lacks

    in_world(story)


async def grant(world: World, user: str, resources: list[tuple[str, str, str]], namespace: str = "") -> None:
    """Lets a user (group, resource, verb), in a namespace or everywhere."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    where = f"{rbac}/namespaces/{namespace}" if namespace else rbac
    kinds = (
        ("Role", "roles", "rolebindings")
        if namespace
        else ("ClusterRole", "clusterroles", "clusterrolebindings")
    )
    rules = [{"apiGroups": [group], "resources": [name], "verbs": [verb]} for group, name, verb in resources]
    name = f"{user}-{namespace or 'all'}"
    await world.request("POST", f"{where}/{kinds[1]}", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kinds[0], "name": name},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await world.request("POST", f"{where}/{kinds[2]}", binding)


def test_manager_answers_within_the_rights_of_the_user() -> None:
    """All combinations of the rights that the answer depends on."""
    everywhere, here, queues = (
        ("kueue.x-k8s.io", "workloads", "list"),
        ("kueue.x-k8s.io", "workloads", "list"),
        ("kueue.x-k8s.io", "clusterqueues", "list"),
    )

    async def story(world: World) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        await world.request("POST", "/api/v1/namespaces", namespace)
        local = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "left"},
            "spec": {"clusterQueue": "cq"},
        }
        await world.request("POST", "/apis/kueue.x-k8s.io/v1beta2/namespaces/other/localqueues", local)
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq"
        await world.request(
            "PATCH", path, {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}, MERGE_PATCH
        )
        secret = workload("secret", cpu="500m")
        secret["metadata"]["namespace"] = "other"
        await world.request("POST", "/apis/kueue.x-k8s.io/v1beta2/namespaces/other/workloads", secret)
        await world.submit(workload("known", cpu="500m"))
        await world.pause()
        await world.submit(workload("waiting", cpu="1"))
        await world.pause()
        why_path = f"/apis/{GROUP}/v1beta2/namespaces/default/workloads/waiting/why"
        for number in range(8):
            user = f"user{number}"
            sees_all, sees_own, sees_queues = (bool(number & bit) for bit in (1, 2, 4))
            await grant(
                world, user, [(GROUP, "workloads/why", "get"), *([here] if sees_own else [])], "default"
            )
            await grant(
                world, user, [*([everywhere] if sees_all else []), *([queues] if sees_queues else [])]
            )
            answer = await world.as_user(user).get(why_path)
            text = str(answer)
            assert answer["kind"] == "WorkloadWhy"
            assert ("other/secret" in text) == sees_all
            assert ("default/known" in text) == (sees_all or sees_own)
            assert bool(answer["flavors"][0]["holders"]) == sees_queues
            (change,) = [each for each in answer["head"]["changes"] if each["kind"] == "Priority"]
            assert len(change["preempted"]) + change["hidden"] == 2
        refused = await world.refused(world.as_user("stranger").get(why_path))
        assert refused.code == 403
        absent = await world.refused(world.get(why_path.replace("/waiting/", "/absent/")))
        assert (absent.code, absent.message) == (404, f'workload.{GROUP} "absent" not found')

    in_world(story)
