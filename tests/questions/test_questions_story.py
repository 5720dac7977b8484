"""The story of a Workload beside Kueue: its status and the events that the cluster retains."""

from __future__ import annotations

from typing import Any

from pykueue.api import decode, kueue
from pykueue.engine.story import lines
from pykueue.questions.story import story_from_objects


def workload(*conditions: tuple[str, str, str, str]) -> kueue.Workload:
    found = decode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "queueName": "lq",
                "priority": 3,
                "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": []}}}],
            },
            "status": {
                "conditions": [
                    {
                        "type": type,
                        "status": "True",
                        "reason": reason,
                        "message": text,
                        "lastTransitionTime": at,
                    }
                    for type, reason, text, at in conditions
                ]
            },
        }
    )
    assert isinstance(found, kueue.Workload)
    return found


def event(reason: str, message: str, at: str, **more: Any) -> dict[str, Any]:
    return {"reason": reason, "message": message, "firstTimestamp": at, "lastTimestamp": at, **more}


def test_story_has_creation_events_and_conditions_in_order_and_once() -> None:
    reserved = ("QuotaReserved", "QuotaReserved", "Quota reserved in cq", "2026-01-01T00:00:05Z")
    finished = ("Finished", "Succeeded", "done", "2026-01-01T00:10:00Z")
    events = [
        event("QuotaReserved", "Quota reserved in cq, wait time 5s", "2026-01-01T00:00:05Z"),
        event("Pending", "no quota", "2026-01-01T00:00:01Z", count=4, lastTimestamp="2026-01-01T00:00:04Z"),
    ]
    story = story_from_objects(workload(finished, reserved), events)
    assert lines(story).splitlines() == [
        "2026-01-01T00:00:00Z             created in LocalQueue lq (priority 3; pod set main: 2 pods)",
        "2026-01-01T00:00:01Z             Pending: no quota (decided 4 times, last at 2026-01-01T00:00:04Z)",
        "2026-01-01T00:00:05Z             QuotaReserved: Quota reserved in cq, wait time 5s",
        "2026-01-01T00:10:00Z             condition Finished is True (Succeeded: done)",
    ]
    assert story["coveredFrom"] == "2026-01-01T00:00:00Z"


def test_note_says_from_when_on_events_are_retained() -> None:
    late = [event("Evicted", "", "2026-01-01T03:00:00Z")]
    assert "is of 2026-01-01T03:00:00Z" in story_from_objects(workload(), late)["notes"][0]
    assert "retains no event" in story_from_objects(workload(), [])["notes"][0]
