"""What happens in a simulation, as it happens; and its decision log.

The decision log has a line of JSON for each thing that happens, and a digest of all of them.

Equal runs give equal logs byte for byte. Times are seconds from the start, in microseconds of precision.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import IO, Any

import orjson

from pykueue.api.hybrid import parts_of
from pykueue.engine import Admit, Preempt

#: Bytes that are digested and written at once.
_CHUNK = 1 << 18


class Journal:
    """Gets everything that happens to workloads, in order; subclasses record what they need of it.

    Times are seconds from the start.
    """

    def created(self, at: float, key: str, job_class: str) -> None:
        """A workload was created."""

    def admitted(self, at: float, decision: Admit) -> None:
        """A workload got quota."""

    def preempted(self, at: float, decision: Preempt) -> None:
        """A workload was preempted."""

    def evicted(self, at: float, key: str, reason: str) -> None:
        """A workload was evicted for another reason."""

    def released(self, at: float, key: str) -> None:
        """A workload gave back its quota some time after it was preempted or evicted."""

    def nodes_lost(self, at: float, key: str, hosts: list[str]) -> None:
        """A workload stopped because hosts of its pods failed or were drained."""

    def moved(self, at: float, key: str, hosts: list[str]) -> None:
        """A workload got other hosts in place of lost ones; these are all that it has."""

    def over(self, at: float, key: str, how: str) -> None:
        """A workload came to its end: finished, failed or stopped."""

    def close(self) -> str:
        """The run is over. Returns the SHA-256 digest of the decision log; empty without one."""
        return ""


class DecisionLog(Journal):
    """Lines in the order of what happened; kept in a file if one is named."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` is written compressed (gzip). Raises OSError if it cannot be."""
        self._digest = hashlib.sha256()
        self._lines: list[bytes] = []
        self._size = 0
        self._file: gzip.GzipFile | None = None
        self._raw: IO[bytes] | None = None
        if file is not None:
            # Neither name nor time in the header: equal runs give equal files.
            self._raw = file.open("wb")
            self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, compresslevel=3, mtime=0)

    def created(self, at: float, key: str, job_class: str) -> None:
        self._add({"at": round(at, 6), "what": "Create", "workload": key, "class": job_class})

    def admitted(self, at: float, decision: Admit) -> None:
        sets = decision.admission.pod_set_assignments
        entry: dict[str, Any] = {
            "at": round(at, 6),
            "what": "Admit",
            "workload": decision.key,
            "clusterQueue": decision.cluster_queue,
            "flavors": {one.name: one.flavors for one in sets},
        }
        if split := {one.name: [[*part] for part in parts] for one in sets if (parts := parts_of(one))}:
            entry["parts"] = split
        if any(one.count is not None for one in sets):
            entry["counts"] = {one.name: one.count for one in sets}
        self._add(entry)

    def preempted(self, at: float, decision: Preempt) -> None:
        self._add(
            {
                "at": round(at, 6),
                "what": "Preempt",
                "workload": decision.key,
                "clusterQueue": decision.cluster_queue,
                "reason": decision.reason,
                "preemptor": decision.preemptor,
            }
        )

    def evicted(self, at: float, key: str, reason: str) -> None:
        self._add({"at": round(at, 6), "what": "Evict", "workload": key, "reason": reason})

    def nodes_lost(self, at: float, key: str, hosts: list[str]) -> None:
        self._add({"at": round(at, 6), "what": "LoseNodes", "workload": key, "nodes": hosts})

    def moved(self, at: float, key: str, hosts: list[str]) -> None:
        self._add({"at": round(at, 6), "what": "Move", "workload": key, "nodes": hosts})

    def over(self, at: float, key: str, how: str) -> None:
        self._add({"at": round(at, 6), "what": "End", "workload": key, "how": how})

    def _add(self, entry: dict[str, Any]) -> None:
        line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._lines)
        self._lines.clear()
        self._size = 0
        self._digest.update(data)
        if self._file is not None:
            self._file.write(data)

    def close(self) -> str:
        """The SHA-256 digest of all lines; the file is complete."""
        self._flush()
        if self._file is not None and self._raw is not None:
            self._file.close()
            self._raw.close()
        return self._digest.hexdigest()
