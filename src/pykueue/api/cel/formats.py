"""Value formats and patterns of OpenAPI schemas, as far as the JSON Schema validator lacks them.

Formats of Kubernetes that are not listed here and not the validator's own are not checked, as an API server
does not check formats it does not know. Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

import jsonschema_rs

from pykueue.api.caching import cached_by_text
from pykueue.api.regex import compile_regex

#: Linear-time matching: a hostile text cannot make a pattern run away.
PATTERN_OPTIONS: Final = jsonschema_rs.RegexOptions()

_GO_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)\Z")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.IGNORECASE)
_MAC = re.compile(
    r"(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}(?:[0-9a-f]{2}\1[0-9a-f]{2}\1)?[0-9a-f]{2}\Z"
    r"|(?:[0-9a-f]{4}\.){2,3}[0-9a-f]{4}\Z",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return bool(text)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == 10


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "byte": _is_base64,
    "date": _is_date,
    "duration": lambda text: _GO_DURATION.match(text) is not None,
    "cidr": _is_cidr,
    "mac": lambda text: _MAC.match(text) is not None,
    "uuid": lambda text: _UUID.match(text) is not None,
    "k8s-short-name": lambda text: _LABEL.match(text) is not None,
    "k8s-long-name": lambda text: len(text) <= 253 and _SUBDOMAIN.match(text) is not None,
}

#: Bounds of the integer formats.
INTEGER_BOUNDS: Final = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "": (-(2**63), 2**63 - 1),
}

#: Quantities of built-in kinds as the server writes them; binary ones are taken as they come.
CANONICAL_QUANTITY: Final = (
    r"^-?(0|([1-9][0-9]*[1-9]|[1-9])[0-9]{0,2}([numkMGTPE]|e-?[0-9]+)?|[1-9][0-9]*([KMGTPE]i))$"
)


@cached_by_text(4096)
def pattern_is_native(pattern: str) -> bool:
    """Whether the validator itself can match the pattern; it refuses some of Go's syntax, such as `(?i)`."""
    try:
        jsonschema_rs.Draft4Validator({"pattern": pattern}, pattern_options=PATTERN_OPTIONS)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True


class GoPattern:
    """The validator's keyword `goPattern`: patterns it cannot match by itself."""

    def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None:
        self._pattern = value
        self._matches = compile_regex(value).matches

    def validate(self, instance: Any) -> None:
        """Check a value as jsonschema-rs asks. Raises ValueError when a string does not match."""
        if isinstance(instance, str) and not self._matches(instance):
            raise ValueError(self._pattern)
