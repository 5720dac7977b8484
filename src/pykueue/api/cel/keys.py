"""Keys of what a CEL expression reads of its variables, to remember results by.

Values with equal keys look alike to the expression: what `project` makes of them is the same JSON. Nearly
every write of a custom object needs such a key, so the function that makes it is generated for each
expression: it takes a third of the time of projecting and encoding what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

import orjson

from .reads import Reads, project

#: Parts that a function goes through itself, and levels of parts within parts; what is beyond is encoded.
_MOST_PARTS: Final = 200
_MOST_LEVELS: Final = 12

#: The key of values of all variables that are read, by name. In it texts stand for themselves, objects and
#: lists are tuples, lists of which only the length counts are integers, fields that are not there are None,
#: and all else is bytes of JSON.
Key = Callable[[Mapping[str, Any]], tuple[Any, ...]]


def key_function(variables: Mapping[str, Reads]) -> Key:
    """The function that makes the keys for what is read."""
    source = _Source()
    lines = ["def key(values):"]
    for name, reads in variables.items():
        number = source.number()
        lines.append(f" v{number} = values[{name!r}]")
        lines += (f" {line}" for line in source.of_value(reads, number, "True", 0))
    keys = "".join(f"k{number}, " for number in source.tops)
    lines.append(f" return ({keys})")
    names: dict[str, Any] = {"dumps": orjson.dumps, "other": _other, "reads": source.reads}
    exec("\n".join(lines), names)  # no text of the expression is in it but as a string literal
    made: Key = names["key"]
    return made


def _other(value: Any, reads: Reads) -> Hashable:
    return value if type(value) is str else orjson.dumps(project(value, reads))


class _Source:
    """The text of one function. The value of part N is called vN in it, and its key kN."""

    def __init__(self) -> None:
        #: What is read of the parts that `_other` makes the keys of.
        self.reads: list[Reads] = []
        #: The parts that are whole variables.
        self.tops: list[int] = []
        self._count = 0

    def number(self) -> int:
        """Of a further part."""
        self._count += 1
        return self._count

    def of_value(self, reads: Reads, at: int, there: str, level: int) -> Iterator[str]:
        """The lines that make the key of part `at`; `there` is the test of whether it is there."""
        if level == 0:
            self.tops.append(at)
        absent = "" if there == "True" else f" if {there} else None"
        if reads.whole:
            yield f"k{at} = v{at} if type(v{at}) is str else dumps(v{at}){absent}"
            return
        self.reads.append(reads)
        other = f"k{at} = other(v{at}, reads[{len(self.reads) - 1}]){absent}"
        if level >= _MOST_LEVELS or self._count + len(reads.fields) > _MOST_PARTS:
            yield other
            return
        kind = "list" if reads.element is not None or reads.size else "dict"
        yield f"if type(v{at}) is {kind}:"
        inner = self._of_list if kind == "list" else self._of_dict
        for line in inner(reads, at, level):
            yield f" {line}"
        yield "else:"
        yield f" {other}"

    def _of_list(self, reads: Reads, at: int, level: int) -> Iterator[str]:
        if reads.element is None:
            yield f"k{at} = len(v{at})"
            return
        each = self.number()
        yield f"k{at} = []"
        yield f"for v{each} in v{at}:"
        for line in self.of_value(reads.element, each, "True", level + 1):
            yield f" {line}"
        yield f" k{at}.append(k{each})"
        yield f"k{at} = tuple(k{at})"

    def _of_dict(self, reads: Reads, at: int, level: int) -> Iterator[str]:
        keys = ""
        for name, below in reads.fields.items():
            field = self.number()
            keys += f"k{field}, "
            yield f"v{field} = v{at}.get({name!r})"
            yield from self.of_value(below, field, f"{name!r} in v{at}", level + 1)
        yield f"k{at} = ({keys})"
