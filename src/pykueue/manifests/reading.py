"""Reading manifests to decide on: files, directories, standard input; what is wrong is said by file,
document and field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pykueue.api import KINDS
from pykueue.api.conversion import ConversionError, convert
from pykueue.api.decoding import describe
from pykueue.api.kueue import V1BETA1, V1BETA2, names
from pykueue.api.kueue.common import GROUP
from pykueue.api.userkinds import JOB_KINDS, JobKindError
from pykueue.api.validation import validate
from pykueue.api.yaml import NoObjectError, YamlError, load_with_places
from pykueue.engine.dump import EngineState, is_state, state_of
from pykueue.jobs.base import JobIntegration, MissingReferenceError, WorkloadSource
from pykueue.jobs.user import UserJob, add_user_job
from pykueue.jobs.workload import queue_name
from pykueue.manager.configuration import Configuration

from .checks import GROUPS, Checks, Problem, problem
from .files import InputError, texts
from .jobs import Held, Jobs, workload_of
from .pools import nodes_of

Manifest = dict[str, Any]

#: Kinds without a namespace.
CLUSTER_SCOPED = frozenset(
    {
        "AdmissionCheck",
        "BackfillPolicy",
        "Budget",
        "BudgetLedger",
        "ClusterQueue",
        "ClusterTrainingRuntime",
        "Cohort",
        "DeviceClass",
        "Namespace",
        "Node",
        "PreemptionPolicy",
        "PriorityClass",
        "Reservation",
        "ResourceFlavor",
        "ResourceSlice",
        "RuntimeClass",
        "Topology",
        "WorkloadPriorityClass",
    }
)

#: So much of `generateName` becomes part of a name, which five characters end, as on an API server.
_PREFIX_LENGTH = 58

#: Kind, namespace and name.
Identity = tuple[str, str, str]


class Document(NamedTuple):
    """One object as it was written, and where."""

    place: str
    manifest: Manifest


class Source:
    """The documents of some files, and of files that override them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        #: Files without an object in a directory.
        self.warnings: list[str] = []
        self.documents = list(self._documents(paths))

    def overridden(self, paths: Iterable[Path]) -> tuple[Source, list[str]]:
        """With the documents of other files in place of those of the same object, or added at the end.

        Also what became of each of them: `ClusterQueue cq: changed`.
        """
        over = Source(paths)
        merged = {_identity(each.manifest) or (number,): each for number, each in enumerate(self.documents)}
        effects = []
        for number, document in enumerate(over.documents, len(self.documents)):
            identity = _identity(document.manifest) or (number,)
            before = merged.get(identity)
            effect = "added" if before is None else "changed"
            if before is not None and before.manifest == document.manifest:
                effect = "unchanged"
            merged[identity] = document
            effects.append(f"{describe(document.manifest)}: {effect}")
        result = Source(())
        result.warnings = [*self.warnings, *over.warnings]
        result.documents = list(merged.values())
        return result, effects

    def _documents(self, paths: Iterable[Path]) -> Iterator[Document]:
        for path in paths:
            for source, text in texts(path):
                try:
                    for place, manifest in load_with_places(text, source):
                        yield Document(place, manifest)
                except YamlError as error:
                    is_object = not isinstance(error, NoObjectError)
                    nodes = None if is_object else nodes_of(text, source)
                    if nodes is not None:
                        yield from (Document(source, node) for node in nodes)
                        continue
                    if not is_object and path.is_dir():
                        self.warnings.append(f"{error}; the file is left out")
                        continue
                    raise InputError(str(error)) from None


class Input:
    """The objects of some documents, and what was left out."""

    def __init__(
        self, configuration: Configuration, strict: bool, described: Iterable[JobIntegration] = ()
    ) -> None:
        self.manifests: list[Manifest] = []
        #: What the engine of a manager knew, in its dump.
        self.state: EngineState | None = None
        #: How many objects of each kind were ignored.
        self.ignored: dict[str, int] = {}
        #: What an API server would refuse, and what is made of it here.
        self.warnings: list[str] = []
        self._errors: list[str] = []
        self._strict = strict
        self._gates: Mapping[str, bool] = configuration.gates
        self._jobs = Jobs(described)
        self._checks = Checks(configuration, self._jobs)
        self._places: dict[Identity, str] = {}
        self._generated: Counter[str] = Counter()

    def finish(self) -> None:
        """Turns jobs into workloads and judges those. Raises InputError."""
        if self._errors:
            raise InputError("\n".join(self._errors))
        held = Held(manifest for manifest in self.manifests if manifest["kind"] == "Workload")
        for job in list(self._jobs.workloads(held, self._ignore)):
            if isinstance(job, str):
                self.warnings.append(job)
                continue
            kind, obj, _ = job
            try:
                self.manifests.append(workload_of(job, *self._priority(obj, kind)))
            except MissingReferenceError as error:
                self._errors.append(f"{describe(obj)}: {error} among the objects")
                continue
            self._judge(self.manifests[-1])
        if self._errors:
            raise InputError("\n".join(self._errors))

    def add(self, place: str, manifest: Manifest) -> None:
        """Takes one object in."""
        if is_state(manifest):
            if self.state is not None:
                self._errors.append(f"{place}: {describe(manifest)}: there is one already")
            self.state = state_of([manifest])
            return
        version, kind = manifest["apiVersion"], manifest["kind"]
        if (version, kind) == (JOB_KINDS.api_version, JOB_KINDS.kind):
            return  # read before the others
        unknown = self._checks.unknown_kind(version, kind)
        if unknown and self._strict:
            self._errors.append(f"{place}: {describe(manifest)}: {unknown}")
            return
        group = version.rpartition("/")[0]
        is_job = self._jobs.knows(version, kind)
        are_read_from = self._jobs.are_read(version, kind)
        is_read = (version, kind) in KINDS or version == V1BETA1 or are_read_from
        is_known = GROUPS.get(kind) == group or self._jobs.describes(version, kind)
        if not is_known or unknown or not (is_job or is_read):
            if group == GROUP and not unknown:
                self._check(place, manifest)
            self._ignore(f"{kind} ({version})" if kind in GROUPS else kind)
            return
        manifest = self._named(manifest)
        metadata = manifest.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            self._errors.append(f"{place}: {kind}: metadata.name: Required value")
            return
        if kind not in CLUSTER_SCOPED and not metadata.get("namespace"):
            manifest = {**manifest, "metadata": {**metadata, "namespace": "default"}}
        if not self._check(place, manifest):
            return
        try:
            if version == V1BETA1:
                manifest = convert(manifest, V1BETA2)
        except ConversionError as error:
            self._errors.append(f"{place}: {error}")
            return
        identity = _identity(manifest)
        before = self._places.get(identity) if identity else None
        if before is not None:
            self._errors.append(f"{place}: {describe(manifest)}: is in {before} already")
            return
        if identity:
            self._places[identity] = place
        if is_job:
            if queue_name(manifest):
                self._jobs.add(manifest)
            elif kind == "Pod" and (manifest.get("spec") or {}).get("nodeName"):
                # It uses its node, beside the workloads.
                self.manifests.append(manifest)
            else:
                self._ignore(f"{kind} without a queue name")
            return
        if are_read_from:
            self._jobs.add_reference(manifest)
            return
        self.manifests.append(manifest)
        for warning in self._checks.warnings(manifest):
            self.warnings.append(f"{place}: {describe(manifest)}: {warning}")

    def _check(self, place: str, manifest: Manifest) -> bool:
        """Notes what is wrong with a document; tells whether it can be decided on.

        Where not strict, what only a schema refuses is a warning, wrong types aside.
        """
        errors = len(self._errors)
        unknown = self._checks.unknown_fields(manifest)
        by_schema = self._checks.refused_by_schema(manifest)
        by_rules: list[Problem] = []
        unreadable = any(each.unreadable for each in by_schema)
        if not unreadable and (not self._strict or all(each.taken_as for each in by_schema)):
            by_rules = self._checks.refused_by_webhooks(manifest)
        # Some rules are in the schema too, where they name the field less exactly.
        told = {each.taken_as for each in by_rules}
        by_schema = [each for each in by_schema if not each.taken_as or each.taken_as not in told]
        for each in (*unknown, *by_schema):
            self._note(place, manifest, each, self._strict or each.unreadable)
        for each in by_rules:
            self._note(place, manifest, each, True)
        return len(self._errors) == errors

    def _judge(self, workload: Manifest) -> None:
        """Notes what is wrong with the Workload of a job."""
        for error in validate(workload, gates=self._gates):
            self._note("", workload, problem(error.path, error.message), True)

    def _note(self, place: str, manifest: Manifest, found: Problem, is_error: bool) -> None:
        text = f"{place}: {describe(manifest)}: {found}" if place else f"{describe(manifest)}: {found}"
        (self._errors if is_error and not found.taken_as else self.warnings).append(text)

    def _named(self, manifest: Manifest) -> Manifest:
        """With a name where a server is to make one: numbered, so that the same files give the same."""
        metadata = manifest.get("metadata")
        prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
        if (
            not isinstance(metadata, dict)
            or metadata.get("name")
            or not isinstance(prefix, str)
            or not prefix
        ):
            return manifest
        prefix = prefix[:_PREFIX_LENGTH]
        self._generated[prefix] += 1
        return {**manifest, "metadata": {**metadata, "name": f"{prefix}{self._generated[prefix]:05}"}}

    def _ignore(self, what: str) -> None:
        self.ignored[what] = self.ignored.get(what, 0) + 1

    def _priority(self, job: Manifest, integration: WorkloadSource) -> tuple[int, dict[str, str] | None]:
        """Priority of a job, by the classes among the objects."""
        name = (job["metadata"].get("labels") or {}).get(names.PRIORITY_CLASS_LABEL)
        if name:
            found = self._find("WorkloadPriorityClass", name)
            if found is None:
                self._errors.append(f"{describe(job)}: WorkloadPriorityClass {name} is not among the objects")
                return 0, None
            reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
            return int(found.get("value", 0)), reference
        name = integration.priority_class(job)
        if name:
            found = self._find("PriorityClass", name)
            if found is not None:
                reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}
                return int(found.get("value", 0)), reference
        return 0, None

    def _find(self, kind: str, name: str) -> Manifest | None:
        for manifest in self.manifests:
            if manifest["kind"] == kind and manifest["metadata"]["name"] == name:
                return manifest
        return None


def read(source: Source, configuration: Configuration, strict: bool = True) -> Input:
    """The objects of a source as they are decided on. Raises InputError.

    Unknown fields and kinds, and what an API server would refuse, are errors if `strict`; else they are
    warnings, as far as the object can be decided on.
    """
    result = Input(configuration, strict, _described(source.documents))
    result.warnings += source.warnings
    for place, manifest in source.documents:
        result.add(place, manifest)
    result.finish()
    return result


def _described(documents: Iterable[Document]) -> list[UserJob]:
    """The kinds that JobKinds among the documents describe. Raises InputError."""
    found: dict[tuple[str, str], UserJob] = {}
    for place, manifest in documents:
        if (manifest["apiVersion"], manifest["kind"]) == (JOB_KINDS.api_version, JOB_KINDS.kind):
            try:
                add_user_job(found, manifest)
            except JobKindError as error:
                lines = [f"{place}: {describe(manifest)}: {one}" for one in error.errors]
                raise InputError("\n".join(lines)) from None
    return list(found.values())


def _identity(manifest: Manifest) -> Identity | None:
    """Of an object with a name, whatever the version it is written in."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        return None
    namespace = "" if manifest["kind"] in CLUSTER_SCOPED else str(metadata.get("namespace") or "default")
    return f"{manifest['kind']}.{manifest['apiVersion'].rpartition('/')[0]}", namespace, name
