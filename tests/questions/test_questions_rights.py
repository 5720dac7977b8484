"""Users with rights in one namespace see nothing of another one, by any command or subresource."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import click
import pytest
from test_questions_cluster import grant
from web_visibility_world import GROUP, KUEUE, World, in_world, workload

from pykueue.api.resources import NODES, PODS
from pykueue.cli.question_source import of_cluster as source_of_cluster
from pykueue.cli.story import read as read_story
from pykueue.cli.why import Question
from pykueue.cli.why import _answer as ask_why
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import MERGE_PATCH, Request
from pykueue.questions import TargetError, to_data
from pykueue.questions.cluster_state import MANAGER_NAMESPACE
from pykueue.questions.share import shares
from pykueue.questions.top import top
from pykueue.questions.used import GROUPS, used

#: In the names and labels of everything in the other namespace.
SECRET = "classified"
K = "kueue.x-k8s.io"
#: Rights that may be given in the user's own namespace.
OWN = [
    (K, "workloads", "list"),
    (K, "workloads", "get"),
    (K, "localqueues", "list"),
    (K, "localqueues", "get"),
    ("", "limitranges", "list"),
    ("", "events", "list"),
    ("batch", "jobs", "get"),
    (GROUP, "workloads/why", "get"),
    (GROUP, "workloads/story", "get"),
    (GROUP, "localqueues/pendingworkloads", "get"),
]
#: Rights in the whole cluster: none of them covers a namespaced kind of Kueue.
EVERYWHERE = [
    ("", "namespaces", "list"),
    ("", "nodes", "list"),
    ("node.k8s.io", "runtimeclasses", "list"),
    (K, "clusterqueues", "list"),
    (K, "clusterqueues", "get"),
    (K, "cohorts", "list"),
    (K, "resourceflavors", "list"),
    (K, "admissionchecks", "list"),
    (K, "topologies", "list"),
]


async def fill(world: World) -> None:
    """Workloads of both namespaces in one ClusterQueue: running, preemptable, and pending."""
    await world.request("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    local = {"apiVersion": f"{K}/v1beta2", "kind": "LocalQueue", "metadata": {"name": "left"}}
    path = f"{KUEUE}/namespaces/other"
    await world.request("POST", f"{path}/localqueues", {**local, "spec": {"clusterQueue": "cq"}})
    preemption = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    await world.request("PATCH", f"{KUEUE}/clusterqueues/cq", preemption, MERGE_PATCH)
    for name, cpu in ((f"{SECRET}-running", "500m"), (f"{SECRET}-pending", "700m"), ("asked", "5")):
        hidden = workload(name, cpu=cpu)
        hidden["metadata"]["namespace"] = "other"
        await world.request("POST", f"{path}/workloads", hidden)
        await world.pause()
    await world.submit(workload("known", cpu="500m"))
    await world.pause()
    await world.submit(workload("waiting", cpu="1"))
    await world.pause()


Ask = Callable[[], Awaitable[Any]]


def questions(client: Client, now: float) -> Iterator[tuple[str, Ask]]:
    """Every question that a user can ask, with the namespace it is about; empty for the whole cluster."""
    for namespace, name in (("default", "waiting"), ("other", "asked"), ("other", "absent")):
        question = Question(name, namespace, place=True)
        yield namespace, partial(ask_why, client, question, None, MANAGER_NAMESPACE)
        yield namespace, partial(read_story, client, namespace, name)
        for subresource in ("why", "story"):
            path = f"/apis/{GROUP}/v1beta2/namespaces/{namespace}/workloads/{name}/{subresource}"
            yield namespace, partial(client.call, Request("GET", path))
        path = f"/apis/{GROUP}/v1beta2/namespaces/{namespace}/localqueues/left/pendingworkloads"
        yield namespace, partial(client.call, Request("GET", path))
    yield (
        "other",
        partial(client.call, Request("GET", f"/apis/{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads")),
    )

    async def usage() -> Any:
        source = await source_of_cluster(client, None, MANAGER_NAMESPACE, (NODES, PODS))
        groups = [used(source.workloads, by, now - 3600, now) for by in GROUPS]
        answers = [top(source.engine), shares(source.engine), *groups]
        return [*map(to_data, answers), source.unread, source.notes]

    yield "", usage


def test_nothing_of_another_namespace_is_shown(pytestconfig: pytest.Config) -> None:
    sets = pytestconfig.getoption("--rights-sets")
    rng = random.Random(20260101)
    answered = dict.fromkeys(("", "default", "other"), 0)

    async def story(world: World) -> None:
        await fill(world)
        for number in range(sets):
            user = f"user{number}"
            own = [each for each in OWN if rng.random() < 0.6]
            everywhere = [each for each in EVERYWHERE if rng.random() < 0.7]
            for rights, namespace in ((own, "default"), (everywhere, "")):
                if rights:
                    await grant(world, user, rights, namespace)
            client = Client(world.as_user(user)._transport, clock=world.clock)
            for namespace, ask in questions(client, world.clock.time()):
                try:
                    text = json.dumps(_data(await ask()))
                    answered[namespace] += 1
                except (ApiError, TargetError, click.ClickException) as error:
                    text = str(error)
                assert SECRET not in text, f"rights {own} and {everywhere}: {text}"

    in_world(story)
    assert answered["other"] == 0
    assert min(answered[""], answered["default"]) >= sets


def _data(answer: Any) -> Any:
    return answer if isinstance(answer, dict | list) else to_data(answer)
