"""Resource types as users write them: `job`, `jobs`, `jobs.v1.batch`, `pytorchjobs.kubeflow.org`, `cq`.

Source: docs/reference/kubernetes-api-machinery.md, section 2.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pykueue.api.resources import Resource
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request

from .errors import PluginError


class Types:
    """What a cluster serves, read once per group and version."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: dict[str, list[dict[str, Any]]] = {}

    async def named(self, argument: str) -> tuple[Resource, str]:
        """The resource and name of `TYPE[.VERSION][.GROUP]/NAME`. Raises PluginError and ApiError."""
        kind, slash, name = argument.partition("/")
        if not slash or "/" in name or not kind or not name:
            raise PluginError(
                f"invalid value '{argument}' used in --for flag; the format is TYPE[.GROUP]/NAME"
            )
        return await self.resource(kind), name

    async def resource(self, argument: str) -> Resource:
        """The resource of a type; of several the core group's, then that of the first group."""
        wanted = argument.lower()
        plain, _, rest = wanted.partition(".")
        version, _, versioned_group = rest.partition(".")
        for group, versions in await self._groups():
            if rest and group == versioned_group and version in versions:
                served = [version]
            elif not rest or group == rest or (group and group.startswith(rest) and "." not in rest):
                served = versions
            else:
                continue
            for each in served:
                found = await self._find(group, each, plain)
                if found is not None:
                    return found
        raise PluginError(f'the server doesn\'t have a resource type "{argument}"')

    async def singular(self, api_version: str, kind: str) -> str:
        """The singular name of a kind; empty where the cluster does not serve it."""
        for one in await self._resources(api_version):
            if one.get("kind") == kind and "/" not in one["name"] and one.get("singularName"):
                return str(one["singularName"])
        return ""

    async def of_kind(self, api_version: str, kind: str) -> Resource:
        """The resource of a kind. Raises PluginError where the cluster does not serve it."""
        group, _, version = api_version.rpartition("/")
        for one in await self._resources(api_version):
            if one.get("kind") == kind and "/" not in one["name"]:
                return Resource(group, version, one["name"], kind, bool(one.get("namespaced")))
        raise PluginError(f'no matches for kind "{kind}" in version "{api_version}"')

    async def _groups(self) -> list[tuple[str, list[str]]]:
        """Groups in the server's order, each with its versions, the preferred one first."""
        answer = await self._client.call(Request("GET", "/apis"))
        found: list[tuple[str, list[str]]] = [("", ["v1"])]
        for group in answer.get("groups") or ():
            versions = [one["version"] for one in group.get("versions") or ()]
            preferred = (group.get("preferredVersion") or {}).get("version")
            found.append((group["name"], sorted(versions, key=lambda one: one != preferred)))
        first = [f"{group}/{versions[0]}" if group else versions[0] for group, versions in found if versions]
        await asyncio.gather(*(self._resources(api_version) for api_version in first))
        return found

    async def _find(self, group: str, version: str, name: str) -> Resource | None:
        for one in await self._resources(f"{group}/{version}" if group else version):
            known = {one["name"], one.get("singularName"), str(one.get("kind", "")).lower()}
            if "/" not in one["name"] and name in known | set(one.get("shortNames") or ()):
                return Resource(group, version, one["name"], one["kind"], bool(one.get("namespaced")))
        return None

    async def _resources(self, api_version: str) -> list[dict[str, Any]]:
        """What discovery lists of a group and version; nothing where the cluster does not serve it."""
        known = self._served.get(api_version)
        if known is None:
            path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            try:
                known = (await self._client.call(Request("GET", path))).get("resources") or []
            except ApiError as error:
                # An aggregated API whose server is away must not hide all other types.
                if not error.not_found and error.code < 500:
                    raise
                known = []
            self._served[api_version] = known
        return known
