"""Links, addresses and routes of a network namespace, by rtnetlink(7).

A socket belongs to the network namespace in which it was made, wherever its process goes afterwards.
"""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType

_NLMSG_ERROR = 2
_REQUEST, _ACK, _CREATE, _EXCL = 0x1, 0x4, 0x400, 0x200
_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 20, 24
_IFF_UP = 0x1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_PROTO_BOOT, _SCOPE_UNIVERSE, _SCOPE_HOST = 3, 0, 254
_UNICAST, _LOCAL = 1, 2


def _attribute(kind: int, value: bytes) -> bytes:
    size = len(value) + 4
    return struct.pack("HH", size, kind) + value + b"\0" * (-size % 4)


def _name(text: str) -> bytes:
    return _attribute(_IFLA_IFNAME, text.encode() + b"\0")


def _hardware(address: str) -> bytes:
    """A hardware address that follows from the IPv4 address.

    Neighbour caches stay valid: a bridge without a configured address takes that of one of its links, and
    another one whenever links come and go. An IPv4 address that is assigned again has the same one as before.
    """
    return _attribute(_IFLA_ADDRESS, b"\x02\x42" + socket.inet_aton(address))


def _link(index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


class Netlink:
    """Changes the network namespace it was made in. Methods raise OSError."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        self._socket.close()

    def add_bridge(self, name: str, address: str, prefix: int) -> int:
        """A bridge that is up and has an IPv4 address; its index."""
        info = _attribute(_IFLA_LINKINFO, _attribute(_INFO_KIND, b"bridge"))
        self._send(_RTM_NEWLINK, _CREATE | _EXCL, _link() + _name(name) + _hardware(address) + info)
        index = socket.if_nametoindex(name)
        self.set_up(index)
        self.add_address(index, address, prefix)
        return index

    def add_pair(self, name: str, master: int, peer: str, namespace: int, address: str) -> None:
        """A link that is up on a bridge, and its other end in another network namespace.

        `address` is the IPv4 address that end is going to have.
        """
        other = _link() + _name(peer) + _hardware(address)
        other += _attribute(_IFLA_NET_NS_FD, struct.pack("I", namespace))
        data = _attribute(_INFO_DATA, _attribute(_VETH_PEER, other))
        info = _attribute(_IFLA_LINKINFO, _attribute(_INFO_KIND, b"veth") + data)
        bridged = _attribute(_IFLA_MASTER, struct.pack("i", master))
        self._send(_RTM_NEWLINK, _CREATE | _EXCL, _link(flags=_IFF_UP) + _name(name) + bridged + info)

    def set_up(self, index: int) -> None:
        """Let a link carry traffic."""
        self._send(_RTM_NEWLINK, 0, _link(index, _IFF_UP))

    def add_address(self, index: int, address: str, prefix: int) -> None:
        """Give a link an IPv4 address."""
        packed = socket.inet_aton(address)
        body = struct.pack("BBBBi", socket.AF_INET, prefix, 0, 0, index)
        body += _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        self._send(_RTM_NEWADDR, _CREATE, body)

    def add_route(self, network: str, prefix: int, gateway: str) -> None:
        """Send what goes to a network to the gateway."""
        body = self._route(prefix, _TABLE_MAIN, _SCOPE_UNIVERSE, _UNICAST)
        body += _attribute(_RTA_DST, socket.inet_aton(network))
        self._send(_RTM_NEWROUTE, _CREATE, body + _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)))

    def add_local_route(self, network: str, prefix: int, index: int) -> None:
        """Treat every address of a network as this namespace's own."""
        body = self._route(prefix, _TABLE_LOCAL, _SCOPE_HOST, _LOCAL)
        body += _attribute(_RTA_DST, socket.inet_aton(network)) + _attribute(
            _RTA_OIF, struct.pack("i", index)
        )
        self._send(_RTM_NEWROUTE, _CREATE, body)

    @staticmethod
    def _route(prefix: int, table: int, scope: int, kind: int) -> bytes:
        family = socket.AF_INET
        return struct.pack("BBBBBBBBI", family, prefix, 0, 0, table, _PROTO_BOOT, scope, kind, 0)

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        header = struct.pack("IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._sequence, 0)
        self._socket.send(header + body)
        answer = self._socket.recv(65536)
        (answered,) = struct.unpack_from("H", answer, 4)
        (code,) = struct.unpack_from("i", answer, 16)
        if answered == _NLMSG_ERROR and code:
            raise OSError(-code, os.strerror(-code))
