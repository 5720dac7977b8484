"""What a watcher sees of the changes of a table: those that its namespace and selectors pick out."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.handlers.reads import call_filter
from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.store.records import Event, Record

#: What one watcher is shown of an event: the type and the record, if its form is the stored one unchanged.
Shown = tuple[str, Record]


def moved(record: Record, previous: Record) -> Record:
    """The old state carrying the new version: how an object leaves a selection."""
    old = previous.object
    meta = {**old["metadata"], "resourceVersion": record.object["metadata"]["resourceVersion"]}
    return Record(record.key, record.revision, {**old, "metadata": meta})


class Selection:
    """What one watch shows of a table: a namespace, a selection, in one version of the kind."""

    def __init__(self, call: Call) -> None:
        self.endpoint = call.endpoint
        self._filter = selected = call_filter(call)
        self._namespace = selected.namespace
        self.selective = selected.selective
        target, query = call.target, call.query
        wanted = (query.get("labelSelector", ""), query.get("fieldSelector", ""))
        #: Equal for selections that show the same of a table.
        self.key = "\n".join((self.endpoint.api_version, target.namespace, target.name, *wanted))

    def candidates(self) -> list[Event]:
        """All objects there are now, as if they were new."""
        return [Event("ADDED", one, None) for one in self.endpoint.table.settled_records(self._namespace)]

    def _view(self, record: Record) -> Object:
        return self.endpoint.from_storage(record.peek())

    def show(self, events: Iterable[Event]) -> list[Shown]:
        """The events as this watch sees them."""
        shown: list[Shown] = []
        namespace, selective, selected = self._namespace, self.selective, self._filter
        if namespace is None and not selective:
            return [(event.type, event.record) for event in events]
        for event in events:
            kind, record, previous = event
            if namespace is not None and record.key[0] != namespace:
                continue
            if not selective:
                shown.append((kind, record))
                continue
            new = self._view(record)
            labelled = selected.has_labels(new)
            now = labelled and selected.has_fields(new)
            if kind != "MODIFIED":
                if now:
                    shown.append((kind, record))
                continue
            before = False
            if previous is not None:
                same = record.peek()["metadata"].get("labels") is previous.peek()["metadata"].get("labels")
                if same and not labelled:
                    continue  # neither is selected
                old = self._view(previous)
                before = (labelled if same else selected.has_labels(old)) and selected.has_fields(old)
            if now:
                shown.append(("MODIFIED" if before else "ADDED", record))
            elif before and previous is not None:
                shown.append(("DELETED", moved(record, previous)))
        return shown
