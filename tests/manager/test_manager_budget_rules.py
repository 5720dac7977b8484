"""What admission refuses of Budgets: contradictions, which the message names both sides of."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Stack, story

from pykueue.api.budgets import BUDGETS
from pykueue.kube.errors import ApiError

QUEUE = {"clusterQueue": "cq"}
GPU = {"name": "nvidia.com/gpu", "hours": "100"}


def budget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {"name": name},
        "spec": {"selector": QUEUE, "resources": [GPU], **spec},
    }


def credit(**fields: Any) -> dict[str, Any]:
    return {
        "name": "c", "resource": "nvidia.com/gpu", "hours": "1", "reason": "r", "grantedBy": "admin", **fields
    }  # fmt: skip


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"selector": {}}, "exactly one of localQueue, clusterQueue, cohort, namespace and label must be set"),
    (
        {"selector": {"clusterQueue": "cq", "namespace": "ns"}},
        "exactly one of localQueue, clusterQueue, cohort, namespace and label must be set",
    ),
    ({"resources": []}, "spec.resources"),
    ({"resources": [{**GPU, "hours": "0"}]}, "spec.resources[0].hours: Invalid value"),
    (
        {"resources": [{**GPU, "flavorWeights": [{"name": "spot", "weight": "1u"}]}]},
        "spec.resources[0].flavorWeights[0].weight: Invalid value",
    ),
    ({"window": {"calendar": "Daily", "rolling": "24h"}}, "calendar and rolling are not accepted together"),
    ({"window": {}}, "one of calendar and rolling must be set"),
    ({"window": {"calendar": "Daily", "timeZone": "Berlin"}}, "spec.window.timeZone: Unsupported value"),
    ({"window": {"calendar": "Daily", "timeZone": "../etc/passwd"}}, "spec.window.timeZone"),
    ({"window": {"rolling": "30m"}}, "must be at least 1h"),
    (
        {"thresholds": [{"percent": 100, "action": "NoAdmission"}, {"percent": 90, "action": "Evict"}]},
        "NoAdmission has no effect at 100 percent: spec.thresholds[1] has the stricter action Evict at 90",
    ),
    (
        {"thresholds": [{"percent": 90, "action": "NoBorrowing"}, {"percent": 80, "action": "NoBorrowing"}]},
        "spec.thresholds[0] has the action NoBorrowing already",
    ),
    (
        {"thresholds": [{"percent": 80, "action": "Warn", "grace": "5m"}]},
        "accepted with action Evict, not Warn",
    ),
    ({"defaultMaximum": "5h"}, "accepted with spec.reservation Declared only"),
    ({"carryOver": {"percent": 50}}, "accepted with spec.window.calendar only"),
    ({"carryOver": {"percent": 50}, "window": {"rolling": "24h"}}, "accepted with spec.window.calendar only"),
    ({"credits": [credit(resource="cpu")]}, "must be one of spec.resources: nvidia.com/gpu"),
    ({"credits": [credit(value="team-a")]}, "accepted with spec.selector.label only"),
    (
        {"credits": [credit(notBefore="2026-05-02T00:00:00Z", notAfter="2026-05-01T00:00:00Z")]},
        "must be after notBefore (2026-05-02T00:00:00Z)",
    ),
]


def test_contradictions_within_a_budget_and_between_two_are_refused_and_named() -> None:
    async def life(s: Stack) -> None:
        for spec, text in REFUSED:
            with pytest.raises(ApiError) as refused:
                await s.client.create(BUDGETS, budget("b", **spec))
            assert text in refused.value.message, spec
        await s.client.create(BUDGETS, budget("b"))
        await s.settle()
        with pytest.raises(ApiError) as refused:
            await s.client.create(BUDGETS, budget("c"))
        assert "Budget b limits it for the same workloads in the same window already" in refused.value.message
        await s.client.create(BUDGETS, budget("c", window={"calendar": "Weekly"}))

    story(life)
