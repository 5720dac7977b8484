"""JSON values: equality as JSON means it, type names, and how deep a document may go.

Python takes 1, 1.0 and True for equal; JSON does not, and an object in which one became the other has
changed.
"""

from __future__ import annotations

from typing import Any

import orjson

from pykueue.embedded.apiserver.status import bad_request

#: Levels of nesting a document may have. The encoder gives up at 254; an envelope such as a list needs a few.
MAX_DEPTH = 240

_SCALARS = (str, int, float, bool, type(None))


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


def type_name(value: Any) -> str:
    """The JSON type of a value in the words of Kubernetes' messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def check_depth(value: Any) -> None:
    """Refuse (400) a document nested deeper than MAX_DEPTH levels, whatever its size.

    Cheap for ordinary documents: containers are visited level by level, scalars never.
    """
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise bad_request(f"the document is nested deeper than {MAX_DEPTH} levels")
