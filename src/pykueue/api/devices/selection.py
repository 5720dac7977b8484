"""Which devices the CEL expressions of classes and requests select.

An expression reads `device.driver`, `device.attributes["DOMAIN"].NAME`, `device.capacity["DOMAIN"].NAME` and
`device.allowMultipleAllocations`. A name without a domain belongs to the domain of its driver; a domain that
a device does not have is an empty map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pykueue import extras
from pykueue.api.caching import cached_by_text
from pykueue.api.devices.taints import selects
from pykueue.api.devices.types import Device, DeviceSelector, DeviceTaint, DeviceTaintRule, ResourceSlice

if TYPE_CHECKING:
    from pykueue.api.cel.program import Program

#: Texts in brackets: the domains an expression may read.
_DOMAINS: Final = re.compile(r"""\[\s*(?:"([^"\\]+)"|'([^'\\]+)')\s*\]""")


class SelectorError(ValueError):
    """An expression that does not compile, or that cannot be evaluated for a device; the text says why."""


class _Expression:
    """A compiled expression, and the domains that it reads."""

    __slots__ = ("domains", "program")

    def __init__(self, text: str, program: Program) -> None:
        self.program = program
        self.domains = sorted({one or other for one, other in _DOMAINS.findall(text)})


@cached_by_text(512)
def compiled(text: str) -> _Expression | str:
    """The program of an expression, which is remembered, or why it does not compile."""
    if fault := extras.cel_missing():
        return fault
    # The library takes 22 MB and 50 ms; few clusters have device classes with expressions.
    from pykueue.api.cel.functions import T
    from pykueue.api.cel.program import Program, RuleError

    try:
        program = Program(text, variables=("device",))
    except RuleError as error:
        return str(error)
    return _Expression(text, program) if program.returns(T.BOOL) else "must evaluate to bool"


def compile_error(text: str) -> str:
    """Why an expression does not compile, or empty."""
    found = compiled(text)
    return found if isinstance(found, str) else ""


class Candidate:
    """A device as expressions and requests see it: with its driver, its pool and its slice."""

    __slots__ = ("_view", "device", "driver", "pool", "slice", "taints")

    def __init__(self, device: Device, of: ResourceSlice, rules: Iterable[DeviceTaintRule] = ()) -> None:
        self.device = device
        self.slice = of
        self.driver = of.spec.driver
        self.pool = of.spec.pool.name
        #: Those of its slice, and of the DeviceTaintRules that select it.
        self.taints: Sequence[DeviceTaint] = [
            *device.taints,
            *(rule.spec.taint for rule in rules if selects(rule, self.id)),
        ]
        self._view: dict[str, Any] | None = None

    @property
    def id(self) -> tuple[str, str, str]:
        """Driver, pool and name, which no other device has."""
        return self.driver, self.pool, self.device.name

    def attribute(self, name: str) -> tuple[str, Any] | None:
        """(type, value) of an attribute by its full name `DOMAIN/NAME`; None if the device has none of it."""
        attributes = self.device.attributes
        domain, _, short = name.rpartition("/")
        found = attributes.get(name)
        if found is None and domain == self.driver:
            found = attributes.get(short)
        return next(iter(found.items())) if found else None

    def matches(self, selectors: Iterable[DeviceSelector]) -> bool:
        """Whether all selectors are true for it. Raises SelectorError."""
        for selector in selectors:
            if selector.cel is not None and not self.satisfies(selector.cel.expression):
                return False
        return True

    def satisfies(self, text: str) -> bool:
        """Whether an expression is true for it. Raises SelectorError."""
        expression = compiled(text)
        if isinstance(expression, str):
            raise SelectorError(f"CEL compilation failed: {expression}")
        view = self._view
        if view is None:
            view = self._view = _view(self.device, self.driver)
        if expression.domains:
            empty: dict[str, Any] = {domain: {} for domain in expression.domains}
            view = {
                **view,
                "attributes": empty | view["attributes"],
                "capacity": empty | view["capacity"],
            }
        result, fault = expression.program.answer_over({"device": view})
        if fault:
            raise SelectorError(f"device {self.device.name}: {fault}")
        return bool(result)


def _view(device: Device, driver: str) -> dict[str, Any]:
    """The variable `device` of expressions."""
    from pykueue.api.cel.library import quantity_map

    attributes: dict[str, dict[str, Any]] = {}
    for name, value in device.attributes.items():
        domain, short = _qualified(name, driver)
        attributes.setdefault(domain, {})[short] = _attribute(value)
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in device.capacity.items():
        domain, short = _qualified(name, driver)
        capacity.setdefault(domain, {})[short] = quantity_map(amount.value)
    return {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.rpartition("/")
    return (domain, short) if slash else (driver, name)


def _attribute(value: Mapping[str, Any]) -> Any:
    if "version" in value:
        from pykueue.api.cel.library import parse_semver

        try:
            return parse_semver(value["version"])
        except ValueError:
            return value["version"]
    return next(iter(value.values()), None)


def newest_pools(slices: Iterable[ResourceSlice]) -> list[list[ResourceSlice]]:
    """The slices of each pool that is complete, of its newest generation only; ordered by driver and pool."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for item in slices:
        key = (item.spec.driver, item.spec.pool.name)
        known = pools.get(key)
        newer = known is not None and item.spec.pool.generation - known[0].spec.pool.generation
        if known is None or newer > 0:
            pools[key] = [item]
        elif newer == 0:
            known.append(item)
    return [
        sorted(found, key=lambda item: item.metadata.name)
        for _, found in sorted(pools.items())
        if len(found) == found[0].spec.pool.resource_slice_count
    ]


def candidates(
    pools: Iterable[Sequence[ResourceSlice]], rules: Sequence[DeviceTaintRule] = ()
) -> list[Candidate]:
    """The devices of pools, in order, with the taints that rules give them."""
    return [
        Candidate(device, item, rules) for slices in pools for item in slices for device in item.spec.devices
    ]
