"""(flavor, resource) pairs as small integers: every table of quota and usage is keyed by them."""

from __future__ import annotations


class Pairs:
    """Numbers given to (flavor, resource) pairs, in the order they were first seen, for the life of an
    engine."""

    __slots__ = ("_numbers", "names")

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        #: (flavor, resource) by number.
        self.names: list[tuple[str, str]] = []

    def number(self, flavor: str, resource: str) -> int:
        """The number of a pair, given at first use."""
        pair = (flavor, resource)
        number = self._numbers.get(pair)
        if number is None:
            number = self._numbers[pair] = len(self.names)
            self.names.append(pair)
        return number

    def resource(self, number: int) -> str:
        return self.names[number][1]
