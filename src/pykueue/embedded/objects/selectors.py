"""Label and field selectors: parsed once per request, asked once per object.

Grammar and error texts: docs/reference/kubernetes-api-machinery.md, section 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.kube.errors import ApiError

from .errors import bad_request
from .values import whole_number

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_TOKEN = re.compile(r"\s*(==|!=|[=<>!(),]|[^\s=<>!(),]+)")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _malformed(text: str, detail: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {detail} in {text!r}")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise _malformed(text, f"unexpected {stripped[position]!r}")
            self._tokens.append(match.group(1))
            position = match.end()
        self._at = 0

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def parse(self) -> list[LabelTest]:
        tests: list[LabelTest] = []
        if not self._tokens:
            return tests
        while True:
            tests.append(self._requirement())
            token = self._next()
            if token == "":
                return tests
            if token != ",":
                raise _malformed(self._text, f"found {token!r}, expected: ',' or the end")

    def _key(self) -> str:
        key = self._next()
        if not _KEY.fullmatch(key):
            raise _malformed(self._text, f"{key!r} is not a label key")
        return key

    def _value(self, allow_empty: bool = True) -> str:
        if self._peek() in ("", ","):
            if not allow_empty:
                raise _malformed(self._text, "a value is missing")
            return ""
        value = self._next()
        if not _VALUE.fullmatch(value):
            raise _malformed(self._text, f"{value!r} is not a label value")
        return value

    def _requirement(self) -> LabelTest:
        if self._peek() == "!":
            self._next()
            key = self._key()
            return lambda labels: key not in labels
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._next()
        match operator:
            case "=" | "==":
                value = self._value()
                return lambda labels: labels.get(key) == value
            case "!=":
                value = self._value()
                return lambda labels: labels.get(key) != value
            case "in":
                values = self._values()
                return lambda labels: labels.get(key) in values
            case "notin":
                values = self._values()
                return lambda labels: labels.get(key) not in values
            case ">" | "<":
                return self._comparison(key, operator)
        raise _malformed(self._text, f"found {operator!r}, expected: in, notin, =, ==, !=, >, <")

    def _comparison(self, key: str, operator: str) -> LabelTest:
        text = self._value(allow_empty=False)
        bound = whole_number(text)
        if bound is None:
            raise _malformed(self._text, f"{text!r} is not an integer")

        def compare(labels: Labels) -> bool:
            value = whole_number(labels.get(key, ""))
            if value is None:
                return False
            return value > bound if operator == ">" else value < bound

        return compare

    def _values(self) -> frozenset[str]:
        if self._next() != "(":
            raise _malformed(self._text, "expected '('")
        values = []
        while True:
            if self._peek() in (")", ","):
                values.append("")
            else:
                value = self._next()
                if not _VALUE.fullmatch(value):
                    raise _malformed(self._text, f"{value!r} is not a label value")
                values.append(value)
            token = self._next()
            if token == ")":
                return frozenset(values)
            if token != ",":
                raise _malformed(self._text, "expected ',' or ')'")


def label_selector(text: str) -> LabelTest | None:
    """The test a label selector states, or None when it selects everything. 400 when malformed."""
    tests = _Parser(text).parse()
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def selector_matches(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Whether a LabelSelector object (matchLabels, matchExpressions) selects; None selects nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or ():
        key, values = rule["key"], rule.get("values") or ()
        match rule["operator"]:
            case "In":
                matched = labels.get(key) in values
            case "NotIn":
                matched = labels.get(key) not in values
            case "Exists":
                matched = key in labels
            case "DoesNotExist":
                matched = key not in labels
            case _:
                matched = False
        if not matched:
            return False
    return True


class FieldTerm(NamedTuple):
    """One requirement of a field selector."""

    path: str
    #: Whether the field must have the value; it must not have it otherwise.
    equal: bool
    value: str


#: Up to a comma that is not escaped.
_TERM = re.compile(r"((?:[^\\,]|\\.)*\\?)(?:,|$)", re.DOTALL)
_OPERATOR = re.compile("!=|==|=")
_SPECIAL = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def field_terms(text: str) -> list[FieldTerm]:
    """The requirements of a field selector, in the order of their texts. 400 when malformed.

    This is the only parser of field selectors: what a user may list and what the list shows follow from the
    same requirements. Values are escaped by `\\,`, `\\=` and `\\\\`.
    Source: k8s.io/apimachinery/pkg/fields.
    """
    terms: list[FieldTerm] = []
    for part in sorted(match.group(1) for match in _TERM.finditer(text)):
        if not part:
            continue
        operator = _OPERATOR.search(part)
        if operator is None:
            raise bad_request(f"invalid field selector: {text!r}; can't understand {part!r}")
        value = _unescaped(part[operator.end() :])
        terms.append(FieldTerm(part[: operator.start()], operator.group() != "!=", value))
    return terms


def _unescaped(value: str) -> str:
    def plain(special: re.Match[str]) -> str:
        if not special.group(1):
            raise bad_request(f"invalid field selector: unescaped character in value: {special.group()!r}")
        if special.group(1) not in "\\,=":
            raise bad_request(f"invalid field selector: invalid escape sequence: {special.group()}")
        return special.group(1)

    return _SPECIAL.sub(plain, value)


def required_name(field_text: str) -> str:
    """The name that a field selector requires, or nothing when it requires none or is malformed."""
    try:
        terms = field_terms(field_text)
    except ApiError:
        return ""
    name = next((one.value for one in terms if one.path == "metadata.name" and one.equal), "")
    return "" if name in (".", "..") or "/" in name or "%" in name else name


class Filter:
    """What a list or watch selects, besides the resource: namespace, labels, fields."""

    __slots__ = ("_fields", "_labels", "name", "namespace")

    def __init__(
        self,
        namespace: str | None,
        labels: LabelTest | None = None,
        fields: list[tuple[Callable[[Object], str], bool, str]] | None = None,
        name: str | None = None,
    ) -> None:
        self.namespace = namespace
        #: The one name that can match, if the field selector says so.
        self.name = name
        self._labels = labels
        self._fields = fields or []

    @property
    def selective(self) -> bool:
        """Whether the selection depends on more than the object's key (a namespace is part of the key)."""
        return self._labels is not None or bool(self._fields)

    def matches(self, obj: Object) -> bool:
        """Whether an object of the right namespace is selected."""
        if self._labels is not None and not self._labels(obj["metadata"].get("labels") or {}):
            return False
        return all((get(obj) == value) is equal for get, equal, value in self._fields)


def make_filter(
    namespace: str | None,
    label_text: str,
    field_text: str,
    fields: Mapping[str, Callable[[Object], str]],
    only: str = "",
) -> Filter:
    """From the query of a list or watch, of one object if `only` names it.

    400 when a selector is malformed or a field not selectable.
    """
    labels = label_selector(label_text) if label_text else None
    tests: list[tuple[Callable[[Object], str], bool, str]] = []
    name = None
    terms = field_terms(field_text) if field_text else []
    if only:
        terms.append(FieldTerm("metadata.name", True, only))
    for path, equal, value in terms:
        if path == "metadata.name" and equal:
            name = value
        if path in ("metadata.name", "metadata.namespace"):
            tests.append((_metadata_field(path.partition(".")[2]), equal, value))
        elif path in fields:
            tests.append((fields[path], equal, value))
        else:
            raise bad_request(f"field label not supported: {path}")
    return Filter(namespace, labels, tests, name)


def _metadata_field(field: str) -> Callable[[Object], str]:
    def get(obj: Object) -> str:
        return str(obj["metadata"].get(field) or "")

    return get
