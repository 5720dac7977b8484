"""Requests on every kind and verb that the server publishes, made from valid ones by mutation."""
# ruff: noqa: E501 (tables of what is sent)

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import yaml
from hostile_encoding import JSON, PROTOBUF, YAML, as_json, as_protobuf, as_yaml, damage
from hostile_values import Object, Schema, Values
from hostile_world import NAMESPACES, TOKENS, Answer, World

SAMPLES: dict[str, Object] = yaml.safe_load((Path(__file__).parent / "hostile_samples.yaml").read_text())

_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_STEPS, _STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"

_ACCEPTS = [
    "application/json", "application/yaml", PROTOBUF, "*/*", "text/html", "",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=Table;v=v9;g=x", ";" * 2000, "application/json," * 1500,
]  # fmt: skip
_MANAGERS = ["me", "you", "a" * 129, "\x01", "é", "x" * 5000, ""]
_LABELS = [
    "a=b", "a", "!a", "a in (b,c)", "a notin (b)", "a!=b,c=d", "a>1", "a<1", "a in (", "(", "==", "a=b=c", "é=1", "a in ()",
    "kubernetes.io/metadata.name=default", "a>" + "9" * 6000, " ", ",", "a,,b",
]  # fmt: skip
_FIELDS = [
    "metadata.name=n1", "metadata.namespace!=team", "spec.nodeName=", "status.phase=Running", "type=Opaque", "a=b",
    "metadata.name=n1,metadata.name=n2", "metadata.name=a\\,b", "\\", "=", "metadata.name==n1", "spec.x.y=z", "involvedObject.name=n1",
]  # fmt: skip


class Kind(NamedTuple):
    """A resource as the server publishes it, with its schema."""

    path: str
    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    schema: Schema


class Sent(NamedTuple):
    """One request: what goes over the connection, in pieces, and how many answers it must have at least."""

    pieces: list[bytes]
    answers: int = 1

    def __str__(self) -> str:
        whole = b"".join(self.pieces)
        text = repr(whole if len(whole) < 5000 else whole[:4000] + b" ... " + whole[-900:])
        return re.sub(r"(.{1,40}?)\1{9,}", lambda run: f"{run[1]}<{len(run[0]) // len(run[1])} times>", text)


def published(world: World) -> tuple[list[Kind], dict[str, Schema]]:
    """All kinds of a server, and the schemas of its OpenAPI documents."""
    schemas: dict[str, Schema] = {}
    kinds = []
    for group, versions in world.server.core.registry.groups():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            schemas |= world.server.pipeline.document(f"/openapi/v3/{path}")["components"]["schemas"]
    for endpoint in world.server.core.registry:
        root = f"/apis/{endpoint.api_version}" if endpoint.group else "/api/v1"
        kinds.append(
            Kind(
                root,
                endpoint.api_version,
                endpoint.kind.kind,
                endpoint.plural,
                endpoint.namespaced,
                endpoint.kind.verbs,
                tuple(endpoint.subresources),
                endpoint.schema.openapi(),
            )
        )
    return kinds, schemas


class Requests:
    """Generates requests. Everything follows from the generator `rng`."""

    def __init__(self, rng: random.Random, kinds: list[Kind], schemas: dict[str, Schema]) -> None:
        self._rng = rng
        self._kinds = kinds
        self._schemas = schemas
        self._values = Values(rng, schemas)
        #: Tokens of continued lists and of ServiceAccounts that answers held.
        self.continuations: list[str] = ["x", "e30", "a" * 5000]
        self.tokens: list[str] = []

    def next(self) -> Sent:
        """One more."""
        rng = self._rng
        kind = rng.choice(self._kinds)
        ways: list[tuple[int, Callable[[Kind], Sent]]] = [
            (30, self._create),
            (12, self._update),
            (26, self._patch),
            (10, self._list),
            (4, self._watch),
            (4, self._delete),
            (12, self._subresource),
            (2, self._document),
        ]
        (way,) = rng.choices([way for _, way in ways], [weight for weight, _ in ways])
        return way(kind)

    async def fill(self, world: World) -> None:
        """Create the samples, so that there is something to change."""
        for kind in self._kinds:
            if kind.kind in SAMPLES and "update" in kind.verbs and kind.plural != "namespaces":
                body = {**SAMPLES[kind.kind], "apiVersion": kind.api_version, "kind": kind.kind}
                body["metadata"] = self._identity(kind) | {"name": self._fixed_name(kind) or "n1"}
                space = "namespaces/default/" if kind.namespaced else ""
                await world.create(f"{kind.path}/{space}{kind.plural}", body)

    @staticmethod
    def _fixed_name(kind: Kind) -> str:
        return {"CustomResourceDefinition": "things.x.y", "APIService": "v1.x.y"}.get(kind.kind, "")

    def learn(self, answer: Answer) -> None:
        """Take continue tokens and ServiceAccount tokens from an answer."""
        if b'"continue"' not in answer.body and b'"token"' not in answer.body:
            return
        value = answer.value()
        if isinstance(value, dict):
            more = (value.get("metadata") or {}).get("continue")
            self.continuations += [more] if more else []
            token = (value.get("status") or {}).get("token")
            self.tokens += [token] if isinstance(token, str) else []

    # -- parts

    def _size(self) -> int:
        """Bytes that a mutation may add: small most of the time, up to what a body may have."""
        return self._rng.choice([50] * 6 + [500] * 4 + [5_000] * 4 + [50_000] * 3 + [400_000, 2_500_000])

    def _collection(self, kind: Kind) -> str:
        rng = self._rng
        if not kind.namespaced:
            return f"{kind.path}/{kind.plural}"
        return f"{kind.path}/namespaces/{rng.choice(['default', 'default', *NAMESPACES])}/{kind.plural}"

    def _name(self) -> str:
        return self._rng.choice(
            ["n1", "n1", "n1", "n2", "n3", "default", "system:node", "%00", "a%2Fb", "A_", "x" * 300]
        )

    def _object(self, kind: Kind) -> Any:
        rng = self._rng
        if rng.random() < 0.75 and kind.kind in SAMPLES:
            obj: Object = copy.deepcopy(SAMPLES[kind.kind])
        else:
            obj = self._values.valid(kind.schema)
        obj |= {"apiVersion": kind.api_version, "kind": kind.kind}
        metadata = obj.get("metadata")
        obj["metadata"] = {
            **(metadata if isinstance(metadata, dict) and rng.random() < 0.3 else {}),
            **self._identity(kind),
        }
        return obj

    def _identity(self, kind: Kind) -> Object:
        rng = self._rng
        if self._fixed_name(kind):
            return {"name": self._fixed_name(kind)}
        if rng.random() < 0.15:
            return {"generateName": rng.choice(["n", "a-", "x" * 250, "A_"])}
        queue = {"labels": {"kueue.x-k8s.io/queue-name": "lq"}} if rng.random() < 0.1 else {}
        return {"name": rng.choice(["n1", "n2", "n3"]), **queue}

    def _mutated(self, kind: Kind) -> Any:
        rng = self._rng
        obj = self._object(kind)
        size = self._size()
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            if isinstance(obj, dict):
                obj = self._values.mutate(obj, kind.schema, size)
        return obj

    def _write_query(self) -> dict[str, str]:
        rng = self._rng
        query = {}
        if rng.random() < 0.15:
            query["dryRun"] = rng.choice(["All", "All", "None", ""])
        if rng.random() < 0.4:
            query["fieldValidation"] = rng.choice(["Strict", "Warn", "Ignore", "x"])
        if rng.random() < 0.4:
            query["fieldManager"] = rng.choice(_MANAGERS)
        return query

    def _body(self, value: Any) -> tuple[str, bytes]:
        """The media type and bytes of a value."""
        rng = self._rng
        media, encode = rng.choice(
            [(JSON, as_json), (JSON, as_json), (YAML, as_yaml), (PROTOBUF, as_protobuf)]
        )
        try:
            data = encode(value)
        except (ValueError, AttributeError, RecursionError):
            media, data = JSON, as_json(value)
        if rng.random() < 0.1:
            data = damage(data, rng)
        if rng.random() < 0.02:
            media = rng.choice(
                ["text/plain", "application/x-www-form-urlencoded", "", YAML, JSON, "a" * 3000]
            )
        return media, data

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        media: str = "",
    ) -> Sent:
        rng = self._rng
        text = "&".join(f"{key}={quote(value)}" for key, value in (query or {}).items())
        fields = [("Host", "server"), ("Authorization", f"Bearer {self._token()}")]
        if rng.random() < 0.1:
            fields.append(("Accept", rng.choice(_ACCEPTS)))
        if rng.random() < 0.1:
            fields.append(("User-Agent", rng.choice(["kubectl/v1.32", "a" * 3000, "é/1", "/"])))
        if rng.random() < 0.03:
            fields.append(
                (
                    "Impersonate-User",
                    rng.choice(["a", "editor", "system:serviceaccount:default:default", "é"]),
                )
            )
            fields += [("Impersonate-Group", f"g{number}") for number in range(rng.choice([0, 1, 1000]))]
            fields.append((f"Impersonate-Extra-{rng.choice(['a', '%41', '%'])}", "b"))
        if media:
            fields.append(("Content-Type", media))
        if body or method in ("POST", "PUT", "PATCH"):
            fields.append(("Content-Length", str(len(body))))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        target = f"{path}?{text}" if text else path
        return Sent([f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode(), body])

    def _token(self) -> str:
        rng = self._rng
        if rng.random() < 0.93:
            return "admin-token"
        token = rng.choice([*TOKENS, *self.tokens, "", "a.b.c", "é", "e30.e30.e30"])
        if rng.random() < 0.3:
            token = damage(token.encode(), rng).decode("latin-1")
        return "".join(letter for letter in token if letter.isprintable())[:20_000]

    # -- verbs

    def _create(self, kind: Kind) -> Sent:
        media, data = self._body(self._mutated(kind))
        return self._request("POST", self._collection(kind), self._write_query(), data, media)

    def _update(self, kind: Kind) -> Sent:
        media, data = self._body(self._mutated(kind))
        path = f"{self._collection(kind)}/{self._name()}{self._status(kind)}"
        return self._request("PUT", path, self._write_query(), data, media)

    def _status(self, kind: Kind) -> str:
        return "/status" if "status" in kind.subresources and self._rng.random() < 0.3 else ""

    def _patch(self, kind: Kind) -> Sent:
        rng = self._rng
        media = rng.choice([_APPLY, _APPLY, _MERGE, _STRATEGIC, _STRATEGIC, _STEPS])
        query = self._write_query()
        if media == _APPLY:
            query.setdefault("fieldManager", "me")
            if rng.random() < 0.5:
                query["force"] = "true"
        value = self._steps(kind) if media == _STEPS else self._mutated(kind)
        if isinstance(value, dict) and media in (_MERGE, _STRATEGIC):
            for key in ("apiVersion", "kind", "metadata"):
                if rng.random() < 0.5:
                    value.pop(key, None)
            if media == _STRATEGIC:
                self._add_directives(value)
        data = as_yaml(value) if media == _APPLY and rng.random() < 0.7 else as_json(value)
        if rng.random() < 0.08:
            data = damage(data, rng)
        path = f"{self._collection(kind)}/{self._name()}{self._status(kind)}"
        return self._request("PATCH", path, query, data, media)

    def _add_directives(self, value: Any) -> None:
        """Put directives of strategic merge patches somewhere into the value."""
        rng = self._rng
        while isinstance(value, dict) and value:
            if rng.random() < 0.3:
                key = rng.choice(list(value))
                value[
                    rng.choice(
                        [
                            "$patch",
                            "$retainKeys",
                            f"$setElementOrder/{key}",
                            f"$deleteFromPrimitiveList/{key}",
                        ]
                    )
                ] = rng.choice(
                    ["replace", "delete", "merge", "x", None, [], [key], [{"name": "main"}], [1], {}]
                )
            inner = value[rng.choice(list(value))]
            value = rng.choice(inner) if isinstance(inner, list) and inner else inner

    def _steps(self, kind: Kind) -> Any:
        """A JSON patch."""
        rng, values = self._rng, self._values
        if rng.random() < 0.05:
            return values.strange()
        obj = self._object(kind)
        paths = list(_pointers(obj, ""))
        count = rng.choice([1, 2, 3, 3, 10, 200, 10_000])
        steps = []
        for number in range(count):
            path = rng.choice(paths) + rng.choice(
                ["", "", "", "/-", "/0", "/x", f"/k{number}", "/~1", "/é", "/01", "/-1"]
            )
            op = rng.choice(["add", "add", "replace", "remove", "copy", "move", "test", "x"])
            steps.append({"op": op, "path": path, "from": rng.choice(paths), "value": values.strange()})
        if rng.random() < 0.4:  # the same again and again: lists that grow, copies of copies
            one = rng.choice(steps)
            steps = [one, *([{**one, "path": f"{one['path']}"}] * rng.choice([1, 30, 9_000]))]
        if rng.random() < 0.3:
            place = rng.choice(["/metadata/labels", "/metadata/annotations", "/metadata/finalizers", "/data"])
            empty: Any = [] if place.endswith("finalizers") else {}
            ending = "/-" if place.endswith("finalizers") else "/k{}"
            steps = [{"op": "add", "path": place, "value": empty}] + [
                {"op": "add", "path": place + ending.format(number), "value": "a"}
                for number in range(rng.choice([3, 9_000]))
            ]
        return steps

    def _list(self, kind: Kind) -> Sent:
        rng = self._rng
        query = self._selectors()
        if rng.random() < 0.3:
            query["limit"] = rng.choice(["1", "2", "0", "-1", "x", "9" * 5000, "500"])
        if rng.random() < 0.15:
            query["continue"] = rng.choice(self.continuations)
        if rng.random() < 0.25:
            query["resourceVersion"] = rng.choice(
                ["0", "1", "50", "-1", "x", "9" * 18, "9" * 30, "9" * 5000, "٣"]
            )
        if rng.random() < 0.15:
            query["resourceVersionMatch"] = rng.choice(["Exact", "NotOlderThan", "x"])
        path = self._collection(kind) if rng.random() < 0.7 else f"{kind.path}/{kind.plural}"
        if rng.random() < 0.2:
            path += f"/{self._name()}"
        return self._request(rng.choice(["GET", "GET", "GET", "HEAD", "OPTIONS"]), path, query)

    def _selectors(self) -> dict[str, str]:
        rng = self._rng
        query = {}
        if rng.random() < 0.5:
            query["labelSelector"] = self._selector(_LABELS)
        if rng.random() < 0.3:
            query["fieldSelector"] = self._selector(_FIELDS)
        return query

    def _selector(self, pieces: list[str]) -> str:
        rng = self._rng
        match rng.randrange(5):
            case 0:
                return self._values.long_text(rng.choice([10, 1000, 50_000]))
            case 1:
                return ",".join([rng.choice(pieces)] * rng.choice([2, 100, 3000]))[:60_000]
            case 2:
                return "a in (" + ",".join(f"v{number}" for number in range(rng.choice([2, 5000]))) + ")"
            case _:
                return ",".join(rng.choices(pieces, k=rng.choice([1, 1, 2])))

    def _watch(self, kind: Kind) -> Sent:
        rng = self._rng
        query = {"watch": rng.choice(["1", "true", "x"]), **self._selectors()}
        for key, choices in {
            "resourceVersion": ["0", "1", "99999999", "x", "", "9" * 30],
            "timeoutSeconds": ["1", "0", "-1", "x", "9" * 30, "1.5"],
            "allowWatchBookmarks": ["true", "x"],
            "sendInitialEvents": ["true", "false", "x"],
            "resourceVersionMatch": ["NotOlderThan", "x"],
        }.items():
            if rng.random() < 0.4:
                query[key] = rng.choice(choices)
        path = self._collection(kind) if rng.random() < 0.7 else f"{kind.path}/{kind.plural}"
        return self._request("GET", path, query)

    def _delete(self, kind: Kind) -> Sent:
        rng = self._rng
        options: Any = rng.choice([
            None, {}, {"propagationPolicy": rng.choice(["Foreground", "Orphan", "x", 1, [], None])},
            {"gracePeriodSeconds": self._values.strange()}, {"preconditions": self._values.strange()},
            {"preconditions": {"uid": self._values.strange()}}, {"dryRun": self._values.strange()},
            {"orphanDependents": self._values.strange()}, self._values.strange(), self._values.deep(300),
        ])  # fmt: skip
        query = self._selectors() if rng.random() < 0.3 else {}
        if rng.random() < 0.3:
            query["gracePeriodSeconds"] = rng.choice(["0", "-1", "x", "9" * 5000, "1.5"])
        if rng.random() < 0.3:
            query["propagationPolicy"] = rng.choice(["Foreground", "Background", "x"])
        path = self._collection(kind)
        if rng.random() < 0.7 or kind.plural in ("namespaces", "customresourcedefinitions"):
            path += f"/{rng.choice(['n1', 'n2', 'n3', 'n9'])}"
        media, data = ("", b"") if options is None else self._body(options)
        return self._request("DELETE", path, query, data, media)

    def _subresource(self, kind: Kind) -> Sent:
        rng = self._rng
        those = [one for one in self._kinds if one.subresources]
        kind = rng.choice(those)
        name = rng.choice(kind.subresources)
        if rng.random() < 0.4:
            kind, name = rng.choice([
                (one, sub) for one in those for sub in one.subresources if sub not in ("status",)
            ])  # fmt: skip
        path = f"{self._collection(kind)}/{self._name()}/{name}"
        body = self._mutated(kind) if rng.random() < 0.3 else self._action(name)
        method = rng.choice(
            ["GET", "PUT", "PATCH"] if name in ("status", "scale") else _METHODS.get(name, ["GET", "POST"])
        )
        query: dict[str, str] = {}
        if name == "log":
            for key in (
                "container",
                "tailLines",
                "limitBytes",
                "sinceSeconds",
                "sinceTime",
                "timestamps",
                "follow",
                "previous",
            ):
                if rng.random() < 0.3:
                    query[key] = rng.choice(
                        ["main", "1", "0", "-1", "true", "x", "9" * 30, "2026-01-01T00:00:00Z", "9" * 5000]
                    )
        if method == "GET":
            return self._request(method, path, query)
        if method == "PATCH":
            media = rng.choice([_APPLY, _MERGE, _STRATEGIC, _STEPS])
            value = self._steps(kind) if media == _STEPS else body
            return self._request(method, path, {"fieldManager": "me"}, as_json(value), media)
        media, data = self._body(body)
        return self._request(method, path, self._write_query(), data, media)

    def _action(self, name: str) -> Any:
        """What is sent to a subresource, with one thing wrong in most cases."""
        body: Any = copy.deepcopy(_ACTIONS.get(name, {}))
        schema = self._schemas.get(_ACTION_SCHEMAS.get(name, ""), {})
        if self._rng.random() < 0.8:
            body = self._values.mutate(body, schema, self._size())
        return body

    def _document(self, _kind: Kind) -> Sent:
        rng = self._rng
        path = rng.choice([
            "/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/version", "/readyz?verbose",
            "/metrics", "/", "//", "/apis/x/y", "/api/v1/namespaces//pods", "/%2e%2e/", "/readyz?exclude=a", "*", "/api/v1/x/y/z/w",
            "/" + "a/" * 5000, "/%", "/%ff", "/api?" + "a=b&" * 5000,
        ])  # fmt: skip
        return self._request(rng.choice(["GET", "GET", "HEAD", "POST", "TRACE", "CONNECT"]), path)


_ACTIONS: dict[str, Object] = {
    "scale": {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "n1"},
        "spec": {"replicas": 2},
    },
    "eviction": {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"name": "n1"},
        "deleteOptions": {"gracePeriodSeconds": 1},
    },
    "binding": {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "n1", "annotations": {"a": "b"}},
        "target": {"name": "n1"},
    },
    "token": {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "spec": {
            "audiences": ["https://kubernetes.default.svc"],
            "expirationSeconds": 600,
            "boundObjectRef": {"kind": "Pod", "name": "n1"},
        },
    },
    "finalize": {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": "n1"},
        "spec": {"finalizers": ["kubernetes"]},
    },
}
_METHODS = {"log": ["GET"], "finalize": ["PUT"], "token": ["POST"], "eviction": ["POST"], "binding": ["POST"]}
_ACTION_SCHEMAS = {
    "scale": "io.k8s.api.autoscaling.v1.Scale",
    "eviction": "io.k8s.api.policy.v1.Eviction",
    "binding": "io.k8s.api.core.v1.Binding",
    "token": "io.k8s.api.authentication.v1.TokenRequest",
    "finalize": "io.k8s.api.core.v1.Namespace",
}


def _pointers(value: Any, at: str) -> Any:
    """JSON pointers to all places in a value."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _pointers(inner, f"{at}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _pointers(inner, f"{at}/{index}")
