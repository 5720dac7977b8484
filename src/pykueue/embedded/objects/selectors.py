"""Label and field selectors: parsed once per request, asked once per object.

Rules: docs/reference/kubernetes-api-machinery.md, section 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.api.selectors import Requirement, Selector, SelectorError
from pykueue.kube.errors import ApiError

from .errors import bad_request

Labels = Mapping[str, str]


def label_selector(text: str) -> Selector | None:
    """The selector that a query states, or None when it selects everything. 400 when malformed."""
    try:
        selector = Selector.parse(text)
    except SelectorError as error:
        raise bad_request(str(error)) from None
    return selector if selector.requirements else None


def selector_matches(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Whether a LabelSelector object (matchLabels, matchExpressions) selects; None selects nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(
        Requirement(rule["key"], rule["operator"], tuple(rule.get("values") or ())).matches(labels)
        for rule in selector.get("matchExpressions") or ()
    )


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
        labels: Selector | None = None,
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
        return self.has_labels(obj) and self.has_fields(obj)

    def has_labels(self, obj: Object) -> bool:
        """Whether its labels are those that are selected."""
        return self._labels is None or self._labels.matches(obj["metadata"].get("labels") or {})

    def has_fields(self, obj: Object) -> bool:
        """Whether its fields are those that are selected."""
        for get, equal, value in self._fields:  # noqa: SIM110 (mostly there is none: much faster)
            if (get(obj) == value) is not equal:
                return False
        return True


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
