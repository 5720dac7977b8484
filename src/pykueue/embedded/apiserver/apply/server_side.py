"""Server-side apply: one user's configuration laid over an object that others write too.

Everyone owns the fields they set. An apply takes over no field of another without `force`, and removes the
fields that the same manager applied before and leaves out now, unless someone else owns them. Ordinary
updates are tracked from the first apply on, or from a create that names its manager: programs that apply
or that people use do, and it costs too much for the masses of objects that controllers create.

Source: docs/reference/kubernetes-api-machinery.md, section 12.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from itertools import groupby
from typing import Final

import orjson

from pykueue.api.cel.node import Node
from pykueue.api.json_equality import same
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import MAX_CAUSES, Cause, listed_causes
from pykueue.embedded.objects.values import check_depth, without_zero_fields
from pykueue.embedded.schema.walk import clean, with_nulls
from pykueue.kube.errors import ApiError

from .fieldsets import LEAF, SELF, Fields, difference, intersection, paths, union, with_parents, without_below
from .managed_fields import APPLY, UNOWNED, UPDATE, Entry, Managers
from .strategic import HasNode
from .typed import Changes, applied_fields, merge, present_fields, prune

#: Who owns what was there when tracking began.
_BEFORE: Final = "before-first-apply"
#: The manager whose client-side applies may be taken over without force, and where it keeps them.
_KUBECTL: Final = "kubectl"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_STATUS: Final[Fields] = {"f:status": LEAF}


def apply_in_steps(
    live: Object | None,
    config: Object,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
    schema: HasNode,
    api_version: str,
    status_apart: bool = True,
    nulls: bool = False,
    zero_status: Object | None = None,
) -> Generator[None, None, Object]:
    """The object after `manager` applied `config`: `live` itself when nothing changes.

    Between two steps the object is walked once at most: others can be served there while it is large.

    `now` is RFC 3339 text. `status_apart` says whether the status is only written through its own endpoint,
    `nulls` whether those where none are allowed are values like others, to be refused afterwards.
    `zero_status` is what a status shows that was never written.
    409 with a cause for every field another manager owns with another value, unless `force`; 500 when the
    configuration does not fit the schema.
    """
    check_depth(config)
    node = schema.node
    endpoint = subresource or ("main" if status_apart else "whole")
    faults: list[str] = []
    fields = _own(applied_fields(config, node, faults), endpoint)
    if faults:
        raise _untyped(config, api_version, faults)
    yield
    written = clean(config, node, None, [])
    if nulls:
        written = with_nulls(written, config, node, node.properties.get("metadata"))
    written = _reduced(written, endpoint)
    entry = Entry(manager, APPLY, api_version, subresource, fields, now)
    if live is None:
        return _with_managers(written, Managers([entry]))
    last = _last_applied(live) if manager == _KUBECTL and not subresource else None
    yield
    managers = Managers.of(live)
    tracked = bool(managers)
    if not tracked:
        before = live if zero_status is None else without_zero_fields(live, {"status": zero_status})
        managers = _first_managers(before, last, entry, node)
    others = managers.others(entry.identity)
    previous = managers.find(entry.identity)
    yield
    merged = merge(live, written, node)
    yield
    unchanged = previous is not None and previous.fields == fields  # so it is most of the time
    if previous is not None and not unchanged and difference(previous.fields, fields):
        kept = fields
        for other in others:
            kept = union(kept, other.fields)
        merged = prune(merged, previous.fields, kept, node)
        yield
    changes = Changes(live, merged, node)
    yield
    changed = difference(changes.changed, UNOWNED)
    conflicts = [(other, both) for other in others if (both := intersection(changed, other.fields))]
    if conflicts and not force:
        allowed = {} if last is None else applied_fields(last, node, [])
        if any(difference(both, allowed) for _, both in conflicts):
            raise _conflict(conflicts)
    if unchanged and not changes:
        assert previous is not None
        entry = previous
    elif tracked and not changes:
        entry = replace(entry, time="" if previous is None else previous.time)
    outdated = last is not None and not same(last, config)
    if tracked and entry is previous and not outdated:
        return live
    if outdated:
        merged = _with_last_applied(merged, config)
    managers = managers.after(entry.identity, changed, changes.removed).with_entry(entry)
    return _with_managers(merged, managers)


def track_create(
    obj: Object,
    manager: str,
    now: str,
    schema: HasNode,
    api_version: str,
    typed: bool,
    status_apart: bool,
) -> Object:
    """A new object, with `manager` as the owner of all fields.

    Objects of `typed` kinds always have their main parts, so the presence of these parts has no owner.
    `status_apart`: whether the status can only be written through the status subresource.
    """
    fields = _own(present_fields(obj, schema.node), "main" if status_apart else "whole")
    fields.pop(SELF, None)
    if typed:
        fields = _without_parts(fields)
    return _with_managers(obj, Managers([Entry(manager, UPDATE, api_version, "", fields, now)]))


#: Parts that a typed object always has, and in which of them to look for more.
_PARTS: Final = frozenset(
    f"f:{name}"
    for name in ("metadata", "spec", "status", "template", "jobTemplate", "strategy", "updateStrategy")
)
_LISTS: Final = frozenset({"f:containers"})


def _without_parts(fields: Fields) -> Fields:
    found: Fields = {}
    for key, below in fields.items():
        if key in _PARTS:
            below = _without_parts({step: inner for step, inner in below.items() if step != SELF})
            if not below:
                continue
        elif key in _LISTS:
            below = {step: inner for step, inner in below.items() if step != SELF}
        found[key] = below
    return found


def track_update(
    old: Object | None,
    new: Object,
    manager: str,
    subresource: str,
    now: str,
    schema: HasNode,
    api_version: str,
) -> Object:
    """`new` with the managers it has after `manager` wrote it in place of `old` by other means than apply.

    Objects that have no entries stay without. A list that is empty, or holds one empty entry, ends tracking;
    no list at all keeps the old one.
    """
    listed = new["metadata"].get("managedFields")
    if old is None or (listed is not None and listed in ([], [{}])):
        return _with_managers(new, Managers())
    kept = listed is None or same(listed, old["metadata"].get("managedFields"))
    managers = Managers.of(old) if kept else Managers.submitted(listed)
    if not managers:
        return _with_managers(new, managers)
    changes = Changes(_unmanaged(old), _unmanaged(new), schema.node)
    changed = difference(changes.changed, UNOWNED)
    removed = difference(changes.removed, UNOWNED)
    if not changed and not removed:
        return new if kept and listed is not None else _with_managers(new, managers)
    entry = Entry(manager, UPDATE, api_version, subresource, LEAF, now)
    managers = managers.after(entry.identity, changed, removed)
    mine = managers.find(entry.identity)
    fields = changed if mine is None else union(mine.fields, changed)
    return _with_managers(
        new, managers.with_entry(Entry(manager, UPDATE, api_version, subresource, fields, now))
    )


def _own(fields: Fields, endpoint: str) -> Fields:
    """Without what no manager owns, or what is not written through this endpoint.

    Endpoints are `main` (all but the status), `status`, and others, which write everything they are given.
    """
    if endpoint == "status":
        return {key: below for key, below in fields.items() if key == "f:status"}
    fields = {key: below for key, below in difference(fields, UNOWNED).items() if key != SELF}
    return without_below(fields, _STATUS) if endpoint == "main" else fields


def _reduced(config: Object, endpoint: str) -> Object:
    """The part of a configuration that the endpoint writes, with what says which object is meant."""
    if endpoint == "status":
        meta = config.get("metadata") or {}
        identity = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in meta}
        kept: Object = {key: config[key] for key in ("apiVersion", "kind", "status") if key in config}
        return {**kept, "metadata": identity}
    if endpoint == "main":
        return {key: value for key, value in config.items() if key != "status"}
    return config


def _unmanaged(obj: Object) -> Object:
    """Without the entries themselves, which no comparison is about."""
    meta = obj.get("metadata") or {}
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def _with_managers(obj: Object, managers: Managers) -> Object:
    meta = obj.get("metadata") or {}
    if not managers:
        return _unmanaged(obj)
    return {**obj, "metadata": {**meta, "managedFields": managers.to_json()}}


def _first_managers(live: Object, last: Object | None, entry: Entry, node: Node) -> Managers:
    """Who owns an object when tracking begins: kubectl what it says it applied."""
    present = _own(present_fields(live, node), "whole")
    applied = {} if last is None else _own(applied_fields(last, node, []), "main")
    before = replace(
        entry,
        manager=_BEFORE,
        operation=UPDATE,
        subresource="",
        fields=difference(present, with_parents(applied)),
    )
    return Managers([before, entry.with_fields(applied)])


def _last_applied(live: Object) -> Object | None:
    """What kubectl applied from the client side, if the object still tells."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    try:
        last = orjson.loads(text) if isinstance(text, str) else None
        check_depth(last)
    except (ValueError, ApiError):
        return None
    return last if isinstance(last, dict) else None


def _with_last_applied(obj: Object, config: Object) -> Object:
    """Remember the configuration where the client side of kubectl would look for it."""
    meta = obj["metadata"]
    text = orjson.dumps(config).decode() + "\n"
    return {**obj, "metadata": {**meta, "annotations": {**meta["annotations"], _LAST_APPLIED: text}}}


def _conflict(conflicts: list[tuple[Entry, Fields]]) -> ApiError:
    listed = sorted(((entry.shown(), list(paths(fields))) for entry, fields in conflicts))
    causes = [
        Cause(path, "FieldManagerConflict", f"conflict with {who}") for who, found in listed for path in found
    ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        shown, more = listed_causes(causes)
        lines = []
        for message, found in groupby(shown, lambda cause: cause.message):
            lines.append(message.replace("conflict", "conflicts", 1) + ":")
            lines += [f"- {cause.field}" for cause in found]
        if more:
            lines.append(f"and {more} more")
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", text, {"causes": [one._asdict() for one in listed_causes(causes)[0]]})


def _untyped(config: Object, api_version: str, faults: list[str]) -> ApiError:
    meta = config.get("metadata")
    name = meta.get("name", "") if isinstance(meta, dict) else ""
    namespace = meta.get("namespace", "") if isinstance(meta, dict) else ""
    where = f"{namespace}/{name}; {api_version}, Kind={config.get('kind', '')}"
    text = f"failed to create typed patch object ({where}): " + (
        faults[0]
        if len(faults) == 1
        else "errors:\n" + "\n".join(f"  {fault}" for fault in faults[:MAX_CAUSES])
    )
    return ApiError(500, "InternalError", text, {"causes": [Cause("", "InternalError", text)._asdict()]})
