"""The guide docs/develop/add-a-job-kind.md, followed: its description queues its manifest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kind_worlds import serve
from manager_stack import Stack, story

from pykueue.api.jobkinds import JobKind
from pykueue.api.resources import WORKLOADS
from pykueue.api.yaml import load_documents
from pykueue.jobs.described import DescribedJob
from pykueue.jobs.kinds import BUILT_IN

GUIDE = (Path(__file__).parents[2] / "docs" / "develop" / "add-a-job-kind.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


def described() -> JobKind:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    kind = names["STUDY"]
    assert isinstance(kind, JobKind)
    return kind


def test_description_is_short() -> None:
    assert len(block("python").splitlines()) <= 60


def test_described_kind_is_queued_started_evicted_and_finished() -> None:
    kind = described()
    (manifest,) = load_documents(block("yaml"))
    running = manifest.pop("status")

    async def test(stack: Stack) -> None:
        await serve(stack, kind.resource)
        created = await stack.client.create(kind.resource, manifest)
        assert created["spec"]["paused"] is True
        await stack.settle()
        workload = await stack.workload("proteins")
        sets = [(one["name"], one["count"]) for one in workload["spec"]["podSets"]]
        assert sets == [("coordinator", 1), ("cold", 3)]
        assert (await stack.get(kind.resource, "proteins"))["spec"]["paused"] is False

        await stack.patch(kind.resource, "proteins", {"status": running}, "status")
        name = workload["metadata"]["name"]
        await stack.patch(WORKLOADS, name, {"spec": {"active": False}})
        await stack.settle()
        assert (await stack.conditions("proteins"))["QuotaReserved"][0] == "True", "its pods run"
        await stack.patch(kind.resource, "proteins", {"status": {"pods": {"running": 0}}}, "status")
        await stack.settle()
        assert (await stack.get(kind.resource, "proteins"))["spec"] == created["spec"]

        await stack.patch(WORKLOADS, name, {"spec": {"active": True}})
        await stack.settle()
        done = {"phase": "Published", "reason": "42"}
        await stack.patch(kind.resource, "proteins", {"status": done}, "status")
        await stack.settle()
        assert (await stack.conditions("proteins"))["Finished"] == ("True", "Succeeded")
        assert await stack.message("proteins", "Finished") == "42"

    story(test, kinds=BUILT_IN.with_job(DescribedJob(kind)))
