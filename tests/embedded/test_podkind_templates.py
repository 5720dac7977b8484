"""What the API server finds out once for all pods of a template, and that each pod keeps what is its own."""

from __future__ import annotations

import copy
from typing import Any

from apiserver_harness import PODS, Api, pod, with_server

from pykueue.embedded.kinds.templates import ENTRIES, LONGEST, OncePerTemplate
from pykueue.kube.transport import Request


def test_equal_specs_are_looked_at_once_and_others_by_themselves() -> None:
    asked: list[Any] = []

    def function(spec: dict[str, Any]) -> str:
        asked.append(spec["a"])
        return str(spec["a"])

    known = OncePerTemplate(function)
    assert [known({"a": value}) for value in (1, 1, 1.0, True, "1", 1)] == ["1", "1", "1.0", "True", "1", "1"]
    assert asked == [1, 1.0, True, "1"]


def test_long_specs_and_many_specs_are_not_kept() -> None:
    asked: list[Any] = []
    known = OncePerTemplate(lambda spec: asked.append(spec))
    once = OncePerTemplate(lambda spec: asked.append(spec) or True)
    long = {"a": "x" * LONGEST}
    assert (once(long), once(long), len(asked)) == (True, True, 2)
    for number in range(2 * ENTRIES + 1):
        once({"a": number})
    asked.clear()
    once({"a": 0})
    assert asked == [{"a": 0}]
    odd = {"a": object()}
    assert (known(odd), known(odd), len(asked)) == (None, None, 3)


def test_pods_of_a_template_keep_their_hostnames_and_nodes() -> None:
    async def story(api: Api) -> None:
        made = [await api.create(PODS, pod(f"p{n}", hostname=f"h{n}")) for n in range(3)]
        made.append(await api.create(PODS, pod("plain")))
        made.append(await api.create(PODS, pod("bound", hostname="h", nodeName="node-1")))
        own = [(one["spec"].get("hostname"), one["spec"].get("nodeName")) for one in made]
        assert own == [("h0", None), ("h1", None), ("h2", None), (None, None), ("h", "node-1")]
        for one in made:
            assert one["spec"]["containers"][0]["terminationMessagePolicy"] == "File"
            assert len(one["spec"]["tolerations"]) == 2
        error = await api.refused(api.create(PODS, pod("bad", hostname="No_Label")))
        assert [one["field"] for one in error.details["causes"]] == ["spec.hostname"]
        error = await api.refused(api.create(PODS, pod("worse", nodeName="No_Node")))
        assert [one["field"] for one in error.details["causes"]] == ["spec.nodeName"]

    with_server(story)


def test_a_change_of_one_pod_leaves_the_others_of_its_template_alone() -> None:
    async def story(api: Api) -> None:
        for name in ("a", "b"):
            await api.create(PODS, pod(name))
        await api.patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 7}})
        containers = [{"name": "main", "image": "other"}]
        patch = {"spec": {"containers": containers}}
        await api.patch(f"{PODS}/a", patch, "application/strategic-merge-patch+json")
        a, b = [(await api.get(f"{PODS}/{name}"))["spec"] for name in ("a", "b")]
        assert (a["activeDeadlineSeconds"], a["containers"][0]["image"]) == (7, "other")
        assert ("activeDeadlineSeconds" in b, b["containers"][0]["image"]) == (False, "busybox")
        error = await api.refused(api.patch(f"{PODS}/b", {"spec": {"restartPolicy": "Never"}}))
        assert error.code == 422

    with_server(story)


def test_a_write_is_checked_in_what_it_changes() -> None:
    async def story(api: Api) -> None:
        await api.create(PODS, pod("a"))
        error = await api.refused(api.patch(f"{PODS}/a/status", {"status": {"conditions": "none"}}))
        assert error.details["causes"][0]["field"] == "status.conditions"
        error = await api.refused(api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": 1}}}))
        assert error.code == 422
        changed = await api.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "unknown": 1}})
        assert (changed["status"]["phase"], "unknown" in changed["status"]) == ("Running", False)

    with_server(story)


def test_the_server_changes_nothing_in_what_is_given_away() -> None:
    async def story(api: Api) -> None:
        transport = api.server.transport("system:admin", ("system:masters",))
        body = pod("given")
        before = copy.deepcopy(body)
        stored = await transport.call(Request("POST", PODS, {}, body, given=True))
        await api.patch(f"{PODS}/given", {"metadata": {"labels": {"x": "y"}}})
        assert body == before
        assert (stored["spec"]["restartPolicy"], "labels" in stored["metadata"]) == ("Always", False)

    with_server(story)


def test_what_is_not_given_away_is_copied() -> None:
    async def story(api: Api) -> None:
        body = pod("kept")
        await api.create(PODS, body)
        body["spec"]["containers"][0]["image"] = "changed"
        assert (await api.get(f"{PODS}/kept"))["spec"]["containers"][0]["image"] == "busybox"

    with_server(story)
