# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Replay: a recording repeated on a separate engine, decision by decision."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from pykueue.api.meta import format_time
from pykueue.engine.dump import load
from pykueue.engine.recording import carry_out
from pykueue.questions.answers import Answer
from pykueue.simulate.recorded.reading import MALFORMED, Segment, damaged, segments


class Replay(Answer, kw_only=True):
    """What a replay found."""

    start: str
    """The first entry, RFC 3339."""
    end: str
    segments: int
    gaps: list[str] = []
    """Times before which something is missing: another replica led, or nothing was recorded."""
    events: int
    cycles: int
    decisions: int
    recorded: str
    """SHA-256 of the recorded decisions."""
    replayed: str
    """SHA-256 of the decisions of the replay."""
    different: int
    """Cycles with other decisions."""
    first_difference: dict[str, Any] | None = None
    """`at`, `recorded` and `replayed` of the first cycle that differs."""


@dataclass
class _Counts:
    """What is counted over all segments."""

    events: int = 0
    cycles: int = 0
    decisions: int = 0
    different: int = 0
    last: float = 0.0
    first_difference: dict[str, Any] | None = None
    gaps: list[str] = field(default_factory=list)


def replay(path: Path) -> Replay:
    """Repeat a recording: a directory, or one of its files. Raises RecordingError and OSError."""
    found = segments(path)
    counts = _Counts()
    recorded, replayed = hashlib.sha256(), hashlib.sha256()
    for number, segment in enumerate(found):
        if number and segment.head.get("gap"):
            counts.gaps.append(format_time(int(segment.at)))
        _repeat(segment, counts, recorded, replayed)
    return Replay(
        start=format_time(int(found[0].at)),
        end=format_time(int(max(counts.last, found[-1].at))),
        segments=len(found),
        gaps=counts.gaps,
        events=counts.events,
        cycles=counts.cycles,
        decisions=counts.decisions,
        recorded=recorded.hexdigest(),
        replayed=replayed.hexdigest(),
        different=counts.different,
        first_difference=counts.first_difference,
    )


def _repeat(segment: Segment, counts: _Counts, recorded: Any, replayed: Any) -> None:
    number = 1
    try:
        engine = load(segment.head)
        for number, entry in enumerate(segment.entries(), 2):
            decisions = carry_out(engine, entry)
            counts.last = max(counts.last, entry.get("at", 0.0))
            if decisions is None:
                counts.events += 1
                continue
            counts.cycles += 1
            counts.decisions += len(decisions)
            before, after = (_line(entry["at"], each) for each in (entry["cycle"], decisions))
            recorded.update(before)
            replayed.update(after)
            if before != after:
                counts.different += 1
                if counts.first_difference is None:
                    counts.first_difference = {
                        "at": format_time(int(entry["at"])),
                        "file": segment.path.name,
                        "line": number,
                        "recorded": entry["cycle"],
                        "replayed": decisions,
                    }
    except MALFORMED as error:
        raise damaged(f"{segment.path}: line {number}", error) from None


def _line(at: float, decisions: Any) -> bytes:
    return orjson.dumps([at, decisions], option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
