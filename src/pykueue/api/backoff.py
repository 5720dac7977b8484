"""Exponential back-off, as Kubernetes and Kueue use it for retries, restarts and requeuing."""

from __future__ import annotations


def exponential_delay(base: float, cap: float, doublings: int) -> float:
    """`base` doubled so many times (a negative number counts as 0), at most `cap`; both in seconds."""
    # A float has an exponent for about a thousand; every cap is reached long before.
    return min(base * 2.0 ** min(max(doublings, 0), 64), cap)
