"""Caches of what requests bring are bounded, in entries and in the size of one."""

from __future__ import annotations

import ast
from pathlib import Path

import pykueue
from pykueue.api.caching import LONGEST_KEY, cached_by_text
from pykueue.embedded.apiserver.registry.call import _default_options

SOURCE = Path(pykueue.__file__).parent

#: Functions kept by `lru_cache` or `cache`, and why their arguments are bounded.
KNOWN = {
    "api/caching.py": "bounded by LONGEST_KEY",
    "api/quantity.py:of": "numbers",
    "api/quantity.py:of_milli": "numbers",
    "api/times.py:_format_second": "numbers",
    "extras.py:installed": "names of the program",
    "engine/lifecycle.py:_stamp": "numbers",
    "engine/lifecycle.py:_condition": "names of the program and the text of a number",
    "embedded/objects/metadata.py:time_text": "numbers",
    "embedded/apiserver/http/encoding.py:fields_of": "one of a few forms",
    "embedded/apiserver/http/stream.py:_listed": "fields of an answer, at most 16 KiB, 256 entries",
    "embedded/apiserver/http/negotiation.py:accepted_forms": "a header field, at most 64 KiB, 512 entries",
    "embedded/apiserver/http/negotiation.py:choose": "a header field, at most 64 KiB, 512 entries",
    "embedded/apiserver/registry/call.py:_default_options": "128 characters of the User-Agent",
    "embedded/apiserver/crd/structural.py:_compiled": "stored definitions",
    "embedded/store/sqlite.py": "statements of the program",
    "api/cel/program.py:_environment": "tuples of names in the program",
    "embedded/objects/protobuf.py:_messages": "no argument",
    "embedded/apiserver/webhooks/match_conditions.py:spares_name": "256 names of at most 256 characters",
    "simulate/faults/jobkinds.py:integration": "kinds of the program",
    "engine/quota/usage.py:quota_units": "quantities, each read from at most 256 characters",
}


def cached_functions() -> dict[str, list[ast.arg]]:
    """Functions kept by the standard library's caches, and their arguments."""
    found: dict[str, list[ast.arg]] = {}
    for path in SOURCE.rglob("*.py"):
        file = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    named = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(named, ast.Name) and named.id in ("cache", "lru_cache"):
                        found[f"{file}:{node.name}"] = node.args.args
    return found


def test_functions_of_request_input_are_kept_by_bounded_caches() -> None:
    unbounded = [
        name
        for name, arguments in cached_functions().items()
        if arguments
        and name not in KNOWN
        and name.partition(":")[0] not in KNOWN
        and not name.startswith(("api/crds/", "manager/install/", "embedded/schema/"))
    ]
    assert not unbounded


def test_long_texts_are_not_kept() -> None:
    calls: list[str] = []

    @cached_by_text(8)
    def length(text: str) -> int:
        calls.append(text)
        return len(text)

    for text in ("a", "a", "b" * LONGEST_KEY, "b" * LONGEST_KEY, *["c" * (LONGEST_KEY + 1)] * 2):
        assert length(text) == len(text)
    assert [len(text) for text in calls] == [1, LONGEST_KEY, LONGEST_KEY + 1, LONGEST_KEY + 1]


def test_user_agents_are_kept_in_a_bounded_number() -> None:
    for number in range(10_000):
        _default_options(f"agent-{number}")
    assert _default_options.cache_info().currsize == 256
