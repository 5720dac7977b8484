"""Label selectors: parsed once, matched often. The only parser of their text form.

Source of the rules: docs/reference/kubernetes-api-machinery.md 9. A selector that says nothing
matches everything; an absent selector matches nothing, which is for the caller to tell apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykueue.api.quantity import whole_number

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

#: Tokens; what is between them is white space.
_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_KEY = re.compile(
    r"(?:(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class SelectorError(ValueError):
    """A selector cannot be understood. The text says which part, and what is accepted."""


class Requirement(NamedTuple):
    """One term of a selector; all terms of a selector must hold."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement (LabelSelectorRequirement)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt" if value is not None and self.values:
                found, bound = whole_number(value), whole_number(self.values[0])
                if found is None or bound is None:
                    return False
                return found > bound if self.operator == "Gt" else found < bound
        return False

    def __str__(self) -> str:
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "NotIn" if len(self.values) == 1:
                return f"{self.key}!={self.values[0]}"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{self.values[0]}"
        return f"{self.key} {'in' if self.operator == 'In' else 'notin'} ({','.join(sorted(self.values))})"


class Selector:
    """All of its requirements must hold. `str()` is the text form a request's labelSelector carries."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements = tuple(requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets all requirements; no requirement matches every object."""
        for requirement in self.requirements:  # noqa: SIM110 (mostly there is none: much faster)
            if not requirement.matches(labels):
                return False
        return True

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)

    @staticmethod
    def parse(text: str) -> Selector:
        """From the text form: `a=b,c!=d,e in (f,g),h,!i,j>3`. Raises SelectorError."""
        return Selector(_Parser(text).requirements())


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def requirements(self) -> Iterable[Requirement]:
        if not self.tokens:
            return
        while True:
            yield self._requirement()
            if self.at == len(self.tokens):
                return
            self._expect(",")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self.at += 1
            return Requirement(self._key(), "DoesNotExist")
        key = self._key()
        match self._peek():
            case "" | ",":
                return Requirement(key, "Exists")
            case "=" | "==":
                self.at += 1
                return Requirement(key, "In", (self._value(),))
            case "!=":
                self.at += 1
                return Requirement(key, "NotIn", (self._value(),))
            case "<" | ">" as sign:
                self.at += 1
                bound = self._value()
                if whole_number(bound) is None:
                    raise self._error(f"{bound!r} is not an integer of 64 bits, which {sign} compares with")
                return Requirement(key, "Gt" if sign == ">" else "Lt", (bound,))
            case "in" | "notin" as word:
                self.at += 1
                return Requirement(key, "In" if word == "in" else "NotIn", tuple(sorted(set(self._values()))))
            case other:
                raise self._error(f"found {other!r} where one of =, ==, !=, <, >, in, notin, ',' may stand")

    def _values(self) -> Iterable[str]:
        self._expect("(")
        while True:
            yield self._value()
            if self._peek() == ")":
                self.at += 1
                return
            self._expect(",")

    def _key(self) -> str:
        key = self._peek()
        if not _KEY.fullmatch(key):
            raise self._error(f"{key!r} is not a label key" if key else "a label key is missing")
        self.at += 1
        return key

    def _value(self) -> str:
        value = self._peek()
        if value in ("", ",", ")"):
            return ""
        if not _VALUE.fullmatch(value):
            raise self._error(f"{value!r} is not a label value")
        self.at += 1
        return value

    def _peek(self) -> str:
        return str(self.tokens[self.at]) if self.at < len(self.tokens) else ""

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._error(f"found {self._peek()!r} where {token!r} is needed")
        self.at += 1

    def _error(self, why: str) -> SelectorError:
        return SelectorError(f"unable to parse requirement: {why} in {self.text!r}")
