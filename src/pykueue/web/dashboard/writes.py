"""Stop, resume and priority: the only writes, each one request with the token of the user who signed in.

Source: docs/reference/kueue-api.md, section 8.1 (the verbs of kueuectl).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from pykueue.kube.errors import ApiError

from .pages.base import link
from .security.guard import Guard
from .security.sessions import Session

FIELD_MANAGER: Final = "pykueue-dashboard"
#: Kinds that can be stopped, and the first part of the address of their pages.
_KINDS: Final[Mapping[str, tuple[Resource, str]]] = {
    "workload": (WORKLOADS, "workloads"),
    "localqueue": (LOCAL_QUEUES, "local-queues"),
    "clusterqueue": (CLUSTER_QUEUES, "cluster-queues"),
}
#: Priorities are 32-bit integers.
_PRIORITY_MAX: Final = 2**31 - 1
_POLICIES: Final = ("Hold", "HoldAndDrain")

log = logging.getLogger(__name__)


class Writes:
    """Carries out the forms of pages."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def act(self, request: web.Request, session: Session) -> str:
        """Do what a form says; the address of the page that shows it. Raises HTTPException."""
        form = {key: str(value) for key, value in (await request.post()).items()}
        self._guard.check_form(session, form.get("csrf", ""))
        found = _KINDS.get(form.get("kind", ""))
        namespace, name = form.get("namespace", ""), form.get("name", "")
        if found is None or not name or (found[0].namespaced and not namespace):
            raise web.HTTPBadRequest(text="the form names no object")
        resource, folder = found
        action = request.match_info["action"]
        patch = _patch(action, resource, form)
        try:
            await session.client.patch(
                resource, name, namespace if resource.namespaced else None, patch, field_manager=FIELD_MANAGER
            )
        except ApiError as error:
            raise _refused(error) from None
        log.info("%s: %s %s %s/%s", session.user, action, resource.kind, namespace, name)
        place = link(folder, namespace, name) if resource.namespaced else link(folder, name)
        return f"{place}?done={action}"


def _patch(action: str, resource: Resource, form: Mapping[str, str]) -> dict[str, Any]:
    """The merge patch of a form. Raises HTTPBadRequest."""
    if action == "stop" and resource is WORKLOADS:
        return {"spec": {"active": False}}
    if action == "resume" and resource is WORKLOADS:
        return {"spec": {"active": True}}
    if action == "stop":
        policy = form.get("policy", "Hold")
        if policy not in _POLICIES:
            raise web.HTTPBadRequest(text=f"policy: {policy!r}; accepted values: {', '.join(_POLICIES)}")
        return {"spec": {"stopPolicy": policy}}
    if action == "resume":
        return {"spec": {"stopPolicy": "None"}}
    if action == "priority" and resource is WORKLOADS:
        text = form.get("priority", "")
        try:
            value = int(text)
        except ValueError:
            raise web.HTTPBadRequest(text=f"priority: {text!r} is not a whole number") from None
        if abs(value) > _PRIORITY_MAX:
            raise web.HTTPBadRequest(
                text=f"priority: {value} is not between -{_PRIORITY_MAX} and {_PRIORITY_MAX}"
            )
        return {"spec": {"priority": value}}
    raise web.HTTPNotFound(text=f"there is no action {action!r} for {resource.kind}")


def _refused(error: ApiError) -> web.HTTPException:
    """The refusal of the API server, as an answer of the dashboard."""
    if error.code == 403:
        return web.HTTPForbidden(text=error.message)
    if error.code == 404:
        return web.HTTPNotFound(text=error.message)
    if error.code == 401:
        return web.HTTPUnauthorized(text="the token of the session has ended")
    return web.HTTPBadRequest(text=error.message)
