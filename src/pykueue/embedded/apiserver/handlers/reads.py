"""Get and list: at the current version, never showing what could still be lost, in chunks when asked.

Source: docs/reference/kubernetes-api-machinery.md, section 9.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from pykueue.api.objects import Object
from pykueue.api.quantity import whole_number
from pykueue.embedded.apiserver.registry.call import Answer, Call
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.objects.errors import (
    ListExpiredError,
    bad_request,
    expired,
    forbidden,
    invalid,
    invalid_object,
    not_found,
    shown,
)
from pykueue.embedded.objects.selectors import Filter, make_filter
from pykueue.embedded.store.records import Record
from pykueue.kube.errors import ApiError

#: Seconds a list waits for a resourceVersion that is not there yet.
_FUTURE_WAIT = 3.0
#: Unfinished chunked lists kept, and records they may hold together.
SNAPSHOTS = 64
SNAPSHOT_RECORDS = 2_000_000
#: Seconds an unfinished chunked list can be continued.
SNAPSHOT_AGE = 300.0


class Listing(NamedTuple):
    """A list answer before it is encoded."""

    records: list[Record]
    revision: str
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> Object:
        """The list's metadata."""
        meta: Object = {"resourceVersion": self.revision}
        if self.continue_token:
            meta["continue"] = self.continue_token
            if self.remaining is not None:
                meta["remainingItemCount"] = self.remaining
        return meta

    def stored(self) -> list[Object]:
        """The stored objects it shows."""
        return [record.peek() for record in self.records]

    def object(self, endpoint: Endpoint) -> Object:
        """The list as a value, items in the endpoint's version."""
        return {
            "kind": endpoint.kind.list_kind,
            "apiVersion": endpoint.api_version,
            "metadata": self.metadata(),
            "items": [endpoint.from_storage(record.object) for record in self.records],
        }


class _Snapshot(NamedTuple):
    records: list[Record]
    revision: str
    until: float
    counted: bool


def call_filter(call: Call) -> Filter:
    """What the query of a list, watch or deletecollection selects."""
    target, query = call.target, call.query
    return make_filter(
        target.namespace or None,
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        call.endpoint.kind.field_selectors,
        target.name,
    )


def version_number(text: str) -> int:
    """A resourceVersion as a number. 400 when it is none."""
    number = whole_number(text) if text[:1] not in ("-", "+") else None
    if number is None:
        quoted = shown(text)
        raise bad_request(
            f"resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: invalid syntax"
        )
    return number


def query_number(query: Mapping[str, str], field: str) -> int | None:
    """A query's integer, None where there is none. 400 when it is not an integer of 64 bits."""
    text = query.get(field, "")
    if not text:
        return None
    number = whole_number(text)
    if number is None:
        raise bad_request(f"{field}: strconv.ParseInt: parsing {shown(text)}: invalid syntax")
    return number


class Reads:
    """GET on objects and collections."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._snapshots: OrderedDict[tuple[str, str, str], _Snapshot] = OrderedDict()
        self._held = 0

    async def get(self, call: Call) -> Answer:
        """GET on an object."""
        endpoint, target = call.endpoint, call.target
        wanted = call.query.get("resourceVersion")
        if wanted:
            await self._reach(version_number(wanted))
        key = (target.namespace, target.name)
        record = endpoint.table.get_settled(key)
        if record is None:
            raise not_found(endpoint.group, endpoint.plural, target.name)
        return Answer(200, record)

    async def _reach(self, revision: int) -> None:
        """Wait until the server is at a revision; 504 when it is far ahead of it."""
        store = self._core.store
        waited = 0.0
        while store.settled_revision < revision:
            if waited >= _FUTURE_WAIT:
                raise ApiError(
                    504,
                    "Timeout",
                    f"Too large resource version: {revision}, current: {store.settled_revision}",
                    {
                        "causes": [
                            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                        ],
                        "retryAfterSeconds": 1,
                    },
                    1,
                )
            await self._core.clock.sleep(0.05)
            waited += 0.05

    async def listing(self, call: Call) -> Listing:
        """GET on a collection."""
        query = call.query
        limit = max(0, query_number(query, "limit") or 0)
        query_number(query, "timeoutSeconds")
        token = query.get("continue", "")
        self._check_version_options(query, token)
        selection = call_filter(call)
        if token:
            return await self._continue(call, selection, token, limit)
        wanted = query.get("resourceVersion", "")
        if wanted and wanted != "0":
            revision = version_number(wanted)
            await self._reach(revision)
            if query.get("resourceVersionMatch") == "Exact" and call.endpoint.table.revision > revision:
                raise expired(f"The resourceVersion for the provided list is too old: {revision}")
        current = str(self._core.store.settled_revision)
        records = await self._select(call.endpoint, selection)
        return self._chunk(call, records, current, limit, not selection.selective)

    def _check_version_options(self, query: Mapping[str, str], token: str) -> None:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        causes = []
        if match:
            if match not in ("Exact", "NotOlderThan"):
                causes.append(invalid("resourceVersionMatch", match, "supported values: Exact, NotOlderThan"))
            elif not version:
                causes.append(
                    forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden unless resourceVersion is provided",
                    )
                )
            elif match == "Exact" and version == "0":
                causes.append(
                    forbidden(
                        "resourceVersionMatch",
                        'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                    )
                )
        if "sendInitialEvents" in query:
            causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if causes:
            raise invalid_object("meta.k8s.io", "ListOptions", "", causes)
        if token and version and version != "0":
            raise bad_request("specifying resource version is not allowed when using continue")
        if version and version != "0":
            version_number(version)

    async def _select(self, endpoint: Endpoint, selection: Filter) -> list[Record]:
        known_place = selection.namespace is not None or not endpoint.namespaced
        if selection.name is not None and known_place:
            record = endpoint.table.get_settled((selection.namespace or "", selection.name or ""))
            records = [record] if record is not None else []
        else:
            records = endpoint.table.settled_records(selection.namespace)
        if selection.selective:
            await endpoint.ready(one.peek() for one in records)
            from_storage = endpoint.from_storage
            records = [one for one in records if selection.matches(from_storage(one.peek()))]
        return records

    def _chunk(self, call: Call, records: list[Record], revision: str, limit: int, counted: bool) -> Listing:
        if not limit or len(records) <= limit:
            return Listing(records, revision)
        rest = records[limit:]
        self._keep(call, _Snapshot(rest, revision, self._core.clock.monotonic() + SNAPSHOT_AGE, counted))
        token = _token(int(revision), rest[0])
        return Listing(records[:limit], revision, token, len(rest) if counted else None)

    def _snapshot_key(self, call: Call, token: str) -> tuple[str, str, str]:
        query = call.query
        scope = f"{call.target.namespace}?{query.get('labelSelector', '')}?{query.get('fieldSelector', '')}"
        return (call.endpoint.table.name, scope, token)

    def _keep(self, call: Call, snapshot: _Snapshot) -> None:
        key = self._snapshot_key(call, _token(int(snapshot.revision), snapshot.records[0]))
        known = self._snapshots.pop(key, None)
        if known is not None:
            self._held -= len(known.records)
        self._snapshots[key] = snapshot
        self._held += len(snapshot.records)
        self._drop_snapshots()

    def _drop_snapshots(self) -> None:
        """Forget those that are too old, and the oldest of those that are too many."""
        now = self._core.clock.monotonic()
        while self._snapshots:
            oldest = next(iter(self._snapshots.values()))
            full = len(self._snapshots) > SNAPSHOTS or self._held > SNAPSHOT_RECORDS
            if not full and oldest.until >= now:
                return
            self._snapshots.popitem(last=False)
            self._held -= len(oldest.records)

    async def _continue(self, call: Call, selection: Filter, token: str, limit: int) -> Listing:
        revision, start = _parse_token(token)
        self._drop_snapshots()
        if revision < 0:  # an inconsistent continuation after the history was gone
            records = [one for one in await self._select(call.endpoint, selection) if _position(one) >= start]
            return self._chunk(call, records, str(self._core.store.settled_revision), limit, False)
        snapshot = self._snapshots.get(self._snapshot_key(call, token))
        if snapshot is None or snapshot.until < self._core.clock.monotonic():
            raise ListExpiredError(
                "The provided continue parameter is too old to display a consistent list result. You can "
                "start a new list without the continue parameter, or use the continue token in this response "
                "to retrieve the remainder of the results. Continuing with the provided token results in an "
                "inconsistent list - objects that were created, modified, or deleted between the time the "
                "first chunk was returned and now may show up in the list.",
                _encode_token(-1, start),
            )
        return self._chunk(call, snapshot.records, snapshot.revision, limit, snapshot.counted)


def _position(record: Record) -> str:
    namespace, name = record.key
    return f"{namespace}/{name}\0" if namespace else f"{name}\0"


def _token(revision: int, record: Record) -> str:
    return _encode_token(revision, _position(record))


def _encode_token(revision: int, start: str) -> str:
    value = orjson.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _parse_token(token: str) -> tuple[int, str]:
    try:
        value: Any = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if value["v"] != "meta.k8s.io/v1":
            raise ValueError(value["v"])
        return int(value["rv"]), str(value["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from None
