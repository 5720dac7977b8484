"""What a server's own metrics say about the requests of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bench.apiserver.server import ServerProcess
from prometheus_client.parser import text_string_to_metric_families

#: Verbs that change something.
_WRITES = ("APPLY", "CREATE", "DELETE", "PATCH", "POST", "PUT", "UPDATE")


def answers(server: ServerProcess) -> dict[str, Any]:
    """The longest request (the bound of its bucket, in seconds), answers of 500 and more, open sockets.

    And how many writes succeeded, by verb and resource: those of the manager and of the load.
    """
    text = server.read("/metrics").decode()
    longest, failed = 0.0, 0.0
    writes: dict[str, float] = {}
    buckets: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "apiserver_request_total" and sample.labels["code"] >= "500":
                failed += sample.value
            elif sample.name == "apiserver_request_total" and sample.labels["code"] < "300":
                verb, resource, subresource = (
                    sample.labels[each] for each in ("verb", "resource", "subresource")
                )
                if verb in _WRITES:
                    name = f"{verb} {resource}{'/' if subresource else ''}{subresource}"
                    writes[name] = writes.get(name, 0.0) + sample.value
            elif sample.name == "apiserver_request_duration_seconds_bucket":
                labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "le")
                bound = float(sample.labels["le"].replace("+Inf", "inf"))
                buckets.setdefault(labels, []).append((bound, sample.value))
    for counts in buckets.values():
        total = counts[-1][1]
        longest = max(longest, min((bound for bound, count in counts if count == total), default=math.inf))
    sockets = sum(
        file.readlink().name.startswith("socket:") for file in Path(f"/proc/{server.pid}/fd").iterdir()
    )
    return {"longest": longest, "failed": failed, "connections": sockets, "requests": writes}
