"""Applying the edits of an answer to manifests."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pykueue.api.objects import Object
from pykueue.questions.answers import Edit

#: Fields that are numbers, and that are true or false; all others are text.
_NUMBERS, _BOOLEANS = ("count", "priority"), ("active",)

#: The name of a pod set without one.
_POD_SET = "main"


def edited(manifest: Object, edit: Edit, after: str | None = None) -> Object:
    """The manifest (v1beta2) with the field that an edit names set; `after` replaces the value of the edit.

    Raises KeyError or StopIteration for an object that has no such field.
    """
    value = edit.after if after is None else after
    result = deepcopy(manifest)
    target: Any = result
    *way, last = _parts(edit.field)
    for name, selected in way:
        if name == "resourceGroups":
            flavor = dict(way)["flavors"]
            target = next(each for each in target[name] if flavor in [one["name"] for one in each["flavors"]])
        elif selected:
            target = next(each for each in target[name] if each.get("name", _POD_SET) == selected)
        else:
            target = target.setdefault(name, {})
    name, _ = last
    if name in _NUMBERS:
        target[name] = int(value)
        if name == "count" and target.get("minCount", 0) > int(value):
            target["minCount"] = int(value)
    elif name in _BOOLEANS:
        target[name] = value == "true"
    else:
        target[name] = value
    return result


def _parts(path: str) -> list[tuple[str, str]]:
    """(name, name of the selected item) of each step; names of resources may have dots."""
    found: list[tuple[str, str]] = []
    rest = path
    while rest:
        name = rest[: min(at for at in (rest.find("["), rest.find("."), len(rest)) if at >= 0)]
        rest = rest[len(name) :]
        selected = ""
        if rest.startswith("["):
            selected, _, rest = rest[1:].partition("]")
        found.append((name, selected))
        rest = rest.removeprefix(".")
    return found
