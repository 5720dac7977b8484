"""Which objects of one kind belong to those of another: adopting, letting go, creating and deleting them.

A child names its parent as its controller and matches the parent's selector. Children that match and have no
controller are adopted, those that no longer match are released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pykueue.api.objects import Key, Object, controller_of, controller_reference, is_deleting, key_of
from pykueue.embedded.controllers.parallel import first_error, outcomes
from pykueue.embedded.objects.selectors import selector_matches
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.kube.transport import STRATEGIC_PATCH

#: Index of objects by the UID of their controller.
BY_CONTROLLER = "by controller"
_FREE = "without a controller, by namespace"


def controller_uids(obj: Object) -> list[str]:
    """The key function of `BY_CONTROLLER`."""
    owner = controller_of(obj)
    return [] if owner is None else [owner["uid"]]


class Children:
    """The children of all parents of one kind; `wake` is called with parents whose children changed."""

    def __init__(
        self,
        client: Client,
        parents: Informer,
        children: Informer,
        recorder: EventRecorder,
        wake: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._parents = parents
        self._children = children
        self._recorder = recorder
        self._wake = wake
        self._noun = children.resource.kind.lower()
        #: Parents of which a creation may or may not have happened: their children are read from the server.
        self._uncertain: set[str] = set()
        children.add_index(BY_CONTROLLER, controller_uids, of_metadata=True)
        children.add_index(_FREE, _namespaces_of_free, of_metadata=True)
        children.on_event(self._changed)

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        parent = self._parents.resource
        before = None if old is None else controller_of(old)
        after = None if new is None else controller_of(new)
        for owner, child in ((before, old), (after, new)):
            if (
                owner is not None
                and owner["kind"] == parent.kind
                and owner["apiVersion"] == parent.api_version
            ):
                self._wake((child["metadata"]["namespace"], owner["name"]))
        if new is not None and after is None and not is_deleting(new):
            for candidate in self._parents.list(new["metadata"]["namespace"]):
                if _matches(candidate, new):
                    self._wake(key_of(candidate))

    # Reading

    def of(self, parent: Object) -> list[Object]:
        """The children as the cache has them."""
        return self._children.by_index(BY_CONTROLLER, parent["metadata"]["uid"])

    async def claim(self, parent: Object) -> list[Object]:
        """The children, after adopting and letting go what must be."""
        if parent["metadata"]["uid"] in self._uncertain:
            await self._look_again(parent)
        going = is_deleting(parent)
        owned: list[Object] = []
        for child in self.of(parent):
            if _matches(parent, child):
                owned.append(child)
            elif not going:
                uid = parent["metadata"]["uid"]
                await self._change(child, {"ownerReferences": [{"$patch": "delete", "uid": uid}]})
        for child in [] if going else self._children.by_index(_FREE, parent["metadata"]["namespace"]):
            if _matches(parent, child) and (child.get("status") or {}).get("phase") not in (
                "Succeeded",
                "Failed",
            ):
                adopted = await self._adopt(parent, child)
                if adopted is not None:
                    owned.append(adopted)
        return owned

    async def _adopt(self, parent: Object, child: Object) -> Object | None:
        namespace, name = key_of(parent)
        current = await self._client.get(self._parents.resource, name, namespace)
        if current["metadata"]["uid"] != parent["metadata"]["uid"] or is_deleting(current):
            return None
        return await self._change(child, {"ownerReferences": [self.reference(parent)]})

    async def _change(self, child: Object, change: Object) -> Object | None:
        namespace, name = key_of(child)
        patch = {"metadata": {"uid": child["metadata"]["uid"], **change}}
        try:
            changed = await self._client.patch(
                self._children.resource, name, namespace, patch, content_type=STRATEGIC_PATCH
            )
        except ApiError as error:
            if error.not_found or (error.code in (409, 422) and "uid" in error.message.lower()):
                return None
            raise
        self._children.note(changed)
        return changed

    async def _look_again(self, parent: Object) -> None:
        """Take in what the server has, after requests whose end is unknown."""
        for child in (
            await self._client.list(self._children.resource, parent["metadata"]["namespace"])
        ).items:
            self._children.note(child)
        self._uncertain.discard(parent["metadata"]["uid"])

    # Writing

    def reference(self, parent: Object) -> Object:
        """How a child names its parent."""
        resource = self._parents.resource
        return controller_reference(parent, resource.api_version, resource.kind)

    async def create(self, parent: Object, child: Object, emit: bool = True) -> Object | None:
        """Create one child; None when its namespace is going away. Raises what the server says otherwise."""
        try:
            created = await self._client.create(self._children.resource, child)
        except ApiError as error:
            if error.namespace_terminating:
                return None
            if error.code >= 500 or error.already_exists:
                self._uncertain.add(parent["metadata"]["uid"])
            if emit:
                self._recorder.event(parent, WARNING, "FailedCreate", f"Error creating: {error}")
            raise
        except (ConnectionError, TimeoutError):
            self._uncertain.add(parent["metadata"]["uid"])
            raise
        self._children.note(created)
        if emit:
            text = f"Created {self._noun}: {created['metadata']['name']}"
            self._recorder.event(parent, NORMAL, "SuccessfulCreate", text)
        return created

    async def create_all(self, parent: Object, children: list[Object]) -> Exception | None:
        """Create children in batches of 1, 2, 4, ..., so that a refusal is met once; the first error."""
        size, start = 1, 0
        while start < len(children):
            batch = children[start : start + size]
            start, size = start + len(batch), size * 2
            error = first_error(await outcomes(self.create(parent, child) for child in batch))
            if error is not None:
                return error
        return None

    async def delete_all(self, parent: Object, children: Iterable[Object]) -> Exception | None:
        """Delete children; the first error."""
        return first_error(await outcomes(self.delete(parent, child) for child in children))

    async def delete(self, parent: Object, child: Object, emit: bool = True) -> None:
        """Delete one child; that it is gone already is no error."""
        namespace, name = key_of(child)
        resource = self._children.resource
        try:
            left = await self._client.delete(
                resource, name, namespace, propagation="Background", uid=child["metadata"]["uid"]
            )
        except ApiError as error:
            if error.not_found or error.conflict:
                return
            if emit:
                self._recorder.event(parent, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        if left.get("kind") == resource.kind and is_deleting(left) and _stays(left):
            self._children.note(left)
        else:
            self._children.note_gone(child)
        if emit:
            text = f"Deleted {self._noun}: {name}"
            self._recorder.event(parent, NORMAL, "SuccessfulDelete", text)


def _stays(child: Object) -> bool:
    """Whether an object that is being deleted is still there: for its grace, or held by finalizers."""
    metadata = child["metadata"]
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))


def _matches(parent: Object, child: Object) -> bool:
    return selector_matches(parent["spec"].get("selector"), child["metadata"].get("labels") or {})


def _namespaces_of_free(obj: Object) -> list[str]:
    return [] if controller_of(obj) is not None or is_deleting(obj) else [obj["metadata"]["namespace"]]
