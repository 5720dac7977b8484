"""Addresses out of one network, each given to one holder at a time."""

from __future__ import annotations

from ipaddress import IPv4Network


class Addresses:
    """Gives out the hosts of a network in turn, so that an address is not reused soon."""

    def __init__(self, network: str) -> None:
        parsed = IPv4Network(network)
        self._base = int(parsed.network_address)
        self._size = parsed.num_addresses
        self._last = 0
        self._taken: set[str] = set()

    def take(self) -> str:
        """A free address. Raises LookupError when there is none left."""
        for _ in range(self._size):
            # The first and the last address name the network and all of its hosts.
            self._last = self._last % (self._size - 2) + 1
            number = self._base + self._last
            address = f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise LookupError("every address of the network is taken")

    def reserve(self, address: str) -> None:
        """Mark the address as used."""
        self._taken.add(address)

    def release(self, address: str) -> None:
        """Mark the address as free."""
        self._taken.discard(address)
