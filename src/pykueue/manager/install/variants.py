"""One tree out of several renderings of the same objects, that knows in which of them each part is there.

The chart is made from it: what is there in every rendering is written plainly, the rest under a condition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Names of renderings.
Tags = frozenset[str]


@dataclass(frozen=True)
class Part:
    """A value and the renderings in which it is there. Mappings hold Parts by key, lists hold Parts."""

    tags: Tags
    value: Any


def merged(renderings: Mapping[str, Any]) -> Part:
    """The tree of renderings by name. Scalars that differ are as in the first of them."""
    tags = frozenset(renderings)
    first = next(iter(renderings.values()))
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for one in renderings.values() for key in one)
        return Part(tags, {key: merged(_having(renderings, key)) for key in keys})
    if isinstance(first, list):
        keyed = {tag: {_identity(item): item for item in items} for tag, items in renderings.items()}
        return Part(tags, [merged(_having(keyed, key)) for key in _in_order(list(keyed.values()))])
    return Part(tags, first)


def _having(renderings: Mapping[str, Any], key: Any) -> dict[str, Any]:
    return {tag: one[key] for tag, one in renderings.items() if key in one}


def _in_order(sequences: Sequence[Mapping[Any, Any]]) -> list[Any]:
    """All keys, those of the first in its order; others after what they follow in theirs."""
    order = list(sequences[0])
    for sequence in sequences[1:]:
        place = 0
        for key in sequence:
            if key in order:
                place = order.index(key) + 1
            else:
                order.insert(place, key)
                place += 1
    return order


def _identity(item: Any) -> Any:
    """What makes an item of a list the same in two renderings: kind and name, name, or all of it."""
    if isinstance(item, Mapping):
        metadata = item.get("metadata")
        if isinstance(metadata, Mapping) and "kind" in item:
            return item["kind"], metadata.get("namespace"), metadata["name"]
        if "name" in item:
            return item["name"]
    return json.dumps(item, sort_keys=True)
