"""Outcomes in files: kept for a later run of the same scenario, and as a table for other programs."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_origin

import msgspec
import orjson

import pykueue
from pykueue.simulate.figures import NAMES, figure
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import Prepared
from pykueue.simulate.scenario.types import Where


class _Kept(msgspec.Struct):
    """An outcome and what it is the outcome of."""

    digest: str
    outcome: Outcome


def _encoded(value: Any) -> Any:
    if isinstance(value, array):
        return value.tobytes()
    raise NotImplementedError(type(value))


def _decoded(type: type, value: Any) -> Any:
    if type is array:
        return array("d", value)
    if get_origin(type) is Counter:
        return Counter(value)
    raise NotImplementedError(type)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encoded)
_DECODER = msgspec.msgpack.Decoder(_Kept, dec_hook=_decoded)


def write_outcome(folder: Path, digest: str, outcome: Outcome) -> None:
    """Keeps an outcome of the scenario with that digest, whole or not at all. Raises OSError."""
    file = _file(folder, outcome.variant, outcome.seed)
    part = file.with_suffix(".part")
    part.write_bytes(_ENCODER.encode(_Kept(digest, outcome)))
    part.replace(file)


def read_outcome(folder: Path, digest: str, variant: str, seed: int) -> Outcome | None:
    """The outcome kept of that run; None if there is none, or not of the scenario with that digest."""
    try:
        kept = _DECODER.decode(_file(folder, variant, seed).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return kept.outcome if kept.digest == digest else None


def _file(folder: Path, variant: str, seed: int) -> Path:
    return folder / f"outcome-{variant}-{seed}.msgpack"


def digest_of(prepared: Prepared) -> str:
    """Of everything that the runs of a scenario depend on but the variant and the seed."""
    result = hashlib.sha256(pykueue.__version__.encode())
    scenario = msgspec.to_builtins(prepared.scenario)
    for name in ("seeds", "assertions"):
        scenario.pop(name)
    objects = sorted(prepared.objects.values(), key=orjson.dumps)
    result.update(orjson.dumps([scenario, objects, list(prepared.workloads.values()), prepared.detail]))
    if prepared.history is not None:
        present = [each.job for each in prepared.history.present]
        jobs = [(job.key, job.at, job.run_time) for job in (*present, *prepared.history.jobs)]
        result.update(orjson.dumps([jobs, len(prepared.history.changes)]))
    for source in prepared.scenario.arrivals:
        for name in (source.kueue_generator, source.trace.file if source.trace is not None else ""):
            if name:
                with (prepared.folder / name).open("rb") as file:
                    result.update(hashlib.file_digest(file, "sha256").digest())
    return result.hexdigest()


_HEAD = ("variant", "seed", "clusterQueue", "class")
#: Figures that are of a whole run.
OF_RUNS = frozenset({"unfinished", "makespan", "end", "cycles"})


def rows(outcomes: Iterable[Outcome]) -> Iterator[list[str]]:
    """A header, and a row of figures for each run and each group of it."""
    yield [*_HEAD, *NAMES]
    for outcome in outcomes:
        whole = [repr(figure(outcome, name)) for name in NAMES]
        yield [outcome.variant, str(outcome.seed), "", "", *whole]
        for queue, job_class in groups_of(outcome):
            where = Where(queue, job_class)
            cells = ["" if name in OF_RUNS else repr(figure(outcome, name, where)) for name in NAMES]
            yield [outcome.variant, str(outcome.seed), queue, job_class, *cells]


def groups_of(outcome: Outcome) -> list[tuple[str, str]]:
    """ClusterQueue and class of each group of workloads, sorted."""
    return sorted({(group.cluster_queue, group.job_class) for group in outcome.lives})
