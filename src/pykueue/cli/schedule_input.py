"""Reading manifests to decide on: files, directories, standard input; what is wrong is said by file,
document and field."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pykueue.api import KINDS
from pykueue.api.conversion import ConversionError, convert
from pykueue.api.decoding import describe
from pykueue.api.kueue import V1BETA1, V1BETA2, names
from pykueue.api.validation import FieldError, validate
from pykueue.api.yaml import NoObjectError, YamlError, load_with_places
from pykueue.jobs.base import JobKind
from pykueue.jobs.workload import queue_name

from .schedule_jobs import Held, Jobs, workload_of

Manifest = dict[str, Any]

SUFFIXES = frozenset({".yaml", ".yml", ".json"})

#: Kinds that decide something, and those that say what jobs mean.
_READ = frozenset(
    {
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "LimitRange",
        "LocalQueue",
        "Namespace",
        "PriorityClass",
        "ResourceFlavor",
        "RuntimeClass",
        "Topology",
        "Workload",
        "WorkloadPriorityClass",
    }
)

_CLUSTER_SCOPED = _READ - {"LimitRange", "LocalQueue", "Workload"}


#: So much of `generateName` becomes part of a name, which five characters end, as on an API server.
_PREFIX_LENGTH = 58

#: Rules of the API that leave no doubt what an object means: breaking one is a warning here, where nothing is
#: stored. (path, part of the text, what is made of it).
_TOLERATED = (
    (re.compile(r"\.(borrowing|lending)Limit$"), "must be unset when", "it has no effect without a cohort"),
    (re.compile(r"^spec\.(cohortName|parentName)$"), "must consist of", "the name is taken as it is"),
    (re.compile(r"\.coveredResources\[\d+\]$"), "in one group only", "the first group counts"),
    (re.compile(r"^spec\.preemption\.borrowWithinCohort\.policy$"), "must be Never", "it has no effect"),
    (re.compile(r"^spec\.podSets$"), "can use minCount", "all of them may shrink"),
)


class InputError(ValueError):
    """Manifests are wrong; one line for each error."""


class Input:
    """The objects of some files, and what was left out."""

    def __init__(self) -> None:
        self.manifests: list[Manifest] = []
        #: How many objects of each kind were ignored.
        self.ignored: dict[str, int] = {}
        #: What an API server would refuse, and what is made of it here.
        self.warnings: list[str] = []
        self._errors: list[str] = []
        self._places: dict[tuple[str, str, str], str] = {}
        self._generated: Counter[str] = Counter()
        self._jobs = Jobs()

    def finish(self, gates: Mapping[str, bool]) -> None:
        """Turns jobs into workloads and judges everything. Raises InputError."""
        held = Held(manifest for manifest in self.manifests if manifest["kind"] == "Workload")
        for job in list(self._jobs.workloads(held, self._ignore)):
            if isinstance(job, str):
                self.warnings.append(job)
                continue
            kind, obj, _ = job
            self.manifests.append(workload_of(job, *self._priority(obj, kind)))
        for manifest in self.manifests:
            place = self._places.get(_identity(manifest), "")
            for error in validate(manifest, gates=gates):
                text = (
                    f"{place}: {describe(manifest)}: {error}" if place else f"{describe(manifest)}: {error}"
                )
                made_of_it = _tolerated(error)
                if made_of_it:
                    self.warnings.append(f"{text} ({made_of_it})")
                else:
                    self._errors.append(text)
        if self._errors:
            raise InputError("\n".join(self._errors))

    def add(self, place: str, manifest: Manifest) -> None:
        """Takes one object in."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        is_job = self._jobs.knows(version, kind)
        if kind not in _READ and not is_job:
            self._ignore(kind)
            return
        if not is_job and (version, kind) not in KINDS and version != V1BETA1:
            self._ignore(f"{kind} ({version})")
            return
        manifest = self._named(manifest)
        metadata = manifest.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            self._errors.append(f"{place}: {kind}: metadata.name: Required value")
            return
        if kind not in _CLUSTER_SCOPED and not metadata.get("namespace"):
            manifest = {**manifest, "metadata": {**metadata, "namespace": "default"}}
        try:
            if version == V1BETA1:
                manifest = convert(manifest, V1BETA2)
        except ConversionError as error:
            self._errors.append(f"{place}: {describe(manifest)}: {error}")
            return
        if is_job:
            if queue_name(manifest):
                self._jobs.add(manifest)
            else:
                self._ignore(f"{kind} without a queue name")
            return
        identity = _identity(manifest)
        before = self._places.get(identity)
        if before is not None:
            self._errors.append(f"{place}: {describe(manifest)}: is in {before} already")
            return
        self._places[identity] = place
        self.manifests.append(manifest)

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

    def _priority(self, job: Manifest, integration: JobKind) -> tuple[int, dict[str, str] | None]:
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


def _tolerated(error: FieldError) -> str:
    """What is made of a broken rule, or empty if it is an error."""
    for path, text, made_of_it in _TOLERATED:
        if path.search(error.path) and text in error.detail:
            return made_of_it
    return ""


def read(paths: Iterable[Path], gates: Mapping[str, bool]) -> Input:
    """The objects of files and directories (`-` is standard input). Raises InputError."""
    result = Input()
    for path in paths:
        for source, text in _texts(path):
            try:
                for place, manifest in load_with_places(text, source):
                    result.add(place, manifest)
            except YamlError as error:
                if isinstance(error, NoObjectError) and path.is_dir():
                    result.warnings.append(f"{error}; the file is left out")
                    continue
                raise InputError(str(error)) from None
    result.finish(gates)
    return result


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        yield "<stdin>", sys.stdin.read()
        return
    try:
        if not path.is_dir():
            yield str(path), path.read_text(encoding="utf-8")
            return
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        if not files:
            raise InputError(f"{path}: no file ends in {', '.join(sorted(SUFFIXES))}")
        for file in files:
            yield str(file), file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None


def _identity(manifest: Manifest) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace") or "", metadata["name"]
