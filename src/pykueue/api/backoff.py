"""Exponential back-off, as Kubernetes and Kueue use it for retries, restarts and requeuing."""

from __future__ import annotations

#: Doublings beyond which every cap is reached; a float holds no more than about a thousand.
_DOUBLINGS_MAX = 64


def exponential_delay(base: float, cap: float, doublings: int) -> float:
    """`base` doubled so many times (a negative number counts as 0), at most `cap`; both in seconds."""
    return min(base * 2.0 ** min(max(doublings, 0), _DOUBLINGS_MAX), cap)
