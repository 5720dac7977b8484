"""Equality of JSON values as JSON means it.

Python takes 1, 1.0 and True for equal; JSON does not, and an object in which one became the other has
changed.
"""

from __future__ import annotations

from typing import Any

import orjson


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal, telling numbers from booleans and integers from floats."""
    if left is right:
        return True
    kind = type(left)
    if kind is not type(right) or left != right:
        return False
    if kind is dict or kind is list:
        return orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            right, option=orjson.OPT_SORT_KEYS
        )
    return True
