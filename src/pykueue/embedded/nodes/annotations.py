"""Annotations in the domain `sim.pykueue.io/`: their names, how values are read, how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pykueue.embedded.nodes.durations import Span, format_duration, format_span, parse_duration, parse_span

DOMAIN = "sim.pykueue.io/"
SEED = DOMAIN + "seed"

T = TypeVar("T")


class BehaviourError(ValueError):
    """An annotation's value cannot be understood; the text names it and what is accepted."""


class Value(NamedTuple):
    """One sort of values: from text, with BehaviourError for what is none, and back."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise BehaviourError(f"{text!r} is neither true nor false")
    return text == "true"


def _span(text: str) -> Span:
    try:
        return parse_span(text)
    except ValueError as error:
        raise BehaviourError(str(error)) from None


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BehaviourError(str(error)) from None


TRUTH = Value(_truth, lambda value: "true" if value else "false")
SPAN = Value(_span, format_span)
DURATION = Value(_duration, format_duration)


class Vocabulary(Generic[T]):
    """The annotations that together say a `T`: a NamedTuple whose fields are None where nothing was said."""

    def __init__(self, form: Callable[..., T], values: Mapping[str, Value]) -> None:
        self._form = form
        self._values = values
        self._keys = {DOMAIN + field.replace("_", "-"): field for field in values}

    def read(self, annotations: Mapping[str, str]) -> tuple[T, list[str]]:
        """What the annotations say, and what is wrong with those that were left out for it."""
        specified: dict[str, Any] = {}
        wrong: list[str] = []
        for key, field in self._keys.items():
            text = annotations.get(key)
            if text is None:
                continue
            try:
                specified[field] = self._values[field].read(text)
            except BehaviourError as error:
                wrong.append(f"annotation {key}: {error}")
        return self._form(**specified), wrong

    def read_fields(self, texts: Mapping[str, str]) -> T:
        """As `read`, but by field name. Raises BehaviourError naming the field as a file spells it."""
        specified: dict[str, Any] = {}
        for field, text in texts.items():
            try:
                specified[field] = self._values[field].read(text)
            except BehaviourError as error:
                first, *more = field.split("_")
                raise BehaviourError(f"{first}{''.join(map(str.capitalize, more))}: {error}") from None
        return self._form(**specified)

    def as_annotations(self, specified: T) -> dict[str, str]:
        """The annotations that say this."""
        values = {key: getattr(specified, field) for key, field in self._keys.items()}
        return {
            key: self._values[self._keys[key]].write(value)
            for key, value in values.items()
            if value is not None
        }
