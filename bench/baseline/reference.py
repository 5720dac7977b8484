"""A fixed program: figures are given in units of its CPU time. Changing it makes stored figures void."""

from __future__ import annotations

import json
from heapq import heappop, heappush


def reference() -> int:
    """Heaps, dicts, small objects, text and JSON, about a third of a second of a core of 2026."""
    heap: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    total = 0
    for number in range(240_000):
        key = f"object-{number * 7919 % 10_007}"
        heappush(heap, (number * 104_729 % 65_537, key))
        counts[key] = counts.get(key, 0) + number
        if number % 3 == 0:
            total += heappop(heap)[0]
    for number in range(10_000):
        obj = {
            "metadata": {"name": f"object-{number}", "labels": {"a": "b"}},
            "spec": {"counts": [number] * 20},
        }
        total += len(json.loads(json.dumps(obj))["metadata"]["name"])
    return total + len(counts)
