"""Budgets on a whole cluster: a namespace that is deleted goes, and what its jobs used stays counted."""

from __future__ import annotations

import pytest
from stories_world import Story, job, play

from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS, ledger_name
from pykueue.api.quantity import parse
from pykueue.api.resources import NAMESPACES
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, flavor, local_queue


def test_namespace_with_running_jobs_is_deleted_and_their_use_stays_in_the_ledger() -> None:
    async def story(s: Story) -> None:
        await s.client.create(NAMESPACES, {"metadata": {"name": "course"}})
        queue = local_queue("q")
        await s.create({**queue, "metadata": {**queue["metadata"], "namespace": "course"}})
        made = job("a", 3, {"cpu": 1}, run_time="5h")
        made["metadata"]["namespace"] = "course"
        await s.create(made)
        await s.wait(600)
        await s.client.delete(NAMESPACES, "course", None)
        await s.wait(120)
        with pytest.raises(ApiError) as gone:
            await s.client.get(NAMESPACES, "course", None)
        assert gone.value.not_found
        ledger = (await s.client.get(BUDGET_LEDGERS, ledger_name("lab", ""), None))["spec"]
        assert ledger.get("running", []) == []
        assert 3 * 580 <= parse(ledger["used"]["cpu"]).nanos / 1e9 <= 3 * 700

    budget = {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {"name": "lab"},
        "spec": {"selector": {"clusterQueue": "q"}, "resources": [{"name": "cpu", "hours": "100"}]},
    }
    play(story, objects=[flavor("default"), cluster_queue("q", {"default": {"cpu": 12}}), budget])
