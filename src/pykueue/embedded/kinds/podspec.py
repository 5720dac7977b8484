"""Pod specs, as pods and pod templates carry them: what the API server fills in, and what a pod asks for.

Every function returns its argument when nothing changes, and copies along the changed path otherwise.
Source: the Kubernetes API reference of Pod; docs/reference/cluster-workloads.md, 4.1 and 4.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.quantity import QuantityError, parse

DEFAULT_SCHEDULER = "default-scheduler"
#: Seconds between SIGTERM and SIGKILL where the pod does not say.
DEFAULT_GRACE_PERIOD = 30
#: Seconds a pod stays on a node that became not ready or unreachable.
NODE_TROUBLE_SECONDS = 300
_FILE_MODE = 0o644

_CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_POD_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": DEFAULT_SCHEDULER,
    "terminationGracePeriodSeconds": DEFAULT_GRACE_PERIOD,
}
_PROBE_DEFAULTS: Object = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_NODE_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def with_defaults(obj: Object, defaults: Mapping[str, Any]) -> Object:
    """`obj` with the absent fields of `defaults` added; null counts as absent."""
    missing = {key: value for key, value in defaults.items() if obj.get(key) is None}
    return {**obj, **missing} if missing else obj


def changed(obj: Object, key: str, value: Any) -> Object:
    """`obj` with `key` set to `value`, itself when it has that very value already."""
    return obj if obj.get(key) is value else {**obj, key: value}


def mapped(items: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    """The list with every item changed, itself when no item did."""
    new = [change(item) for item in items]
    return items if all(after is before for after, before in zip(new, items, strict=True)) else new


def _mapped_field(obj: Object, key: str, change: Callable[[Any], Any]) -> Object:
    items = obj.get(key)
    return changed(obj, key, mapped(items, change)) if items else obj


def canonical_amounts(amounts: Mapping[str, Any]) -> Mapping[str, Any]:
    """A resource list in canonical text (`1000m` is `1`); what is not a quantity stays for validation."""
    new: dict[str, Any] = {}
    same = True
    for name, amount in amounts.items():
        try:
            text: Any = str(parse(amount))
        except QuantityError:
            text = amount
        same = same and type(text) is type(amount) and text == amount
        new[name] = text
    return amounts if same else new


def _canonical_resources(resources: Object) -> Object:
    for key in ("requests", "limits"):
        amounts = resources.get(key)
        if amounts:
            resources = changed(resources, key, canonical_amounts(amounts))
    return resources


def default_pod_spec(spec: Object) -> Object:
    """What the API server fills into a pod or a pod template."""
    spec = with_defaults(spec, _POD_DEFAULTS)
    if spec.get("securityContext") is None:
        spec = {**spec, "securityContext": {}}
    host_network = bool(spec.get("hostNetwork"))

    def container(one: Object) -> Object:
        return _default_container(one, host_network)

    for key in ("containers", "initContainers"):
        spec = _mapped_field(spec, key, container)
    spec = _mapped_field(spec, "volumes", _default_volume)
    if spec.get("overhead"):
        spec = changed(spec, "overhead", canonical_amounts(spec["overhead"]))
    if spec.get("serviceAccountName") and spec.get("serviceAccount") != spec["serviceAccountName"]:
        spec = {**spec, "serviceAccount": spec["serviceAccountName"]}
    return spec


def _default_container(container: Object, host_network: bool) -> Object:
    container = with_defaults(container, _CONTAINER_DEFAULTS)
    if container.get("imagePullPolicy") is None:
        container = {**container, "imagePullPolicy": _pull_policy(container.get("image") or "")}
    resources = container.get("resources")
    container = changed(container, "resources", {} if resources is None else _canonical_resources(resources))

    def port(one: Object) -> Object:
        one = with_defaults(one, {"protocol": "TCP"})
        return with_defaults(one, {"hostPort": one.get("containerPort")}) if host_network else one

    container = _mapped_field(container, "ports", port)
    container = _mapped_field(container, "env", _default_env)
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(key):
            container = changed(container, key, _default_probe(container[key]))
    return container


def _pull_policy(image: str) -> str:
    _, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"


def _default_env(variable: Object) -> Object:
    source = variable.get("valueFrom")
    if source and source.get("fieldRef") and not source["fieldRef"].get("apiVersion"):
        return {**variable, "valueFrom": {**source, "fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}
    return variable


def _default_probe(probe: Object) -> Object:
    probe = with_defaults(probe, _PROBE_DEFAULTS)
    if probe.get("httpGet"):
        probe = changed(probe, "httpGet", with_defaults(probe["httpGet"], {"path": "/", "scheme": "HTTP"}))
    return probe


def _default_volume(volume: Object) -> Object:
    for key in ("configMap", "secret", "downwardAPI", "projected"):
        if volume.get(key) is not None:
            volume = changed(volume, key, with_defaults(volume[key], {"defaultMode": _FILE_MODE}))
    if all(value is None for key, value in volume.items() if key != "name"):
        volume = {**volume, "emptyDir": {}}
    return volume


def default_requests(spec: Object) -> Object:
    """On pods (never on templates) a missing request is the limit."""

    def container(one: Object) -> Object:
        resources = one.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        missing = {name: limit for name, limit in limits.items() if name not in requests}
        return {**one, "resources": {**resources, "requests": {**requests, **missing}}} if missing else one

    for key in ("containers", "initContainers"):
        spec = _mapped_field(spec, key, container)
    return spec


def default_tolerations(spec: Object) -> Object:
    """Every pod tolerates a node in trouble for a while, unless it says for itself."""
    tolerations = spec.get("tolerations") or []
    missing = [key for key in _NODE_TROUBLES if not any(_covers(one, key) for one in tolerations)]
    if not missing:
        return spec
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_TROUBLE_SECONDS}
        for key in missing
    ]
    return {**spec, "tolerations": [*tolerations, *added]}


def _covers(toleration: Object, key: str) -> bool:
    return (toleration.get("key") or key) == key and (toleration.get("effect") or "NoExecute") == "NoExecute"


def is_sidecar(init_container: Object) -> bool:
    """An init container that runs beside the regular ones (restartPolicy Always)."""
    return init_container.get("restartPolicy") == "Always"


#: Amounts as whole numbers: cpu in thousandths, everything else in base units, both rounded up.
Amounts = dict[str, int]


def amount(resource: str, quantity: Any) -> int:
    """A quantity as a whole number: thousandths for cpu, base units otherwise. Raises QuantityError."""
    parsed = parse(quantity)
    return parsed.milli() if resource == "cpu" else parsed.value()


def amounts_of(resources: Mapping[str, Any] | None) -> Amounts:
    """A resource list as whole numbers."""
    return {name: amount(name, quantity) for name, quantity in resources.items()} if resources else {}


def pod_requests(
    spec: Object, of_container: Callable[[Object], Amounts] | None = None, *, overhead: bool = True
) -> Amounts:
    """What a pod takes from its node: the larger of its start-up and its running life, plus overhead.

    Init containers run one after the other, each beside the sidecars started before it
    (docs/reference/cluster-workloads.md, 4.7). `of_container` may count something else than the requests.
    """
    count = of_container or _requests
    running: Amounts = {}
    for container in spec.get("containers") or ():
        _add(running, count(container))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = count(container)
        if is_sidecar(container):
            _add(sidecars, asked)
            _raise_to(starting, sidecars)
        else:
            _raise_to(starting, _sum(sidecars, asked))
    _add(running, sidecars)
    _raise_to(running, starting)
    if overhead and spec.get("overhead"):
        _add(running, amounts_of(spec["overhead"]))
    return running


def _requests(container: Object) -> Amounts:
    return amounts_of((container.get("resources") or {}).get("requests"))


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _sum(left: Amounts, right: Amounts) -> Amounts:
    total = dict(left)
    _add(total, right)
    return total


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, value in least.items():
        if value > total.get(name, 0):
            total[name] = value


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, by the cpu and memory of all containers."""
    guaranteed = True
    any_given = False
    for container in _all_containers(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = _known(name, requests), _known(name, limits)
            any_given = any_given or bool(request) or bool(limit)
            if not limit or (request or limit) != limit:
                guaranteed = False
    if not any_given:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _known(name: str, amounts: Mapping[str, Any]) -> int:
    amount = amounts.get(name)
    if amount is None:
        return 0
    try:
        return parse(amount).nanos
    except QuantityError:
        return 0


def _all_containers(spec: Object) -> Iterable[Object]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()
