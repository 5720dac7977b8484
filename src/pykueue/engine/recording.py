"""Events, cycles and decisions of an engine as entries that can be written and read again.

The `..._entry` functions make plain data of what a `Recorder` receives; `carry_out` makes the same calls on
another engine. Objects are reduced (`engine.reduction`). A recording begins with the state of the engine
(`snapshot`): after that, the same entries lead to the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pykueue.api import decode, encode
from pykueue.engine.decisions import Admit, Assign, Decision, Delay, Evict, Preempt, Requeue
from pykueue.engine.dump import dump, manifest_of
from pykueue.engine.engine import Engine
from pykueue.engine.events import Event, Removed, Upsert
from pykueue.engine.reduction import reduced

Entry = dict[str, Any]

#: Version of the format, in the first entry of a recording.
FORMAT: Final = "pykueue.io/v1alpha1"


def snapshot(engine: Engine) -> list[Any]:
    """The state of an engine: its objects, reduced, and its EngineState."""
    return [reduced(item) for item in dump(engine)["items"]]


def event_entry(event: Event, at: float) -> Entry:
    """An object appeared, changed or went; `at` in seconds since 1970."""
    if isinstance(event, Upsert):
        return {"at": at, "upsert": reduced(manifest_of(event.obj))}
    return {"at": at, "removed": [event.kind, event.namespace, event.name]}


def cycle_entry(decisions: Iterable[Decision], now: float) -> Entry:
    """A scheduling cycle at `now` (seconds since 1970) and what was decided in it."""
    return {"at": now, "cycle": [decision_entry(each) for each in decisions]}


def forget_entry(key: str, what: str) -> Entry:
    """A decision that could not be carried out; `what` is `Admit` or `Preempt`."""
    return {"forget": key, "what": what}


def decision_entry(decision: Decision) -> Entry:
    """A decision without its explanation."""
    entry: Entry = {
        "kind": type(decision).__name__,
        "workload": decision.key,
        "clusterQueue": decision.cluster_queue,
    }
    match decision:
        case Admit() | Assign():
            entry |= {"admitted": decision.admitted, "admission": encode(decision.admission)}
            if isinstance(decision, Admit) and decision.replaces:
                entry["replaces"] = decision.replaces
        case Preempt():
            entry |= {"reason": decision.reason, "preemptor": decision.preemptor}
        case Requeue():
            entry |= {
                "reason": decision.reason,
                "requeue": decision.requeue,
                "inadmissible": decision.inadmissible,
            }
        case Evict():
            entry["reason"] = decision.reason
        case Delay():
            entry["until"] = decision.until
    return entry


def carry_out(engine: Engine, entry: Mapping[str, Any]) -> list[Entry] | None:
    """The call that an entry stands for, on an engine; the decisions of a cycle, else None.

    Raises KeyError for what is no entry of a recording, and DecodeError for an object of the wrong shape.
    """
    if "upsert" in entry:
        engine.apply(Upsert(decode(entry["upsert"])), entry["at"])
    elif "removed" in entry:
        engine.apply(Removed(*entry["removed"]), entry["at"])
    elif "cycle" in entry:
        return [decision_entry(each) for each in engine.cycle(entry["at"])]
    elif entry["what"] == "Admit":
        engine.forget(entry["forget"])
    else:
        engine.forget_preemption(entry["forget"])
    return None
