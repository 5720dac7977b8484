"""From the decoded file to typed sections, strictly: nothing unknown is dropped, nothing wrong is guessed.

The sections are dataclasses; their annotations are the schema. Every problem of a file is found in one go and
named by its path, what stands there, and what would be accepted.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pykueue.api.durations import format_duration, parse_duration

S = TypeVar("S")


class Problem(NamedTuple):
    """One thing wrong with the file. `path` is empty for the file as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The smallest and largest number accepted; None: no limit."""

    minimum: float | None
    maximum: float | None

    def __str__(self) -> str:
        if self.maximum is None:
            return f"at least {self.minimum}"
        return f"from {self.minimum} to {self.maximum}"


@dataclasses.dataclass(frozen=True)
class Duration:
    """A number of seconds that the file writes as a duration."""

    minimum: float = -math.inf
    above: float = -math.inf
    #: Whether the unit `d` is accepted too.
    days: bool = False


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number, or a number of seconds that the file writes as a duration."""


@dataclasses.dataclass(frozen=True)
class Raw:
    """A mapping taken as it is; what it must mean is checked later."""

    what: str


def camel(name: str) -> str:
    """The file's spelling of a field."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def shown(value: Any) -> str:
    """A value as the file would show it, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def decode(
    section: type[S], document: Mapping[str, Any], problems: list[Problem], path: str = ""
) -> S | None:
    """The section, or None when one of its required fields is missing; every finding goes to `problems`."""
    fields = {camel(name): (name, hint) for name, hint in _hints(section).items()}
    values: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            problems.append(Problem(where, f"unknown field; accepted: {', '.join(sorted(fields))}"))
        elif value is not None:
            name, hint = fields[key]
            found = _value(hint, value, problems, where)
            if found is not _WRONG:
                values[name] = found
    missing = [
        camel(f.name)
        for f in dataclasses.fields(section)  # type: ignore[arg-type]
        if f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
        and document.get(camel(f.name)) is None
    ]
    problems.extend(Problem(f"{path}.{name}" if path else name, "required") for name in missing)
    try:
        return section(**values)
    except TypeError:
        return None


def _hints(section: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(section, include_extras=True)


_WRONG: Any = object()


def _value(hint: Any, value: Any, problems: list[Problem], path: str) -> Any:
    """`value` as `hint` wants it, or _WRONG after noting the problem."""
    extras: tuple[Any, ...] = ()
    while (origin := typing.get_origin(hint)) in (Annotated, types.UnionType, typing.Union):
        if origin is Annotated:
            hint, *more = typing.get_args(hint)
            extras += tuple(more)
        else:
            hint = next(option for option in typing.get_args(hint) if option is not types.NoneType)
    if hint is Any:
        return value
    if origin is Literal:
        return _choice(typing.get_args(hint), value, problems, path)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            return _wrong(value, "a section with fields", problems, path)
        return decode(hint, value, problems, path) or _WRONG
    if origin is tuple:
        if not isinstance(value, list):
            return _wrong(value, "a list", problems, path)
        items = [_value(typing.get_args(hint)[0], v, problems, f"{path}[{i}]") for i, v in enumerate(value)]
        # Half a list would be judged as if it were the whole.
        return _WRONG if _WRONG in items else tuple(items)
    if origin is dict:
        raw = next((e.what for e in extras if isinstance(e, Raw)), None)
        if not isinstance(value, Mapping):
            return _wrong(value, raw or "a map", problems, path)
        if raw:
            return dict(value)
        item = typing.get_args(hint)[1]
        pairs = {str(k): _value(item, v, problems, f"{path}.{k}") for k, v in value.items()}
        return {k: v for k, v in pairs.items() if v is not _WRONG}
    for extra in extras:
        if isinstance(extra, Duration):
            return _duration(extra, value, problems, path)
        if isinstance(extra, Figure):
            return _figure(value, problems, path)
    return _scalar(hint, extras, value, problems, path)


def _wrong(value: Any, accepted: str, problems: list[Problem], path: str) -> Any:
    problems.append(Problem(path, f"{shown(value)} is not accepted; accepted: {accepted}"))
    return _WRONG


def _choice(options: tuple[Any, ...], value: Any, problems: list[Problem], path: str) -> Any:
    if value in options:
        return value
    return _wrong(value, ", ".join(f'"{option}"' for option in options if option), problems, path)


def _duration(bounds: Duration, value: Any, problems: list[Problem], path: str) -> Any:
    try:
        seconds = parse_duration(value, days=bounds.days)
    except (TypeError, ValueError):
        return _wrong(value, 'a duration such as "5m" or "1h30m"', problems, path)
    if seconds < bounds.minimum:
        return _wrong(value, f"a duration of at least {format_duration(bounds.minimum)}", problems, path)
    if seconds <= bounds.above:
        return _wrong(value, f"a duration above {format_duration(bounds.above)}", problems, path)
    return seconds


def _figure(value: Any, problems: list[Problem], path: str) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return parse_duration(value, days=True)
    except (TypeError, ValueError):
        return _wrong(value, 'a number, or a duration such as "5m" or "1h30m"', problems, path)


_SCALARS: dict[type, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: ("a string", lambda value: isinstance(value, str)),
}


def _scalar(hint: type, extras: tuple[Any, ...], value: Any, problems: list[Problem], path: str) -> Any:
    what, accepts = _SCALARS[hint]
    bounds = next((extra for extra in extras if isinstance(extra, Bounds)), None)
    if bounds:
        what = f"{what} {bounds}"
    if not accepts(value):
        return _wrong(value, what, problems, path)
    if bounds and (
        (bounds.minimum is not None and value < bounds.minimum)
        or (bounds.maximum is not None and value > bounds.maximum)
    ):
        return _wrong(value, what, problems, path)
    return hint(value)


def encode(section: Any) -> dict[str, Any]:
    """The section as the file writes it, with every value spelt out except those that are not set."""
    document: dict[str, Any] = {}
    hints = _hints(type(section))
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        encoded = _encoded(hints[field.name], value)
        if encoded is not None and encoded not in ("", [], {}):
            document[camel(field.name)] = encoded
    return document


def _encoded(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) is Annotated and any(
        isinstance(e, Duration) for e in typing.get_args(hint)[1:]
    ):
        return format_duration(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return encode(value)
    if isinstance(value, tuple):
        return [_encoded(None, item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
