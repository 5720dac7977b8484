"""What a container is started with: its environment and its command line.

Fields of the pod and of its containers' resources are also what downward API volumes are made of.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.quantity import parse

_REFERENCE = re.compile(r"\$\$|\$\(([^()$]+)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
_NAME = re.compile(r"[^\x00-\x20=\x7f-\uffff]+")


class ConfigError(Exception):
    """A container cannot be configured as its pod says; the text says why."""


class Sources(NamedTuple):
    """Where configuration comes from: finds an object of the pod's namespace by name, or None."""

    config_map: Callable[[str], Object | None]
    secret: Callable[[str], Object | None]


class Surroundings(NamedTuple):
    """Where a pod runs, for the downward API."""

    pod_address: str
    host_address: str
    #: Amounts by resource: what a container without a limit may use.
    allocatable: Mapping[str, str]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace each $(NAME) that has a value; $$ stands for one $."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return values.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def command_line(container: Object, environment: Mapping[str, str]) -> list[str]:
    """The words to run. Raises ConfigError for a container that leaves it to its image."""
    if not container.get("command"):
        raise ConfigError(
            f"no command specified: images are not run here, so {container.get('image')!r} says nothing; "
            f"give container {container['name']} a command, which is run from this machine's programs"
        )
    words = [*container["command"], *(container.get("args") or ())]
    return [expand(word, environment) for word in words]


def environment(
    pod: Object, container: Object, base: Mapping[str, str], sources: Sources, around: Surroundings
) -> dict[str, str]:
    """The container's variables, on top of `base`. Raises ConfigError."""
    found = dict(base)
    for source in container.get("envFrom") or ():
        found.update(_all_of(source, sources))
    own: dict[str, str] = {}
    for entry in container.get("env") or ():
        name, reference = entry["name"], entry.get("valueFrom")
        if reference is None:
            value: str | None = expand(entry.get("value") or "", {**found, **own})
        elif "fieldRef" in reference:
            value = pod_field(pod, reference["fieldRef"].get("fieldPath") or "", around)
        elif "resourceFieldRef" in reference:
            value = resource_field(pod, container, reference["resourceFieldRef"], around)
        elif "configMapKeyRef" in reference:
            value = _key(reference["configMapKeyRef"], sources.config_map, "ConfigMap", pod)
        elif "secretKeyRef" in reference:
            value = _key(reference["secretKeyRef"], sources.secret, "Secret", pod)
        else:
            raise ConfigError(f"env {name}: {', '.join(reference)} is not supported here")
        if value is not None:
            own[name] = value
    found.update(own)
    return found


def texts(obj: Object) -> dict[str, str]:
    """What a ConfigMap or a Secret says, as text."""
    return {key: value.decode(errors="replace") for key, value in contents(obj).items()}


def contents(obj: Object) -> dict[str, bytes]:
    """What a ConfigMap or a Secret holds, by key."""
    encoded = obj.get("data") if obj.get("kind") == "Secret" else obj.get("binaryData")
    found = {key: b64decode(value) for key, value in (encoded or {}).items()}
    if obj.get("kind") != "Secret":
        found |= {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    return found


def _all_of(source: Object, sources: Sources) -> dict[str, str]:
    for field, find, kind in (
        ("configMapRef", sources.config_map, "configmap"),
        ("secretRef", sources.secret, "secret"),
    ):
        reference = source.get(field)
        if reference is None:
            continue
        obj = find(reference.get("name") or "")
        if obj is None:
            if reference.get("optional"):
                return {}
            raise ConfigError(f'{kind} "{reference.get("name")}" not found')
        prefix = source.get("prefix") or ""
        named = {prefix + key: value for key, value in texts(obj).items()}
        return {key: value for key, value in named.items() if _NAME.fullmatch(key)}
    return {}


def _key(reference: Object, find: Callable[[str], Object | None], kind: str, pod: Object) -> str | None:
    name, key = reference.get("name") or "", reference.get("key") or ""
    obj = find(name)
    if obj is None:
        if reference.get("optional"):
            return None
        raise ConfigError(f'{kind.lower()} "{name}" not found')
    held = texts(obj)
    if key not in held:
        if reference.get("optional"):
            return None
        raise ConfigError(f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}")
    return held[key]


def pod_field(pod: Object, path: str, around: Surroundings) -> str:
    """A field of the pod as text. Raises ConfigError for one that is not offered."""
    metadata, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2]) or "")
    match path:
        case "metadata.labels" | "metadata.annotations":
            values = metadata.get(path.removeprefix("metadata.")) or {}
            return "\n".join(f"{key}={_quoted(values[key])}" for key in sorted(values))
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.removeprefix("metadata.")) or "")
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.removeprefix("spec.")) or "")
        case "status.podIP" | "status.podIPs":
            return around.pod_address
        case "status.hostIP" | "status.hostIPs":
            return around.host_address
    raise ConfigError(f"fieldPath {path!r} is not offered to containers")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def resource_field(pod: Object, container: Object | None, reference: Object, around: Surroundings) -> str:
    """A request or limit of a container as a whole number of `divisor`s, rounded up. Raises ConfigError."""
    named = reference.get("containerName")
    if named:
        everything = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        container = next((one for one in everything if one["name"] == named), None)
    if container is None:
        raise ConfigError(f"container {named!r} is not found in the pod")
    kind, _, resource = (reference.get("resource") or "").partition(".")
    if kind not in ("limits", "requests") or not resource:
        raise ConfigError(f"resource {reference.get('resource')!r} is neither limits.NAME nor requests.NAME")
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or {}).get(resource)
    if amount is None and kind == "limits":
        amount = around.allocatable.get(resource)
    divisor = parse(reference.get("divisor") or "1").nanos or parse("1").nanos
    return str(-(-parse(amount or "0").nanos // divisor))
