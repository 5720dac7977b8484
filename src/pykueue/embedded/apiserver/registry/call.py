"""One request on its way through the server: what is asked, of what, by whom, with which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from pykueue.api.caching import LONGEST_KEY
from pykueue.api.objects import Object
from pykueue.api.quantity import whole_number
from pykueue.embedded.objects.errors import (
    Cause,
    forbidden,
    invalid,
    invalid_object,
    not_supported,
    required,
)
from pykueue.embedded.objects.selectors import required_name
from pykueue.embedded.store.records import Record
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH, JSON

from .endpoints import Endpoint, Registry


class User(NamedTuple):
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = {}

    def info(self) -> Object:
        """As UserInfo in reviews."""
        info: Object = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = dict(self.extra)
        return info


def parse_query(text: str) -> dict[str, str]:
    """The query of a request. As in Go, the first of several values counts, and pairs with a `;` do not.

    This is the only parser of queries: what a user is authorized for and what is done follow from the same
    values.
    """
    plain = "&".join(one for one in text.split("&") if ";" not in one) if ";" in text else text
    query: dict[str, str] = {}
    for key, value in parse_qsl(plain, keep_blank_values=True):
        query.setdefault(key, value)
    return query


def is_set(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter of a query: true when it is given, unless its value is `false` or `0`."""
    return query.get(name, "0").lower() not in ("false", "0")


class Target(NamedTuple):
    """What a path names. An empty name means the collection, an empty namespace all of them."""

    endpoint: Endpoint
    namespace: str
    name: str
    subresource: str


#: Paths of collections that are remembered.
_COLLECTIONS = 1024


def resolve(registry: Registry, path: str) -> Target | None:
    """The resource a request path names, or None when it names none (a plain 404, not a Status)."""
    known: Target | None = registry.collections.get(path)
    if known is not None:
        return known
    parts = path.split("/")
    if parts[-1] == "":
        parts.pop()
    if len(parts) < 4:
        return None
    if parts[1] == "api":
        group, version, at = "", parts[2], 3
    elif parts[1] == "apis" and len(parts) > 4:
        group, version, at = parts[2], parts[3], 4
    else:
        return None
    rest = parts[at:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (group or rest[2] not in ("status", "finalize")):
        namespace, rest = intern(rest[1]), rest[2:]
        if not namespace:
            return None
    endpoint = registry.find(group, version, rest[0])
    if endpoint is None or len(rest) > 3 or (namespace and not endpoint.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and endpoint.namespaced and not namespace:
        return None
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in endpoint.subresources:
        return None
    target = Target(endpoint, namespace, name, subresource)
    if not name and len(path) <= LONGEST_KEY:
        # Most of what is created is created again and again.
        if len(registry.collections) >= _COLLECTIONS:
            registry.collections.clear()
        registry.collections[path] = target
    return target


@dataclass(slots=True)
class Call:
    """A request whose path has been resolved."""

    method: str
    target: Target
    query: Mapping[str, str]
    user: User
    body: Any = None
    content_type: str = JSON
    #: The field manager when the query names none.
    agent: str = "unknown"
    #: Shown to the user beside the answer.
    warnings: list[str] = field(default_factory=list)
    #: Bytes of the body as it was sent; 0 for calls within the process.
    body_size: int = 0
    #: Whether a JSON body may have nulls.
    body_nulls: bool = True
    #: The expressions of the object, which stay compiled until the request is answered.
    compiled: Any = None
    #: The kind and version the path names.
    endpoint: Endpoint = field(init=False)

    def __post_init__(self) -> None:
        self.endpoint = self.target.endpoint

    def flag(self, name: str) -> bool:
        """A boolean query parameter: true when it is given, unless its value is `false` or `0`."""
        return name in self.query and is_set(self.query, name)

    @property
    def requested_name(self) -> str:
        """The one object that is asked for: by the path, or by the field selector of a list or watch."""
        if self.target.name or self.method != "GET" or "fieldSelector" not in self.query:
            return self.target.name
        return required_name(self.query["fieldSelector"])

    def verb(self) -> str:
        """What RBAC calls this request."""
        match self.method:
            case "GET":
                if self.flag("watch"):
                    return "watch"
                return "get" if self.target.name else "list"
            case "POST":
                return "create"
            case "PUT":
                return "update"
            case "PATCH":
                return "patch"
            case "DELETE":
                return "delete" if self.target.name else "deletecollection"
        return self.method.lower()


class Answer(NamedTuple):
    """What to send back: a stored record (in the endpoint's form) or a body as it is."""

    code: int
    record: Record | None = None
    body: Any = None

    def stored(self) -> list[Object]:
        """The stored objects it shows."""
        return [self.record.object] if self.record is not None else []

    def object(self, endpoint: Endpoint) -> Any:
        """The answer's value, in the endpoint's version."""
        if self.record is None:
            return self.body
        return endpoint.from_storage(self.record.object)


class WriteOptions(NamedTuple):
    """Query options of a write, checked."""

    dry_run: bool
    #: `Strict`, `Warn` or `Ignore`.
    field_validation: str
    manager: str
    force: bool


@lru_cache(maxsize=256)
def _default_options(agent: str) -> WriteOptions:
    """Without a query: most writes."""
    return WriteOptions(False, "Warn", agent, False)


def _option_error(kind: str, causes: list[Cause]) -> ApiError:
    return invalid_object("meta.k8s.io", kind, "", causes)


def write_options(call: Call, kind: str) -> WriteOptions:
    """The options of a create, update or patch; `kind` names them in errors (422)."""
    query = call.query
    if not query and call.content_type != APPLY_PATCH:
        return _default_options(call.agent)
    causes: list[Cause] = []
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        causes.append(not_supported("dryRun", dry_run, ["All"]))
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        causes.append(not_supported("fieldValidation", validation, ["Ignore", "Warn", "Strict"]))
    manager = query.get("fieldManager", "")
    if len(manager) > 128 or not manager.isprintable():
        causes.append(
            invalid("fieldManager", manager, "should be printable and no longer than 128 characters")
        )
    force = call.flag("force")
    if call.content_type == APPLY_PATCH:
        if not manager:
            causes.append(required("fieldManager", "is required for apply patch"))
    elif "force" in query and kind == "PatchOptions":
        causes.append(forbidden("force", "may not be specified for non-apply patch"))
    if causes:
        raise _option_error(kind, causes)
    return WriteOptions(dry_run == "All", validation, manager or call.agent, force)


_POLICIES = ("Foreground", "Background", "Orphan")


class DeleteOptions(NamedTuple):
    """Options of a DELETE, from the body and the query, checked."""

    propagation: str
    grace: int | None
    uid: str
    resource_version: str
    dry_run: bool


def delete_options(call: Call) -> DeleteOptions:
    """Options of a DELETE. 422 when they make no sense, 400 when the body is not an object."""
    body = call.body if call.body is not None else {}
    query = call.query
    if not isinstance(body, dict):
        raise _option_error("DeleteOptions", [invalid("", body, "must be an object")])
    causes: list[Cause] = []
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if propagation and propagation not in _POLICIES:
        causes.append(not_supported("propagationPolicy", propagation, [*_POLICIES, "nil"]))
    orphan = body.get("orphanDependents", query.get("orphanDependents"))
    if orphan is not None:
        if propagation:
            causes.append(
                invalid(
                    "propagationPolicy",
                    propagation,
                    "orphanDependents and deletionPropagation cannot be both set",
                )
            )
        propagation = "Orphan" if orphan is True or orphan == "true" else "Background"
    grace: int | None = None
    wanted = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    if wanted is not None:
        grace = whole_number(wanted) if isinstance(wanted, str) else wanted
        if type(grace) is not int:
            causes.append(invalid("gracePeriodSeconds", wanted, "must be an integer"))
            grace = None
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if dry not in ([], ["All"]):
        causes.append(not_supported("dryRun", dry, ["All"]))
    preconditions = body.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        causes.append(invalid("preconditions", preconditions, "must be an object"))
        preconditions = {}
    if causes:
        raise _option_error("DeleteOptions", causes)
    return DeleteOptions(
        propagation,
        grace,
        str(preconditions.get("uid") or ""),
        str(preconditions.get("resourceVersion") or ""),
        bool(dry),
    )
