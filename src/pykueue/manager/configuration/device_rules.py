"""What `resources.deviceClassMappings` must satisfy beyond the type of each field.

Source: docs/reference/kueue-api.md 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pykueue.api.devices.selection import compile_error
from pykueue.api.validation.syntax import dns_label, qualified_name, subdomain

from .decode import Problem, shown
from .types import DeviceClassMapping, DeviceMeasure

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


def device_rules(mappings: tuple[DeviceClassMapping, ...], gates: Mapping[str, bool]) -> Iterable[Problem]:
    """What is wrong with the mappings, under those feature gates."""
    place = "resources.deviceClassMappings"
    if len(mappings) > 16:
        yield Problem(place, f"{len(mappings)} mappings; accepted: at most 16")
    names = [mapping.name for mapping in mappings]
    for index, mapping in enumerate(mappings):
        path = f"{place}[{index}]"
        if fault := qualified_name(mapping.name):
            yield Problem(f"{path}.name", f"{shown(mapping.name)}: {fault}")
        if mapping.name in names[:index]:
            yield Problem(f"{path}.name", f"{shown(mapping.name)} is listed twice")
        if not 1 <= len(mapping.device_class_names) <= 8:
            yield Problem(
                f"{path}.deviceClassNames", f"{len(mapping.device_class_names)} names; accepted: 1 to 8"
            )
        for position, name in enumerate(mapping.device_class_names):
            field = f"{path}.deviceClassNames[{position}]"
            if fault := subdomain(name):
                yield Problem(field, f"{shown(name)}: {fault}")
            if name in mapping.device_class_names[:position]:
                yield Problem(field, f"{shown(name)} is listed twice")
            for other in mappings[:index]:
                if name in other.device_class_names:
                    yield from _shared(field, mapping, other)
        yield from _sources(path, mapping, gates)


def _shared(field: str, mapping: DeviceClassMapping, other: DeviceClassMapping) -> Iterable[Problem]:
    """A class of two mappings is charged by a separate counter in each."""
    both = [_counters(each) for each in (mapping, other)]
    if not all(both):
        yield Problem(field, f"is mapped to {other.name} already; accepted: once, or by several counters")
    elif both[0] & both[1]:
        name = min(both[0] & both[1])
        yield Problem(field, f"has the counter {name} in the mapping {other.name} already")


def _counters(mapping: DeviceClassMapping) -> set[str]:
    return {source.counter.name for source in mapping.sources if source.counter is not None}


def _sources(path: str, mapping: DeviceClassMapping, gates: Mapping[str, bool]) -> Iterable[Problem]:
    for position, source in enumerate(mapping.sources):
        field = f"{path}.sources[{position}]"
        if (source.counter is None) == (source.capacity is None):
            yield Problem(field, "accepted: exactly one of counter and capacity")
            continue
        for kind, gate, measure in (
            ("counter", "KueueDRAIntegrationPartitionableDevices", source.counter),
            ("capacity", "KueueDRAIntegrationConsumableCapacity", source.capacity),
        ):
            if measure is None:
                continue
            if not gates[gate]:
                yield Problem(f"{field}.{kind}", f"needs the feature gate {gate}")
            yield from _measure(f"{field}.{kind}", measure, kind)
    if len({source.counter is not None for source in mapping.sources}) > 1:
        yield Problem(f"{path}.sources", "counter and capacity may not be mixed in one mapping")


def _measure(field: str, measure: DeviceMeasure, kind: str) -> Iterable[Problem]:
    if kind == "counter":
        fault = dns_label(measure.name)
    else:
        domain, slash, name = measure.name.rpartition("/")
        fault = subdomain(domain) if slash else ""
        if not fault and not _IDENTIFIER.fullmatch(name):
            fault = "accepted: a C identifier of at most 32 characters, with or without a domain before it"
    if fault:
        yield Problem(f"{field}.name", f"{shown(measure.name)}: {fault}")
    fault = subdomain(measure.driver) or ("longer than 63 characters" if len(measure.driver) > 63 else "")
    if fault:
        yield Problem(f"{field}.driver", f"{shown(measure.driver)}: {fault}")
    selector = measure.device_selector
    if selector is None or not selector.cel.expression:
        yield Problem(f"{field}.deviceSelector.cel.expression", "is required")
    elif fault := compile_error(selector.cel.expression):
        yield Problem(f"{field}.deviceSelector.cel.expression", fault)
