"""From a validator's errors to the causes a Kubernetes API server gives, in its words.

Source: docs/reference/kubernetes-api-machinery.md, section 19.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jsonschema_rs

from pykueue.api.cel.formats import CANONICAL_QUANTITY, INTEGER_BOUNDS
from pykueue.embedded.objects.errors import (
    Cause,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from pykueue.embedded.objects.values import has_more_values, type_name

from .walk import path_text

_BOUNDS_WORDS = {
    "minimum": "greater than or equal to",
    "maximum": "less than or equal to",
    "exclusiveMinimum": "greater than",
    "exclusiveMaximum": "less than",
}

_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_FORMAT_OF_BOUND = {bound: name for name in ("int32", "int64") for bound in INTEGER_BOUNDS[name]}


#: Of the constraints on a string, only the first violated one is reported.
_OF_TEXTS = ("maxLength", "minLength", "pattern", "goPattern")


#: Values an object may have for all of its faults to be listed. The validator collects them all at once,
#: which takes long; of larger objects the first fault is listed.
MAX_LISTED_VALUES = 4000


def faults_of(
    validator: jsonschema_rs.Draft4Validator, obj: dict[str, Any]
) -> Iterable[jsonschema_rs.ValidationError]:
    """What a validator finds wrong with an object; the first fault alone if the object is large."""
    if not has_more_values(obj, MAX_LISTED_VALUES):
        return validator.iter_errors(obj)
    try:
        validator.validate(obj)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def first_faults(errors: Iterable[jsonschema_rs.ValidationError]) -> list[jsonschema_rs.ValidationError]:
    """The errors to report."""
    kept: list[jsonschema_rs.ValidationError] = []
    texts: dict[tuple[str | int, ...], int] = {}
    for error in errors:
        if error.kind.name not in _OF_TEXTS:
            kept.append(error)
            continue
        path = tuple(error.instance_path)
        at = texts.setdefault(path, len(kept))
        if at == len(kept):
            kept.append(error)
        elif _OF_TEXTS.index(error.kind.name) < _OF_TEXTS.index(kept[at].kind.name):
            kept[at] = error
    return kept


def to_causes(error: jsonschema_rs.ValidationError) -> Iterable[Cause]:
    """The causes for one validation error: several when it names several fields or alternatives."""
    path = list(error.instance_path)
    where = path_text(path)
    details = error.kind.as_dict()
    value: Any = error.instance
    name = error.kind.name
    match name:
        case "type":
            yield _wrong_type(where, value, details["types"])
        case "required":
            yield required(path_text([*path, details["property"]]))
        case "additionalProperties":
            for field in details["unexpected"]:
                yield forbidden(path_text([*path, field]), f"{where}.{field} in body is a forbidden property")
        case "enum":
            yield not_supported(where, value, [one for one in details["options"] if one is not None])
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            limit = details["limit"]
            if limit in _FORMAT_OF_BOUND and not name.startswith("exclusive"):
                yield invalid(where, value, f"{where} in body must be of type {_FORMAT_OF_BOUND[limit]}")
            else:
                yield invalid(where, value, f"{where} in body should be {_BOUNDS_WORDS[name]} {limit}")
        case "multipleOf":
            factor = details["multiple_of"]
            yield invalid(where, value, f"{where} in body should be a multiple of {factor}")
        case "maxLength":
            yield too_long(where, details["limit"])
        case "minLength":
            yield invalid(where, value, f"{where} in body should be at least {details['limit']} chars long")
        case "pattern" if details["pattern"] == CANONICAL_QUANTITY:
            yield invalid(where, value, _QUANTITY_RULE)
        case "pattern":
            yield invalid(where, value, f"{where} in body should match '{details['pattern']}'")
        case "maxItems" | "maxProperties":
            yield too_many(where, len(value), details["limit"])
        case "minItems":
            yield invalid(where, len(value), f"{where} in body should have at least {details['limit']} items")
        case "minProperties":
            text = f"{where} in body should have at least {details['limit']} properties"
            yield invalid(where, len(value), text)
        case "format":
            yield type_invalid(
                where, value, f"{where} in body must be of type {details['format']}: {_quoted(value)}"
            )
        case "anyOf" | "oneOf":
            yield from _alternatives(where, name, details["context"])
        case "not":
            yield invalid(where, "", f'"{where}" must not validate the schema (not)')
        case "goPattern":
            # The one keyword of our own: its message is the pattern.
            yield invalid(where, value, f"{where} in body should match '{details['message']}'")
        case _:
            yield invalid(where, value, f"{where} in body {error.message}")


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _wrong_type(where: str, value: Any, types: list[str]) -> Cause:
    wanted = ",".join(one for one in types if one != "null")
    found = type_name(value)
    return type_invalid(where, found, f'{where} in body must be of type {wanted}: "{found}"')


def _alternatives(
    where: str, name: str, branches: list[list[jsonschema_rs.ValidationError]]
) -> Iterable[Cause]:
    """What no alternative allows, with the complaints of the one that came closest."""
    failed = [branch for branch in branches if branch]
    if name == "anyOf":
        yield invalid(where, "", f'"{where}" must validate at least one schema (anyOf)')
    elif len(failed) < len(branches):
        yield invalid(
            where, "", f'"{where}" must validate one and only one schema (oneOf). Found more than one valid'
        )
        return
    else:
        yield invalid(where, "", f'"{where}" must validate one and only one schema (oneOf). Found none valid')
    for error in min(failed, key=len):
        yield from to_causes(error)
