"""The syntax of names, labels, annotations, taints and tolerations. Source: the Kubernetes documentation.

Each function gives the text of what is wrong with one value, or None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pykueue.api.caching import cached_by_text
from pykueue.api.core import Taint, Toleration
from pykueue.api.validation.fields import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_LONG,
    FieldError,
    not_supported,
)

#: Texts of truth values, as Go programs read them.
TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE = ("0", "f", "F", "FALSE", "false", "False")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists")

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SERVICE = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
#: No number that means anything is longer, and longer ones take time to convert.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_NAME_PART = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)

#: Bytes all annotations of an object may take together.
MAX_ANNOTATIONS = 256 * 1024


def integer(text: str) -> int | None:
    """The whole number that a label or annotation gives, with or without a sign; None for other texts."""
    return int(text) if _INTEGER.fullmatch(text) else None


@cached_by_text(4096)
def subdomain(value: str) -> str | None:
    """A name of dot-separated parts (RFC 1123 subdomain)."""
    if len(value) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(value):
        return (
            "must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or "
            "digit (a lowercase RFC 1123 subdomain, for example 'example.com')"
        )
    return None


@cached_by_text(4096)
def dns_label(value: str) -> str | None:
    """A name of one part (RFC 1123 label)."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    if not _LABEL.fullmatch(value):
        return (
            "must consist of lower case letters, digits and '-', and begin and end with a letter or digit "
            "(a lowercase RFC 1123 label, for example 'my-name')"
        )
    return None


def service_name(value: str) -> str | None:
    """The name of a Service (RFC 1035 label)."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    if not _SERVICE.fullmatch(value):
        return (
            "must consist of lower case letters, digits and '-', begin with a letter, and end with a letter "
            "or digit (an RFC 1035 label, for example 'my-name')"
        )
    return None


@cached_by_text(4096)
def qualified_name(value: str) -> str | None:
    """A label key: a name of at most 63 characters, if need be after a subdomain and a slash."""
    prefix, slash, name = value.rpartition("/")
    if slash:
        if not prefix:
            return "prefix part must be non-empty"
        problem = subdomain(prefix)
        if problem:
            return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    if not _NAME_PART.fullmatch(name):
        return (
            "name part must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or "
            "digit (for example 'example.com/my_name')"
        )
    return None


@cached_by_text(4096)
def label_value(value: str) -> str | None:
    """The value of a label: at most 63 characters, may be empty."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    if value and not _NAME_PART.fullmatch(value):
        return (
            "a valid label must be empty or consist of letters, digits, '-', '_' and '.', and begin and end "
            "with a letter or digit (for example 'my_value')"
        )
    return None


def label_errors(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """What is wrong with labels, or with a node selector."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        problem = qualified_name(key)
        if problem:
            errors.append(FieldError(path, INVALID, key, problem))
        problem = label_value(value)
        if problem:
            errors.append(FieldError(path, INVALID, value, problem))
    return errors


def annotation_errors(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    """What is wrong with annotations: their keys (in any case of letters), and their size together."""
    errors: list[FieldError] = []
    for key in annotations:
        problem = qualified_name(key.lower())
        if problem:
            errors.append(FieldError(path, INVALID, key, problem))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        errors.append(FieldError(path, TOO_LONG, None, f"may not be more than {MAX_ANNOTATIONS} bytes"))
    return errors


def toleration_errors(tolerations: Sequence[Toleration], path: str) -> list[FieldError]:
    """What is wrong with tolerations."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        at = f"{path}[{index}]"
        operator, exists = toleration.operator, toleration.operator == "Exists"
        if toleration.key:
            problem = qualified_name(toleration.key)
            if problem:
                errors.append(FieldError(f"{at}.key", INVALID, toleration.key, problem))
        elif not exists:
            errors.append(FieldError(f"{at}.operator", INVALID, operator, "must be Exists when key is empty"))
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            errors.append(
                FieldError(
                    f"{at}.effect",
                    INVALID,
                    toleration.effect,
                    "must be NoExecute when tolerationSeconds is set",
                )
            )
        if operator and operator not in TOLERATION_OPERATORS:
            errors.append(not_supported(f"{at}.operator", operator, TOLERATION_OPERATORS))
        if exists and toleration.value:
            errors.append(
                FieldError(f"{at}.value", INVALID, toleration.value, "must be empty when operator is Exists")
            )
        elif not exists:
            problem = label_value(toleration.value)
            if problem:
                errors.append(FieldError(f"{at}.value", INVALID, toleration.value, problem))
        if toleration.effect and toleration.effect not in EFFECTS:
            errors.append(not_supported(f"{at}.effect", toleration.effect, EFFECTS))
    return errors


def taint_errors(taints: Sequence[Taint], path: str) -> list[FieldError]:
    """What is wrong with taints; no two may have the same key and effect."""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"{path}[{index}]"
        problem = qualified_name(taint.key)
        if problem:
            errors.append(FieldError(f"{at}.key", INVALID, taint.key, problem))
        problem = label_value(taint.value)
        if problem:
            errors.append(FieldError(f"{at}.value", INVALID, taint.value, problem))
        if not taint.effect:
            errors.append(FieldError(f"{at}.effect", REQUIRED))
        elif taint.effect not in EFFECTS:
            errors.append(not_supported(f"{at}.effect", taint.effect, EFFECTS))
        if (taint.key, taint.effect) in seen:
            errors.append(
                FieldError(
                    at, DUPLICATE, f"{taint.key}:{taint.effect}", "taints must differ in key or effect"
                )
            )
        seen.add((taint.key, taint.effect))
    return errors
