"""Generated manifests of every job kind, and changes of them, for the comparison with Kueue's webhooks.

A case is determined by its family and number. It begins with a sample of the kind and changes a few fields:
labels, annotations, suspend and managedBy fields, topology annotations, and fields that Kueue has rules for.
Values have the types of their fields, so that no schema refuses them before a webhook sees them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykueue.api.yaml import load_documents

Object = dict[str, Any]
Place = tuple[str | int, ...]
#: A field and the values it may get; None removes it.
Change = tuple[Place, Sequence[Any]]

D = "kueue.x-k8s.io/"
SAMPLES = Path(__file__).parent.parent / "jobs" / "samples"
#: Namespaces: without and with a default LocalQueue, with a queue for other clusters, and one not managed.
PLAIN, DEFAULTED, REMOTE, UNMANAGED = "plain", "defaulted", "remote", "unmanaged"

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}


@dataclass(frozen=True)
class Case:
    """One admission request: a creation, or the change of `old` to `obj`."""

    family: str
    number: int
    obj: Object
    old: Object | None = None

    @property
    def name(self) -> str:
        return f"{self.family}/{self.number}"

    @property
    def world(self) -> str:
        """The configuration it is sent under: every third case meets one that manages all jobs."""
        return "all" if self.number % 3 == 2 else "queued"


@dataclass(frozen=True)
class Family:
    """What the cases of one kind are made from."""

    sample: Object
    templates: tuple[Place, ...]
    suspend: Place | None = None
    managed_by: Place | None = None
    controller: str = ""
    changes: tuple[Change, ...] = ()
    statuses: tuple[Object, ...] = ({},)


def at(text: str) -> Place:
    """A place such as `spec.groups.0.template`; parts with dots stand after a bar."""
    path, _, last = text.partition("|")
    parts = [*path.split("."), *([last] if last else [])]
    return tuple(int(part) if part.isdigit() else part for part in parts)


def with_field(obj: Object, place: Place, value: Any) -> None:
    """Set a field, or remove it where `value` is None; what is on the way is made."""
    found: Any = obj
    for number, part in enumerate(place[:-1]):
        if isinstance(part, str) and part not in found:
            if value is None:
                return
            found[part] = [] if isinstance(place[number + 1], int) else {}
        if isinstance(part, int) and part >= len(found):
            return
        found = found[part]
    last = place[-1]
    if isinstance(last, int):
        if last < len(found):
            found[last] = copy.deepcopy(value)
    elif value is None:
        found.pop(last, None)
    else:
        found[last] = copy.deepcopy(value)


LABEL, NOTE = "metadata.labels", "metadata.annotations"
LONG = "a" * 64

#: Labels and annotations that mean something to any kind. Common values come several times.
COMMON: tuple[Change, ...] = (
    (at(f"{LABEL}|{D}queue-name"), ("lq", "remote", "missing", "", "Not_A_Name", None, LONG, "lq")),
    (at(f"{NOTE}|{D}queue-name"), ("lq", "Not_A_Name", "")),
    (at(f"{LABEL}|{D}priority-class"), ("high", "default", "", None, "missing")),
    (at(f"{LABEL}|{D}prebuilt-workload-name"), ("made", "other", "Not_A_Name", "", None)),
    (at(f"{NOTE}|{D}prebuilt-workload-name"), ("made", "Not_A_Name", LONG, f"{LONG}_", "")),
    (
        at(f"{LABEL}|{D}max-exec-time-seconds"),
        ("60", "3600", "0", "-5", "soon", "1.5", "+5", "007", "9999999999", "", None, "1e3"),
    ),
    (at(f"{NOTE}|{D}elastic-job"), ("true", "false", "True", "yes", None)),
    (
        at(f"{NOTE}|{D}admission-gated-by"),
        (
            "example.com/gate",
            "example.com/gate,example.com/other",
            "example.com/gate,example.com/gate",
            "gate",
            "example.com/",
            "example.com/gate,",
            "Example.com/gate",
            f"example.com/{LONG}",
            "",
            " example.com/gate",
            None,
        ),
    ),
    (at(f"{NOTE}|example.com/note"), ("a",)),
)

_LAYERS = '[{"topology":"cloud/block","size":2},{"topology":"cloud/rack","size":1}]'
#: Annotations of pod templates.
TOPOLOGY: tuple[tuple[dict[str, str], ...], ...] = (
    ({"required": "cloud/rack"}, {"required": "not a label"}, {"required": ""}, {"required": "rack"}),
    ({"preferred": "cloud/rack"}, {"preferred": "a/b/c"}, {"preferred": "-"}),
    ({"unconstrained": "true"}, {"unconstrained": "false"}, {"unconstrained": "no"}, {"unconstrained": ""}),
    ({"required": "cloud/rack", "preferred": "cloud/rack"}, {"required": "a", "unconstrained": "true"}),
    (
        {"slice-required": "cloud/rack", "slice-size": "1"},
        {"slice-required": "cloud/rack", "slice-size": "2"},
        {"slice-required": "cloud/rack", "slice-size": "50"},
        {"slice-required": "cloud/rack", "slice-size": "0"},
        {"slice-required": "cloud/rack", "slice-size": "-1"},
        {"slice-required": "cloud/rack", "slice-size": "+1"},
        {"slice-required": "cloud/rack", "slice-size": "two"},
        {"slice-required": "cloud/rack"},
        {"slice-size": "1"},
        {"slice-required": "", "slice-size": "1"},
        {"slice-required": "cloud/rack", "slice-size": "99999999999"},
        {"required": "cloud/block", "slice-required": "cloud/rack", "slice-size": "1"},
    ),
    (
        {"group": "g", "required": "cloud/rack"},
        {"group": "g"},
        {"group": "7", "required": "cloud/rack"},
        {"group": "g", "unconstrained": "true"},
        {"group": "", "required": "cloud/rack"},
        {"group": "g", "preferred": "cloud/rack", "slice-size": "1", "slice-required": "cloud/rack"},
    ),
    (
        {"layers": _LAYERS},
        {"required": "cloud/zone", "layers": _LAYERS},
        {"layers": "[]"},
        {"layers": "{}"},
        {"layers": "soon"},
        {"layers": '[{"topology":"cloud/block","size":3},{"topology":"cloud/rack","size":2}]'},
        {"layers": '[{"topology":"cloud/rack","size":1},{"topology":"cloud/rack","size":1}]'},
        {"layers": '[{"topology":"cloud/rack","size":0}]'},
        {"layers": '[{"topology":"not a label","size":1}]'},
        {"layers": '[{"topology":"cloud/rack","size":70}]'},
        {"layers": '[{"topology":"cloud/rack"}]'},
        {"layers": '[{"topology":"cloud/rack","size":"1"}]'},
        {"layers": _LAYERS, "slice-required": "cloud/rack", "slice-size": "1"},
        {"layers": _LAYERS, "group": "g", "required": "cloud/rack"},
        {
            "layers": '[{"topology":"a","size":1},{"topology":"b","size":1},{"topology":"c","size":1},'
            '{"topology":"d","size":1}]'
        },
    ),
)
_TOPOLOGY_NAMES = {
    "required": "podset-required-topology",
    "preferred": "podset-preferred-topology",
    "unconstrained": "podset-unconstrained-topology",
    "slice-required": "podset-slice-required-topology",
    "slice-size": "podset-slice-size",
    "group": "podset-group-name",
    "layers": "podset-slice-required-topology-constraints",
}


def topology(choice: dict[str, str]) -> dict[str, str]:
    """The annotations of one entry of TOPOLOGY."""
    return {D + _TOPOLOGY_NAMES[name]: value for name, value in choice.items()}


#: Fields of a pod template that make its pods other ones.
SHAPE: tuple[Change, ...] = (
    (at("spec.containers.0.image"), ("i:2",)),
    (at("spec.containers.0.resources.requests.cpu"), ("3",)),
    (at("spec.containers.0.ports"), ([{"containerPort": 80}],)),
    (at("spec.containers.0.env"), ([{"name": "A", "value": "b"}],)),
    (at("spec.nodeSelector"), ({"disk": "fast"},)),
    (at("spec.tolerations"), ([{"key": "k", "operator": "Exists"}],)),
    (at("spec.priorityClassName"), ("urgent",)),
    (at("spec.terminationGracePeriodSeconds"), (5,)),
    (at("metadata.labels"), ({"app": "a", "tier": "b"},)),
)


def sample(name: str) -> Object:
    """The manifest of a kind that the tests of the kinds use."""
    (found,) = load_documents((SAMPLES / f"{name}.yaml").read_text())
    return found


def manifest(api_version: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "j"}, "spec": spec}


def generated(family: str, number: int, of: Family) -> Case:
    """One case."""
    rng = random.Random(f"{family}/{number}")
    obj = _created(rng, of)
    for _ in range(_times(rng)):
        _changed(rng, obj, of)
    if rng.random() < 0.4:
        return Case(family, number, obj)
    old, new = obj, copy.deepcopy(obj)
    suspend = of.suspend
    if suspend is not None:
        runs = rng.random() < 0.5
        with_field(old, suspend, not runs)
        with_field(new, suspend, not runs if rng.random() < 0.7 else runs)
    status = rng.choice(of.statuses)
    for each in (old, new):
        if status:
            each["status"] = copy.deepcopy(status)
        each["metadata"]["uid"] = "u"
    for _ in range(max(1, _times(rng))):
        _changed(rng, new, of)
    return Case(family, number, new, old)


def _times(rng: random.Random) -> int:
    """How many fields are changed: most often one, so that one refusal does not hide another."""
    return rng.choice((0, 1, 1, 1, 1, 2))


def _created(rng: random.Random, of: Family) -> Object:
    obj = copy.deepcopy(of.sample)
    metadata = obj["metadata"]
    metadata["namespace"] = rng.choice((PLAIN, PLAIN, PLAIN, PLAIN, DEFAULTED, DEFAULTED, REMOTE, UNMANAGED))
    metadata.setdefault("labels", {}).pop(f"{D}queue-name", None)
    if rng.random() < 0.75:
        metadata["labels"][f"{D}queue-name"] = "remote" if metadata["namespace"] == REMOTE else "lq"
    if of.suspend is not None and rng.random() < 0.3:
        with_field(obj, of.suspend, rng.random() < 0.5)
    if of.managed_by is not None and rng.random() < 0.15:
        values = (of.controller, f"{D}multikueue", "example.com/other", "")
        with_field(obj, of.managed_by, rng.choice(values))
    if metadata["namespace"] == PLAIN and rng.random() < 0.15:
        metadata["ownerReferences"] = [_OWNERS[rng.choice(list(_OWNERS))]]
    return obj


def _changed(rng: random.Random, obj: Object, of: Family) -> None:
    """Change one field."""
    kind = rng.random()
    if of.changes and kind < 0.35:
        place, values = rng.choice(of.changes)
        with_field(obj, place, rng.choice(values))
    elif of.templates and kind < 0.6:
        template = rng.choice(of.templates)
        chosen = topology(rng.choice(rng.choice(TOPOLOGY)))
        for one in of.templates if rng.random() < 0.3 else (template,):
            for name, value in chosen.items():
                with_field(obj, (*one, "metadata", "annotations", name), value)
    elif of.templates and kind < 0.67:
        place, values = rng.choice(SHAPE)
        with_field(obj, (*rng.choice(of.templates), *place), rng.choice(values))
    else:
        place, values = rng.choice(COMMON)
        with_field(obj, place, rng.choice(values))


#: Owners that exist in the world: jobs with and without a queue, in the namespace `plain`.
_OWNERS: dict[str, Object] = {
    name: {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    for name, api_version, kind in (
        ("queued-set", "jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("free-set", "jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("queued-job", "batch/v1", "Job"),
        ("free-job", "batch/v1", "Job"),
        ("other", "example.com/v1", "Other"),
    )
}


def owners() -> Iterator[Object]:
    """The objects that owner references lead to."""
    for name, reference in _OWNERS.items():
        if reference["kind"] == "Other":
            continue
        labels = {f"{D}queue-name": "lq"} if name.startswith("queued") else {}
        spec: Object = {"template": TEMPLATE, "suspend": True}
        if reference["kind"] == "JobSet":
            jobs = [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]
            spec = {"replicatedJobs": jobs, "suspend": True}
        yield {
            "apiVersion": reference["apiVersion"],
            "kind": reference["kind"],
            "metadata": {"name": name, "namespace": PLAIN, "uid": reference["uid"], "labels": labels},
            "spec": spec,
        }
