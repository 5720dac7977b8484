"""Paths of the visibility API and the response of each, for both ways of serving.

Source: docs/reference/kueue-api.md, section 7; docs/reference/kubernetes-api-machinery.md, section 18.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from pykueue.api import decode_as, kueue
from pykueue.api.objects import Object
from pykueue.api.resources import CLUSTER_QUEUES, KUEUE_GROUP, WORKLOADS
from pykueue.engine.dump import engine_state
from pykueue.engine.story import data
from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import VISIBILITY_GROUP as GROUP
from pykueue.manager.manager import Manager

from .openapi import document
from .pending import pending_workload, table
from .summaries import DEFAULT_LIMIT, MOST, Summaries

if TYPE_CHECKING:
    from pykueue.simulate.live.forecasts import Forecasts

#: Whether a user may do something: (verb, group, resource, namespace), the empty namespace for all of them.
May = Callable[[str, str, str, str], Awaitable[bool]]

#: The feature gate that switches the API on.
GATE = "VisibilityOnDemand"

#: Preferred first.
VERSIONS = ("v1beta2", "v1beta1")
SUBRESOURCE = "pendingworkloads"
#: Decisions tried for the answer at a workload's place: scheduling cycles wait for them, about 0.3 ms each.
PLACE_DECISIONS_MAX = 200
KIND = "PendingWorkloadsSummary"
#: The pending workloads as objects, for `kubectl get`.
PENDING = "pendingworkloads"


def resources(version: str) -> list[Object]:
    """The resources of a version as discovery lists them. The queues themselves cannot be read here.

    Workloads are not listed at all: clients would take them for those of `kueue.x-k8s.io`.
    """
    found: list[Object] = []
    for plural, kind, namespaced in (
        ("clusterqueues", "ClusterQueue", False),
        ("localqueues", "LocalQueue", True),
    ):
        found.append(_resource(plural, plural[:-1], namespaced, kind))
        found.append(_resource(f"{plural}/{SUBRESOURCE}", "", namespaced, KIND, "get"))
    found.append(_resource("enginestates", "enginestate", False, "EngineState", "get"))
    found.append(_resource("workloads/story", "", True, "WorkloadStory", "get"))
    pending = _resource(PENDING, PENDING[:-1], True, "PendingWorkload", "get", "list")
    found.append({**pending, "shortNames": ["pwl"]})
    found.append(_resource("workloads/why", "", True, "WorkloadWhy", "get"))
    return found


def _resource(name: str, singular: str, namespaced: bool, kind: str, *verbs: str) -> Object:
    """A resource as discovery lists it."""
    return {
        "name": name,
        "singularName": singular,
        "namespaced": namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }


def group_versions() -> Object:
    """The group as discovery shows it."""
    described = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in VERSIONS]
    return {"name": GROUP, "versions": described, "preferredVersion": described[0]}


class VisibilityApi:
    """Answers requests of one version. Raises ApiError with the refusal."""

    def __init__(self, manager: Manager, forecasts: Forecasts | None = None) -> None:
        """Without `forecasts` it does not say when workloads start."""
        self._manager = manager
        self._summaries = Summaries(manager)
        self._forecasts = forecasts

    def resources(self, version: str) -> list[Object]:
        """What discovery lists."""
        return resources(version)

    def openapi(self, version: str) -> Object:
        """The OpenAPI v3 document."""
        return document(version)

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], may: May, as_table: bool = False
    ) -> Object:
        """The answer at a path below /apis/GROUP/VERSION; `may` says what else the user may do.

        `as_table`: pending workloads come as a Table, as `kubectl get` asks for them.
        """
        parts = path.strip("/").split("/")
        version = parts[2]
        namespace = name = ""
        match parts[3:]:
            case ["enginestates", "engine"]:
                kind = "enginestate"
            case ["namespaces", namespace, "workloads", name, "story" | "why"]:
                kind = "workload"
            case ["namespaces", namespace, "pendingworkloads"]:
                kind = "pendingworkload"
            case ["pendingworkloads"]:
                kind = "pendingworkload"
            case ["namespaces", namespace, "pendingworkloads", name]:
                kind = "pendingworkload"
            case ["clusterqueues", name, "pendingworkloads"]:
                kind = "clusterqueue"
            case ["namespaces", namespace, "localqueues", name, "pendingworkloads"]:
                kind = "localqueue"
            case _:
                raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if method != "GET":
            raise ApiError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        offset, limit = _number(query, "offset"), _number(query, "limit")
        limit = min(limit or DEFAULT_LIMIT, MOST)
        summaries = self._summaries
        if not summaries.ready:
            raise ApiError(503, "ServiceUnavailable", "the cluster has not been read yet", None, 1)
        if kind == "enginestate":
            self._require_leader()
            return engine_state(self._manager.engine)
        if kind == "pendingworkload":
            return await self._pending(version, namespace, name, as_table)
        if kind == "workload" and parts[-1] == "why":
            return await self._why(version, namespace, name, may)
        if kind == "workload":
            return self._story(version, namespace, name)
        if kind == "clusterqueue":
            items = summaries.of_cluster_queue(name, offset, limit)
        else:
            items = summaries.of_local_queue(namespace, name, offset, limit)
        if items is None:
            details = {"name": name, "group": GROUP, "kind": kind}
            raise ApiError(404, "NotFound", f'{kind}.{GROUP} "{name}" not found', details)
        return {"kind": KIND, "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": items}

    async def _pending(self, version: str, namespace: str, name: str, as_table: bool) -> Object:
        """The pending workloads of a namespace or of all, or one of them, and when they start."""
        starts = await self._forecasts.starts() if self._forecasts is not None else None
        items = [
            pending_workload(f"{GROUP}/{version}", queue, item, starts)
            for queue, item in self._summaries.of_namespace(namespace)
            if name in ("", item["metadata"]["name"])
        ]
        if name and not items:
            details = {"name": name, "group": GROUP, "kind": PENDING}
            raise ApiError(404, "NotFound", f'{PENDING}.{GROUP} "{name}" not found', details)
        if as_table:
            return table(items, self._manager.now())
        if name:
            return items[0]
        head = {"kind": "PendingWorkloadList", "apiVersion": f"{GROUP}/{version}", "metadata": {}}
        return {**head, "items": items}

    def _story(self, version: str, namespace: str, name: str) -> Object:
        """What the leader has recorded of a Workload since it leads."""
        self._require_leader()
        story = self._manager.engine.story(f"{namespace}/{name}")
        if not story.entries:
            details = {"name": name, "group": GROUP, "kind": "workload"}
            raise ApiError(404, "NotFound", f'workload.{GROUP} "{name}" not found', details)
        metadata = {"name": name, "namespace": namespace}
        head = {"kind": "WorkloadStory", "apiVersion": f"{GROUP}/{version}", "metadata": metadata}
        return {**head, **data(story)}

    async def _why(self, version: str, namespace: str, name: str, may: May) -> Object:
        """Why a Workload is pending; others, and queues, are named as far as the user may list them."""
        from pykueue.questions import Rights, from_status, to_data, why  # with the first question

        self._require_leader()
        everywhere = await may("list", KUEUE_GROUP, WORKLOADS.plural, "")
        here = everywhere or await may("list", KUEUE_GROUP, WORKLOADS.plural, namespace)
        queues = await may("list", KUEUE_GROUP, CLUSTER_QUEUES.plural, "")
        rights = Rights(lambda each: everywhere or (here and each == namespace), queues)
        engine, key = self._manager.engine, f"{namespace}/{name}"
        workload = self._manager.cluster.workloads.get(namespace, name)
        if engine.workload_object(key) is not None:
            now = self._manager.now()
            answer = why(engine, key, now, rights=rights, place_decisions_max=PLACE_DECISIONS_MAX)
        elif workload is not None:
            answer = from_status(decode_as(kueue.Workload, workload))
        else:
            details = {"name": name, "group": GROUP, "kind": "workload"}
            raise ApiError(404, "NotFound", f'workload.{GROUP} "{name}" not found', details)
        metadata = {"name": name, "namespace": namespace}
        head = {"kind": "WorkloadWhy", "apiVersion": f"{GROUP}/{version}", "metadata": metadata}
        return {**head, **to_data(answer)}

    def _require_leader(self) -> None:
        """Only the engine of the leader decides, and knows what no object shows."""
        if self._manager.metrics.role == "follower":
            raise ApiError(503, "ServiceUnavailable", "this replica of the manager does not lead", None, 1)


def _number(query: Mapping[str, str], field: str) -> int:
    """A query's number, 0 where there is none or a negative one."""
    text = query.get(field, "")
    try:
        return max(0, int(text or "0"))
    except ValueError:
        raise ApiError(400, "BadRequest", f"{field}: {text!r} is not a whole number") from None
