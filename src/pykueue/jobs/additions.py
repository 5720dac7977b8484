"""What a start adds to the pod templates of a job, recorded on the job itself, so that a stop can remove it.

The Workload has the original pod templates too, but it may be removed while a start is under way or no
manager runs. The record is written with the start, in one patch, and goes with the stop. Users can write
annotations of their jobs, so nothing but fields that a start may change is removed because of it, and nothing
is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, replaced

from .podsets import TEMPLATE_FIELDS

#: The same fields by the names that the record has for them.
_FIELDS = {path[-1]: path for path in TEMPLATE_FIELDS}
#: Parts of a template that a start may add.
_PARTS = ("metadata", "spec")
#: In the record: fields and parts that were not there before the start.
_NEW = "new"
_PATH = ("metadata", "annotations", names.TEMPLATE_ADDITIONS_ANNOTATION)


def with_record(job: Mapping[str, Any], record: Mapping[str, Any]) -> Object:
    """The job with the record of its start.

    `templates` of the record has what `additions` returns for each pod set, `parallelism` the job's own where
    the start changed it.
    """
    return replaced(job, _PATH, orjson.dumps(record).decode())


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
    valid = all(
        isinstance(one, dict) and all(isinstance(value, list) for value in one.values()) for one in templates
    )
    return found if valid else None


def record(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Object:
    """The record of a start that made the pod templates `after` of `before`."""
    return {"templates": [additions(old, new) for old, new in zip(before, after, strict=True)]}


def additions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """What a pod template has after a start and did not before: keys of maps, items of lists, new fields."""
    result: Object = {}
    new = [part for part in _PARTS if part in after and part not in before]
    for name, path in _FIELDS.items():
        old, now = get(dict(before), *path), get(dict(after), *path)
        if now == old:
            continue
        result[name] = [one for one in now or () if one not in (old or ())]
        if old is None:
            new.append(name)
    return {**result, _NEW: new} if new else result


def without_additions(template: Mapping[str, Any], added: Mapping[str, Any]) -> Object:
    """The pod template without what a start added; what its user changed since stays."""
    result, new = dict(template), added.get(_NEW, ())
    for name, path in _FIELDS.items():
        known, extra = get(template, *path), added.get(name, ())
        left: Any
        if isinstance(known, dict):
            left = {key: value for key, value in known.items() if key not in extra}
        elif isinstance(known, list):
            left = [one for one in known if one not in extra]
        else:
            continue
        result = replaced(result, path, None if not left and name in new else left)
    for part in _PARTS:
        left = result.get(part)
        # An operator's webhook may have written empty fields, as null, into a part that the start added.
        if part in new and isinstance(left, dict) and all(value is None for value in left.values()):
            del result[part]
    return result
