"""The queues, cohorts and flavors of a folder as objects, with their places, and the manager's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pykueue.api import decode, kueue
from pykueue.api.core import Node
from pykueue.api.decoding import DecodeError
from pykueue.api.kueue import Topology
from pykueue.api.model import Model
from pykueue.engine import Engine, Options, Upsert
from pykueue.engine.explain.quota_queries import NodeView
from pykueue.engine.quota.usage import is_unlimited
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.configuration import parse as parse_configuration
from pykueue.manager.scheduler.engine_options import engine_options
from pykueue.manifests.files import InputError
from pykueue.manifests.reading import Document, Source, read

from .findings import Place

#: Group of the manager's configuration.
_CONFIGURATION = "config.kueue.x-k8s.io/"
#: Annotation of an object whose findings of some rules are accepted; comma-separated.
ACCEPTED_ANNOTATION = "pykueue.io/accepted-findings"

_LINE = re.compile(r"^(?P<file>.*): document \d+ \(line (?P<line>\d+)\)")
_Object = TypeVar("_Object", bound=Model)


class PolicyError(ValueError):
    """A folder cannot be checked; one line for each problem, with file and line."""


@dataclass
class Policy:
    """What is checked."""

    options: Options
    cluster_queues: dict[str, kueue.ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, kueue.Cohort] = field(default_factory=dict)
    flavors: dict[str, kueue.ResourceFlavor] = field(default_factory=dict)
    local_queues: dict[str, kueue.LocalQueue] = field(default_factory=dict)
    """By `namespace/name`."""
    checks: dict[str, kueue.AdmissionCheck] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    """Value by the name of a priority class of either kind."""
    places: dict[str, Place] = field(default_factory=dict)
    """By kind and name, as in `ClusterQueue team-a`."""
    accepted: dict[str, frozenset[str]] = field(default_factory=dict)
    """Names of rules, by kind and name of an object."""
    manifests: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    configuration: dict[str, Any] = field(default_factory=dict)
    """Fields of the manager's configuration as they were written."""

    @cached_property
    def views(self) -> dict[str, NodeView]:
        """Each ClusterQueue as the engine has it when nothing is used."""
        return {view.name: view for view in engine_of(self).nodes() if view.kind == "ClusterQueue"}

    @cached_property
    def most(self) -> dict[tuple[str, str, str], int | None]:
        """The most that each ClusterQueue could ever use; see `potentials`."""
        return potentials(self.views.values())

    def place(self, name: str) -> Place:
        """Where an object stands; of one without a manifest, nowhere."""
        return self.places.get(name, Place())

    def trees(self) -> list[Tree]:
        """The ClusterQueues, by the tree of cohorts they are in, in the order of their names."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.cluster_queues):
            found.setdefault(self.root(name), []).append(name)
        return [Tree(root, tuple(names)) for root, names in sorted(found.items())]

    def members(self, cluster_queue: str) -> list[str]:
        """The ClusterQueues of the tree of cohorts that a queue is in, itself included."""
        root = self.root(cluster_queue)
        return [name for name in self.cluster_queues if self.root(name) == root]

    def root(self, cluster_queue: str) -> str:
        """Name of the root cohort above a queue; of a queue without a cohort, its own name after a slash."""
        name = self.cluster_queues[cluster_queue].spec.cohort_name
        if not name:
            return f"/{cluster_queue}"
        seen = {name}
        while (cohort := self.cohorts.get(name)) is not None and cohort.spec.parent_name:
            name = cohort.spec.parent_name
            if name in seen:
                break  # the engine reports the circle
            seen.add(name)
        return name


@dataclass(frozen=True)
class Tree:
    """Queues that share quota."""

    root: str
    """Name of the root cohort; `/NAME` for a single queue without one."""
    cluster_queues: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"ClusterQueue {self.root[1:]}" if self.root.startswith("/") else f"Cohort {self.root}"


def load(folder: Path, configuration: Path | None = None) -> Policy:
    """The policy in a folder or file.

    `configuration` is a file with the manager's configuration; without it, that of a document in the folder,
    or the defaults. Raises PolicyError.
    """
    try:
        source = Source([folder])
        texts = [one for one in source.documents if _is_configuration(one)]
        source.documents = [one for one in source.documents if not _is_configuration(one)]
        settings = _settings(configuration, texts)
        found = read(source, settings)
    except (InputError, ConfigurationError) as error:
        raise PolicyError(str(error)) from None
    except OSError as error:
        raise PolicyError(f"{error.filename}: {error.strerror}") from None
    places = {}
    for document in source.documents:
        if place := _LINE.match(document.place):
            title = _title(document.manifest)
            places[title] = Place(place["file"], int(place["line"]))
    policy = policy_of(found.manifests, engine_options(settings), places, found.warnings)
    if configuration is not None:
        texts = Source([configuration]).documents
    for document in texts:
        policy.configuration = {
            name: value for name, value in document.manifest.items() if name not in ("apiVersion", "kind")
        }
    return policy


def policy_of(
    manifests: Iterable[dict[str, Any]],
    options: Options,
    places: Mapping[str, Place] | None = None,
    warnings: Iterable[str] = (),
) -> Policy:
    """The policy that manifests are. Raises PolicyError for one that cannot be decoded."""
    policy = Policy(options, places=dict(places or {}), manifests=list(manifests), warnings=list(warnings))
    by_kind: dict[str, dict[str, Any]] = {
        "ClusterQueue": policy.cluster_queues,
        "Cohort": policy.cohorts,
        "ResourceFlavor": policy.flavors,
        "AdmissionCheck": policy.checks,
        "Topology": policy.topologies,
        "Node": policy.nodes,
    }
    for manifest in policy.manifests:
        kind, metadata = manifest["kind"], manifest["metadata"]
        if kind in ("WorkloadPriorityClass", "PriorityClass"):
            policy.priorities[metadata["name"]] = int(manifest.get("value") or 0)
        elif kind in by_kind or kind == "LocalQueue":
            if not metadata.get("uid"):
                manifest = {**manifest, "metadata": {**metadata, "uid": _title(manifest)}}
            try:
                obj: Any = decode(manifest)
            except DecodeError as error:
                raise PolicyError(str(error)) from None
            if kind == "LocalQueue":
                policy.local_queues[obj.metadata.key] = obj
            else:
                by_kind[kind][metadata["name"]] = obj
        accepted = (metadata.get("annotations") or {}).get(ACCEPTED_ANNOTATION, "")
        if accepted:
            names = frozenset(name.strip() for name in str(accepted).split(","))
            policy.accepted[_title(manifest)] = names
    return policy


def _settings(file: Path | None, documents: list[Document]) -> Configuration:
    if file is not None:
        return load_configuration(file)
    if len(documents) > 1:
        raise PolicyError(f"{documents[1].place}: a second configuration of the manager; accepted: one")
    if not documents:
        return load_configuration(None)
    return parse_configuration(msgspec.json.encode(documents[0].manifest).decode(), documents[0].place)


def _is_configuration(document: Document) -> bool:
    return str(document.manifest.get("apiVersion", "")).startswith(_CONFIGURATION)


def _title(manifest: dict[str, Any]) -> str:
    metadata = manifest.get("metadata") or {}
    name = str(metadata.get("name", ""))
    if manifest.get("kind") == "LocalQueue":
        name = f"{metadata.get('namespace') or 'default'}/{name}"
    return f"{manifest.get('kind')} {name}"


def changed(obj: _Object, **spec: Any) -> _Object:
    """An object with other fields of its spec."""
    old = obj.spec  # type: ignore[attr-defined]
    result: _Object = msgspec.structs.replace(obj, spec=msgspec.structs.replace(old, **spec))
    return result


def engine_of(policy: Policy, replaced: Iterable[Model] = ()) -> Engine:
    """An engine that has the quotas of a policy, some of its objects replaced, and no workloads."""
    engine = Engine(policy.options)
    for obj in (
        *policy.topologies.values(),
        *policy.flavors.values(),
        *policy.cohorts.values(),
        *policy.cluster_queues.values(),
        *replaced,
    ):
        engine.apply(Upsert(obj))
    return engine


def potentials(views: Iterable[NodeView]) -> dict[tuple[str, str, str], int | None]:
    """The most that each ClusterQueue could ever use, by queue, flavor and resource; None: no bound.

    Amounts are quota units.
    """
    return {
        (view.name, quota.flavor, quota.resource): None if is_unlimited(quota.potential) else quota.potential
        for view in views
        if view.kind == "ClusterQueue"
        for quota in view.quotas
    }


def quotas_of(obj: kueue.ClusterQueue | kueue.Cohort) -> Iterator[tuple[str, kueue.ResourceQuota]]:
    """Flavor and quota of each flavor resource of an object, in their order."""
    for group in obj.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                yield flavor.name, quota
