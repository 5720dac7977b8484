"""In which form a client sends its body, and in which it wants the answer.

Source: docs/reference/kubernetes-api-machinery.md, section 4.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from pykueue.api.objects import Object
from pykueue.api.yaml_values import YamlSyntaxError, read_in_steps
from pykueue.embedded.objects.errors import bad_request, not_acceptable, unsupported_media_type
from pykueue.embedded.objects.protobuf import decode as decode_protobuf
from pykueue.embedded.objects.values import MAX_DEPTH, check_depth, has_more_values
from pykueue.embedded.schema.walk import MAX_UNKNOWN, path_text
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: How the OpenAPI v2 answer must name its type: with the `@` form Go clients fail to parse it.
OPENAPI_V2_ANSWER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

#: Bytes a body may have.
BODY_LIMIT = 3 * 1024 * 1024

#: Values a body may have, the aliases of YAML followed: reading, checking and storing takes time for each.
MAX_VALUES = 100_000

_JSON_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
_PATCHES = (*_JSON_PATCHES, APPLY_PATCH)
_JSON_BODIES = (JSON, "text/plain")


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


#: Never changed.
_NONE: list[str] = []


class Body(NamedTuple):
    """The value of a request body."""

    value: Any
    #: Keys that appear twice in a mapping of a YAML body; JSON is checked by `duplicate_fields`.
    duplicates: list[str] = _NONE
    #: Whether it is known not to be nested deeper than MAX_DEPTH.
    shallow: bool = False


def decode_small(data: bytes, media: str, method: str) -> Body | None:
    """What `decode_body` returns, for the JSON bodies that most requests have; None for any other."""
    if len(data) > MAX_VALUES or media not in _json_types(method):
        return None
    body = _json(data)
    if not body.shallow:
        check_depth(body.value)
    return body


async def decode_body(data: bytes, media: str, method: str) -> Body:
    """The value of a request body.

    400 when malformed or nested too deeply, 413 when it has more than MAX_VALUES values, 415 when of an
    unknown type. YAML, which takes long to read, is read in steps between which other requests are served.
    """
    body = _json(data) if media in _json_types(method) else await _decoded(data, media, method)
    if len(data) > MAX_VALUES:  # otherwise it cannot have so many
        await asyncio.sleep(0)
        if has_more_values(body.value, MAX_VALUES):
            raise ApiError(413, "RequestEntityTooLarge", f"Request entity has more than {MAX_VALUES} values")
        await asyncio.sleep(0)
    if not body.shallow:
        check_depth(body.value)
    return body


def _json_types(method: str) -> tuple[str, ...]:
    """The types whose bodies are always JSON."""
    return _JSON_PATCHES if method == "PATCH" else _JSON_BODIES


async def _decoded(data: bytes, media: str, method: str) -> Body:
    """The value of a body that is not JSON, or not by its type alone."""
    if method == "PATCH":
        if media not in _PATCHES:
            raise unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(_PATCHES)
            )
        return _json(data) if data[:1] in (b"{", b"[") else await _yaml(data)
    if media == YAML:
        return await _yaml(data)
    if media == PROTOBUF:
        try:
            return Body(decode_protobuf(data))
        except ValueError as error:
            raise bad_request(f"the body is not valid protobuf: {error}") from None
    raise unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {YAML}, {PROTOBUF}"
    )


def _json(data: bytes) -> Body:
    # Text that begins so few objects and arrays cannot nest them too deeply.
    shallow = data.count(b"{") + data.count(b"[") <= MAX_DEPTH
    try:
        return Body(orjson.loads(data), _NONE, shallow)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None


async def _yaml(data: bytes) -> Body:
    """The first document of a text, as Kubernetes reads it."""
    try:
        for found in read_in_steps(data, unique_keys=False, max_values=MAX_VALUES):
            if found is not None:
                return Body(
                    found.value,
                    [f'duplicate field "{path_text([key])}"' for key in found.duplicates[:MAX_UNKNOWN]],
                )
            await asyncio.sleep(0)
    except YamlSyntaxError as error:
        raise bad_request(f"the body is not valid YAML: {error}") from None
    return Body(None)


def duplicate_fields(data: bytes) -> list[str]:
    """Faults for keys that appear twice in a JSON object, as `duplicate field "x"`."""
    faults: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> Object:
        seen: Object = {}
        for key, value in pairs:
            if key in seen and len(faults) < MAX_UNKNOWN:
                faults.append(f'duplicate field "{path_text([key])}"')
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
