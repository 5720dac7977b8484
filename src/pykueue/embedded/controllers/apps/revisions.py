"""The versions of a StatefulSet's pod template, each kept as a ControllerRevision."""

from __future__ import annotations

from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import CONTROLLER_REVISIONS
from pykueue.embedded.controllers.apps.children import Children
from pykueue.embedded.controllers.apps.rollout import hash_text
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer

#: The label with the version of a pod; its value is the revision's name.
REVISION_LABEL = "controller-revision-hash"
_HASH_LABEL = "controller.kubernetes.io/hash"


class Versions(NamedTuple):
    """The version pods have had so far, and the one they are to get."""

    current: Object
    update: Object


def template_of(revision: Object) -> Object:
    """The pod template of a version."""
    template: Object = revision["data"]["spec"]["template"]
    return {key: value for key, value in template.items() if key != "$patch"}


def _number(revision: Object) -> int:
    return int(revision.get("revision") or 0)


class Revisions:
    """Keeps the ControllerRevisions of StatefulSets."""

    def __init__(self, client: Client, revisions: Informer, children: Children) -> None:
        self._client = client
        self._revisions = revisions
        self._children = children

    async def versions(self, stateful_set: Object) -> Versions:
        """Both versions; the one of the template as it is gets a revision if it has none.

        A template that comes back takes its old revision, with a new number.
        """
        owned = sorted(await self._children.claim(stateful_set), key=_number)
        template = stateful_set["spec"]["template"]
        update = next((one for one in reversed(owned) if template_of(one) == template), None)
        highest = _number(owned[-1]) if owned else 0
        if update is None:
            update = await self._create(stateful_set, template, highest + 1)
        elif _number(update) < highest:
            update = await self._client.update(CONTROLLER_REVISIONS, {**update, "revision": highest + 1})
            self._revisions.note(update)
        name = (stateful_set.get("status") or {}).get("currentRevision")
        current = next((one for one in owned if one["metadata"]["name"] == name), update)
        return Versions(current, update)

    async def _create(self, stateful_set: Object, template: Object, number: int) -> Object:
        metadata = stateful_set["metadata"]
        text = hash_text(template)
        labels = (template.get("metadata") or {}).get("labels") or {}
        revision: Object = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": f"{metadata['name']}-{text}",
                "namespace": metadata["namespace"],
                "labels": {**labels, _HASH_LABEL: text},
                "ownerReferences": [self._children.reference(stateful_set)],
            },
            "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            "revision": number,
        }
        try:
            created = await self._client.create(CONTROLLER_REVISIONS, revision)
        except ApiError as error:
            if not error.already_exists:
                raise
            # By a sync that did not get to know of it.
            created = await self._client.get(
                CONTROLLER_REVISIONS, revision["metadata"]["name"], metadata["namespace"]
            )
        self._revisions.note(created)
        return created

    async def forget_old(self, stateful_set: Object, versions: Versions, pods: list[Object]) -> None:
        """Delete the oldest versions that no pod has, beyond what the history keeps."""
        limit = stateful_set["spec"].get("revisionHistoryLimit")
        if limit is None:
            return
        live = {one["metadata"]["name"] for one in versions}
        live |= {(pod["metadata"].get("labels") or {}).get(REVISION_LABEL) for pod in pods}
        history = [
            one
            for one in sorted(self._children.of(stateful_set), key=_number)
            if one["metadata"]["name"] not in live
        ]
        for one in history[: max(0, len(history) - int(limit))]:
            await self._children.delete(stateful_set, one, emit=False)
