"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

Both return a new document that shares every unchanged part with the old one, and the old one itself when
the patch changes nothing. Refusals follow docs/reference/kubernetes-api-machinery.md, section 11: a patch
that
cannot be read is 400, one that does not fit the document is 422.
"""

from __future__ import annotations

from typing import Any

import orjson

from pykueue.api.json_equality import same
from pykueue.api.objects import Object
from pykueue.kube.errors import ApiError

from .errors import bad_request
from .values import MAX_DEPTH, check_depth

#: Operations one JSON patch may have, bytes its copy operations may add up to, and list items that may change
#: their index, counted once for each operation.
MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
MAX_SHIFTED_ITEMS = 20_000_000

_MISSING = object()
_CONTAINERS = (dict, list)


def merge_patch(doc: Object, patch: Any, nulls: bool = True) -> Object:
    """Lay `patch` over `doc`: null removes a field, objects merge, everything else replaces.

    Without `nulls` the patch is known to have none; nothing is copied to remove them from its lists.
    """
    if not isinstance(patch, dict):
        raise bad_request("a merge patch must be a JSON object")
    merged: Object = _merge(doc, patch, 0, nulls)
    return merged


def _merge(doc: Object, patch: Object, depth: int, nulls: bool) -> Object:
    if depth > MAX_DEPTH:
        raise bad_request(f"the patch is nested deeper than {MAX_DEPTH} levels")
    changed: Object | None = None
    new: Any
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
            new = _merge(old if isinstance(old, dict) else {}, value, depth + 1, nulls)
            if new is old or (isinstance(old, dict) and not old and not new):
                continue
        else:
            new = _without_nulls(value) if nulls and type(value) is list else value
            if same(old, new):
                continue
        if changed is None:
            changed = dict(doc)
        changed[key] = new
    return doc if changed is None else changed


def _without_nulls(value: Any) -> Any:
    """Objects in the lists of a patch lose their nulls too; what is null in a list stays."""
    if isinstance(value, dict):
        return {
            key: _without_nulls(inner) if isinstance(inner, _CONTAINERS) else inner
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list):
        return [_without_nulls(inner) if isinstance(inner, _CONTAINERS) else inner for inner in value]
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
    editor = _Editor(doc)
    for operation in patch:
        editor.carry_out(operation)
    result = editor.doc
    if not isinstance(result, dict):
        raise _misfit("the result is not an object")
    return doc if same(doc, result) else result


class _Editor:
    """A document under the operations of one patch.

    Every container on the way to a change is copied once and then changed in place, so that many operations
    on a large container do not copy it each.
    """

    def __init__(self, doc: Object) -> None:
        self.doc: Any = doc
        #: Containers that were copied for this patch, by identity; they are kept so that no other gets it.
        self._own: dict[int, Any] = {}
        self._copied = self._shifted = 0

    def carry_out(self, operation: Object) -> None:
        """One operation. Raises ApiError."""
        name, path = operation.get("op"), _pointer(operation, "path")
        match name:
            case "add" | "replace" | "test":
                if "value" not in operation:
                    raise bad_request(f'the "{name}" operation on {operation["path"]} has no value')
                value = operation["value"]
                if name == "test":
                    _test(self.doc, path, value, operation["path"])
                else:
                    self._edit(path, value, name, operation["path"])
            case "remove":
                self._edit(path, None, "remove", operation["path"])
            case "move" | "copy":
                source = _pointer(operation, "from")
                value = _find(self.doc, source)
                if value is _MISSING:
                    raise _misfit(f"{name}: {operation['from']} is not there")
                if name == "move":
                    if path[: len(source)] == source and path != source:
                        raise _misfit(f"move: {operation['from']} cannot be moved into itself")
                    self._edit(source, None, "remove", operation["from"])
                else:
                    value = self._copy(value)
                self._edit(path, value, "add", operation["path"])
            case _:
                raise bad_request(
                    f"unknown operation {name!r}: known are add, remove, replace, move, copy and test"
                )

    def _copy(self, value: Any) -> Any:
        """A copy that shares nothing which is changed in place."""
        check_depth([value])
        data = orjson.dumps(value)
        self._copied += len(data)
        if self._copied > MAX_COPIED_BYTES:
            raise ApiError(
                413,
                "RequestEntityTooLarge",
                f"the patch copies more than {MAX_COPIED_BYTES} bytes",
            )
        return orjson.loads(data)

    def _edit(self, path: list[str], value: Any, operation: str, shown: str) -> None:
        """Add, replace or remove one place."""
        if not path:
            if operation == "remove":
                raise _misfit("the whole document cannot be removed")
            self.doc = value
            return
        self.doc = at = self._owned(self.doc)
        for token in path[:-1]:
            key = self._key(at, token, shown, operation)
            at[key] = self._owned(at[key])
            at = at[key]
        self._put(at, path[-1], value, operation, shown)

    def _owned(self, value: Any) -> Any:
        """The value itself, or a copy if it is a container that belongs to others too."""
        if (type(value) is not dict and type(value) is not list) or id(value) in self._own:
            return value
        copy = value.copy()
        self._own[id(copy)] = copy
        return copy

    @staticmethod
    def _key(container: Any, token: str, shown: str, operation: str) -> Any:
        """The key or index of what is there. Raises ApiError (422)."""
        if isinstance(container, list):
            return _index(token, len(container), shown)
        if not isinstance(container, dict):
            raise _misfit(
                f"{operation} operation does not apply: {shown} leads through a value that has no fields"
            )
        if token not in container:
            raise _misfit(f"{operation} operation does not apply: {shown} is not there")
        return token

    def _put(self, container: Any, token: str, value: Any, operation: str, shown: str) -> None:
        if operation == "add" and isinstance(container, dict):
            container[token] = value
        elif operation == "add" and isinstance(container, list):
            index = len(container) if token == "-" else _index(token, len(container) + 1, shown)
            self._shift(len(container) - index)
            container.insert(index, value)
        else:
            key = self._key(container, token, shown, operation)
            if operation == "remove":
                if isinstance(container, list):
                    self._shift(len(container) - key)
                del container[key]
            else:
                container[key] = value

    def _shift(self, items: int) -> None:
        """Count the items that move when one is put before them or taken away. Raises ApiError (413)."""
        self._shifted += items
        if self._shifted > MAX_SHIFTED_ITEMS:
            raise ApiError(
                413, "RequestEntityTooLarge", f"the patch moves more than {MAX_SHIFTED_ITEMS} list items"
            )


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
