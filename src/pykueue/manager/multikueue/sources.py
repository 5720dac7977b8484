"""Where a worker cluster is and with what credentials: from a Secret, a file, or a ClusterProfile.

Source: docs/reference/admission-checks.md 14.3; the APIs multicluster.x-k8s.io/v1alpha1 and
client.authentication.k8s.io.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pykueue.api.objects import Object, get
from pykueue.api.resources import SECRETS, Resource
from pykueue.clock import Clock
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster

from .kubeconfig import BAD, KubeConfigError, Target, of_profile, parse

CLUSTER_PROFILES = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile", True)
#: Key of a Secret with a kubeconfig.
SECRET_KEY = "kubeconfig"
#: Where kubeconfig files must be while their paths are validated.
KUBECONFIG_FOLDER = Path("/etc/multikueue/kubeconfigs")
BAD_PROFILE = "BadClusterProfile"
PROFILES_OFF = "MultiKueueClusterProfileFeatureDisabled"


class SourceNotReadError(KubeConfigError):
    """The cache of what is named is not filled yet, as right after the start."""


class Sources:
    """The sources of MultiKueueClusters; `changed` is called with the name of one whose source changes."""

    def __init__(
        self, cluster: Cluster, clusters: Informer, clock: Clock, changed: Callable[[str], None]
    ) -> None:
        self._namespace = cluster.configuration.namespace
        self._clusters = clusters
        self._changed = changed
        gates = cluster.configuration.gates
        self._validates_paths = gates["MultiKueueKubeConfigPathValidation"]
        profiles = cluster.configuration.multi_kueue.cluster_profile
        #: The programs that give credentials, by the name that profiles have for them.
        self._providers = (
            {one.name: one.exec_config for one in profiles.access_providers or profiles.credentials_providers}
            if profiles is not None
            else {}
        )
        #: Kubeconfigs that were parsed, by the name of their MultiKueueCluster.
        self._targets: dict[str, tuple[str, Target]] = {}
        clusters.add_index("secret", _secret_names)
        clusters.add_index("profile", _profile_names)
        client = cluster.connection.client
        #: Of the manager's own namespace; watched once a MultiKueueCluster names one.
        self._secrets = Informer(client, SECRETS, self._namespace, clock=clock)
        self._secrets.on_event(lambda _, old, new: self._notify("secret", old if new is None else new))
        self._needed = {self._secrets: asyncio.Event()}
        #: None where the gate is off: then the manager has no right to read them.
        self._profiles: Informer | None = None
        if gates["MultiKueueClusterProfile"]:
            profiled = Informer(client, CLUSTER_PROFILES, self._namespace, clock=clock, optional=True)
            profiled.on_event(lambda _, old, new: self._notify("profile", old if new is None else new))
            self._needed[profiled] = asyncio.Event()
            self._profiles = profiled

    async def run(self) -> None:
        """Keep what is named up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._needed:
                tasks.create_task(self._watch(informer))

    async def _watch(self, informer: Informer) -> None:
        await self._needed[informer].wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced()
            for one in self._clusters.list():
                self._changed(one["metadata"]["name"])

    def _notify(self, index: str, obj: Mapping[str, Any]) -> None:
        for one in self._clusters.by_index(index, obj["metadata"]["name"]):
            self._changed(one["metadata"]["name"])

    def _find(self, informer: Informer, name: str, reason: str) -> Object:
        self._needed[informer].set()
        found: Object | None = informer.get(self._namespace, name)
        kind = informer.resource.kind
        if found is None and not informer.has_synced:
            text = f"{kind}s of the namespace {self._namespace} have not been read yet"
            raise SourceNotReadError(reason, text)
        if found is None:
            raise KubeConfigError(reason, f"{kind} {name} is not found in the namespace {self._namespace}")
        return found

    def target(self, obj: Mapping[str, Any]) -> Target:
        """Where the cluster of a MultiKueueCluster is. Raises KubeConfigError."""
        source = get(obj, "spec", "clusterSource", "kubeConfig")
        if not source:
            return self._profile(str(get(obj, "spec", "clusterSource", "clusterProfileRef", "name") or ""))
        location = str(source.get("location") or "")
        is_path = source.get("locationType") == "Path"
        return self._parsed(
            obj["metadata"]["name"], self._read_file(location) if is_path else self._read(location)
        )

    def _parsed(self, name: str, content: str) -> Target:
        """What a kubeconfig says; each is parsed once, as it is asked for at every change of the cluster."""
        known = self._targets.get(name)
        if known is not None and known[0] == content:
            return known[1]
        target = parse(content)
        self._targets = {
            other: found
            for other, found in self._targets.items()
            if self._clusters.get("", other) is not None
        }
        self._targets[name] = content, target
        return target

    def _profile(self, name: str) -> Target:
        if self._profiles is None:
            text = "spec.clusterSource.clusterProfileRef needs the feature gate MultiKueueClusterProfile"
            raise KubeConfigError(PROFILES_OFF, text)
        profile = self._find(self._profiles, name, BAD_PROFILE)
        offered = {
            str(one.get("name")): one.get("cluster") or {}
            for field in ("credentialProviders", "accessProviders")
            for one in get(profile, "status", field) or ()
        }
        for provider, plugin in self._providers.items():
            if provider in offered:
                return of_profile(offered[provider], plugin)
        known = ", ".join(self._providers) or "none"
        text = f"ClusterProfile {name} has no access provider of multiKueue.clusterProfile ({known})"
        raise KubeConfigError(BAD_PROFILE, text)

    def _read(self, name: str) -> str:
        value = (self._find(self._secrets, name, BAD).get("data") or {}).get(SECRET_KEY)
        if value is None:
            raise KubeConfigError(BAD, f"Secret {name} has no key {SECRET_KEY}")
        try:
            return base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise KubeConfigError(BAD, f"key {SECRET_KEY} of Secret {name} is not text") from error

    def _read_file(self, location: str) -> str:
        path = Path(location)
        if self._validates_paths and not _is_below(path, KUBECONFIG_FOLDER):
            raise KubeConfigError(BAD, f"path {location} is not allowed: it must be in {KUBECONFIG_FOLDER}")
        try:
            return path.read_text()
        except OSError as error:
            raise KubeConfigError(BAD, f"file {location} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise KubeConfigError(BAD, f"file {location} is not text in UTF-8") from error


def _is_below(path: Path, folder: Path) -> bool:
    return path.is_absolute() and path.resolve().is_relative_to(folder)


def _secret_names(cluster: Mapping[str, Any]) -> Iterable[str]:
    source = get(cluster, "spec", "clusterSource", "kubeConfig") or {}
    return [str(source.get("location"))] if source.get("locationType") != "Path" and source else []


def _profile_names(cluster: Mapping[str, Any]) -> Iterable[str]:
    name = get(cluster, "spec", "clusterSource", "clusterProfileRef", "name")
    return [str(name)] if name else []
