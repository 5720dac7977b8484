"""Whose pods are waited for: jobs that are over, or gone, while pods of theirs go on.

Few ever are, and pods change often: hence one handler for all, not one for each kind of jobs.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, labels_of
from pykueue.kube.informer import Informer
from pykueue.kube.workqueue import WorkQueue


class AwaitedPods:
    """Adds keys to the queues of controllers when pods change that carry the uid of a job as a label."""

    def __init__(self, pods: Informer) -> None:
        #: By uid of a job: the queues, each with what is added to it.
        self._waiting: dict[str, dict[WorkQueue[Key], Key]] = {}
        pods.on_event(self._pod_changed)

    def expect(self, uid: str, queue: WorkQueue[Key], key: Key) -> None:
        """Add `key` to `queue` whenever a pod of the job of this uid changes."""
        self._waiting.setdefault(uid, {})[queue] = key

    def forget(self, uid: str, queue: WorkQueue[Key]) -> None:
        """Add nothing to `queue` for that job any more."""
        queues = self._waiting.get(uid)
        if queues is not None and queues.pop(queue, None) is not None and not queues:
            del self._waiting[uid]

    def forget_all(self, queue: WorkQueue[Key]) -> None:
        """Add nothing to `queue` any more: its controller ends."""
        for uid in list(self._waiting):
            self.forget(uid, queue)

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        if not self._waiting:
            return
        for uid in labels_of(old if new is None else new).values():
            for queue, key in self._waiting.get(uid, {}).items():
                queue.add(key)
