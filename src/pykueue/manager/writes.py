"""How the manager writes: the smallest patch, on condition that no other client wrote in between.

Every write names the version it is based on. What comes back is noted in the cache, so the next decision
rests on it; a conflict means reading again and deciding again, never overwriting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pykueue.api.objects import Key, Object, key_of, merge_patch
from pykueue.api.resources import Resource
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer

#: How often a status is computed again because another client wrote first.
ATTEMPTS = 5


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


#: Awaited before a patch, with the kind, the object and what it is to be.
Guard = Callable[[Resource, Mapping[str, Any], Mapping[str, Any]], Awaitable[None]]


class Writer:
    """Writes objects of watch caches."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: What must be on record before an object changes; it raises what keeps the patch from being sent.
        self.guard: Guard | None = None
        #: Objects that are being updated, with those that wait for their turn with the same one.
        self._turns: dict[Hashable, deque[asyncio.Future[None]]] = {}

    async def change(
        self, informer: Informer, obj: Mapping[str, Any], desired: Mapping[str, Any], subresource: str = ""
    ) -> Object:
        """Make the stored object what is desired; nothing is sent when it is that already.

        Raises ApiError: a conflict when `obj` is not the newest. The newest is in the cache then, so that
        trying again makes sense even while the watch is late.
        """
        try:
            return await self._patch(informer, obj, desired, subresource)
        except ApiError as error:
            refused: ApiError | None = error
        try:
            assert refused is not None
            if refused.conflict:
                await self.reread(informer, (obj["metadata"].get("namespace") or "", obj["metadata"]["name"]))
            self._note_missing(informer, obj, refused)
            raise refused
        finally:
            refused = None  # it refers to this frame

    def _note_missing(self, informer: Informer, obj: Mapping[str, Any], error: ApiError) -> None:
        """Drop an object from the cache at once when the server answers that it is gone.

        What is done for an object that only a late watch still shows is undone by others, and done again.
        An answer that names no object, as from a server that does not serve the kind, proves nothing.
        """
        kinds, missing = (informer.resource.plural, informer.resource.kind), error.details
        named = missing.get("kind") in kinds and missing.get("name") == obj["metadata"]["name"]
        if error.not_found and named:
            informer.note_gone(dict(obj))

    async def _patch(
        self, informer: Informer, obj: Mapping[str, Any], desired: Mapping[str, Any], subresource: str
    ) -> Object:
        patch = merge_patch(obj, desired)
        if not patch:
            return dict(obj)
        if self.guard is not None:
            await self.guard(informer.resource, obj, desired)
        metadata = obj["metadata"]
        patch.setdefault("metadata", {})["resourceVersion"] = metadata["resourceVersion"]
        result = await self._client.patch(
            informer.resource,
            metadata["name"],
            metadata.get("namespace"),
            patch,
            subresource=subresource or None,
        )
        informer.note(result)
        return result

    async def create(self, informer: Informer, obj: Object) -> Object:
        """Create the object. Raises ApiError: AlreadyExists among others."""
        result = await self._client.create(informer.resource, obj)
        informer.note(result)
        return result

    async def delete(
        self,
        informer: Informer,
        obj: Mapping[str, Any],
        propagation: str | None = None,
        grace_period: int | None = None,
    ) -> None:
        """Delete this very object; that it is gone already is no error. `grace_period` is in seconds.

        The answer is the object while finalizers or its grace keep it, and a Status or the object as it was
        last once it is gone.
        """
        metadata = obj["metadata"]
        left: Object = {}
        conflict: ApiError | None = None
        try:
            left = await self._client.delete(
                informer.resource,
                metadata["name"],
                metadata.get("namespace"),
                propagation=propagation,
                uid=metadata.get("uid"),
                grace_period=grace_period,
            )
        except ApiError as error:
            if error.conflict:
                conflict = error
            elif not error.not_found:
                raise
        try:
            if conflict is not None:
                stored = await self.reread(informer, (metadata.get("namespace") or "", metadata["name"]))
                if stored is not None and stored["metadata"].get("uid") == metadata.get("uid"):
                    raise conflict
        finally:
            conflict = None  # it refers to this frame
        kept = left.get("metadata") or {}
        if left.get("kind") == informer.resource.kind and (
            kept.get("finalizers") or kept.get("deletionGracePeriodSeconds")
        ):
            informer.note(left)
        else:
            informer.note_gone(dict(obj))

    async def update(
        self,
        informer: Informer,
        key: Key,
        step: Callable[[Object], Mapping[str, Any] | None],
        subresource: str = "status",
    ) -> Object | None:
        """Bring one object a step on: `step` gets the newest and returns what it should be, None for nothing.

        Writers of the same object take turns. After a conflict the step is taken again from the object as it
        is then. Returns the object after the step, None when it is gone or the step is not to be taken.
        """
        turn = (informer.resource, key)
        waiting = self._turns.get(turn)
        if waiting is None:
            self._turns[turn] = deque()
        else:
            before: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(before)
            try:
                await before
            except asyncio.CancelledError:
                if not before.cancelled():
                    self._end_turn(turn)  # it had just begun
                raise
        try:
            return await self._updated(informer, key, step, subresource)
        finally:
            self._end_turn(turn)

    def _end_turn(self, turn: Hashable) -> None:
        """Let the next one update the object; those that were cancelled meanwhile are passed over."""
        waiting = self._turns[turn]
        while waiting:
            following = waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        del self._turns[turn]

    async def _updated(
        self,
        informer: Informer,
        key: Key,
        step: Callable[[Object], Mapping[str, Any] | None],
        subresource: str,
    ) -> Object | None:
        """The object after the step, which is taken again after each conflict."""
        obj = informer.get(*key)
        for attempt in range(1, ATTEMPTS + 1):
            desired = None if obj is None else step(obj)
            if obj is None or desired is None:
                return None
            try:
                return await self._patch(informer, obj, desired, subresource)
            except ApiError as error:
                if error.not_found:
                    self._note_missing(informer, obj, error)
                    return None
                if not error.conflict or attempt == ATTEMPTS:
                    raise
            obj = await self.reread(informer, key)
        return None

    async def reread(self, informer: Informer, key: Key) -> Object | None:
        """The object as the server has it now, noted in the cache; None when it is gone."""
        namespace, name = key
        try:
            obj = await self._client.get(informer.resource, name, namespace or None)
        except ApiError as error:
            if error.not_found:
                known = informer.get(namespace, name)
                if known is not None:
                    self._note_missing(informer, known, error)
                return None
            raise
        informer.note(obj)
        return obj


class UnansweredWrites(Generic[K]):
    """Writes whose outcome is unknown, by what the next decision is about, such as a job.

    The version that a write names protects one object. A decision that counts several objects needs them as
    they are, and a write without an answer may have been carried out.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._objects: dict[K, set[Key]] = {}

    async def change(
        self, subject: K, informer: Informer, obj: Mapping[str, Any], desired: Mapping[str, Any]
    ) -> Object:
        """`Writer.change`, remembered for the subject if it gets no answer."""
        with self.remembered(subject, key_of(obj)):
            return await self._writer.change(informer, obj, desired)

    @contextmanager
    def remembered(self, subject: K, key: Key) -> Iterator[None]:
        """Remember the write of an object within the block for the subject, if it gets no answer."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, ApiError) or error.code >= 500:
                self._objects.setdefault(subject, set()).add(key)
            raise

    async def learn_outcomes(self, subject: K, informer: Informer) -> bool:
        """Read the objects of the writes of a subject that got no answer; whether any of them is there."""
        unanswered = self._objects.get(subject, set())
        present = False
        for key in sorted(unanswered):
            present |= await self._writer.reread(informer, key) is not None
            unanswered.discard(key)
        self.forget(subject)
        return present

    def forget(self, subject: K) -> None:
        """No more decisions are made about the subject."""
        self._objects.pop(subject, None)


async def write_each(items: Iterable[T], write: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Call `write` for all items, `at_once` of them at a time.

    Raises the first error once the others have been written.
    """
    free = asyncio.Semaphore(at_once)

    async def one(item: T) -> None:
        async with free:
            await write(item)

    for result in await asyncio.gather(*map(one, items), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
