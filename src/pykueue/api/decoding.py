"""From a manifest (a dict as JSON or YAML gives it) to a typed object and back."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from pykueue.api.quantity import Quantity, parse

T = TypeVar("T")


class DecodeError(ValueError):
    """A manifest does not have the shape of its kind. The text names the object, the field and the fault."""

    def __init__(self, subject: str, why: str) -> None:
        super().__init__(f"{subject}: {why}")
        self.subject = subject
        self.why = why


def _decode_extension(type: type, value: Any) -> Any:
    if type is Quantity:
        return parse(value)
    raise NotImplementedError(type)


def _encode_extension(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(type(value))


def decode_as(type: type[T], manifest: Any) -> T:
    """The manifest as that type; the manifest is shared, not copied. Raises DecodeError.

    A null stands for an absent field, as it does for a Kubernetes API server.
    """
    try:
        return msgspec.convert(manifest, type, dec_hook=_decode_extension)
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(_without_nulls(manifest), type, dec_hook=_decode_extension)
    except msgspec.ValidationError as error:
        raise DecodeError(describe(manifest), _explain(error)) from None


def encode(value: Any) -> Any:
    """The manifest of a typed value: dicts, lists and scalars only. Fields at their default are left out."""
    return msgspec.to_builtins(value, enc_hook=_encode_extension)


def describe(manifest: Any) -> str:
    """What to call an object in an error: `Workload team-a/train`."""
    if not isinstance(manifest, dict):
        return "object"
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or "(no name)"
    namespace = metadata.get("namespace")
    return f"{manifest.get('kind') or 'object'} {f'{namespace}/{name}' if namespace else name}"


def _explain(error: msgspec.ValidationError) -> str:
    """msgspec's text says `... - at `$.spec.x[...]``; ours names the field first, as Kubernetes does."""
    why, separator, path = str(error).rpartition(" - at `$")
    if not separator:
        return str(error)
    field = path.rstrip("`").lstrip(".")
    return f"{field}: {why}" if field else why


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value
