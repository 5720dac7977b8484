"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

Both return a new document that shares every unchanged part with the old one, and the old one itself when
the patch changes nothing. Refusals follow reference/kubernetes-api-machinery.md, section 11: a patch that
cannot be read is 400, one that does not fit the document is 422.
"""

from __future__ import annotations

from typing import Any

import orjson

from pykueue.embedded.apiserver.status import bad_request
from pykueue.embedded.apiserver.values import MAX_DEPTH, check_depth, same
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

#: Operations one JSON patch may have, and bytes its copy operations may add up to.
MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024

_MISSING = object()


def merge_patch(doc: Object, patch: Any) -> Object:
    """Lay `patch` over `doc`: null removes a field, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        raise bad_request("a merge patch must be a JSON object")
    merged: Object = _merge(doc, patch, 0)
    return merged


def _merge(doc: Object, patch: Object, depth: int) -> Object:
    if depth > MAX_DEPTH:
        raise bad_request(f"the patch is nested deeper than {MAX_DEPTH} levels")
    changed: Object | None = None
    for key, value in patch.items():
        old = doc.get(key, _MISSING)
        if value is None:
            if old is _MISSING:
                continue
            if changed is None:
                changed = dict(doc)
            del changed[key]
            continue
        if isinstance(value, dict):
            new = _merge(old if isinstance(old, dict) else {}, value, depth + 1)
            if new is old or (isinstance(old, dict) and not old and not new):
                continue
        else:
            new = _without_nulls(value)
            if same(old, new):
                continue
        if changed is None:
            changed = dict(doc)
        changed[key] = new
    return doc if changed is None else changed


def _without_nulls(value: Any) -> Any:
    """Objects in the lists of a patch lose their nulls too; what is null in a list stays."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def json_patch(doc: Object, patch: Any) -> Object:
    """Carry out the operations of a JSON patch in order; all of them or none."""
    if not isinstance(patch, list) or not all(isinstance(one, dict) for one in patch):
        raise bad_request("a JSON patch must be an array of operations")
    if len(patch) > MAX_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"a JSON patch may have {MAX_OPERATIONS} operations, this one has {len(patch)}",
        )
    check_depth(patch)
    result: Any = doc
    copied = 0
    for operation in patch:
        name, path = operation.get("op"), _pointer(operation, "path")
        match name:
            case "add" | "replace" | "test":
                if "value" not in operation:
                    raise bad_request(f'the "{name}" operation on {operation["path"]} has no value')
                value = operation["value"]
                if name == "test":
                    _test(result, path, value, operation["path"])
                    continue
                result = _edit(result, path, 0, value, name, operation["path"])
            case "remove":
                result = _edit(result, path, 0, None, name, operation["path"])
            case "move" | "copy":
                source = _pointer(operation, "from")
                value = _find(result, source)
                if value is _MISSING:
                    raise _misfit(f"{name}: {operation['from']} is not there")
                if name == "move":
                    if path[: len(source)] == source and path != source:
                        raise _misfit(f"move: {operation['from']} cannot be moved into itself")
                    result = _edit(result, source, 0, None, "remove", operation["from"])
                else:
                    copied += _size(value)
                    if copied > MAX_COPIED_BYTES:
                        raise ApiError(
                            413,
                            "RequestEntityTooLarge",
                            f"the patch copies more than {MAX_COPIED_BYTES} bytes",
                        )
                result = _edit(result, path, 0, value, "add", operation["path"])
            case _:
                raise bad_request(
                    f"unknown operation {name!r}: known are add, remove, replace, move, copy and test"
                )
    if not isinstance(result, dict):
        raise _misfit("the result is not an object")
    return doc if same(doc, result) else result


def _size(value: Any) -> int:
    check_depth([value])
    return len(orjson.dumps(value))


def _misfit(detail: str) -> ApiError:
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {detail}"
    )


def _pointer(operation: Object, member: str) -> list[str]:
    """The reference tokens of a JSON pointer (RFC 6901)."""
    text = operation.get(member)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise bad_request(f'the "{member}" of a JSON patch operation must be a JSON pointer, not {text!r}')
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:]]
    if len(tokens) > MAX_DEPTH:
        raise bad_request(f'the "{member}" of a JSON patch operation is deeper than {MAX_DEPTH} levels')
    return tokens


def _index(token: str, length: int, shown: str) -> int:
    """A list index below `length`, in canonical decimal form."""
    if not token.isascii() or not token.isdigit() or (len(token) > 1 and token[0] == "0") or len(token) > 9:
        raise _misfit(f"{shown}: {token!r} is not a list index")
    index = int(token)
    if index >= length:
        raise _misfit(f"{shown}: index {index} is out of bounds")
    return index


def _find(doc: Any, path: list[str]) -> Any:
    for token in path:
        if isinstance(doc, dict):
            doc = doc.get(token, _MISSING)
        elif isinstance(doc, list) and token.isascii() and token.isdigit() and len(token) < 10:
            doc = doc[int(token)] if int(token) < len(doc) else _MISSING
        else:
            return _MISSING
        if doc is _MISSING:
            return doc
    return doc


def _test(doc: Any, path: list[str], value: Any, shown: str) -> None:
    """Testing a missing place for null succeeds, as it does on a Kubernetes API server."""
    found = _find(doc, path)
    if not (same(found, value) or (found is _MISSING and value is None)):
        raise _misfit(f"testing path {shown} failed")


def _edit(doc: Any, path: list[str], at: int, value: Any, operation: str, shown: str) -> Any:
    """`doc` with one place added, replaced or removed; the containers on the way are copied."""
    if at == len(path):
        if operation == "remove":
            raise _misfit("the whole document cannot be removed")
        return value
    token = path[at]
    last = at == len(path) - 1
    if isinstance(doc, dict):
        if token not in doc and not (last and operation == "add"):
            raise _misfit(f"{operation} operation does not apply: {shown} is not there")
        edited = dict(doc)
        if last and operation == "remove":
            del edited[token]
        else:
            edited[token] = value if last else _edit(doc[token], path, at + 1, value, operation, shown)
        return edited
    if isinstance(doc, list):
        if last and operation == "add":
            index = len(doc) if token == "-" else _index(token, len(doc) + 1, shown)
            return [*doc[:index], value, *doc[index:]]
        index = _index(token, len(doc), shown)
        items = list(doc)
        if last and operation == "remove":
            del items[index]
        else:
            items[index] = value if last else _edit(doc[index], path, at + 1, value, operation, shown)
        return items
    raise _misfit(f"{operation} operation does not apply: {shown} leads through a value that has no fields")
