"""Jobs inside jobs: the object whose Workload decides about a job that is part of something larger.

Source: docs/reference/kueue-integrations.md 9.3, step 3, and 9.1 on external frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.jobs.workload import queue_name

from .configuration import Configuration

#: How far owners of owners are searched.
MAX_OWNERS = 10


class Owner(NamedTuple):
    """An owner of a kind that is queued; None while it is not in the cache, or when it is gone."""

    object: Object | None


def managing_owner(
    obj: Mapping[str, Any], owner_of: Callable[[Mapping[str, Any]], Owner | None], manages_all: bool
) -> Owner | None:
    """The topmost owner that is in a queue; None where there is none.

    `owner_of` returns the nearest owner of a kind that is queued. An owner that is not known may be in a
    queue. `manages_all`: jobs are managed without a queue name too.
    """
    found: Owner | None = None
    for _ in range(MAX_OWNERS):
        owner = owner_of(obj)
        if owner is None or owner.object is None:
            return owner or found
        if manages_all or queue_name(owner.object):
            found = owner
        obj = owner.object
    return found


def external_resources(frameworks: Iterable[str]) -> list[Resource]:
    """The kinds of `integrations.externalFrameworks`, each named `Kind.version.group`.

    Their plurals are guessed as Kubernetes guesses them.
    """
    found = []
    for name in frameworks:
        kind, version, group = name.split(".", 2)
        found.append(Resource(group, version, _plural(kind.lower()), kind, True))
    return found


def dispatched_externals(configuration: Configuration) -> list[Resource]:
    """The kinds of `multiKueue.externalFrameworks`, which are queued elsewhere and go to worker clusters."""
    if not configuration.gates["MultiKueueAdaptersForCustomJobs"]:
        return []
    return external_resources(one.name for one in configuration.multi_kueue.external_frameworks)


def _plural(singular: str) -> str:
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
