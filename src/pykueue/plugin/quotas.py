"""`--nominal-quota`, `--borrowing-limit`, `--lending-limit`: the resource groups that they describe.

Source: docs/reference/kueue-api.md 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.quantity import QuantityError, parse

from .errors import PluginError

#: `FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY`, as Kueue's plugin accepts it.
_QUOTA = r"(?:\w+(?:[.-]\w+)*(?:[.-]?/\w+)?|/\w+)=\w+"
_FORMAT = re.compile(
    rf"(?P<flavor>[a-z0-9][a-z0-9\-.]{{0,252}}):(?P<quotas>{_QUOTA}(?:;{_QUOTA})*;?)",
    re.ASCII,
)

#: Flags and the fields of a resource's quota that they set.
FIELDS = {
    "nominal-quota": "nominalQuota",
    "borrowing-limit": "borrowingLimit",
    "lending-limit": "lendingLimit",
}


def resource_groups(given: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """The `resourceGroups` of a ClusterQueue: flavors with the same resources are in one group.

    `given` has the values of each flag of `FIELDS`. Raises PluginError for values that cannot be read or
    contradict one another.
    """
    flavors: dict[str, dict[str, dict[str, Any]]] = {}
    for flag, field in FIELDS.items():
        for value in given.get(flag, ()):
            flavor, quotas = _read(flag, value)
            resources = {name: {"name": name, field: quantity} for name, quantity in quotas}
            known = flavors.setdefault(flavor, resources)
            if known is not resources:
                _merge(flavor, known, resources)
    groups: dict[frozenset[str], dict[str, Any]] = {}
    for flavor, resources in flavors.items():
        covered = frozenset(resources)
        group = groups.get(covered)
        if group is None:
            for other in groups:
                if shared := other & covered:
                    raise PluginError(
                        f"invalid resource group: {', '.join(sorted(shared))} of flavor {flavor} "
                        "is covered by a group with other resources"
                    )
            group = groups[covered] = {"coveredResources": list(resources), "flavors": []}
        quotas_of = [{"nominalQuota": "0", **quota} for quota in resources.values()]
        group["flavors"].append({"name": flavor, "resources": quotas_of})
    return list(groups.values())


def _merge(flavor: str, known: dict[str, dict[str, Any]], more: Mapping[str, dict[str, Any]]) -> None:
    if known.keys() != more.keys():
        raise PluginError(f"invalid flavor: all quotas and limits of {flavor} must name the same resources")
    for name, quota in more.items():
        known[name] = {**quota, **known[name]}


def _read(flag: str, text: str) -> tuple[str, Iterable[tuple[str, str]]]:
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise PluginError(
            f"invalid resources specification: --{flag} {text}; the format is FLAVOR:RESOURCE=QUANTITY;..."
        )
    quotas = []
    for part in filter(None, match["quotas"].split(";")):
        name, _, quantity = part.partition("=")
        try:
            quotas.append((name, str(parse(quantity))))
        except QuantityError:
            raise PluginError(f"invalid resource quota: {quantity} of {name} is not a quantity") from None
    return match["flavor"], quotas
