"""What the pods of process nodes share: the agent, the folder, the API, the network."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.embedded.nodes.addresses import Addresses
from pykueue.embedded.nodes.processes.environment import Sources
from pykueue.embedded.nodes.processes.link import Abilities, Link

#: Not of the simulated pods' network, so that no address is given twice in a cluster that has both.
POD_NETWORK = IPv4Network("10.128.0.0/16")
#: Where pods find each other's names, and the way out of their own network.
GATEWAY = "10.128.0.1"
#: The network the API server takes cluster addresses from.
SERVICE_NETWORK = IPv4Network("10.96.0.0/16")
CLUSTER_DOMAIN = "cluster.local"

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")


@dataclass(frozen=True)
class Host:
    """One session with one agent."""

    link: Link
    abilities: Abilities
    #: Holds a folder for each pod, by uid.
    folder: Path
    clock: Clock
    #: Where configuration comes from, by namespace.
    sources: Callable[[str], Sources]
    #: A token of a pod's service account, for an audience and so many seconds.
    token: Callable[[Object, str, int], Awaitable[str]]
    #: Notes an event: object, type, reason, message.
    event: Callable[[Object, str, str, str], None]
    #: Of the pods' network.
    addresses: Addresses


def base_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What every container is given of this program's own environment: how to find programs, and language.

    This program's Python comes last in PATH, for machines that have no other `python`.
    """
    kept = {name: variables[name] for name in _KEPT if name in variables}
    path = kept.get("PATH") or os.defpath
    return {**kept, "PATH": f"{path}{os.pathsep}{os.path.dirname(sys.executable)}"}
