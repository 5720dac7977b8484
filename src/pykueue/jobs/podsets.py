"""Pod sets: what a started job's pod templates gain from an admission, and how they lose it again.

`PodSetInfo` is what one pod set of an admitted Workload is to be given: count, node labels, tolerations
and labels of its flavors, and what admission checks add (docs/reference/kueue-integrations.md 9.3, "Start"
and
"Stop").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.objects import Object, get, replaced, section
from pykueue.api.validation.syntax import FALSE, TRUE


class PodSetConflictError(Exception):
    """A template already says something else: the job can never be started as admitted."""


@dataclass(frozen=True)
class PodSetInfo:
    """What the template of one pod set gains when the job starts."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    scheduling_gates: tuple[Object, ...] = ()
    #: The pod set's template in the Workload.
    template: Mapping[str, Any] = field(default_factory=dict)

    def merged(
        self,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        node_selector: Mapping[str, str] | None = None,
        tolerations: Iterable[Object] = (),
    ) -> PodSetInfo:
        """With more of each. Raises PodSetConflictError where one key would get two values."""
        return replace(
            self,
            labels=_merged("labels", self.labels, labels or {}, self.name),
            annotations=_merged("annotations", self.annotations, annotations or {}, self.name),
            node_selector=_merged("nodeSelector", self.node_selector, node_selector or {}, self.name),
            tolerations=_extended(self.tolerations, tolerations),
        )

    def with_flavor(self, flavor: Mapping[str, Any]) -> PodSetInfo:
        """With the node labels and tolerations of an assigned ResourceFlavor.

        Where two flavors, of different resources, have a label in common, the later one counts
        (docs/reference/admission-checks.md 6).
        """
        selector = {**self.node_selector, **section(flavor, "spec", "nodeLabels")}
        return replace(self, node_selector=selector).merged(
            tolerations=get(flavor, "spec", "tolerations") or ()
        )


def _merged(what: str, present: Mapping[str, str], added: Mapping[str, str], pod_set: str) -> dict[str, str]:
    for key, value in added.items():
        if present.get(key, value) != value:
            raise PodSetConflictError(
                f"pod set {pod_set}: {what}[{key}] is {present[key]!r}, the admission needs {value!r}"
            )
    return {**present, **added}


def _extended(present: Iterable[Object], added: Iterable[Object]) -> tuple[Object, ...]:
    """Both lists, each item once; the operator of a toleration is Equal where it is not written."""
    result = list(present)
    for item in added:
        if all(_comparable(item) != _comparable(one) for one in result):
            result.append(item)
    return tuple(result)


def _comparable(item: Mapping[str, Any]) -> Object:
    return {
        key: value
        for key, value in item.items()
        if value not in (None, "") and (key, value) != ("operator", "Equal")
    }


#: The parts of a pod template that starting a job may change and stopping it restores.
TEMPLATE_FIELDS = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "schedulingGates"),
)


def injected(template: Mapping[str, Any], info: PodSetInfo) -> Object:
    """The template with `info` merged in. Raises PodSetConflictError where the two disagree."""
    result = dict(template)
    for path, what, added in (
        (("metadata", "labels"), "labels", info.labels),
        (("metadata", "annotations"), "annotations", info.annotations),
        (("spec", "nodeSelector"), "nodeSelector", info.node_selector),
    ):
        if added:
            result = replaced(result, path, _merged(what, section(result, *path), added, info.name))
    for path, items in (
        (("spec", "tolerations"), info.tolerations),
        (("spec", "schedulingGates"), info.scheduling_gates),
    ):
        if items:
            result = replaced(result, path, list(_extended(get(result, *path) or (), items)))
    return result


def restored(template: Mapping[str, Any], original: Mapping[str, Any], keep: Iterable[str] = ()) -> Object:
    """The template with the fields that `injected` may change as they are in `original`.

    `keep` are labels that belong to the job kind's own controller: they stay as they are.
    """
    result = dict(template)
    for path in TEMPLATE_FIELDS:
        value = get(original, *path)
        if path == ("metadata", "labels"):
            own = {key: section(template, *path)[key] for key in keep if key in section(template, *path)}
            value = {**(value or {}), **own} if own else value
        result = replaced(result, path, value)
    if result.get("metadata") == {} and "metadata" not in original:
        del result["metadata"]
    return result


def count_of(pod_set: Mapping[str, Any]) -> int:
    """`count` of a Workload's pod set; 1 where it is not written."""
    count = pod_set.get("count")
    return 1 if count is None else int(count)


def without_duplicate_env(template: Mapping[str, Any]) -> Object:
    """The template with each environment variable once, the last value of a name winning.

    The Workload's schema keeps them as a list keyed by name, a Job's template does not.
    """
    result = dict(template)
    for field_name in ("containers", "initContainers"):
        containers = get(template, "spec", field_name)
        if isinstance(containers, list):
            cleaned = [_single_env(container) for container in containers]
            if cleaned != containers:
                result = replaced(result, ("spec", field_name), cleaned)
    return result


def _single_env(container: Object) -> Object:
    env = get(container, "env")
    if not env or len({item.get("name") for item in env}) == len(env):
        return container
    last = {item.get("name"): item for item in env}
    return {**container, "env": list(last.values())}


def pod_set(
    template: Mapping[str, Any],
    count: int,
    name: str = names.DEFAULT_POD_SET,
    ranks: Mapping[str, Any] | None = None,
) -> Object:
    """A pod set of a Workload's spec; `ranks` are the fields of its topologyRequest that order its pods."""
    result: Object = {"name": name, "count": count, "template": without_duplicate_env(_as_written(template))}
    topology = {**topology_request(section(template, "metadata", "annotations")), **(ranks or {})}
    if topology:
        result["topologyRequest"] = topology
    return result


def topology_request(annotations: Mapping[str, str]) -> Object:
    """The topologyRequest that a template's annotations make (docs/reference/topology-aware-scheduling.md
    3.3).

    Empty where they request nothing. A slice size that is not a whole number above 0 makes no slices, and so
    do layers that are no list of levels and sizes.
    """
    result: Object = {}
    if level := annotations.get(names.REQUIRED_TOPOLOGY_ANNOTATION):
        result["required"] = level
    elif level := annotations.get(names.PREFERRED_TOPOLOGY_ANNOTATION):
        result["preferred"] = level
    elif (value := annotations.get(names.UNCONSTRAINED_TOPOLOGY_ANNOTATION)) in (*TRUE, *FALSE):
        result["unconstrained"] = value in TRUE
    layers = _layers(annotations.get(names.SLICE_CONSTRAINTS_ANNOTATION))
    level, size = (
        annotations.get(names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION),
        annotations.get(names.SLICE_SIZE_ANNOTATION, ""),
    )
    if layers:
        result["podsetSliceRequiredTopologyConstraints"] = layers
    elif level and size.isdecimal() and int(size) > 0:
        result |= {"podSetSliceRequiredTopology": level, "podSetSliceSize": int(size)}
    group = annotations.get(names.POD_SET_GROUP_NAME_ANNOTATION)
    if group and ("required" in result or "preferred" in result):
        result["podSetGroupName"] = group
    return result


def _layers(text: str | None) -> list[Object]:
    """The layers of slices that an annotation lists; none where it is not such a list."""
    try:
        layers = json.loads(text) if text else None
    except ValueError:
        return []
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        return []
    found = [(layer.get("topology"), layer.get("size")) for layer in layers]
    if not all(isinstance(level, str) and level and type(size) is int and size > 0 for level, size in found):
        return []
    return [{"topology": level, "size": size} for level, size in found]


def _as_written(template: Mapping[str, Any]) -> Object:
    """The template without the empty creation time that API servers put into it: Workloads have none."""
    metadata = {
        key: value for key, value in section(template, "metadata").items() if key != "creationTimestamp"
    }
    rest = {key: value for key, value in template.items() if key != "metadata"}
    return {"metadata": metadata, **rest} if metadata or template.get("metadata") == {} else rest
