"""Events of Workloads, passed on to those who are concerned with the kinds of jobs that own them."""

from __future__ import annotations

import logging
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import controller_of
from pykueue.jobs.kinds import JobKinds
from pykueue.kube.informer import ADDED, Handler, Informer

from .indexes import job_uid

log = logging.getLogger(__name__)


class OwnerEvents:
    """Handlers of events of Workloads, by kinds of jobs; most events concern one kind or none."""

    def __init__(self, workloads: Informer, kinds: JobKinds) -> None:
        self._workloads = workloads
        self._kinds = kinds
        #: With the framework of the kind.
        self._handlers: list[tuple[str, Handler]] = []
        workloads.on_event(self._changed)

    def subscribe(self, framework: str, handler: Handler) -> None:
        """Call `handler` for events that may concern jobs of a kind, beginning with what is there.

        These are events of Workloads of such jobs, of Workloads that belonged to any job and name no owner,
        and those that start or stop any job, which may have parts of the kind.
        """
        self._handlers.append((framework, handler))
        for workload in self._workloads.list():
            _call(handler, ADDED, None, workload)

    def unsubscribe(self, handler: Handler) -> None:
        """Call a handler no longer."""
        self._handlers = [each for each in self._handlers if each[1] != handler]

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        concerned, concerns_all, owner = set[str](), False, None
        for workload in (old, new):
            if workload is None:
                continue
            owner = controller_of(workload)
            if owner is not None:
                found = self._kinds.for_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
                if found is not None:
                    concerned.add(found.kind.framework)
            elif job_uid(workload):
                concerns_all = True
        concerns_all = concerns_all or (new is not None and owner is not None and _differ(old, new))
        if not concerned and not concerns_all:
            return
        for framework, handler in self._handlers:
            if concerns_all or framework in concerned:
                _call(handler, type_, old, new)


def _differ(old: Any, new: Any) -> bool:
    """Whether the jobs of one may run and those of the other may not."""
    return old is None or conditions.may_run(old) != conditions.may_run(new)


def _call(handler: Handler, type_: str, old: Any, new: Any) -> None:
    """Call a handler, whose fault must not cost the others the event."""
    try:
        handler(type_, old, new)
    except Exception:
        log.exception("an event handler failed on %s", type_)
