"""One Workload: why it is pending, its history, its pods and events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pykueue.api import DecodeError, decode_as, kueue
from pykueue.api.hybrid import parts_in, parts_text
from pykueue.api.objects import Object
from pykueue.api.resources import CLUSTER_QUEUES, EVENTS, PODS, WORKLOADS, Resource
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.manager.install_names import VISIBILITY_GROUP, pending_path, story_path, why_path
from pykueue.questions import Rights, Why, answer_from, from_status, why
from pykueue.questions.story import story_from_objects
from pykueue.web.dashboard.security.reviews import Need
from pykueue.web.dashboard.state.alarms import TITLES, alarms
from pykueue.web.dashboard.state.rows import IN_QUEUE, EventRow, WorkloadRow

from .base import NotFoundError, Page, View
from .workloads import shown_state

#: Pods and events that are shown; the rest is counted.
PODS_MAX: Final = 100
EVENTS_MAX: Final = 50
#: Decisions tried for one answer, about 0.3 ms each: other pages wait for them.
DECISIONS_MAX: Final = 200
#: Seconds for which the page waits for a forecast; a later version of the page shows it.
FORECAST_SECONDS: Final = 0.3
PENDING_WORKLOADS: Final = Resource(VISIBILITY_GROUP, "v1beta2", "pendingworkloads", "PendingWorkload", True)


async def build(view: View) -> Mapping[str, Any]:
    view.require("get", WORKLOADS, view.namespace)
    board = view.board
    row = board.workloads.get((view.namespace, view.name))
    obj = board.get("Workload", view.namespace, view.name)
    if row is None or obj is None:
        raise NotFoundError(f"There is no Workload {view.namespace}/{view.name}.")
    answer, story, start = await asyncio.gather(
        _why(view, row, obj), _story(view, row, obj), _start(view, row)
    )
    admission = (obj.get("status") or {}).get("admission") or {}
    context: dict[str, Any] = {
        "row": row,
        "state": shown_state(board, row),
        "cluster_queue": board.queue_of(row),
        "obj": obj,
        "admission": admission,
        "splits": {
            one.get("name"): parts_text(parts)
            for one in admission.get("podSetAssignments") or ()
            if (parts := parts_in(one))
        },
        "alarms": [(TITLES[each.kind], each.text) for each in alarms(board) if each.row.key == row.key],
        "why": answer,
        "story": story,
        "start": start,
        "may_update": view.grants.may("patch", WORKLOADS, view.namespace),
        "sees_pods": view.grants.lists(PODS, view.namespace),
        "sees_events": view.grants.lists(EVENTS, view.namespace),
    }
    if context["sees_pods"]:
        pods = board.pods_of(row)
        context["pods"], context["more_pods"] = pods[:PODS_MAX], max(0, len(pods) - PODS_MAX)
    if context["sees_events"]:
        context["events"] = _events(view, row)[:EVENTS_MAX]
    return context


def _events(view: View, row: WorkloadRow) -> list[EventRow]:
    kind, _, job = row.job.partition(" ")
    about = [("Workload", row.namespace, row.name)]
    if job:
        about.append((kind, row.namespace, job))
    return view.board.events_of(*about)


async def _why(view: View, row: WorkloadRow, obj: Object) -> Why | None:
    """Why it is pending: by the manager, within the user's rights, else by the engine of the dashboard."""
    if row.state not in (*IN_QUEUE, "QuotaReserved", "Inactive"):
        return None
    try:
        return answer_from(await _asked(view, why_path(row.namespace, row.name)))
    except (ApiError, ConnectionError, TimeoutError, msgspec.ValidationError):
        pass  # another manager, or this user may not ask it
    workload = decode_as(kueue.Workload, obj)
    engine = view.board.engine
    if view.board.unread or engine.workload_object(row.key) is None:
        return from_status(workload, list(view.board.unread.values()), view.board.notes)
    rights = Rights(
        lambda namespace: view.grants.lists(WORKLOADS, namespace), view.grants.lists(CLUSTER_QUEUES)
    )
    answer = why(engine, row.key, view.now, rights=rights, place_decisions_max=DECISIONS_MAX)
    answer.notes += view.board.notes
    return answer


async def _start(view: View, row: WorkloadRow) -> str:
    """When it starts, in words; empty where the manager does not say it (yet)."""
    if row.state not in IN_QUEUE or not view.grants.may("get", PENDING_WORKLOADS, row.namespace):
        return ""
    try:
        async with asyncio.timeout(FORECAST_SECONDS):
            start = (await _asked(view, pending_path(row.namespace, row.name))).get("start")
    except (ApiError, ConnectionError, TimeoutError):
        return ""
    return start_text(start) if start else ""


def start_text(start: Mapping[str, Any]) -> str:
    """The `start` of a pending workload in words, with how good past forecasts of its queue were."""

    def time(name: str) -> str:
        return str(start[name]).replace("T", " ").replace("Z", " UTC")

    futures = f"{start['futures']} simulated futures"
    if "earliest" not in start:
        text = f"Within {start['hours']:.0f} hours in {start['started']} of {futures}."
    elif "latest" in start:
        text = f"Between {time('earliest')} and {time('latest')} with a probability of 80 %, from {futures}."
    else:
        text = f"At {time('earliest')} at the earliest; within {start['hours']:.0f} hours in "
        text += f"{start['started']} of {futures}."
    if score := start.get("score"):
        text += f" Of {score['starts']} past starts of its LocalQueue, {score['inside']} were inside theirs."
    return text


async def _story(view: View, row: WorkloadRow, obj: Object) -> Mapping[str, Any]:
    """Its history: as the manager recorded it, else from its status and events."""
    try:
        return await _asked(view, story_path(row.namespace, row.name))
    except (ApiError, ConnectionError, TimeoutError):
        pass
    events: list[Object] = []
    if view.grants.lists(EVENTS, row.namespace):
        informer_events = view.board.event_objects("Workload", row.namespace, row.name)
        events = list(informer_events)
    try:
        return story_from_objects(decode_as(kueue.Workload, obj), events)
    except DecodeError as error:
        return {"entries": [], "notes": [str(error)]}


async def _asked(view: View, path: str) -> Mapping[str, Any]:
    """What the manager serves to the user. Raises what the client raises."""
    found: Mapping[str, Any] = await view.client.transport.call(Request("GET", path))
    return found


def _needs(params: Mapping[str, str]) -> list[Need]:
    namespace = params["namespace"]

    def here(verb: str, resource: Resource) -> Need:
        return Need(verb, resource, namespace)

    return [
        here("get", WORKLOADS),
        here("patch", WORKLOADS),
        here("list", PODS),
        here("list", EVENTS),
        here("get", PENDING_WORKLOADS),
        Need("list", WORKLOADS),
        Need("list", CLUSTER_QUEUES),
    ]


PAGE = Page(
    "/workloads/{namespace}/{name}",
    "Workload {namespace}/{name}",
    "workload.html",
    build,
    _needs,
    parent="/workloads",
    seconds=1.0,
)
