"""What a start changes in a job, recorded on the job itself, so that a stop can undo it.

The Workload has the original pod templates too, but it may be removed while a start is under way or no
manager runs. The record is written with the start, in one patch, and goes with the stop. Only the fields
that a start may change are restored from it: users can write annotations of their jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, merge_patch, replaced, section

from .podsets import TEMPLATE_FIELDS

#: Fields of a pod template by name, as the record has them, and the type of their values.
_FIELDS = {
    path[-1]: (path, list if path[-1] in ("tolerations", "schedulingGates") else dict)
    for path in TEMPLATE_FIELDS
}
#: Parts of a template that a start may add.
_PARTS = ("metadata", "spec")
_PATH = ("metadata", "annotations", names.ORIGINAL_TEMPLATES_ANNOTATION)


def with_record(job: Mapping[str, Any], changes: Mapping[str, Any]) -> Object:
    """The job with the record of a start; without one where nothing was changed.

    `changes`: `templates` has what `undo` returns for each pod set, `parallelism` the job's own where the
    start changed it.
    """
    if not any(changes.get("templates") or ()) and len(changes) < 2:
        return without_record(job)
    return replaced(job, _PATH, orjson.dumps(changes).decode())


def without_record(job: Mapping[str, Any]) -> Object:
    """The job without the record."""
    if _PATH[-1] not in annotations_of(job):
        return dict(job)
    result = replaced(job, _PATH, None)
    return result if annotations_of(result) else replaced(result, _PATH[:-1], None)


def record_of(job: Mapping[str, Any], pod_sets: int) -> Object | None:
    """The record on a job with so many pod sets; None where it has none that can be read."""
    text = annotations_of(job).get(_PATH[-1])
    try:
        found = orjson.loads(text) if text is not None else None
    except ValueError:
        return None
    templates = found.get("templates") if isinstance(found, dict) else None
    if not isinstance(templates, list) or not templates or len(templates) != pod_sets:
        return None
    return found if all(isinstance(one, dict) for one in templates) else None


def undo(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """What `undone` needs to turn the pod template `after` into `before`.

    By field: a merge patch of a map, a list whole, null for what is to be removed.
    """
    result: Object = {}
    for name, (path, type_) in _FIELDS.items():
        old, new = get(dict(before), *path), get(dict(after), *path)
        if old != new:
            result[name] = merge_patch(new or {}, old) if type_ is dict and old is not None else old
    added = {part: None for part in _PARTS if part in after and part not in before}
    return result | added


def undone(template: Mapping[str, Any], changes: Mapping[str, Any], keep: Iterable[str] = ()) -> Object:
    """The pod template without what a start changed.

    `keep` are labels that belong to the job kind's own controller: they stay as they are.
    """
    result = dict(template)
    for name, (path, type_) in _FIELDS.items():
        value = changes.get(name)
        if name not in changes or not isinstance(value, type_ | None):
            continue
        known = section(template, *path)
        if isinstance(value, dict):
            value = {key: old for key, old in {**known, **value}.items() if old is not None}
        elif name == "labels":
            value = {key: known[key] for key in keep if key in known} or None
        result = replaced(result, path, value)
    for part in _PARTS:
        left = result.get(part)
        # An operator's webhook may have written empty fields, as null, into a part that the start added.
        if part in changes and isinstance(left, dict) and all(value is None for value in left.values()):
            del result[part]
    return result


def changes_of(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Object:
    """The record of a start that turned the pod templates `before` into `after`."""
    return {"templates": [undo(old, new) for old, new in zip(before, after, strict=True)]}
