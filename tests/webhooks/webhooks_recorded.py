"""Kueue's answers to the generated requests: recorded ones, and those of a program that runs its webhooks.

`data/README.md` describes both formats. Run as a program, this module records them again:
`PYKUEUE_KUEUE_WEBHOOKS=PROGRAM python tests/webhooks/webhooks_recorded.py`.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).parent.parent
    sys.path[:0] = [str(tests / name) for name in ("", "webhooks", "jobs", "manager", "embedded")]

from webhooks_families import FAMILIES
from webhooks_manifests import Case, generated
from webhooks_world import Answer, changes, digest, objects, request_of, settings

from pykueue.embedded.objects.patch import json_patch

Object = dict[str, Any]
DATA = Path(__file__).with_name("data") / "answers.jsonl.xz"
#: A program that answers as Kueue's webhooks do.
PROGRAM = os.environ.get("PYKUEUE_KUEUE_WEBHOOKS", "")
#: Cases of each kind.
COUNT = 360
#: Kinds whose defaulting webhook is asked about updates too.
_DEFAULTED_ON_UPDATE = ("Deployment", "StatefulSet", "LeaderWorkerSet")
_FIELD = re.compile(
    r"(?:^|[\[ ])([A-Za-z][\w.]*(?:\[[^\]]*\][\w.]*)*): "
    r"(?:Invalid value|Forbidden|Required value|Unsupported value|Duplicate value|Too many|Internal error)"
)


@cache
def all_cases() -> tuple[Case, ...]:
    """All cases, in the order of the data."""
    return tuple(generated(name, number, FAMILIES[name]) for name in FAMILIES for number in range(COUNT))


def recorded() -> dict[str, tuple[str, Answer]]:
    """Digest of the request and answer, by the names of the cases."""
    with lzma.open(DATA, "rt") as text:
        lines = [json.loads(line) for line in text]
    return {
        line["case"]: (
            line["request"],
            Answer(line["allowed"], tuple(line.get("fields", ())), line.get("changed", {})),
        )
        for line in lines
    }


def record(answers: Mapping[str, Answer]) -> None:
    """Write the data file."""
    with lzma.open(DATA, "wt", preset=9) as text:
        for case in all_cases():
            answer = answers[case.name]
            line = {"case": case.name, "request": digest(case), "allowed": answer.allowed}
            if answer.fields:
                line["fields"] = answer.fields
            if answer.changed:
                line["changed"] = answer.changed
            text.write(json.dumps(line, sort_keys=True) + "\n")


def asked(world: str, cases: Iterable[Case]) -> dict[str, Answer]:
    """The answers of the program: first of its defaulting webhooks, then of the validating ones."""
    requests = {case.name: request_of(case) for case in cases}
    defaulted = [
        name
        for name, request in requests.items()
        if request["operation"] == "CREATE" or request["kind"]["kind"] in _DEFAULTED_ON_UPDATE
    ]
    found: dict[str, Answer] = {}
    changed: dict[str, Mapping[str, Any]] = {}
    for name, answer in _run(world, [(name, requests[name], True) for name in defaulted]).items():
        if not answer["allowed"]:
            found[name] = Answer(False, _fields(answer), {})
            continue
        before = requests[name]["object"]
        after = json_patch(before, answer["patch"]) if answer.get("patch") else before
        changed[name] = changes(before, after)
        requests[name] = {**requests[name], "object": after}
    rest = [(name, request, False) for name, request in requests.items() if name not in found]
    for name, answer in _run(world, rest).items():
        allowed = answer["allowed"]
        found[name] = Answer(allowed, _fields(answer), changed.get(name, {}) if allowed else {})
    return found


def _run(world: str, requests: list[tuple[str, Object, bool]]) -> dict[str, Object]:
    lines = [{**settings(world), "objects": objects(world)}]
    lines += [{"id": name, "request": request, "mutate": mutate} for name, request, mutate in requests]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([PROGRAM], input=text, capture_output=True, text=True, check=True)
    found = (json.loads(line) for line in done.stdout.splitlines())
    return {line["id"]: line["answer"] for line in found}


def _fields(answer: Object) -> tuple[str, ...]:
    """The fields that a refusal names; its message where it names none."""
    if answer["allowed"]:
        return ()
    message = answer.get("message") or ""
    return tuple(sorted(set(_FIELD.findall(message)))) or (message,)


if __name__ == "__main__":
    results: dict[str, Answer] = {}
    for name in ("queued", "all"):
        results |= asked(name, [case for case in all_cases() if case.world == name])
    record(results)
    print(f"{len(results)} answers recorded in {DATA}")
