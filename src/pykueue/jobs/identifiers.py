"""Where pods name their pod group, and jobs the existing Workload that they are bound to.

Annotation and label have the same key. With the gate WorkloadIdentifierAnnotations the annotation is read
first and written too; without it only the label counts, but for names that are too long for a label
(docs/reference/kueue-api.md 5.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, labels_of, replaced

#: Most characters of a label's value.
_LABEL_LENGTH = 63


@dataclass(frozen=True)
class Identifiers:
    """Reads and writes the names of pod groups and prebuilt Workloads."""

    #: The gate WorkloadIdentifierAnnotations.
    annotations: bool = True

    def group_name(self, pod: Mapping[str, Any]) -> str:
        """The pod group that a pod belongs to; empty for a pod on its own."""
        return self._read(pod, names.POD_GROUP_NAME_LABEL)

    def prebuilt_name(self, job: Mapping[str, Any]) -> str:
        """The existing Workload that the job is to be bound to; empty: a new one is created."""
        return self._read(job, names.PREBUILT_WORKLOAD_LABEL)

    def path(self, obj: Mapping[str, Any], key: str) -> str:
        """Where the name of this key is read from, as errors name it."""
        found = annotations_of(obj).get(key, "")
        return f"metadata.{'annotations' if self._counts(found) else 'labels'}[{key}]"

    def with_name(self, obj: Mapping[str, Any], key: str, name: str) -> Object:
        """The object with a name written wherever readers look for it."""
        fits = len(name) <= _LABEL_LENGTH
        result = replaced(obj, ("metadata", "labels", key), name if fits else None)
        return replaced(result, ("metadata", "annotations", key), name if self._counts(name) else None)

    def _counts(self, annotation: str) -> bool:
        return bool(annotation) and (self.annotations or len(annotation) > _LABEL_LENGTH)

    def _read(self, obj: Mapping[str, Any], key: str) -> str:
        annotation, label = annotations_of(obj).get(key, ""), labels_of(obj).get(key, "")
        if not self._counts(annotation):
            return label
        return annotation if self.annotations else label or annotation


#: With the gate at its default.
IDENTIFIERS = Identifiers()
