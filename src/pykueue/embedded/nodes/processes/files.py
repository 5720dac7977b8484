"""The files of one pod that are not volumes: names and addresses, scratch folders, last words.

```
UID/logs/CONTAINER/RUN.log   what a run wrote
UID/volumes/NAME             volumes
UID/etc/                     hosts, resolv.conf, nsswitch.conf
UID/scratch/CONTAINER        the working directory of a container that names none
UID/last-words/CONTAINER     /dev/termination-log
UID/stage                    empty: where mount points are built
```
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from pykueue.api.objects import Object
from pykueue.embedded.nodes.processes.host import CLUSTER_DOMAIN, GATEWAY, POD_NETWORK
from pykueue.embedded.nodes.processes.link import Link

#: Bytes of a termination message.
_WORDS_LIMIT = 4096


class PodFiles:
    """Makes them when they are needed."""

    def __init__(self, folder: Path, pod: Object) -> None:
        self._folder = folder
        self._pod = pod
        spec, metadata = pod["spec"], pod["metadata"]
        #: A host name has at most 63 characters.
        self.hostname: str = (spec.get("hostname") or metadata["name"])[:63].rstrip("-.")

    @property
    def stage(self) -> Path:
        """An empty folder."""
        return self._made("stage")

    def scratch(self, container: str) -> Path:
        """A container's working directory where it names none: what it leaves there goes with the pod."""
        return self._made("scratch", container)

    def _made(self, *parts: str) -> Path:
        place = self._folder.joinpath(*parts)
        place.mkdir(parents=True, exist_ok=True)
        return place

    async def connect(self, link: Link, address: str) -> None:
        """Give the pod a network with this address, and tell its programs. Raises AgentError, OSError."""
        await link.call(
            "connect",
            pod=self._pod["metadata"]["uid"],
            address=address,
            prefix=POD_NETWORK.prefixlen,
            gateway=GATEWAY,
        )
        folder = self._made("etc")
        (folder / "hosts").write_text(self._hosts(address))
        (folder / "resolv.conf").write_text(self._resolver())
        (folder / "nsswitch.conf").write_text(_name_switch(Path("/etc/nsswitch.conf")))

    def _hosts(self, address: str) -> str:
        spec, namespace = self._pod["spec"], self._pod["metadata"]["namespace"]
        names = [self.hostname]
        if spec.get("subdomain"):
            full = f"{self.hostname}.{spec['subdomain']}.{namespace}.svc.{CLUSTER_DOMAIN}"
            names.insert(0, full)
        lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
        lines.append(f"{address}\t{' '.join(names)}")
        for alias in spec.get("hostAliases") or ():
            lines.append(f"{alias.get('ip')}\t{' '.join(alias.get('hostnames') or ())}")
        return "\n".join(lines) + "\n"

    def _resolver(self) -> str:
        spec, namespace = self._pod["spec"], self._pod["metadata"]["namespace"]
        config = spec.get("dnsConfig") or {}
        servers, search, options = (
            list(config.get("nameservers") or ()),
            list(config.get("searches") or ()),
            [],
        )
        if spec.get("dnsPolicy") != "None":
            servers = [GATEWAY, *servers]
            search = [f"{namespace}.svc.{CLUSTER_DOMAIN}", f"svc.{CLUSTER_DOMAIN}", CLUSTER_DOMAIN, *search]
            options.append("ndots:5")
        for one in config.get("options") or ():
            options.append(f"{one['name']}:{one['value']}" if one.get("value") else one["name"])
        lines = [f"search {' '.join(search)}"] if search else []
        lines += [f"nameserver {server}" for server in servers]
        lines += [f"options {' '.join(options)}"] if options else []
        return "\n".join(lines) + "\n"

    def mounts(self, container: str, message_path: str, *, named: bool) -> list[Object]:
        """What every container mounts; `named` with the files by which names are looked up."""
        words = self._made("last-words") / container
        words.write_bytes(b"")
        words.chmod(0o666)
        found = [{"source": str(words), "target": message_path, "readOnly": False}]
        folder = self._folder / "etc"
        if named and not self._pod["spec"].get("hostNetwork"):
            found += [
                {"source": str(folder / name), "target": f"/etc/{name}", "readOnly": False}
                for name in ("hosts", "resolv.conf", "nsswitch.conf")
            ]
        return found

    def last_words(self, container: str) -> str:
        """What the container left to be said of its end."""
        with contextlib.suppress(OSError), (self._folder / "last-words" / container).open("rb") as file:
            return file.read(_WORDS_LIMIT).decode(errors="replace")
        return ""


def _name_switch(machine: Path) -> str:
    """The machine's, with hosts looked up in files and by the cluster's name server only.

    Services of the machine that answer for names do not know the cluster's.
    """
    hosts = "hosts: files dns"
    try:
        text = machine.read_text()
    except OSError:
        return f"{hosts}\n"
    replaced, count = re.subn(r"(?m)^\s*hosts:.*$", hosts, text)
    return replaced if count else f"{text}\n{hosts}\n"
