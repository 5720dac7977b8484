"""`delete workload`: deletes the jobs that own Workloads, and Workloads without a job.

Source: docs/reference/kueue-api.md 8.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pykueue.api.objects import Object, get
from pykueue.api.resources import WORKLOADS, Resource
from pykueue.kube.client import Client, write_options
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request

from .types import Types


@dataclass(frozen=True)
class Target:
    """A Workload, and the jobs that are deleted in its place."""

    workload: Object
    jobs: Sequence[tuple[Resource, str]]

    @property
    def namespace(self) -> str:
        """Of the Workload and its jobs."""
        return str(self.workload["metadata"]["namespace"])

    @property
    def names(self) -> list[str]:
        """What is deleted: `jobs.batch/NAME`, or the Workload."""
        if not self.jobs:
            return [f"workload.{WORKLOADS.group}/{self.workload['metadata']['name']}"]
        return [_written(resource, name) for resource, name in self.jobs]


async def named(
    client: Client, names: Sequence[str], namespace: str, warn: Callable[[str], None]
) -> list[Object]:
    """The Workloads of these names; those that do not exist are reported and left out."""
    found = []
    for name in names:
        try:
            found.append(await client.get(WORKLOADS, name, namespace))
        except ApiError as error:
            if not error.not_found:
                raise
            warn(str(error))
    return found


async def targets(types: Types, workloads: Sequence[Object]) -> list[Target]:
    """What is deleted for each Workload. Raises PluginError for an owner of a kind that is not served."""
    found = []
    for workload in workloads:
        owners = get(workload, "metadata", "ownerReferences") or ()
        jobs = [(await types.of_kind(one["apiVersion"], one["kind"]), str(one["name"])) for one in owners]
        found.append(Target(workload, jobs))
    return found


def confirmation(found: Sequence[Target], *, all_of_them: bool) -> str:
    """What is asked before jobs are deleted."""
    if all_of_them:
        return "This operation will also delete the jobs associated with these workloads.\n"
    lines = [
        f"  - {', '.join(each.names)} associated with the {each.namespace}/{name} workload\n"
        for each in found
        if each.jobs and (name := each.workload["metadata"]["name"])
    ]
    return "This operation will also delete:\n" + "\n".join(lines)


async def delete(client: Client, target: Target, *, dry_run: bool) -> None:
    """Delete the jobs, or the Workload; what is gone already is no error. Raises ApiError."""
    name = str(target.workload["metadata"]["name"])
    for resource, each in target.jobs or [(WORKLOADS, name)]:
        path = resource.path(target.namespace if resource.namespaced else None, each)
        # Background is what kubectl asks for; without it the garbage of some kinds would be orphaned.
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        try:
            await client.call(Request("DELETE", path, write_options(dry_run, None), body))
        except ApiError as error:
            if not error.not_found:
                raise


def _written(resource: Resource, name: str) -> str:
    return f"{resource.plural}.{resource.group}/{name}" if resource.group else f"{resource.plural}/{name}"
