"""What the server serves, as clients discover it: legacy and aggregated documents, version, OpenAPI.

All of it is generated from the registry and kept until the registry changes.
Source: docs/reference/kubernetes-api-machinery.md, sections 1 to 3.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.discovery.openapi import v3_document
from pykueue.embedded.apiserver.registry.endpoints import Endpoint, Registry, version_order
from pykueue.embedded.kinds.base import Subresource

from .aggregation import Aggregation

#: The Kubernetes version the server behaves as.
VERSION = (1, 32, 0)


def version_document() -> Object:
    """GET /version."""
    major, minor, patch = VERSION
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.{patch}+pykueue",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


class Discovery:
    """Documents about a registry."""

    def __init__(self, registry: Registry, aggregation: Aggregation | None = None) -> None:
        self._registry = registry
        self._aggregation = aggregation
        self._cache: dict[Any, Any] = {}
        self._changes = -1
        self._openapi: dict[tuple[str, str], tuple[str, Object]] = {}

    def _kept(self, key: Any, make: Callable[[], Any]) -> Any:
        if self._changes != self._registry.changes:
            self._changes = self._registry.changes
            self._cache.clear()
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _groups(self) -> list[tuple[str, list[str]]]:
        """Own groups and those passed on, with their versions."""
        groups = self._registry.groups()
        known = dict(groups)
        for group, version in self._aggregation.group_versions() if self._aggregation else ():
            if group not in known:
                known[group] = []
                groups.append((group, known[group]))
            known[group].append(version)
            known[group].sort(key=version_order)
        return groups

    # -- legacy

    def api_versions(self) -> Object:
        """GET /api."""
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }

    def group_list(self) -> Object:
        """GET /apis."""

        def make() -> Object:
            groups = [self._group(group, versions) for group, versions in self._groups() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

        found: Object = self._kept("groups", make)
        return found

    def _group(self, group: str, versions: list[str]) -> Object:
        described = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        return {"name": group, "versions": described, "preferredVersion": described[0]}

    def group(self, name: str) -> Object | None:
        """GET /apis/GROUP, or None when it is not served."""
        for group, versions in self._groups():
            if group == name and group:
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group, versions)}
        return None

    def resource_list(self, group: str, version: str) -> Object | None:
        """GET /api/v1 or /apis/GROUP/VERSION, or None when it is not served."""

        def make() -> Object | None:
            endpoints = self._registry.of_version(group, version)
            resources = [entry for endpoint in endpoints for entry in _legacy_entries(endpoint)]
            if not resources and self._aggregation is not None:
                resources = self._aggregation.resources(group, version) or []
            if not resources:
                return None
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": _group_version(group, version),
                "resources": resources,
            }

        found: Object | None = self._kept(("resources", group, version), make)
        return found

    # -- aggregated

    def aggregated(self, core: bool, version: str) -> Object:
        """GET /api (core) or /apis as APIGroupDiscoveryList in `v2` or `v2beta1`."""

        def make() -> Object:
            items = [
                {
                    "metadata": {"name": group, "creationTimestamp": None},
                    "versions": [self._aggregated_version(group, one) for one in versions],
                }
                for group, versions in self._groups()
                if (group == "") is core
            ]
            return {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": items,
            }

        found: Object = self._kept(("aggregated", core, version), make)
        return found

    def _aggregated_version(self, group: str, version: str) -> Object:
        entries = [_aggregated_entry(endpoint) for endpoint in self._registry.of_version(group, version)]
        freshness = "Current"
        if not entries and self._aggregation is not None:
            found = self._aggregation.resources(group, version)
            freshness = "Stale" if found is None else "Current"
            entries = _from_legacy(group, version, found or [])
        return {"version": version, "resources": entries, "freshness": freshness}

    # -- OpenAPI v3

    def _path(self, group: str, version: str) -> str:
        return f"apis/{group}/{version}" if group else f"api/{version}"

    def _fingerprint(self, group: str, version: str) -> str:
        parts = [f"{VERSION}{group}/{version}"]
        parts += [f"{one.plural}={one.fingerprint}" for one in self._registry.of_version(group, version)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32].upper()

    def openapi_index(self) -> Object:
        """GET /openapi/v3."""

        def make() -> Object:
            paths: Object = {}
            for group, versions in self._registry.groups():
                for version in versions:
                    path = self._path(group, version)
                    mark = self._fingerprint(group, version)
                    paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
            if self._aggregation is not None:
                places = {**self._aggregation.openapi(), **self._aggregation.own_openapi()}
                for path, place in places.items():
                    paths[path] = {"serverRelativeURL": place}
            return {"paths": paths}

        found: Object = self._kept("openapi", make)
        return found

    def openapi_document(self, path: str) -> Object | None:
        """GET /openapi/v3/PATH, or None when there is no such group and version."""
        parts = path.split("/")
        if len(parts) == 2 and parts[0] == "api":
            group, version = "", parts[1]
        elif len(parts) == 3 and parts[0] == "apis":
            group, version = parts[1], parts[2]
        else:
            return None
        endpoints = list(self._registry.of_version(group, version))
        if not endpoints:
            return None if self._aggregation is None else self._aggregation.own_document(group, version)
        mark = self._fingerprint(group, version)
        kept = self._openapi.get((group, version))
        if kept is None or kept[0] != mark:
            described = []
            for endpoint in endpoints:
                try:
                    described.append((endpoint.kind, endpoint.schema))
                except KeyError:  # nothing published for it
                    continue
            kept = (mark, v3_document(group, version, described))
            self._openapi[group, version] = kept
        return kept[1]

    def document(self, path: str) -> Object | None:
        """The JSON document at a path that names no object, or None."""
        parts = path.strip("/").split("/")
        match parts:
            case ["version"]:
                return version_document()
            case ["api"]:
                return self.api_versions()
            case ["apis"]:
                return self.group_list()
            case ["api", version]:
                return self.resource_list("", version)
            case ["apis", group]:
                return self.group(group)
            case ["apis", group, version]:
                return self.resource_list(group, version)
            case ["openapi", "v3"]:
                return self.openapi_index()
            case ["openapi", "v3", *rest]:
                return self.openapi_document("/".join(rest))
            case [""]:
                return {
                    "paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
                }
        return None


def _legacy_entries(endpoint: Endpoint) -> list[Object]:
    kind = endpoint.kind
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.singular_name,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if "list" in kind.verbs:
        entry["storageVersionHash"] = hashlib.sha256(
            f"{endpoint.storage.api_version}/{kind.kind}".encode()
        ).hexdigest()[:12]
    entries = [entry]
    for sub in kind.subresources:
        described: Object = {
            "name": f"{kind.plural}/{sub.name}",
            "singularName": "",
            "namespaced": kind.namespaced,
        }
        if sub.kind and sub.version:
            described["group"] = sub.group
            described["version"] = sub.version
        described["kind"] = sub.kind or kind.kind
        described["verbs"] = list(sub.verbs)
        entries.append(described)
    return entries


def _aggregated_entry(endpoint: Endpoint) -> Object:
    kind = endpoint.kind

    def response_kind(sub: Subresource | None) -> Object:
        if sub is not None and sub.kind:
            return {"group": sub.group, "version": sub.version or kind.version, "kind": sub.kind}
        return {"group": kind.group, "version": kind.version, "kind": kind.kind}

    entry: Object = {
        "resource": kind.plural,
        "responseKind": response_kind(None),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular_name,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            {"subresource": sub.name, "responseKind": response_kind(sub), "verbs": list(sub.verbs)}
            for sub in kind.subresources
        ]
    return entry


def _from_legacy(group: str, version: str, resources: list[Object]) -> list[Object]:
    """Entries of an APIResourceList as aggregated discovery has them."""

    def kind_of(one: Object) -> Object:
        return {
            "group": one.get("group") or group,
            "version": one.get("version") or version,
            "kind": one.get("kind", ""),
        }

    entries: dict[str, Object] = {}
    for one in resources:
        name, _, subresource = str(one.get("name", "")).partition("/")
        if subresource:
            continue
        entries[name] = {
            "resource": name,
            "responseKind": kind_of(one),
            "scope": "Namespaced" if one.get("namespaced") else "Cluster",
            "singularResource": one.get("singularName") or "",
            "verbs": one.get("verbs") or [],
            **{key: one[key] for key in ("shortNames", "categories") if one.get(key)},
        }
    for one in resources:
        name, _, subresource = str(one.get("name", "")).partition("/")
        if subresource and name in entries:
            described = {
                "subresource": subresource,
                "responseKind": kind_of(one),
                "verbs": one.get("verbs") or [],
            }
            entries[name].setdefault("subresources", []).append(described)
    return list(entries.values())
