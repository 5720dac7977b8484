"""The roles and bindings that every cluster has, as Kubernetes publishes them, and their upkeep.

`builtin-roles.json` holds them word for word, of the release it names. As on a cluster, a stored one is given
what it lacks at every start, unless its annotation `rbac.authorization.kubernetes.io/autoupdate` is `false`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from pykueue.api.objects import Object

from .rules import uncovered

AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
#: The label of what a cluster is started with.
BOOTSTRAPPING = "kubernetes.io/bootstrapping"

_FILE = Path(__file__).with_name("builtin-roles.json")


@cache
def _published() -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(_FILE.read_bytes())
    return document


def builtin_roles(feature_gates: Collection[str] = ()) -> list[Object]:
    """The roles and bindings of a new cluster, with the rules that feature gates add. Not to be changed."""
    published = _published()
    gated: dict[str, list[Object]] = {}
    for gate in feature_gates:
        for name, rules in published["gated"].get(gate, {}).items():
            gated.setdefault(name, []).extend(rules)
    return [
        {**role, "rules": [*(role.get("rules") or ()), *gated[role["metadata"]["name"]]]}
        if "roleRef" not in role and role["metadata"]["name"] in gated
        else role
        for role in published["objects"]
    ]


def completed(stored: Object, published: Object) -> Object | None:
    """A stored role or binding with what it lacks of the published one; None when it is to stay as it is.

    One without the label of built-in roles was written by a server that did not have the published ones, and
    may have rules beyond them: it is replaced.
    """
    meta = stored["metadata"]
    if (meta.get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return None
    if BOOTSTRAPPING not in (meta.get("labels") or {}):
        wanted = published["metadata"]
        merged = {key: {**(meta.get(key) or {}), **wanted[key]} for key in ("labels", "annotations")}
        return {**published, "metadata": {**meta, **merged}}
    if "roleRef" in published:
        subjects = stored.get("subjects") or []
        missing = [one for one in published.get("subjects") or () if one not in subjects]
        return {**stored, "subjects": [*subjects, *missing]} if missing else None
    if "aggregationRule" in published:
        return None
    rules, wanted = stored.get("rules") or [], published.get("rules") or []
    lacking = uncovered(rules, wanted) if rules != wanted else []
    return {**stored, "rules": [*rules, *lacking]} if lacking else None
