"""Which resource serves a kind: asked of the API server, once per group and version."""

from __future__ import annotations

from typing import Any

from pykueue.api.resources import Resource
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, Transport


class Discovery:
    """Finds the resource of a manifest's apiVersion and kind.

    An unknown kind is asked for again each time, since a CustomResourceDefinition may have arrived meanwhile.
    Source: the APIResourceList (docs/reference/kubernetes-api-machinery.md, section 2).
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[tuple[str, str], Resource] = {}

    async def find(self, api_version: str, kind: str) -> Resource:
        """The resource of `kind`; raises ApiError 404 when the server does not serve it."""
        found = self._known.get((api_version, kind))
        if found is None:
            await self._ask(api_version)
            found = self._known.get((api_version, kind))
        if found is None:
            raise ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
        return found

    async def _ask(self, api_version: str) -> None:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer: dict[str, Any] = await self._transport.call(Request("GET", path))
        except ApiError as error:
            if error.not_found:
                return
            raise
        for entry in answer.get("resources", []):
            if "/" not in entry["name"]:
                resource = Resource(group, version, entry["name"], entry["kind"], bool(entry["namespaced"]))
                self._known[api_version, entry["kind"]] = resource
