"""`list`: queues, flavors and workloads with the columns of Kueue's plugin, and the pods of a job.

Source: docs/reference/kueue-api.md 8.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykueue.api import conditions
from pykueue.api.ages import duration_text
from pykueue.api.jobkinds import DESCRIBED, pod_selector
from pykueue.api.kueue.names import JOB_UID_LABEL, POD_GROUP_NAME_LABEL
from pykueue.api.objects import Object, get, section, true_condition
from pykueue.api.resources import LOCAL_QUEUES, PODS, WORKLOADS, Resource
from pykueue.api.times import parse_time
from pykueue.kube.client import Client, selectors
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import TABLE, Request

from .errors import PluginError
from .types import Types

#: Environment variable with the number of objects per page of a list, and its default.
PAGE_VARIABLE = "KUEUECTL_LIST_REQUEST_LIMIT"
PAGE_SIZE = 100

#: States that `--status` selects, besides `all`.
STATES = ("pending", "quotareserved", "admitted", "finished")

_VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"

#: Longest text of a job's type before it is cut.
_TYPE_LENGTH = 20

#: Labels of the pods of jobs that no operator's description covers.
_PODS_OF = {
    ("batch", "Job"): "batch.kubernetes.io/job-name",
    ("jobset.x-k8s.io", "JobSet"): "jobset.sigs.k8s.io/jobset-name",
}


@dataclass(frozen=True)
class Query:
    """What is listed: one namespace (None for all), and the selectors."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""


@dataclass
class Listing:
    """Objects as the API lists them, and their table."""

    resource: Resource
    items: list[Object]
    resource_version: str = ""
    headers: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)

    @property
    def document(self) -> Object:
        """The list as one object."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": f"{self.resource.kind}List",
            "metadata": {"resourceVersion": self.resource_version},
            "items": self.items,
        }


def page_size() -> int:
    """Objects per page of a list. Raises PluginError for a value that is no number."""
    text = os.environ.get(PAGE_VARIABLE, "")
    try:
        return int(text) if text else PAGE_SIZE
    except ValueError:
        raise PluginError(f"invalid list request limit: {PAGE_VARIABLE}={text}") from None


async def objects(client: Client, resource: Resource, query: Query) -> Listing:
    """The objects that the selectors match, without a table. Raises ApiError."""
    found = await client.list(
        resource, query.namespace, label_selector=query.labels or None, field_selector=query.fields or None
    )
    return Listing(resource, found.items, found.resource_version)


def cluster_queue_table(listing: Listing, now: float) -> None:
    """Fill in the columns of ClusterQueues; `now` is in seconds since 1970."""
    listing.headers = ("Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age")
    listing.rows = [
        [
            one["metadata"]["name"],
            get(one, "spec", "cohortName") or "",
            *_counts(one),
            "true" if is_active(one) else "false",
            _age(one, now),
        ]
        for one in listing.items
    ]


def is_active(queue: Mapping[str, Any]) -> bool:
    """Whether the condition Active of a queue is true."""
    return true_condition(section(queue, "status"), "Active") is not None


def local_queue_table(listing: Listing, now: float) -> None:
    """Fill in the columns of LocalQueues."""
    listing.headers = ("Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Age")
    listing.rows = [
        [one["metadata"]["name"], get(one, "spec", "clusterQueue") or "", *_counts(one), _age(one, now)]
        for one in listing.items
    ]


def flavor_table(listing: Listing, now: float) -> None:
    """Fill in the columns of ResourceFlavors."""
    listing.headers = ("Name", "Node Labels", "Age")
    listing.rows = [
        [
            one["metadata"]["name"],
            ", ".join(sorted(f"{key}={value}" for key, value in section(one, "spec", "nodeLabels").items())),
            _age(one, now),
        ]
        for one in listing.items
    ]


def with_namespaces(listing: Listing) -> None:
    """Add the column Namespace in front."""
    listing.headers = ("Namespace", *listing.headers)
    pairs = zip(listing.items, listing.rows, strict=True)
    listing.rows = [[one["metadata"].get("namespace", ""), *row] for one, row in pairs]


def state_of(workload: Mapping[str, Any]) -> str:
    """One of `STATES`."""
    if conditions.is_finished(workload):
        return "finished"
    if conditions.is_admitted(workload):
        return "admitted"
    return "quotareserved" if conditions.has_quota(workload) else "pending"


async def workloads_of(client: Client, query: Query, uid: str) -> Listing:
    """The Workloads of a job: by their label, and where none has it by their owners."""
    both = ",".join(filter(None, (query.labels, f"{JOB_UID_LABEL}={uid}")))
    found = await objects(client, WORKLOADS, Query(query.namespace, both, query.fields))
    if not found.items:
        found = await objects(client, WORKLOADS, query)
        found.items = [one for one in found.items if any(owner.get("uid") == uid for owner in _owners(one))]
    return found


async def workload_table(
    listing: Listing, client: Client, types: Types, now: float, warn: Callable[[str], None]
) -> None:
    """Fill in the columns of Workloads; positions in queues are read from the visibility API.

    Positions are left empty where the visibility API is not served or may not be read, with a warning in
    the latter case.
    """
    listing.headers = (
        "Name",
        "Job Type",
        "Job Name",
        "LocalQueue",
        "ClusterQueue",
        "Status",
        "Position in Queue",
        "Exec Time",
        "Age",
    )
    queues = await _cluster_queues(client, listing.items)
    positions = await _positions(client, listing.items, queues, warn)
    listing.rows = []
    for one in listing.items:
        key = one["metadata"]["namespace"], one["metadata"]["name"]
        kinds = {(owner["apiVersion"], owner["kind"]) for owner in _owners(one)}
        singular = sorted({await types.singular(*kind) for kind in kinds} - {""})
        listing.rows.append(
            [
                one["metadata"]["name"],
                ", ".join(_cut(name) for name in singular),
                ", ".join(sorted({owner["name"] for owner in _owners(one)})),
                get(one, "spec", "queueName") or "",
                _cluster_queue(one, queues),
                state_of(one).upper(),
                positions.get(key, ""),
                _exec_time(one, now),
                _age(one, now),
            ]
        )


def pods_of(job: Object, resource: Resource, query: Query) -> Request:
    """The request for the pods of a job. Raises PluginError for a kind without a pod selector."""
    selector = selector_of(job, resource)
    if not selector:
        raise PluginError(f"unsupported kind: {resource.kind}")
    query_fields = selectors(",".join(filter(None, (query.labels, selector))), query.fields)
    return Request("GET", PODS.path(query.namespace), {**query_fields, "limit": str(page_size())})


def selector_of(job: Object, resource: Resource) -> str:
    """The label selector of a job's pods; empty where its kind has none, or where it has no pods yet."""
    name = job["metadata"]["name"]
    known = _PODS_OF.get(resource.group_kind)
    if known:
        return f"{known}={name}"
    if resource.group_kind == PODS.group_kind:
        group = section(job, "metadata", "labels").get(POD_GROUP_NAME_LABEL, "")
        return f"{POD_GROUP_NAME_LABEL}={group}" if group else ""
    for kind in DESCRIBED:
        if kind.resource.group_kind == resource.group_kind:
            return pod_selector(job, kind)
    return ""


async def pod_pages(client: Client, request: Request, *, as_table: bool) -> list[Object]:
    """The pages of a list of pods, as tables of the server or as objects."""
    pages: list[Object] = []
    query = dict(request.query)
    while True:
        accept = TABLE if as_table else request.accept
        page = await client.call(Request("GET", request.path, query, accept=accept))
        pages.append(page)
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return pages
        query["continue"] = token


def pod_rows(
    pages: Iterable[Object], *, wide: bool, namespaces: bool
) -> tuple[Sequence[str], list[list[str]]]:
    """Headers and cells of the server's tables."""
    headers: Sequence[str] = ()
    rows: list[list[str]] = []
    for page in pages:
        columns = page.get("columnDefinitions") or ()
        shown = [i for i, column in enumerate(columns) if wide or not column.get("priority")]
        headers = [*(["Namespace"] if namespaces else []), *(columns[i]["name"] for i in shown)]
        for row in page.get("rows") or ():
            namespace = get(row, "object", "metadata", "namespace") or ""
            cells = [_cell(row["cells"][i]) for i in shown]
            rows.append([namespace, *cells] if namespaces else cells)
    return headers, rows


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _TYPE_LENGTH else f"{text[:_TYPE_LENGTH]}..."


def _owners(workload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return get(workload, "metadata", "ownerReferences") or ()


def _counts(queue: Mapping[str, Any]) -> list[str]:
    status = section(queue, "status")
    return [str(status.get("pendingWorkloads") or 0), str(status.get("admittedWorkloads") or 0)]


def _age(obj: Mapping[str, Any], now: float) -> str:
    return duration_text(now - parse_time(obj["metadata"]["creationTimestamp"]))


def _exec_time(workload: Mapping[str, Any], now: float) -> str:
    """From admission to the end, or to now; empty before."""
    if not conditions.is_true(workload, "Admitted"):
        return ""
    end = conditions.since(workload, "Finished") if conditions.is_finished(workload) else now
    return duration_text(end - conditions.since(workload, "Admitted"))


def _cluster_queue(workload: Mapping[str, Any], queues: Mapping[tuple[str, str], str]) -> str:
    """Where it is admitted, else where its LocalQueue leads."""
    found = get(workload, "status", "admission", "clusterQueue")
    return str(found or queues.get(_queue_key(workload), ""))


def _queue_key(workload: Mapping[str, Any]) -> tuple[str, str]:
    return workload["metadata"]["namespace"], get(workload, "spec", "queueName") or ""


async def _cluster_queues(client: Client, workloads: Iterable[Object]) -> dict[tuple[str, str], str]:
    """ClusterQueues of the LocalQueues of workloads without an admission, as far as they may be read."""
    found: dict[tuple[str, str], str] = {}
    for one in workloads:
        key = _queue_key(one)
        if key in found or not key[1] or get(one, "status", "admission", "clusterQueue"):
            continue
        try:
            queue = await client.find(LOCAL_QUEUES, key[1], key[0])
        except ApiError as error:
            if error.code != 403:
                raise
            queue = None
        found[key] = str(get(queue or {}, "spec", "clusterQueue") or "")
    return found


async def _positions(
    client: Client,
    workloads: Iterable[Object],
    queues: Mapping[tuple[str, str], str],
    warn: Callable[[str], None],
) -> dict[tuple[str, str], str]:
    """Positions of pending workloads in their LocalQueues, as far as the user may read them.

    A ClusterQueue answers for all of its LocalQueues at once; users of one namespace may only ask the latter.
    """
    found: dict[tuple[str, str], str] = {}
    of_cluster_queue: dict[str, set[tuple[str, str]]] = {}
    for one in workloads:
        if state_of(one) == "pending" and _cluster_queue(one, queues):
            of_cluster_queue.setdefault(_cluster_queue(one, queues), set()).add(_queue_key(one))
    for name, keys in of_cluster_queue.items():
        refusal = await _summary(client, f"clusterqueues/{name}", found)
        if refusal is not None and refusal.code == 403:
            paths = [f"namespaces/{namespace}/localqueues/{queue}" for namespace, queue in sorted(keys)]
            refusals = [await _summary(client, path, found) for path in paths]
            refusal = next((one for one in refusals if one is not None), None)
        if refusal is not None and not refusal.not_found:
            warn(f"positions in ClusterQueue {name} are left out: {refusal}")
    return found


async def _summary(client: Client, queue: str, found: dict[tuple[str, str], str]) -> ApiError | None:
    """Read the pending workloads of a queue into `found`; the error where that is refused."""
    try:
        summary = await client.call(Request("GET", f"{_VISIBILITY}/{queue}/pendingworkloads"))
    except ApiError as error:
        return error
    for item in summary.get("items") or ():
        key = item["metadata"]["namespace"], item["metadata"]["name"]
        found[key] = str(item.get("positionInLocalQueue", 0))
    return None
