"""JobKinds as a component: kinds of jobs that come and go while the manager runs."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.objects import Object
from pykueue.api.userkinds import JOB_KINDS
from pykueue.api.yaml import YamlError, load_documents
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.configuration.decode import Problem
from pykueue.manager.configuration.loading import read_text
from pykueue.manager.jobkinds.controller import JobKindController
from pykueue.manager.rights import allow

from .component import Component, Context
from .jobs import kind_rights


def job_kinds(files: Iterable[str]) -> Component:
    """`files` are those with JobKinds that the configuration names, read when the component is built.

    The rights to objects of the kinds are not declared here: an administrator grants them for each kind.
    """

    def build(context: Context) -> JobKindController:
        assert context.host is not None
        return JobKindController(
            context.connection,
            context.cluster,
            context.host,
            context.clock,
            lambda: context.metrics.role != "follower",
            lambda job: kind_rights(job.kind),
            [kind for file in files for kind in _read(file)],
        )

    return Component(
        "job-kinds",
        "Starts and stops the controllers of kinds that JobKinds describe, and says whether they are active.",
        build,
        watches=(JOB_KINDS,),
        writes=(allow(JOB_KINDS, "patch", subresource="status"),),
        needs_leader=False,
    )


def _read(file: str) -> list[Object]:
    """The JobKinds of a file. Raises ConfigurationError."""
    try:
        documents = load_documents(read_text(file), file)
    except YamlError as error:
        raise ConfigurationError(file, [Problem("", str(error).removeprefix(f"{file}: "))]) from None
    except OSError as error:
        raise ConfigurationError(file, [Problem("", f"cannot be read: {error.strerror}")]) from None
    for document in documents:
        if (document.get("apiVersion"), document.get("kind")) != (JOB_KINDS.api_version, JOB_KINDS.kind):
            accepted = f"{JOB_KINDS.kind} ({JOB_KINDS.api_version})"
            text = f"{document.get('kind')} is not accepted; accepted: {accepted}"
            raise ConfigurationError(file, [Problem("kind", text)])
    return documents
