"""What is remembered of the events of an object: as bytes, as few of thousands of objects get another one."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, msgpack

#: Writes per object that are allowed at once, and the seconds after which one more is.
SPAM_BURST: Final = 25
SPAM_REFILL: Final = 300.0
#: The number of different texts for one reason within the seconds that follow, from which on they are
#: combined.
SIMILAR_LIMIT: Final = 10
SIMILAR_WINDOW: Final = 600.0
#: Events of one object; beyond that the oldest are forgotten.
EVENTS_REMEMBERED: Final = 64


class Seen(Struct, array_like=True, gc=False):
    """One event of an object: type, reason and text, and the Event object that stands for it."""

    type: str
    reason: str
    note: int | None
    """What its text hashes to, which is much shorter; None for the combined event."""
    at: float
    """When it was noted last."""
    is_similar: bool = False
    """Whether it counts among those of its reason that come too often."""
    stamp: int = 0
    """What the name of the Event object ends with; 0: none was written."""
    count: int = 0


class Subject(Struct, array_like=True):
    """What is known of the events of one object."""

    at: float
    """As of when the tokens are."""
    tokens: float = float(SPAM_BURST)
    """What is left of its write allowance."""
    seen: list[Seen] = []
    """A few at most: they are searched from end to end."""

    @staticmethod
    def of(packed: bytes) -> Subject:
        """What `packed` returned, again."""
        return _DECODER.decode(packed)

    def packed(self) -> bytes:
        """All of it in little memory."""
        return _ENCODER.encode(self)

    def may_write(self, now: float) -> bool:
        """Take one write of its allowance."""
        self.tokens = min(float(SPAM_BURST), self.tokens + (now - self.at) / SPAM_REFILL)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def find(self, type: str, reason: str, note: int | None) -> Seen | None:
        """The event of that text, if it is known."""
        for one in self.seen:
            if one.note == note and one.reason == reason and one.type == type:
                return one
        return None

    def note(self, type: str, reason: str, note: int | None, now: float) -> Seen:
        """The event of that text, from now on known."""
        one = self.find(type, reason, note)
        if one is not None:
            one.at = now
            return one
        if len(self.seen) >= EVENTS_REMEMBERED:
            del self.seen[0]
        one = Seen(type, reason, note, now)
        self.seen.append(one)
        return one

    def is_flood(self, type: str, reason: str, note: int, now: float) -> bool:
        """Note a text; whether there were so many of the same reason that they are combined."""
        similar = [one for one in self.seen if one.reason == reason and one.type == type]
        if similar and now - max([one.at for one in similar]) > SIMILAR_WINDOW:
            for one in similar:
                one.is_similar = False
        several = sum([one.is_similar for one in similar])
        if several >= SIMILAR_LIMIT:
            similar[-1].at = now
            return True
        found = self.note(type, reason, note, now)
        several += not found.is_similar
        found.is_similar = True
        return several >= SIMILAR_LIMIT


_ENCODER: Final = msgpack.Encoder()
_DECODER: Final = msgpack.Decoder(Subject)
