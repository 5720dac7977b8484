"""Kubernetes quantities: exact amounts of cpu, memory and devices, with the suffix they were written in.

A quantity is a whole number of nanos (10^-9), so every operation is exact integer arithmetic. What cannot be
held is decided while parsing, as Kubernetes documents it: finer than a nano rounds away from zero, larger
than 2^63-1 is capped there. Sums and products are not capped; `value()` and `milli()` saturate at the limits
of 64 bits.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Any, Final, Literal

from pykueue.api.caching import cached_by_text

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

#: What a structural schema says about the text of a quantity.
PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)

_NANO = 10**9
_CAP = MAX_INT64 * _NANO
#: Longest text accepted; a number of this length is far beyond every limit.
_MAX_TEXT = 256

_GRAMMAR = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class QuantityError(ValueError):
    """A value is not a quantity. The text names the value and what is accepted."""

    def __init__(self, value: object) -> None:
        shown = repr(value)
        super().__init__(
            f"{shown if len(shown) <= 80 else shown[:77] + '...'} is not a quantity: a number is accepted, "
            "with a suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
        )
        self.value = value


@total_ordering
class Quantity:
    """An exact amount. Immutable; equal amounts are equal whatever suffix they were written in.

    Source: the Kubernetes documentation of quantities; rounding as in docs/reference/kueue-semantics.md 2.1.
    """

    __slots__ = ("_text", "format", "nanos")

    #: The amount in units of 10^-9.
    nanos: int
    #: The family of suffixes it is printed in.
    format: Format
    _text: str | None

    def __init__(self, nanos: int, format: Format = "DecimalSI") -> None:
        object.__setattr__(self, "nanos", nanos)
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "_text", None)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Quantity is immutable: cannot set {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Quantity, (self.nanos, self.format))

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(value: int, format: Format = "DecimalSI") -> Quantity:
        """A whole amount in base units (cores, bytes, pieces)."""
        return Quantity(value * _NANO, format)

    @staticmethod
    @lru_cache(maxsize=1024)
    def of_milli(value: int) -> Quantity:
        """An amount in thousandths, as cpu is counted."""
        return Quantity(value * 1_000_000)

    def value(self) -> int:
        """The amount in base units, rounded away from zero, saturated at the limits of 64 bits."""
        return _rounded(self.nanos, _NANO)

    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero, saturated at the limits of 64 bits."""
        return _rounded(self.nanos, 1_000_000)

    def is_zero(self) -> bool:
        return self.nanos == 0

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __mul__(self, factor: int) -> Quantity:
        if not isinstance(factor, int):
            return NotImplemented
        return Quantity(self.nanos * factor, self.format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __float__(self) -> float:
        return self.nanos / _NANO

    def __str__(self) -> str:
        """The canonical text: no fraction, the largest suffix that keeps the amount exact."""
        text = self._text
        if text is None:
            text = _canonical(self.nanos, self.format)
            object.__setattr__(self, "_text", text)
        return text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


def parse(value: str | int | float | Quantity) -> Quantity:
    """The quantity a manifest says: text, or a bare number. Raises QuantityError."""
    if type(value) is str:
        return _parse_text(value)
    if isinstance(value, Quantity):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise QuantityError(value)
    return _parse_text(str(value) if isinstance(value, int) else repr(value))


@cached_by_text(16384)
def _parse_text(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(text)
    sign, whole, fraction, suffix = match.groups()
    fraction = fraction or ""
    if not whole and not fraction:
        raise QuantityError(text)
    digits = int(whole + fraction)
    if digits == 0:
        return Quantity(0, _format_of(suffix))
    shift = 0
    if suffix is None:
        exponent = 0
    elif suffix in _DECIMAL:
        exponent = _DECIMAL[suffix]
    elif suffix in _BINARY:
        exponent, shift = 0, _BINARY[suffix]
    else:
        # Beyond these bounds the answer is the cap or one nano, whatever the digits say.
        exponent = max(-2 * _MAX_TEXT, min(2 * _MAX_TEXT, int(suffix[1:])))
    scale = exponent - len(fraction) + 9
    scaled = digits << shift
    nanos = min(scaled * 10**scale if scale >= 0 else -(-scaled // 10**-scale), _CAP)
    chosen = _format_of(suffix)
    if chosen == "BinarySI" and nanos < _NANO:
        chosen = "DecimalSI"
    return Quantity(-nanos if sign == "-" else nanos, chosen)


def _format_of(suffix: str | None) -> Format:
    if suffix is None or suffix in _DECIMAL:
        return "DecimalSI"
    return "BinarySI" if suffix in _BINARY else "DecimalExponent"


def _rounded(nanos: int, unit: int) -> int:
    if nanos >= 0:
        return min(-(-nanos // unit), MAX_INT64)
    return max(nanos // unit, MIN_INT64)


def _canonical(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    # Below 1024 and for fractions, binary suffixes say nothing: decimal ones are exact.
    if format == "BinarySI" and nanos % _NANO == 0 and abs(nanos) >= 1024 * _NANO:
        number, power = nanos // _NANO, 0
        while power < 6 and number % 1024 == 0:
            number //= 1024
            power += 1
        return f"{number}{_BINARY_SUFFIX[power]}"
    number, exponent = nanos, -9
    while number % 1000 == 0:
        number //= 1000
        exponent += 3
    if format == "DecimalExponent" or exponent > 18:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX[exponent]}"


ZERO: Final = Quantity(0)


def whole_number(text: str) -> int | None:
    """An integer of 64 bits as a query writes it, with a sign or without; None when it is none."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
