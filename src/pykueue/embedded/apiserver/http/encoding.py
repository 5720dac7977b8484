"""Answers as bytes. Stored objects are encoded once, by their record; lists and watches only join them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson
import yaml

from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.embedded.apiserver.handlers.reads import Listing
from pykueue.embedded.apiserver.handlers.tables import table
from pykueue.embedded.apiserver.registry.call import Answer, Call
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.apiserver.watch.selection import Shown
from pykueue.embedded.kinds.base import Column, Kind
from pykueue.embedded.objects.errors import not_acceptable
from pykueue.embedded.store.records import Batch, Record, encoded

from .exchange import Exchange
from .negotiation import YAML, Form

#: Views an object's answer, a list's answer and a watch can have.
OBJECT_VIEWS = ("Table", "PartialObjectMetadata")
LIST_VIEWS = ("Table", "PartialObjectMetadataList")
#: Header fields of answers.
CACHE_FIELD = b"Cache-Control: no-cache, private\r\n"
JSON_FIELDS = CACHE_FIELD + b"Content-Type: application/json\r\n"
TEXT_FIELDS = CACHE_FIELD + b"Content-Type: text/plain\r\n"
#: Objects of a list encoded between two pauses; YAML takes about thirty times as long.
_STEP, _YAML_STEP = 500, 50


class _StatusKind(Kind):
    """How a Status is printed."""

    kind = "Status"
    columns = (Column("Status"), Column("Reason"), Column("Message"))

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj.get("status"), obj.get("reason"), obj.get("message")]


class _ScaleKind(Kind):
    """How a Scale is printed."""

    kind = "Scale"
    columns = (
        Column("Name", format="name"),
        Column("Desired", "integer"),
        Column("Available", "integer"),
        Column("Age"),
    )

    def cells(self, obj: Object, now: float) -> list[Any]:
        name, age = super().cells(obj, now)
        return [name, obj["spec"].get("replicas"), obj["status"].get("replicas"), age]


_FOREIGN = {"Status": _StatusKind(), "Scale": _ScaleKind()}


@lru_cache(maxsize=64)
def fields_of(form: Form) -> bytes:
    """The header fields of an answer in a form."""
    return CACHE_FIELD + f"Content-Type: {form.content_type}\r\n".encode()


def dump(value: Any, media: str, pretty: bool = False) -> bytes:
    """A JSON-able value in a media type."""
    if media == YAML:
        return yaml.dump(orjson.loads(orjson.dumps(value)), Dumper=yaml.CSafeDumper, sort_keys=False).encode()
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else 0)


def _partial(obj: Object, version: str) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def encode_answer(call: Call, answer: Answer, form: Form, now: float) -> bytes:
    """One object's (or Status') answer."""
    endpoint, pretty = call.endpoint, call.flag("pretty")
    record = answer.record
    if record is not None and not form.view and form.media != YAML and endpoint.stored and not pretty:
        return record.data
    value = answer.object(endpoint)
    foreign = isinstance(value, dict) and value.get("kind") != endpoint.kind.kind
    if not form.view or (foreign and value.get("kind") not in _FOREIGN):
        return dump(value, form.media, pretty)
    if form.view == "Table":
        kind = _FOREIGN[value["kind"]] if foreign else endpoint.kind
        meta = {"resourceVersion": value["metadata"].get("resourceVersion", "")}
        include = call.query.get("includeObject", "Metadata")
        return dump(table(kind, [value], meta, now, include, True, form.version), form.media, pretty)
    return dump(_partial(value, form.version), form.media, pretty)


async def encode_listing(call: Call, listing: Listing, form: Form, now: float) -> bytes:
    """A list's answer, encoded in steps between which other requests are served."""
    endpoint, pretty = call.endpoint, call.flag("pretty")
    stored = not form.view and form.media != YAML and not pretty and endpoint.stored
    include = call.query.get("includeObject", "Metadata")
    if form.view not in ("", "Table", "PartialObjectMetadataList"):
        raise not_acceptable("the list was not requested as a PartialObjectMetadataList")

    def listed(records: Sequence[Record]) -> Object:
        objects = (endpoint.from_storage(record.peek()) for record in records)
        meta = listing.metadata()
        if form.view == "Table":
            return table(endpoint.kind, objects, meta, now, include, True, form.version)
        if form.view:
            items = [_partial(obj, form.version) for obj in objects]
            kind, api_version = form.view, f"meta.k8s.io/{form.version}"
        else:
            items = list(objects)
            kind, api_version = endpoint.kind.list_kind, endpoint.api_version
        return {"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items}

    key = "rows" if form.view == "Table" else "items"
    empty = listed(())
    if not listing.records:
        return dump(empty, form.media, pretty)
    del empty[key]
    head = dump(empty, form.media, pretty)
    step = _STEP
    if form.media == YAML:
        before, between, after = f"{key}:\n".encode(), b"", b""
        parts, step = [head, before], _YAML_STEP
    elif pretty:
        before, between, after = f'{{\n  "{key}": [\n'.encode(), b",\n", b"\n  ]\n}"
        parts = [head[:-2], b",", before[1:]]
    else:
        before, between, after = f'{{"{key}":['.encode(), b",", b"]}"
        parts = [head[:-1], b",", before[1:]]
    for start in range(0, len(listing.records), step):
        if start:
            parts.append(between)
            await asyncio.sleep(0)
        records = listing.records[start : start + step]
        if stored:
            parts.append(b",".join(encoded(records)))
        else:
            text = dump({key: listed(records)[key]}, form.media, pretty)
            parts.append(text[len(before) : len(text) - len(after)])
    return b"".join((*parts, after))


class FrameEncoder:
    """Frames of one watch, in the form its client wants."""

    def __init__(self, call: Call, form: Form, exchange: Exchange, selection: str = "") -> None:
        self._exchange = exchange
        self._endpoint: Endpoint = call.endpoint
        self._form = form
        self._include = call.query.get("includeObject", "Metadata")
        self._columns_due = form.view == "Table"
        self._plain = form.view == "" and self._endpoint.stored
        self._key = f"{exchange.framing} {form.view} {form.version} {self._include}\n{selection}"

    def part(self, shown: Sequence[Shown], batch: Batch | None, clock: Clock) -> bytes:
        """The frames as one part of the answer, shared by watches that see a batch in the same form."""
        framed = self._exchange.framed
        if batch is None or self._columns_due:
            return framed(self.frames(shown, clock.time()))
        found: bytes | None = batch.cache.get(self._key)
        if found is None:
            found = batch.cache[self._key] = framed(self.frames(shown, clock.time()))
        return found

    def frames(self, shown: Sequence[Shown], now: float) -> bytes:
        """The frames of some events."""
        if self._plain:
            parts: list[bytes] = []
            for kind, record in shown:
                parts += (_HEADS[kind], record.data, b"}\n")
            return b"".join(parts)
        return b"".join(self.frame(kind, self._view(record, now)) for kind, record in shown)

    def _view(self, record: Record, now: float) -> Object:
        return self.in_form(self._endpoint.from_storage(record.peek()), now)

    def in_form(self, obj: Object, now: float) -> Object:
        """An object as the client wants it."""
        form = self._form
        if form.view == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            first = self._columns_due
            self._columns_due = False
            shown = table(self._endpoint.kind, [obj], meta, now, self._include, first, form.version)
            if not first:
                shown["columnDefinitions"] = None
            return shown
        if form.view:
            return _partial(obj, form.version)
        return obj

    def bookmark(self, obj: Object) -> bytes:
        """The frame of a BOOKMARK."""
        form = self._form
        if form.view == "Table":
            row = {"cells": [], "object": _partial(obj, form.version)}
            shown: Object = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{form.version}",
                "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
                "columnDefinitions": None,
                "rows": [row],
            }
        elif form.view:
            shown = _partial(obj, form.version)
        else:
            shown = obj
        return self.frame("BOOKMARK", shown)

    def frame(self, kind: str, obj: Object) -> bytes:
        """One frame."""
        return orjson.dumps({"type": kind, "object": obj}) + b"\n"


_HEADS = {
    kind: f'{{"type":"{kind}","object":'.encode() for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
}
