"""`pykueue kind`: kinds of jobs that users describe, tried and prepared without a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from pykueue.api.kueue.names import POD_SET_LABEL
from pykueue.api.objects import Object, get, merge_patch, section
from pykueue.api.resources import CRDS, RESOURCE_FLAVORS
from pykueue.api.userkinds import JOB_KINDS, CompiledKind, JobKindError, schema_errors
from pykueue.jobs.base import UnreadableJobError
from pykueue.jobs.podsets import PodSetConflictError, PodSetInfo
from pykueue.jobs.user import UserJob, user_job
from pykueue.jobs.workload import build
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.install.userkinds import rights as rights_of
from pykueue.manager.install_names import InstallNames
from pykueue.manifests.files import InputError
from pykueue.manifests.reading import Source

from .manifests import written

#: Node labels of an admission where the files have no ResourceFlavor.
SAMPLE_LABELS = {"example.com/node-pool": "sample"}

#: The uid of a job that is not on a server.
SAMPLE_UID = "00000000-0000-4000-8000-000000000000"

_files = click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="File or directory of manifests; - for standard input. Can be repeated.",
)


@click.group()
def kind() -> None:
    """Try and prepare kinds of jobs that JobKind objects describe."""


@kind.command()
@_files
def test(paths: Sequence[Path]) -> None:
    """Print the Workload of each job, and what starting and stopping it writes.

    The files have one or more JobKinds and jobs of these kinds; a CustomResourceDefinition of the kind is
    compared with the description, and node labels and tolerations are those of the first ResourceFlavor.
    """
    objects = _objects(paths)
    kinds = _kinds(objects)
    failed = False
    for obj in objects:
        found = kinds.get((obj["apiVersion"], obj["kind"]))
        if found is not None:
            failed = not _show(obj, found[1], _flavor(objects)) or failed
    if not any((obj["apiVersion"], obj["kind"]) in kinds for obj in objects):
        names = ", ".join(f"{kind} ({version})" for version, kind in kinds)
        _wrong([f"no job among the files; kinds that are described: {names}"])
    sys.exit(1 if failed else 0)


@kind.command()
@_files
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file of the manager.")
def rights(paths: Sequence[Path], config: Path | None) -> None:
    """Print the role that lets the manager queue the kinds, for kubectl apply.

    The manager never gives rights to itself: a JobKind stays inactive until an administrator has done so.
    """
    try:
        configuration = load_configuration(config)
    except ConfigurationError as error:
        _wrong([str(error)])
    objects = _objects(paths)
    names = InstallNames.of(configuration)
    found = [
        obj for compiled, _ in _kinds(objects).values() for obj in rights_of(compiled.description, names)
    ]
    click.echo(written(found), nl=False)


def _objects(paths: Iterable[Path]) -> list[Object]:
    try:
        return [document.manifest for document in Source(paths).documents]
    except InputError as error:
        _wrong([str(error)])


def _kinds(objects: Iterable[Object]) -> dict[tuple[str, str], tuple[CompiledKind, UserJob]]:
    """The JobKinds among the objects by apiVersion and kind of their jobs; exits where one is wrong."""
    found: dict[tuple[str, str], tuple[CompiledKind, UserJob]] = {}
    problems = []
    objects = list(objects)
    for obj in objects:
        if (obj["apiVersion"], obj["kind"]) != (JOB_KINDS.api_version, JOB_KINDS.kind):
            continue
        name = get(obj, "metadata", "name")
        try:
            compiled, job = user_job(obj)
            errors = schema_errors(compiled, _schema(compiled, objects))
            if errors:
                raise JobKindError(errors)
        except JobKindError as error:
            problems += [f"JobKind {name}: {one}" for one in error.errors]
            continue
        resource = compiled.description.resource
        found[resource.api_version, resource.kind] = compiled, job
    if problems:
        _wrong(problems)
    if not found:
        _wrong([f"no JobKind ({JOB_KINDS.api_version}) among the files"])
    return found


def _schema(compiled: CompiledKind, objects: Iterable[Object]) -> Object:
    """The schema of the kind in a CustomResourceDefinition; empty where there is none."""
    resource = compiled.description.resource
    for obj in objects:
        spec = section(obj, "spec")
        if obj["kind"] == CRDS.kind and spec.get("group") == resource.group:
            for version in spec.get("versions") or ():
                names = (get(obj, "spec", "names", "kind"), version.get("name"))
                if names == (resource.kind, resource.version):
                    return dict(section(version, "schema", "openAPIV3Schema"))
    return {}


def _flavor(objects: Iterable[Object]) -> Object:
    flavors = (obj for obj in objects if obj["kind"] == RESOURCE_FLAVORS.kind)
    return next(flavors, {"spec": {"nodeLabels": SAMPLE_LABELS}})


def _show(obj: Object, job: UserJob, flavor: Object) -> bool:
    """Print what becomes of a job; whether it can be started, and is the same again after a stop."""
    metadata = {"namespace": "default", "uid": SAMPLE_UID, **section(obj, "metadata")}
    created = job.suspended({**obj, "metadata": metadata})
    title = f"{obj['kind']} {metadata['namespace']}/{metadata.get('name')}"
    errors = [str(error) for error in job.validate(created, None)]
    if errors:
        click.echo("\n".join(f"{title}: {error}" for error in errors), err=True)
        return False
    try:
        workload = build(created, job, 0, None)
        started = job.started(created, _infos(workload, flavor))
    except (UnreadableJobError, PodSetConflictError) as error:
        click.echo(f"{title}: {error}", err=True)
        return False
    for field in ("labels", "ownerReferences", "finalizers"):
        del workload["metadata"][field]
    stop = job.stop(started, get(workload, "spec", "podSets"))
    stopped = started if stop is None else stop.desired
    _print(f"{title}: Workload", workload)
    _print(f"{title}: start", merge_patch(created, started))
    _print(f"{title}: stop", merge_patch(started, stopped))
    if "status" in obj:
        outcome = job.outcome(obj)
        state = {
            "active": job.is_active(obj),
            "ready": job.pods_ready(obj),
            "outcome": None if outcome is None else "Succeeded" if outcome.succeeded else "Failed",
            "reclaimablePods": job.reclaimable(obj),
        }
        _print(f"{title}: state by its status", state)
    if stopped != created:
        click.echo(f"{title}: differs after a start and a stop: {merge_patch(created, stopped)}", err=True)
        return False
    return True


def _infos(workload: Object, flavor: Object) -> list[PodSetInfo]:
    return [
        PodSetInfo(
            pod_set["name"],
            pod_set["count"],
            {POD_SET_LABEL: pod_set["name"]},
            node_selector=section(flavor, "spec", "nodeLabels"),
            tolerations=tuple(get(flavor, "spec", "tolerations") or ()),
            template=section(pod_set, "template"),
        )
        for pod_set in get(workload, "spec", "podSets")
    ]


def _print(title: str, value: Any) -> None:
    click.echo(f"# {title}")
    click.echo(written([value]), nl=False)


def _wrong(problems: Iterable[str]) -> NoReturn:
    click.echo("\n".join(f"Error: {one}" for one in problems), err=True)
    sys.exit(2)
