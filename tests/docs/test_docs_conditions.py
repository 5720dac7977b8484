"""The page of conditions: it names what the code writes, and every reason that the code has a name for."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from pykueue.api import conditions, pending_reasons
from pykueue.api.kueue import names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "conditions.md").read_text()
#: Types and reasons in the tables.
NAMED = {
    word
    for line in PAGE.splitlines()
    if line.startswith(("| `", "Condition `", "| AdmissionCheck", "| MultiKueueCluster"))
    for word in re.findall(r"`([A-Z][A-Za-z]+)`", line)
}
#: Parts of reasons, and conditions of pods.
_NOT_ON_THE_PAGE = {"DueTo", "TerminationTarget"}


@cache
def literals() -> set[str]:
    """All texts in the source, with those that are put together from two constants."""
    found: set[str] = set()
    for folder in ("api", "engine", "jobs", "manager", "satellites"):
        for path in (ROOT / "src" / "pykueue" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


def constants() -> set[str]:
    """Reasons and types that have a name in the modules of conditions."""
    found = {
        value
        for module in (conditions, pending_reasons)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[A-Z][A-Za-z]+", value)
    }
    return found | {getattr(names, name) for name in ("QUOTA_RESERVED", "ADMITTED", "FINISHED", "ACTIVE")}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_type_or_reason_of_the_page_is_in_the_code(name: str) -> None:
    known = literals()
    head, due, cause = name.partition("DueTo")
    assert name in known or (due and head in known and cause in known), name


def test_every_reason_with_a_name_in_the_code_is_on_the_page() -> None:
    assert constants() - NAMED - _NOT_ON_THE_PAGE == set()
