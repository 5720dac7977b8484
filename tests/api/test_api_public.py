"""The public Python API: it is what docs/use/python.md lists, and its signatures change only on purpose.

When a signature here changes, programs of users may break: say so in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use" / "python.md"
#: Module and name, and the parameters that callers may use.
PUBLIC = {
    "pykueue.api.decode": "manifest",
    "pykueue.api.encode": "value",
    "pykueue.engine.Engine": "options, log, capacities, policies",
    "pykueue.engine.Engine.apply": "event, at",
    "pykueue.engine.Engine.cycle": "now",
    "pykueue.engine.Engine.has_heads": "",
    "pykueue.engine.events.Upsert": "obj",
    "pykueue.engine.events.Removed": "kind, namespace, name",
    "pykueue.engine.explain.render.message": "decision",
    "pykueue.simulate.simulate": "scenario, *seeds, *variants, *processes, *folder",
    "pykueue.simulate.figure": "outcome, name, where",
    "pykueue.testing.running_server": "*parts, *nodes, *seed",
}
DECISIONS = {
    "Admit": "key, cluster_queue, admission, admitted, queued_since, cycle, explanation, replaces",
    "Assign": "key, cluster_queue, admission, admitted, cycle",
    "Delay": "key, cluster_queue, message, until, cycle",
    "Evict": "key, reason, message, cluster_queue, cycle",
    "Preempt": "key, reason, preemptor, preemptor_uid, cluster_queue, path, preemptor_path, cycle, "
    "lost_resource_seconds",
    "Requeue": "key, cluster_queue, reason, requeue, inadmissible, cycle, explanation, blocked_on_gates",
}


def found(path: str) -> object:
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            value: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            value = getattr(value, name)
        return value
    raise AssertionError(path)


def parameters(value: object) -> str:
    assert callable(value)
    names = []
    for each in inspect.signature(value).parameters.values():
        if each.name != "self":
            names.append(f"*{each.name}" if each.kind is each.KEYWORD_ONLY else each.name)
    return ", ".join(names)


@pytest.mark.parametrize("path", PUBLIC)
def test_signature_is_that_of_the_last_release(path: str) -> None:
    assert parameters(found(path)) == PUBLIC[path]


@pytest.mark.parametrize("name", DECISIONS)
def test_decision_has_the_attributes_that_programs_read(name: str) -> None:
    assert parameters(found(f"pykueue.engine.decisions.{name}")) == DECISIONS[name]


def test_every_name_of_the_page_exists_and_has_a_docstring() -> None:
    rows = re.findall(r"^\| `(pykueue[\w.]*)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 8
    for module, text in rows:
        for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", text):
            of_engine = name in {"apply", "has_heads", "cycle"}
            value = found(f"{module}.Engine.{name}" if of_engine else f"{module}.{name}")
            assert isinstance(value, str) or inspect.getdoc(value), f"{module}: {name}"


def test_version_is_that_of_the_project() -> None:
    import pykueue

    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert pykueue.__version__ == version
