"""Logs of pods: choosing the container, and requesting the lines from its node.

Source: docs/reference/kubernetes-api-machinery.md, section 14.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping

from pykueue.api.objects import Object
from pykueue.api.quantity import whole_number
from pykueue.embedded.objects.errors import bad_request

#: Gives the log of a container: pod, container name, the query (follow, tailLines, previous, ...).
LogSource = Callable[[Object, str, Mapping[str, str]], AsyncIterator[bytes]]


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


async def no_lines(_pod: Object, _container: str, _query: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The log of a container that says nothing."""
    nothing: tuple[bytes, ...] = ()
    for line in nothing:
        yield line


def pod_logs(pod: Object, query: Mapping[str, str], source: LogSource) -> AsyncIterator[bytes]:
    """The log lines asked for. 400 when the container is not named, not there or not started."""
    for field in ("tailLines", "limitBytes", "sinceSeconds"):
        number = whole_number(query.get(field) or "0")
        if number is None or number < 0 or (field != "tailLines" and query.get(field) and not number):
            raise bad_request(f"{field}: Invalid value: {query.get(field)!r}: must be a whole number")
    if query.get("sinceTime") and not _TIME.fullmatch(query["sinceTime"]):
        raise bad_request(f"sinceTime: Invalid value: {query['sinceTime']!r}: must be a time of RFC 3339")
    name = pod["metadata"]["name"]
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = [one["name"] for one in spec.get("containers") or ()]
    everything = containers + [one["name"] for one in spec.get("initContainers") or ()]
    container = query.get("container", "")
    if not container:
        if len(everything) > 1:
            raise bad_request(
                f"a container name must be specified for pod {name}, choose one of: [{' '.join(everything)}]"
            )
        container = containers[0] if containers else ""
    elif container not in everything:
        raise bad_request(f"container {container} is not valid for pod {name}")
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    state = next((one.get("state") or {} for one in statuses if one.get("name") == container), {})
    last = next((one.get("lastState") or {} for one in statuses if one.get("name") == container), {})
    previous = query.get("previous", "").lower() in ("1", "true")
    if previous:
        if last.get("terminated") is None:
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    elif all(one is None for one in (state.get("running"), state.get("terminated"), last.get("terminated"))):
        reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return source(pod, container, query)
