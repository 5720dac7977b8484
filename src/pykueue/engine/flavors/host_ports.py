"""Host ports of pods as amounts of resources, so that they are counted, released and undone like others.

A port of a host can be used once for each of its addresses, or once for all of them. Each port of a host is a
resource of which there is `ROOM`: a pod that binds all addresses uses all of it; a pod that binds one address
uses a unit, and all of the resource of that address. Source of the rules: docs/use/scheduling.md, and
docs/reference/topology-aware-scheduling.md 17 for the gate SchedulerLibraryIntegration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykueue.api.core import PodSpec

#: Of one port of a host; more than it has addresses.
ROOM: Final = 1 << 20
#: Of a port where ports do not count: leaves that are not single hosts. More than any number of pods use.
UNLIMITED: Final = 1 << 62
#: No resource name contains a space.
_PREFIX: Final = "host port "
#: As the scheduler understands it, `::` is an address like others.
_ALL_ADDRESSES: Final = ("", "0.0.0.0")


def is_host_port(resource: str) -> bool:
    """Whether a name is that of a port, and not of a resource of nodes."""
    return resource.startswith(_PREFIX)


def host_port_amounts(spec: PodSpec) -> dict[str, int]:
    """What a pod uses of the ports of its host: amounts by names such as `host port 8080/TCP`."""
    found: dict[str, int] = {}
    single: set[tuple[str, str]] = set()
    for address, port in _host_ports(spec):
        if address in _ALL_ADDRESSES:
            found[f"{_PREFIX}{port}"] = ROOM
        else:
            single.add((address, port))
    for address, port in single:
        used = found.get(f"{_PREFIX}{port}", 0)
        if used < ROOM:
            found[f"{_PREFIX}{port}"] = used + 1
            found[f"{_PREFIX}{port} of {address}"] = ROOM
    return found


def _host_ports(spec: PodSpec) -> Iterator[tuple[str, str]]:
    """(address, `port/protocol`) of each host port; init containers count only as sidecars."""
    sidecars = [each for each in spec.init_containers if each.restart_policy == "Always"]
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            if port.get("hostPort"):
                yield port.get("hostIP") or "", f"{port['hostPort']}/{port.get('protocol') or 'TCP'}"
