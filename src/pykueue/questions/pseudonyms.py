"""A dump with other names: keyed pseudonyms for the names of objects and the values of labels.

The same name and key give the same pseudonym. A pseudonym begins with the rank of the name among all names of
the dump, because the engine breaks ties by name: it decides on the dump as on the original. Texts for people
are removed. What stays: kinds, amounts, times, priorities, keys of labels, resources and conditions.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from pykueue.api.decoding import encode
from pykueue.api.hybrid import parse_request
from pykueue.api.hybrid_losses import LOST_PREFIX
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.objects import Object

#: Characters of the keyed digest in a pseudonym.
_DIGEST: Final = 10

#: Fields whose texts are names of objects.
_NAMES: Final = frozenset(
    {
        "clusterName",
        "clusterQueue",
        "cohort",
        "cohortName",
        "kubernetes.io/hostname",
        "localQueue",
        "nodeName",
        "parentName",
        "preemptedFor",
        "preemptor",
        "preemptorClusterQueue",
        "preemptorUID",
        "priorityClassName",
        "queueName",
        "replaces",
        "runtimeClassName",
        "topologyName",
        "uid",
        "workload",
    }
)
#: Fields that are maps or lists of names, or of values of labels.
_COLLECTIONS: Final = frozenset(
    {
        "admissionChecks",
        "clusterQueues",
        "flavors",
        "keptOut",
        "labels",
        "matchLabels",
        "nodeLabels",
        "nodeSelector",
        "nominatedClusterNames",
        "onFlavors",
        "unhealthyNodes",
        "values",
    }
)
#: Lists of objects whose `name` is that of an object of the cluster.
_REFERENCES: Final = frozenset(
    {
        "admissionChecks",
        "flavorWeights",
        "flavors",
        "metadata",
        "ownerReferences",
        "parameters",
        "priorityClassRef",
        "priorityClasses",
    }
)
#: Further fields whose texts are names, by the field that the object is in.
_NAMES_IN: Final = {
    "credits": frozenset({"value"}),
    "localQueue": frozenset({"name", "namespace"}),
    "selector": frozenset({"namespace"}),
    "spec": frozenset({"budget", "value"}),  # of a BudgetLedger
}
#: Texts for people.
_TEXTS: Final = frozenset({"explained", "grantedBy", "inadmissible", "message", "problem", "reason"})
#: Lists whose items have a `value` that labels could have too.
_TAINTS: Final = frozenset({"taints", "tolerations"})
#: Maps of an EngineState whose keys are names.
_KEYED: Final = frozenset({"clusterQueues", "localQueues", "penalties", "secondPass", "workloads"})
#: Lists of an EngineState without names of fields, by the places of names in their items.
_PLACES: Final = {
    "flavorResources": (0,),
    "usage": (0,),
    "timers": (1,),
    "turns": (0, 1, 2, 5),
    "runTimes": (1, 3),
    "promised": (2,),
}


class Pseudonyms:
    """The pseudonyms of the names in some objects."""

    def __init__(self, items: Iterable[Object], key: bytes) -> None:
        found: set[str] = set()

        def collect(name: str) -> str:
            found.update(name.split("/") if name.count("/") == 1 else [name])
            return name

        for item in items:
            _renamed(item, "", collect)
        found.discard("")
        self._names = {
            name: f"p{rank:06d}-{hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:_DIGEST]}"
            for rank, name in enumerate(sorted(found))
        }

    def of(self, name: str) -> str:
        """The pseudonym of a name, or of `namespace/name`; an empty name stays so."""
        if name.count("/") == 1:
            return "/".join(map(self.of, name.split("/")))
        return self._names[name] if name else name

    def renamed(self, item: Object) -> Object:
        """The object with other names."""
        result: Object = _renamed(item, "", self.of)
        return result


def _renamed(value: Any, field: str, rename: Any) -> Any:
    """A value of a field with other names; `rename` gives the new name of each."""
    if isinstance(value, dict):
        return dict(_entries(value, field, rename))
    if isinstance(value, list):
        if field in _PLACES and all(isinstance(each, list | tuple) for each in value):
            places = _PLACES[field]
            return [[rename(one) if n in places else one for n, one in enumerate(each)] for each in value]
        return [
            rename(each) if isinstance(each, str) and field in _COLLECTIONS else _renamed(each, field, rename)
            for each in value
        ]
    return value


def _entries(value: dict[str, Any], field: str, rename: Any) -> Iterator[tuple[str, Any]]:
    if field == "valuesPerLevel":
        yield from _level_values(value, rename)
        return
    for name, each in value.items():
        if name == "options":
            yield name, each  # of the engine: no names
        elif name == "shared":
            yield name, {kind: _reserved(kind, found, rename) for kind, found in each.items()}
        elif isinstance(each, str):
            yield name, _text(each, name, field, rename)
        elif field in _KEYED:
            yield rename(name), _renamed(each, "", rename)
        else:
            yield name, _renamed(each, name, rename)


def _text(value: str, name: str, field: str, rename: Any) -> Any:
    """The value of the entry `name` in an object in that field."""
    if field in _REFERENCES and name in ("name", "namespace"):
        return rename(value)
    if field == "annotations" and name == HYBRID_ASSIGNMENT_ANNOTATION:
        return _renamed_request(value, rename)
    if name == "type" and value.startswith(LOST_PREFIX):
        return LOST_PREFIX + rename(value.removeprefix(LOST_PREFIX))
    if name in _NAMES_IN.get(field, ()):
        return rename(value)
    is_name = field in _COLLECTIONS and field != "admissionChecks"
    if is_name or (field in _TAINTS and name == "value") or name in _NAMES:
        return rename(value)
    return "removed" if name in _TEXTS and " " in value else value


def _renamed_request(text: str, rename: Any) -> str:
    """A request for several flavors with their other names; what is no valid request stays invalid."""
    try:
        request = parse_request(text)
    except ValueError:
        return "removed"
    flavors = [replace(flavor, name=rename(flavor.name)) for flavor in request.flavors]
    return json.dumps(encode(replace(request, flavors=flavors)))


def _reserved(kind: str, found: list[Any], rename: Any) -> list[Any]:
    """What a workload reserves of a shared capacity."""
    if kind == "nodes":
        return [_placed(one, rename) for one in found]
    uid, ledgers, replaces = found
    named = [[[rename(name) for name in key], *rest] for key, *rest in ledgers]
    return [rename(uid), named, rename(replaces)]


def _placed(placed: list[Any], rename: Any) -> list[Any]:
    """A pod set on nodes: its name, flavor, levels, the values of its domains with their pods, amounts."""
    name, flavor, levels, domains, amounts = placed
    found = [[[rename(value) for value in values], pods] for values, pods in domains]
    return [name, rename(flavor), levels, found, amounts]


def _level_values(value: dict[str, Any], rename: Any) -> Iterator[tuple[str, Any]]:
    """Values of a topology level, whose common beginnings and ends are written once."""
    if "universal" in value:
        yield "universal", rename(value["universal"])
    found = value.get("individual")
    if found is not None:
        begin, end = found.get("prefix", ""), found.get("suffix", "")
        yield "individual", {"roots": [rename(f"{begin}{root}{end}") for root in found["roots"]]}
