"""The power goes in the middle of the second act; the act goes on to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from cli_processes import EXAMPLE, PATIENCE, Kubectl, Up

pytestmark = pytest.mark.kubectl

WORKERS = 20


def pods(kubectl: Kubectl, job: str) -> list[dict[str, object]]:
    items: list[dict[str, object]] = json.loads(
        kubectl("get", "pods", "-l", f"job-name={job}", "-o", "json")
    )["items"]
    return items


def until(true: Callable[[], bool]) -> None:
    """Look again and again until it is true."""
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up, "it never became true"
        time.sleep(0.1)


def test_cluster_killed_in_the_second_act_continues_after_a_restart(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    up = start_up(
        "--nodes", str(EXAMPLE / "nodes.yaml"), "--config", str(EXAMPLE / "wait-for-pods-ready.yaml")
    )
    kubectl = kubectl_for(up)
    for name in ("queues", "quick-job", "job1", "job2"):
        kubectl("create", "-f", str(EXAMPLE / f"{name}.yaml"))
    until(lambda: len(pods(kubectl, "job1")) > WORKERS // 2)
    before = {pod["metadata"]["uid"] for pod in pods(kubectl, "job1")}  # type: ignore[index]
    assert not pods(kubectl, "job2")

    up.kill()
    up.start()

    for job in ("quick-job", "job1", "job2"):
        kubectl("wait", "--for=condition=complete", f"job/{job}", f"--timeout={PATIENCE}s")
    after = pods(kubectl, "job1")
    assert before <= {pod["metadata"]["uid"] for pod in after}, "pods were lost"  # type: ignore[index]
    assert len(after) == WORKERS, "pods were made twice"
    first, second = (
        json.loads(kubectl("get", "job", job, "-o", "json"))["status"] for job in ("job1", "job2")
    )
    assert first["succeeded"] == second["succeeded"] == WORKERS
    assert first.get("failed", 0) == second.get("failed", 0) == 0
