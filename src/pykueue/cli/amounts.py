"""Amounts for people, rounded as kubectl and Kueue round them; data (`-o json`, `-o yaml`) stays exact."""

from __future__ import annotations

import math

from pykueue.api.quantity import Quantity, QuantityError, parse
from pykueue.engine.quota.usage import is_bytes

_KI, _MI = 1 << 10, 1 << 20


def rounded(resource: str, amount: str) -> str:
    """An amount of an answer: bytes in whole Mi (below 1Mi: Ki), rounded down as `kubectl top` does."""
    if not is_bytes(resource):
        return amount
    try:
        value = parse(amount).value()
    except QuantityError:  # "unlimited"
        return amount
    unit = _MI if abs(value) >= _MI else _KI
    if abs(value) < unit or value % unit == 0:
        return amount
    whole = abs(value) // unit * unit
    return str(Quantity.of(whole if value > 0 else -whole, "BinarySI"))


def weighted_share(share: float | None) -> str:
    """Rounded up, as `status.fairSharing.weightedShare` is; `infinite` for None."""
    return "infinite" if share is None else str(math.ceil(share))
