"""Rules on pod specs, for pods and for the templates of controllers.

Each check gets the path of what it looks at (`spec` or `spec.template.spec` at the top) and returns the
causes of refusal in Kubernetes' words. Source: the Kubernetes API reference of Pod;
docs/reference/cluster-workloads.md, 4.4 and 5.4 (C8).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.api.quantity import Quantity, QuantityError, parse
from pykueue.embedded.kinds.podspec import is_sidecar
from pykueue.embedded.objects.errors import (
    Cause,
    duplicate,
    invalid,
    missing_reference,
    not_supported,
    required,
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NOT_NEGATIVE = "must be greater than or equal to 0"

_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_STANDARD_RESOURCES = (
    *_CONTAINER_RESOURCES,
    *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _CONTAINER_RESOURCES),
    *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
    *(
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    ),
)
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MAX_SECONDS = 2**31 - 1


def validate_pod_spec(spec: Object, path: str = "spec") -> list[Cause]:
    """Every reason to refuse a pod spec; `path` is where it stands in its object."""
    causes: list[Cause] = []
    volumes: set[str] = set()
    # Most pods have few of the fields that are checked here.
    if spec.get("volumes"):
        volumes.update(one.get("name", "") for one in spec["volumes"])
        causes += _volumes(spec["volumes"], f"{path}.volumes")
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    names: set[str] = set()
    causes += _containers(spec.get("containers") or (), f"{path}.containers", names, volumes)
    if spec.get("initContainers"):
        causes += _containers(spec["initContainers"], f"{path}.initContainers", names, volumes)
    causes += _choice(spec, "restartPolicy", _RESTART_POLICIES, path)
    causes += _choice(spec, "dnsPolicy", _DNS_POLICIES, path)
    causes += _seconds(spec, path)
    for field in ("hostname", "subdomain"):
        value = spec.get(field)
        if value and not _LABEL.fullmatch(value):
            causes.append(invalid(f"{path}.{field}", value, LABEL_RULE))
    for field in ("nodeName", "serviceAccountName"):
        value = spec.get(field)
        if value and not _SUBDOMAIN.fullmatch(value):
            causes.append(invalid(f"{path}.{field}", value, _subdomain_rule()))
    for key in spec.get("nodeSelector") or {}:
        causes += _label_key(key, f"{path}.nodeSelector")
    for name, quantity in (spec.get("overhead") or {}).items():
        causes += _amount(name, quantity, f"{path}.overhead[{name}]")[1]
    for field, check in _PARTS:
        part = spec.get(field)
        if part:
            causes += check(part, f"{path}.{field}")
    return causes


def is_label(name: str) -> bool:
    """Whether it may be a hostname."""
    return _LABEL.fullmatch(name) is not None


def _subdomain_rule() -> str:
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def _choice(obj: Object, field: str, supported: Sequence[str], path: str) -> list[Cause]:
    value = obj.get(field)
    return [not_supported(f"{path}.{field}", value, supported)] if value and value not in supported else []


def _seconds(spec: Object, path: str) -> list[Cause]:
    causes = []
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_SECONDS:
        causes.append(
            invalid(
                f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_MAX_SECONDS}, inclusive"
            )
        )
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        causes.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, NOT_NEGATIVE))
    return causes


def _volumes(volumes: Iterable[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for position, volume in enumerate(volumes):
        causes += _unique_label(volume.get("name") or "", f"{path}[{position}].name", names)
    return causes


def _unique_label(name: str, path: str, names: set[str]) -> list[Cause]:
    """A required DNS label that is not yet in `names`, to which it is added."""
    if not name:
        return [required(path)]
    if not _LABEL.fullmatch(name):
        return [invalid(path, name, LABEL_RULE)]
    if name in names:
        return [duplicate(path, name)]
    names.add(name)
    return []


def _containers(containers: Iterable[Object], path: str, names: set[str], volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    for position, container in enumerate(containers):
        at = f"{path}[{position}]"
        causes += _unique_label(container.get("name") or "", f"{at}.name", names)
        image = container.get("image")
        if not image:
            causes.append(required(f"{at}.image"))
        elif image != image.strip():
            causes.append(invalid(f"{at}.image", image, "must not have leading or trailing whitespace"))
        causes += _choice(container, "imagePullPolicy", _PULL_POLICIES, at)
        if path.endswith(".containers"):
            if is_sidecar(container):
                causes.append(
                    Cause(
                        f"{at}.restartPolicy",
                        "FieldValueForbidden",
                        "Forbidden: may not be set for non-init containers",
                    )
                )
        elif container.get("restartPolicy"):
            causes += _choice(container, "restartPolicy", ("Always",), at)
        causes += _ports(container.get("ports") or (), f"{at}.ports")
        for number, variable in enumerate(container.get("env") or ()):
            if not variable.get("name"):
                causes.append(required(f"{at}.env[{number}].name"))
        causes += _mounts(container.get("volumeMounts") or (), f"{at}.volumeMounts", volumes)
        if container.get("resources"):
            causes += _resources(container["resources"], f"{at}.resources")
    return causes


def _ports(ports: Iterable[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for position, port in enumerate(ports):
        at = f"{path}[{position}]"
        name = port.get("name")
        if name:
            if len(name) > 15:
                causes.append(invalid(f"{at}.name", name, "must be no more than 15 characters"))
            elif not _PORT_NAME.fullmatch(name):
                causes.append(
                    invalid(
                        f"{at}.name",
                        name,
                        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                    )
                )
            elif name in names:
                causes.append(duplicate(f"{at}.name", name))
            names.add(name)
        number = port.get("containerPort")
        if not number:
            causes.append(required(f"{at}.containerPort"))
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            if number and not 1 <= number <= 65535:
                causes.append(invalid(f"{at}.{field}", number, "must be between 1 and 65535, inclusive"))
        causes += _choice(port, "protocol", _PROTOCOLS, at)
    return causes


def _mounts(mounts: Iterable[Object], path: str, volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    targets: set[str] = set()
    for position, mount in enumerate(mounts):
        at = f"{path}[{position}]"
        name, target = mount.get("name"), mount.get("mountPath")
        if not name:
            causes.append(required(f"{at}.name"))
        elif name not in volumes:
            causes.append(missing_reference(f"{at}.name", name))
        if not target:
            causes.append(required(f"{at}.mountPath"))
        elif target in targets:
            causes.append(invalid(f"{at}.mountPath", target, "must be unique"))
        else:
            targets.add(target)
    return causes


def _resources(resources: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    limits: dict[str, Quantity] = {}
    for name, quantity in (resources.get("limits") or {}).items():
        at = f"{path}.limits[{name}]"
        parsed, found = _amount(name, quantity, at)
        causes += _container_resource_name(name, at) + found
        if parsed is not None:
            limits[name] = parsed
    for name, quantity in (resources.get("requests") or {}).items():
        at = f"{path}.requests[{name}]"
        parsed, found = _amount(name, quantity, at)
        causes += _container_resource_name(name, at) + found
        if parsed is None:
            continue
        overcommit = "/" not in name and not name.startswith("hugepages-")
        limit = limits.get(name)
        if limit is None:
            if not overcommit and name not in (resources.get("limits") or {}):
                causes.append(
                    required(f"{path}.limits", "Limit must be set for non overcommitable resources")
                )
        elif not overcommit and parsed != limit:
            causes.append(
                invalid(f"{path}.requests", str(parsed), f"must be equal to {name} limit of {limit}")
            )
        elif parsed > limit:
            causes.append(
                invalid(
                    f"{path}.requests", str(parsed), f"must be less than or equal to {name} limit of {limit}"
                )
            )
    return causes


def _container_resource_name(name: str, path: str) -> list[Cause]:
    if "/" not in name:
        causes = []
        huge = name.startswith("hugepages-")
        if name not in _STANDARD_RESOURCES and not huge:
            causes.append(invalid(path, name, "must be a standard resource type or fully qualified"))
        if name not in _CONTAINER_RESOURCES and not huge:
            causes.append(invalid(path, name, "must be a standard resource for containers"))
        return causes
    causes = _label_key(name, path)
    domain = name.partition("/")[0]
    if not causes and domain.startswith("requests."):
        causes.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return causes


def _amount(name: str, quantity: Any, path: str) -> tuple[Quantity | None, list[Cause]]:
    """The parsed quantity, unless it is none, and what is wrong with it."""
    try:
        parsed = parse(quantity)
    except QuantityError:
        return None, [invalid(path, quantity, QUANTITY_RULE)]
    if parsed.nanos < 0:
        return parsed, [invalid(path, str(parsed), NOT_NEGATIVE)]
    whole = "/" in name or name.startswith("hugepages-") or name == "pods"
    if whole and parsed.nanos % 10**9:
        return parsed, [invalid(path, str(parsed), "must be an integer")]
    return parsed, []


def _label_key(key: str, path: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not (prefix and len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        return [invalid(path, key, "prefix part " + _subdomain_rule())]
    if not _NAME_PART.fullmatch(name):
        rule = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
            "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
        return [invalid(path, key, rule)]
    return []


def _tolerations(tolerations: Iterable[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for position, toleration in enumerate(tolerations):
        at = f"{path}[{position}]"
        key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
        if key:
            causes += _label_key(key, f"{at}.key")
        elif operator != "Exists":
            causes.append(
                invalid(
                    f"{at}.operator",
                    operator,
                    "operator must be Exists when `key` is empty, which means "
                    '"match all values and all keys"',
                )
            )
        if operator not in ("Equal", "Exists"):
            causes.append(not_supported(f"{at}.operator", operator, ("Equal", "Exists")))
        elif operator == "Exists" and toleration.get("value"):
            causes.append(
                invalid(
                    f"{at}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
                )
            )
        causes += _choice(toleration, "effect", _EFFECTS, at)
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            causes.append(
                invalid(
                    f"{at}.effect",
                    toleration.get("effect") or "",
                    "effect must be 'NoExecute' when `tolerationSeconds` is set",
                )
            )
    return causes


def validate_taints(taints: Iterable[Object], path: str) -> list[Cause]:
    """Rules on a node's taints."""
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(taints):
        at = f"{path}[{position}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        causes += _label_key(key, f"{at}.key") if key else [required(f"{at}.key")]
        if effect not in _EFFECTS:
            causes.append(
                not_supported(f"{at}.effect", effect, _EFFECTS) if effect else required(f"{at}.effect")
            )
        if (key, effect) in seen:
            causes.append(duplicate(f"{at}", taint))
        seen.add((key, effect))
    return causes


def _affinity(affinity: Mapping[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    node = affinity.get("nodeAffinity") or {}
    wanted = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if wanted is not None:
        at = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        terms = wanted.get("nodeSelectorTerms") or ()
        if not terms:
            causes.append(required(f"{at}.nodeSelectorTerms", "must have at least one node selector term"))
        for position, term in enumerate(terms):
            causes += _node_term(term, f"{at}.nodeSelectorTerms[{position}]")
    for position, one in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        at = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{position}]"
        causes += _weight(one, at) + _node_term(one.get("preference") or {}, f"{at}.preference")
    for field in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(field) or {}
        for position, term in enumerate(part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            causes += _pod_term(
                term, f"{path}.{field}.requiredDuringSchedulingIgnoredDuringExecution[{position}]"
            )
        for position, one in enumerate(part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            at = f"{path}.{field}.preferredDuringSchedulingIgnoredDuringExecution[{position}]"
            causes += _weight(one, at) + _pod_term(one.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return causes


def _weight(preferred: Object, path: str) -> list[Cause]:
    weight = preferred.get("weight") or 0
    return [] if 1 <= weight <= 100 else [invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _node_term(term: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for position, rule in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{position}]"
        operator, values = rule.get("operator") or "", rule.get("values") or []
        causes += _label_key(rule.get("key") or "", f"{at}.key")
        if operator in ("In", "NotIn"):
            if not values:
                causes.append(
                    required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
                )
        elif operator in ("Exists", "DoesNotExist"):
            causes += _no_values(values, at)
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                causes.append(
                    required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
                )
        else:
            causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
    return causes


def _no_values(values: Sequence[str], path: str) -> list[Cause]:
    if not values:
        return []
    detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
    return [Cause(f"{path}.values", "FieldValueForbidden", f"Forbidden: {detail}")]


def _pod_term(term: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("labelSelector", "namespaceSelector"):
        causes += validate_label_selector(term.get(field) or {}, f"{path}.{field}")
    key = term.get("topologyKey")
    return causes + (
        _label_key(key, f"{path}.topologyKey")
        if key
        else [required(f"{path}.topologyKey", "can not be empty")]
    )


def validate_label_selector(selector: Mapping[str, Any], path: str) -> list[Cause]:
    """Rules on a LabelSelector object."""
    causes: list[Cause] = []
    for key in selector.get("matchLabels") or {}:
        causes += _label_key(key, f"{path}.matchLabels")
    for position, rule in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{position}]"
        operator, values = rule.get("operator") or "", rule.get("values") or []
        if operator not in _SELECTOR_OPERATORS:
            causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn"):
            if not values:
                causes.append(
                    required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
                )
        else:
            causes += _no_values(values, at)
        causes += _label_key(rule.get("key") or "", f"{at}.key")
    return causes


def _spread(constraints: Iterable[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    pairs: set[tuple[str, str]] = set()
    for position, constraint in enumerate(constraints):
        at = f"{path}[{position}]"
        skew, key, action = (
            constraint.get(field) for field in ("maxSkew", "topologyKey", "whenUnsatisfiable")
        )
        if not skew or skew < 1:
            causes.append(invalid(f"{at}.maxSkew", skew or 0, "must be greater than zero"))
        causes += (
            _label_key(key, f"{at}.topologyKey")
            if key
            else [required(f"{at}.topologyKey", "can not be empty")]
        )
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            causes.append(
                not_supported(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
            )
        domains = constraint.get("minDomains")
        if domains is not None and domains < 1:
            causes.append(invalid(f"{at}.minDomains", domains, "must be greater than zero"))
        if key and action and (key, action) in pairs:
            causes.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        pairs.add((key or "", action or ""))
        causes += validate_label_selector(constraint.get("labelSelector") or {}, f"{at}.labelSelector")
    return causes


def _gates(gates: Iterable[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for position, gate in enumerate(gates):
        name = gate.get("name") or ""
        causes += _label_key(name, f"{path}[{position}].name")
        if name in names:
            causes.append(duplicate(f"{path}[{position}].name", name))
        names.add(name)
    return causes


#: The checks of parts of a pod spec, each with its field.
_PARTS: Final[tuple[tuple[str, Callable[[Any, str], list[Cause]]], ...]] = (
    ("tolerations", _tolerations),
    ("affinity", _affinity),
    ("topologySpreadConstraints", _spread),
    ("schedulingGates", _gates),
)
