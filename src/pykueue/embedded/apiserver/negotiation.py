"""In which form a client sends its body, and in which it wants the answer.

Source: reference/kubernetes-api-machinery.md, section 4.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import yaml

from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.protobuf import decode as decode_protobuf
from pykueue.embedded.apiserver.status import bad_request, not_acceptable, unsupported_media_type
from pykueue.embedded.apiserver.values import MAX_DEPTH, check_depth
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: How the OpenAPI v2 answer must name its type: with the `@` form Go clients fail to parse it.
OPENAPI_V2_ANSWER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

#: Bytes a body may have.
BODY_LIMIT = 3 * 1024 * 1024

#: Values a YAML document may have once its aliases are followed.
_YAML_NODES = 500_000

_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class Form(NamedTuple):
    """A form an answer can have. `view` is empty for the objects as they are."""

    media: str = JSON
    #: `Table`, `PartialObjectMetadata`, `PartialObjectMetadataList` or `APIGroupDiscoveryList`.
    view: str = ""
    version: str = ""

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        if not self.view:
            return self.media
        group = "apidiscovery.k8s.io" if self.view == "APIGroupDiscoveryList" else "meta.k8s.io"
        return f"{self.media};g={group};v={self.version};as={self.view}"


PLAIN = Form()

_VIEWS = {
    ("Table", "meta.k8s.io"): ("v1", "v1beta1"),
    ("PartialObjectMetadata", "meta.k8s.io"): ("v1", "v1beta1"),
    ("PartialObjectMetadataList", "meta.k8s.io"): ("v1", "v1beta1"),
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io"): ("v2", "v2beta1"),
}


@lru_cache(maxsize=512)
def accepted_forms(accept: str) -> tuple[Form, ...]:
    """The forms an Accept header lists that this server has, first choice first."""
    forms: list[Form] = []
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(part.partition("=")[::2] for part in parameters)
        if media in ("*/*", "application/*", JSON, ""):
            media = JSON
        elif media != YAML:
            continue
        view = values.get("as", "")
        if not view:
            forms.append(Form(media))
        elif values.get("v", "") in _VIEWS.get((view, values.get("g", "")), ()) and "profile" not in values:
            forms.append(Form(media, view, values["v"]))
    return tuple(forms)


@lru_cache(maxsize=512)
def choose(accept: str, views: tuple[str, ...]) -> Form:
    """The first acceptable form among plain ones and the given views. 406 when there is none."""
    if not accept:
        return PLAIN
    for form in accepted_forms(accept):
        if not form.view or form.view in views:
            return form
    raise not_acceptable(
        "only the following media types are accepted: application/json, application/yaml, "
        "application/json;as=Table;g=meta.k8s.io;v=v1, "
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    )


def media_type(content_type: str) -> str:
    """The bare media type of a Content-Type; JSON when there is none."""
    return content_type.partition(";")[0].strip().lower() or JSON


def decode_body(data: bytes, media: str, method: str) -> Any:
    """The value of a request body. 400 when malformed, 415 when of an unknown type."""
    if method == "PATCH":
        if media not in _PATCHES:
            raise unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(_PATCHES)
            )
        return _yaml(data) if media == APPLY_PATCH and data[:1] not in (b"{", b"[") else _json(data)
    if media in (JSON, "text/plain"):
        return _json(data)
    if media == YAML:
        return _yaml(data)
    if media == PROTOBUF:
        try:
            return decode_protobuf(data)
        except ValueError as error:
            raise bad_request(f"the body is not valid protobuf: {error}") from None
    raise unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {YAML}, {PROTOBUF}"
    )


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None


class _Loader(yaml.CSafeLoader):
    """YAML without dates: a time stamp stays the text it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _yaml(data: bytes) -> Any:
    try:
        _check_nesting(data)
        value = yaml.load(data, _Loader)
        if _nodes(value, {}) > _YAML_NODES:
            raise bad_request("the YAML document is too large once its aliases are followed")
        check_depth(value)
        return orjson.loads(orjson.dumps(value))
    except (yaml.YAMLError, orjson.JSONDecodeError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid YAML: {error}") from None


def _check_nesting(data: bytes) -> None:
    """Refuse YAML nested too deeply before it is read: reading takes the square of the depth in time."""
    depth = 0
    for event in yaml.parse(data, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise bad_request(f"the document is nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _nodes(value: Any, known: dict[int, int]) -> int:
    """How many values a document has when every alias is counted as a copy."""
    if not isinstance(value, (dict, list)):
        return 1
    count = known.get(id(value))
    if count is None:
        children = value.values() if isinstance(value, dict) else value
        count = known[id(value)] = 1 + sum(_nodes(child, known) for child in children)
    return count


def duplicate_fields(data: bytes) -> list[str]:
    """Faults for keys that appear twice in a JSON object, as `duplicate field "x"`."""
    faults: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> Object:
        seen: Object = {}
        for key, value in pairs:
            if key in seen:
                faults.append(f'duplicate field "{key}"')
            seen[key] = value
        return seen

    try:
        json.loads(data, object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None
    return faults


def too_large() -> ApiError:
    """413 for a body over the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT}")
