"""Record the changes of a cluster that Kueue manages, and compare Kueue's decisions with ours afterwards.

By hand, in `tests/besidekueue` with PYTHONPATH=..:../realcluster:../cli; the second command repeatedly:

    PYKUEUE_KUEUE=/path python besidekueue_load.py plain --minutes 60 --record --folder DIR
    python besidekueue_recording.py DIR [--seconds N] [--without-log]

A recording is `changes.jsonl`: a line of the kinds, then one for each object at the start and for each
change, with the time at which a watch delivered it. The manager's log is beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import IO, Any, Final

from pykueue.api.model import Model
from pykueue.api.objects import key_of
from pykueue.api.resources import Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.informer import DELETED, InformerFactory
from pykueue.manager.configuration.loading import parse
from pykueue.manager.scheduler.engine_options import engine_options
from pykueue.questions.cluster_state import followed_kinds, read_cluster, typed
from pykueue.questions.shadow import KUEUE_FLUSH_DELAY, Difference, Report, Settings
from pykueue.questions.shadow.changes import Change, version_of
from pykueue.questions.shadow.decisions import Observed
from pykueue.questions.shadow.followers import ChangeFollower, Follower, LogFile, LogFollower
from pykueue.questions.shadow.report import Tallies, difference_text, report_text

CHANGES: Final = "changes.jsonl"
SETTINGS: Final = Settings()
#: Seconds in which the objects at the start are delivered.
LISTED: Final = 0.3


def recording(minutes: float, scratch: Path) -> Callable[[Path], Callable[[Client], Awaitable[None]]]:
    """Record the changes of all kinds that decisions depend on."""

    def at(_: Path) -> Callable[[Client], Awaitable[None]]:
        async def follow(client: Client) -> None:
            state = await read_cluster(client, engine_state=False)
            kinds = (*state.further_kinds, *await followed_kinds(client))
            with (scratch / CHANGES).open("w") as file:
                file.write(json.dumps([list(kind) for kind in kinds]) + "\n")
                await _record(client, kinds, file, minutes * 60)

        return follow

    return at


async def _record(client: Client, kinds: tuple[Resource, ...], file: IO[str], seconds: float) -> None:
    clock = Clock()
    caches = InformerFactory(client, clock=clock)

    def follow(number: int, kind: Resource) -> None:
        def on_event(type: str, before: Any, after: Any) -> None:
            obj = before if after is None else after
            file.write(json.dumps([clock.time(), number, type, obj], separators=(",", ":")) + "\n")

        caches.informer(kind, optional=True).on_event(on_event)

    for number, kind in enumerate(kinds):
        follow(number, kind)
    following = asyncio.create_task(caches.run())
    try:
        await clock.sleep(seconds)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def changes(folder: Path) -> Iterator[Change]:
    """The changes of a recording, in the order in which watches delivered them."""
    with (folder / CHANGES).open() as file:
        kinds = [Resource(*each) for each in json.loads(next(file))]
        known: dict[tuple[int, str, str], Model] = {}
        for line in file:
            received, number, type, obj = json.loads(line)
            namespace, name = key_of(obj)
            kind, key = kinds[number], (number, namespace, name)
            before, after = known.pop(key, None), None
            if type != DELETED:
                after = known[key] = typed(obj, kind)
            yield Change(version_of(obj), kind.kind, namespace, name, before, after, received)


def compare(folder: Path, seconds: float, with_log: bool) -> Report:
    """Compare the decisions of the first seconds as `pykueue shadow` does; differences are printed."""
    configuration = parse((folder / "kueue.yaml").read_text(), "kueue.yaml", namespace="kueue-system")
    options = replace(engine_options(configuration), hybrid_assignments=False, flush_delay=KUEUE_FLUSH_DELAY)
    tallies = Tallies()

    def compared(about: Observed, difference: Difference | None) -> None:
        tallies.count(about.kind, difference)
        if difference is not None:
            print(difference_text(difference))

    follower: Follower
    if with_log:
        follower = LogFollower(options, LogFile(str(folder / "kueue.log")), compared)
    else:
        follower = ChangeFollower(options, SETTINGS.window, compared)
    recorded = changes(folder)
    first = next(recorded)
    start = first.received + LISTED
    initial, count, last = [first], 0, start
    for change in recorded:
        if change.received < start:
            initial.append(change)
            continue
        if change.received > start + seconds:
            break
        if not count:
            follower.begin(initial, start)
        count, last = count + 1, change.received
        follower.add(change)
        deque(follower.work(change.received - SETTINGS.settle), maxlen=0)
    report = tallies.report(start, last)
    report.changes, report.cycles, report.late_changes = count, follower.cycles, follower.late
    return report


def main() -> None:
    """Compare the decisions of a recording."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=inf)
    parser.add_argument("--without-log", action="store_true")
    given = parser.parse_args()
    print("\n".join(report_text(compare(given.folder, given.seconds, not given.without_log))))


if __name__ == "__main__":
    main()
