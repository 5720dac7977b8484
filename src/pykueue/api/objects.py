"""Reading and rewriting API objects that must never be changed in place, because caches share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

#: A Kubernetes object, decoded.
Object = dict[str, Any]
#: Namespace (empty for cluster-scoped objects) and name. Compiled, a tuple of known length is another object
#: each time it is put anywhere; this is kept as it is.
Key = tuple[str, ...]


def get(obj: Mapping[str, Any], *path: str) -> Any:
    """The value at `path`, or None where any step of it is missing."""
    value: Any = obj
    for key in path:
        if type(value) is not dict:  # not isinstance: nothing is called more often than this
            return None
        value = value.get(key)
    return value


def section(obj: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The map at `path`; empty where it is missing."""
    value = get(obj, *path)
    return value if isinstance(value, dict) else {}


def key_of(obj: Mapping[str, Any]) -> Key:
    """Namespace, empty for cluster-scoped objects, and name."""
    metadata = obj["metadata"]
    return (metadata.get("namespace") or "", metadata["name"])


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether its deletion was requested: it exists until its finalizers and its grace period are gone."""
    metadata = obj.get("metadata")
    return metadata.__class__ is dict and bool(metadata.get("deletionTimestamp"))


def controller_of(obj: Mapping[str, Any]) -> Object | None:
    """The owner reference with `controller: true`; None where the object has no controller."""
    # Asked for several times at every event: hence no helper.
    metadata = obj.get("metadata")
    references: Iterable[Object] = (metadata.get("ownerReferences") or ()) if metadata else ()
    for one in references:
        if one.get("controller"):
            return one
    return None


def controller_reference(owner: Mapping[str, Any], api_version: str, kind: str) -> Object:
    """The owner reference by which an object names `owner` as its controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": get(owner, "metadata", "name"),
        "uid": get(owner, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Its labels; empty where it has none."""
    metadata = obj.get("metadata")
    found = metadata.get("labels") if metadata.__class__ is dict else None
    return found if found.__class__ is dict else {}


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Its annotations; empty where it has none."""
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if metadata.__class__ is dict else None
    return found if found.__class__ is dict else {}


def spec_differs(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether an object was created, deleted or given another spec; None for one that does not exist."""
    return old is None or new is None or old.get("spec") != new.get("spec")


#: What of the metadata clients decide.
_GIVEN = ("uid", "deletionTimestamp", "labels", "annotations", "ownerReferences")


def only_status_differs(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether a change of an object is one of its status alone, or of nothing that clients decide."""
    if old is None or new is None or old.get("spec") != new.get("spec"):
        return False
    before, after = old["metadata"], new["metadata"]
    return all(before.get(field) == after.get(field) for field in _GIVEN)


def without_finalizer(obj: Object, finalizer: str) -> Object:
    """A copy without it; the object itself where it has none of that name."""
    finalizers = obj["metadata"].get("finalizers") or ()
    if finalizer not in finalizers:
        return obj
    rest = [name for name in finalizers if name != finalizer]
    return replaced(obj, ("metadata", "finalizers"), rest or None)


def replaced(obj: Mapping[str, Any], path: Iterable[str], value: Any) -> Object:
    """A copy of `obj` with `value` at `path`; None removes the field. The rest is shared."""
    *above, last = path
    result: Object = dict(obj)
    copy = result
    for key in above:
        inner = copy.get(key)
        if not isinstance(inner, dict):
            if value is None:
                return result
            inner = {}
        inner = inner.copy()
        copy[key] = inner
        copy = inner
    if value is None:
        copy.pop(last, None)
    else:
        copy[last] = value
    return result


def changed(obj: Mapping[str, Any], path: Iterable[str], change: Callable[[Any], Any]) -> Object:
    """A copy of `obj` with the value at `path` replaced by `change` of it."""
    steps = tuple(path)
    return replaced(obj, steps, change(get(obj, *steps)))


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    """The JSON merge patch that turns `old` into `new`: lists whole, removed fields as null."""
    patch: Object = {}
    if not isinstance(old, dict) or not isinstance(new, dict):
        old, new = dict(old), dict(new)
    for key, before in old.items():
        after = new.get(key)
        if before is after or before == after:  # most parts are shared
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            patch[key] = merge_patch(before, after)
        else:
            patch[key] = after
    for key, after in new.items():
        if key not in old and after is not None:
            patch[key] = after
    return patch


def condition_of(status: Mapping[str, Any] | None, type: str) -> Object | None:
    """The condition of that type in an object's status; None if it has none."""
    conditions = (status or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == type), None)


def true_condition(status: Mapping[str, Any] | None, *types: str) -> Object | None:
    """The first condition of one of these types that is True; None if there is none."""
    for one in (status or {}).get("conditions") or ():
        if one.get("type") in types and one.get("status") == "True":
            return one  # type: ignore[no-any-return]
    return None
