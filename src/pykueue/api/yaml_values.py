"""YAML as Kubernetes reads it, as JSON values, in time linear in the text.

Every YAML text that enters the program is read here: request bodies, manifests, configuration files.
PyYAML's C parser delivers events; composing and resolving them is done here, because PyYAML's own
constructor takes exponential time for merge keys, quadratic time for integers of base 60 and has no bound
for aliases.

What is read: scalars of the JSON types (timestamps, numbers of base 60 and `.inf` stay text), keys as text,
merge keys. Aliases are copied, within the bounds of sigs.k8s.io/yaml (`allowedAliasRatio`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

#: Levels a document may be nested: what JSON bodies may have too.
MAX_DEPTH: Final = 240
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
#: Values read between two pauses of `read_in_steps`.
STEP: Final = 1000
#: `%TAG` directives a text may have: the parser compares each with all before it.
_MAX_TAG_DIRECTIVES: Final = 100

_TAG = "tag:yaml.org,2002:"
_MERGE_KEY: Final = object()
_UNFINISHED: Final = object()

_BOOLEANS: Final = {
    form: value
    for value, words in ((True, ("yes", "true", "on")), (False, ("no", "false", "off")))
    for word in words
    for form in (word, word.capitalize(), word.upper())
}
_CONSTANTS: Final[dict[str, Any]] = {**_BOOLEANS, **dict.fromkeys(("", "~", "null", "Null", "NULL"))}
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NUMBER_STARTS: Final = frozenset("-+.0123456789")
#: Integers in longer texts exceed 64 bits in every base.
_LONGEST_INTEGER: Final = 80


class YamlSyntaxError(ValueError):
    """A text that is not YAML, or more than is accepted. Lines and columns count from 1; 0 when unknown."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.problem = problem
        self.line = line
        self.column = column


class Document(NamedTuple):
    """One document of a text. An empty document has the value None."""

    value: Any
    #: Line it begins in, from 1.
    line: int
    #: Keys that appear twice in a mapping, where these are accepted: the last value counts.
    duplicates: list[str]


class _Frame:
    """A collection that is being read."""

    __slots__ = ("anchor", "height", "into", "key", "mark", "merged", "values")

    def __init__(self, into: dict[str, Any] | list[Any], anchor: str | None, mark: Any, values: int) -> None:
        self.into = into
        self.anchor = anchor
        self.mark = mark
        #: Values read before this one.
        self.values = values
        self.height = 0
        self.key: Any = None
        self.merged: list[dict[str, Any]] = []


class _Anchored(NamedTuple):
    value: Any
    #: As written, if it is a scalar.
    text: str | None
    values: int
    height: int


def read_documents(text: str | bytes, *, unique_keys: bool = True) -> Iterator[Document]:
    """The documents of a text. Raises YamlSyntaxError.

    With `unique_keys` a key that is written twice is an error.
    """
    return (found for found in read_in_steps(text, unique_keys=unique_keys) if found is not None)


def read_in_steps(
    text: str | bytes, *, unique_keys: bool = True, max_values: int | None = None
) -> Iterator[Document | None]:
    """The documents of a text; None after every STEP values, where an event loop may do something else.

    `max_values` bounds the values of one document. Raises YamlSyntaxError.
    """
    mark: bytes | str = b"%TAG" if isinstance(text, bytes) else "%TAG"
    if text.count(mark) > _MAX_TAG_DIRECTIVES:  # type: ignore[arg-type]
        raise YamlSyntaxError(f"more than {_MAX_TAG_DIRECTIVES} %TAG directives are not accepted")
    try:
        parser = yaml.CSafeLoader(text)
        try:
            yield from _Reader(parser, unique_keys, max_values).documents()
        finally:
            parser.dispose()
    except YamlSyntaxError:
        raise
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "malformed"
        if "maximum nesting depth" in problem:
            # The parser reads ahead: some versions reach their own limit before the events get here.
            problem = _TOO_DEEP
        raise YamlSyntaxError(problem, at.line + 1 if at else 0, at.column + 1 if at else 0) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlSyntaxError(str(error).replace("\n", ":")) from None


class _Reader:
    def __init__(self, parser: yaml.CSafeLoader, unique_keys: bool, max_values: int | None) -> None:
        self._parser = parser
        self._unique_keys = unique_keys
        self._max_values = max_values
        self._start(1)

    def _start(self, line: int) -> None:
        self._line = line
        self._anchors: dict[str, Any] = {}
        self._stack: list[_Frame] = []
        self._root: Any = None
        self._duplicates: list[str] = []
        #: Values read, and those of them that aliases stand for.
        self._values = self._aliased = 0

    def documents(self) -> Iterator[Document | None]:
        pause = STEP
        event: Any
        for event in iter(self._parser.get_event, None):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._open(event, {})
            elif kind is yaml.SequenceStartEvent:
                self._open(event, [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._close()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                self._start(0)
                pause = STEP
            elif kind is yaml.DocumentEndEvent:
                yield Document(self._root, self._line, self._duplicates)
            if self._values >= pause:
                pause = self._values + STEP
                yield None

    def _count(self, values: int, mark: Any) -> None:
        self._values += values
        if self._max_values is not None and self._values > self._max_values:
            raise _error(f"the document has more than {self._max_values} values", mark)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        frame = self._stack[-1] if self._stack else None
        text = event.value
        if frame is not None and frame.key is None and type(frame.into) is dict:
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(_resolve(event), text, 1, 0)
            self._take_key(frame, text, event.implicit[0], event.start_mark)
            return
        value = _resolve(event)
        self._count(1, event.start_mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, text, 1, 0)
        self._place(value, 0, event.start_mark)

    def _take_key(self, frame: _Frame, text: str, plain: bool, mark: Any) -> None:
        # JSON knows only text as keys: a bare number or yes is taken as it was written.
        if text == "<<" and plain:
            frame.key = _MERGE_KEY
            return
        if text in frame.into:
            if self._unique_keys:
                raise _error(f"duplicate key {text!r}", mark)
            self._duplicates.append(text)
        frame.key = text

    def _open(self, event: Any, into: dict[str, Any] | list[Any]) -> None:
        mark = event.start_mark
        tag = event.tag
        if tag is not None and tag != "!" and tag != _TAG + ("map" if type(into) is dict else "seq"):
            raise _error(f"the tag {tag!r} is not accepted", mark)
        if self._stack and type(self._stack[-1].into) is dict and self._stack[-1].key is None:
            raise _error("a key must be text", mark)
        if len(self._stack) >= MAX_DEPTH:
            raise _error(_TOO_DEEP, mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = _UNFINISHED
        self._stack.append(_Frame(into, event.anchor, mark, self._values))
        self._count(1, mark)

    def _close(self) -> None:
        frame = self._stack.pop()
        value = frame.into
        if frame.merged:
            merged: dict[str, Any] = {}
            for one in frame.merged:
                merged.update(one)
            merged.update(value)
            value = merged
        height = frame.height + 1
        if frame.anchor is not None:
            self._anchors[frame.anchor] = _Anchored(value, None, self._values - frame.values, height)
        self._place(value, height, frame.mark)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name, mark = str(event.anchor), event.start_mark
        found = self._anchors.get(name)
        if found is None:
            raise _error(f"found undefined alias {name!r}", mark)
        if found is _UNFINISHED:
            raise _error(f"anchor {name!r} contains itself", mark)
        frame = self._stack[-1]
        if type(frame.into) is dict and frame.key is None:
            if found.text is None:
                raise _error("a key must be text", mark)
            self._take_key(frame, found.text, False, mark)
            return
        if len(self._stack) + found.height > MAX_DEPTH:
            raise _error(_TOO_DEEP, mark)
        self._aliased += found.values
        self._count(found.values, mark)
        if (
            self._aliased > 100
            and self._values > 1000
            and self._aliased / self._values > _alias_ratio(self._values)
        ):
            raise _error("aliases make the document too large", mark)
        self._place(_copy(found.value), found.height, mark)

    def _place(self, value: Any, height: int, mark: Any) -> None:
        """Put a finished value where it belongs."""
        if not self._stack:
            self._root, self._line = value, mark.line + 1
            return
        frame = self._stack[-1]
        if height > frame.height:
            frame.height = height
        into = frame.into
        if type(into) is list:
            into.append(value)
        elif frame.key is _MERGE_KEY:
            frame.merged += _to_merge(value, mark)
            frame.key = None
        else:
            into[frame.key] = value
            frame.key = None


def _error(problem: str, mark: Any) -> YamlSyntaxError:
    return YamlSyntaxError(problem, mark.line + 1, mark.column + 1)


def _alias_ratio(values: int) -> float:
    """How much of a document of this size may come from aliases, as in sigs.k8s.io/yaml."""
    low, high = 400_000, 4_000_000
    if values <= low:
        return 0.99
    return 0.10 if values >= high else 0.99 - 0.89 * (values - low) / (high - low)


def _to_merge(value: Any, mark: Any) -> list[dict[str, Any]]:
    """The mappings to merge, the one that counts most last."""
    ones = value[::-1] if type(value) is list else [value]
    if not all(type(one) is dict for one in ones):
        raise _error("'<<' takes a mapping or a list of mappings", mark)
    return ones


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(child) for key, child in value.items()}
    if type(value) is list:
        return [_copy(child) for child in value]
    return value


def _resolve(event: yaml.ScalarEvent) -> Any:
    """The value of a scalar."""
    text, tag = event.value, event.tag
    if tag is None or (tag == "!" and event.implicit[0]):
        return _plain(text, event.start_mark) if event.implicit[0] else text
    if tag in ("!", _TAG + "str", _TAG + "timestamp", _TAG + "merge", _TAG + "value"):
        return text
    accepted: tuple[type, ...]
    match tag.removeprefix(_TAG):
        case "null":
            accepted = (type(None),)
        case "bool":
            accepted = (bool,)
        case "int":
            accepted = (int,)
        case "float":
            accepted = (int, float)
        case _:
            raise _error(f"the tag {tag!r} is not accepted", event.start_mark)
    value = _plain(text, event.start_mark)
    if type(value) not in accepted:
        raise _error(f"{_shortened(text)} is not of the type {tag.removeprefix(_TAG)}", event.start_mark)
    return value


def _plain(text: str, mark: Any) -> Any:
    """The value of a scalar without quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if len(text) <= _LONGEST_INTEGER and _INTEGER.fullmatch(text):
        value = _integer(text.replace("_", ""))
        if value is not None and -(2**63) <= value < 2**64:
            return value
    if _FLOAT.fullmatch(text):
        return _float(text, mark)
    return text


def _integer(text: str) -> int | None:
    digits = text.lstrip("+-")
    base = {"0b": 2, "0x": 16}.get(digits[:2], 8 if len(digits) > 1 and digits[0] == "0" else 10)
    try:
        value = int(digits, base)
    except ValueError:  # underscores alone behind 0x
        return None
    return -value if text[0] == "-" else value


def _float(text: str, mark: Any) -> float | int:
    """JSON, which every server speaks, does not tell 1.0 from 1."""
    value = float(text)
    if not math.isfinite(value):
        raise _error(f"{_shortened(text)} is too large", mark)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
