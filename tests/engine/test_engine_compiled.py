"""One source: as Python, and compiled where it was asked for, with the same decisions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import pykueue
from pykueue.extras import engine_is_compiled

ROOT = Path(__file__).parents[2]
MODULES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pykueue"]["compiled"]


@pytest.mark.parametrize("name", MODULES)
def test_listed_modules_exist_and_are_all_compiled_or_none(name: str) -> None:
    assert (ROOT / "src" / f"{name.replace('.', '/')}.py").is_file()
    file = import_module(name).__file__
    assert file is not None
    assert file.endswith(tuple(EXTENSION_SUFFIXES)) == engine_is_compiled()


def test_list_is_sorted_and_names_each_module_once() -> None:
    assert sorted(set(MODULES)) == MODULES


def pauses(body: list[ast.stmt]) -> Iterator[int]:
    """The lines at which these statements of a coroutine or generator may be suspended."""
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno
        todo.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("name", MODULES)
def test_no_compiled_module_is_suspended_while_it_handles_an_exception(name: str) -> None:
    """Compiled, the exception would become the context of what others raise meanwhile, and never be freed."""
    tree = ast.parse((ROOT / "src" / f"{name.replace('.', '/')}.py").read_text())
    handlers = [node.body for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    handlers += [node.finalbody for node in ast.walk(tree) if isinstance(node, ast.Try)]
    assert [line for body in handlers for line in pauses(body)] == []


def named(node: ast.expr) -> str:
    """What a base class is called, without type arguments."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)


def test_no_other_module_inherits_from_a_compiled_class() -> None:
    """Neither when it is imported nor when the checks run it is noticed: only when an instance is made."""
    classes: dict[str, set[str]] = {}
    for name in MODULES:
        tree = ast.parse((ROOT / "src" / f"{name.replace('.', '/')}.py").read_text())
        native = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        classes[name] = {
            node.name for node in native if not {"Protocol", "NamedTuple"} & set(map(named, node.bases))
        }
    heirs = []
    for path in (ROOT / "src").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        if module in classes:
            continue
        tree = ast.parse(path.read_text())
        known: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                parts = module.split(".")[: -node.level] if node.level else []
                source = ".".join([*parts, *([node.module] if node.module else [])])
                known |= {one.asname or one.name for one in node.names if one.name in classes.get(source, ())}
        heirs += [
            f"{module}.{node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and known & set(map(named, node.bases))
        ]
    assert heirs == []


def digests(source: Path) -> Iterator[str]:
    """What `python -m bench.engine.digests` prints with the package in this directory."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine.digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
    )
    yield done.stderr.strip()
    yield from done.stdout.splitlines()


@pytest.mark.skipif(not engine_is_compiled(), reason="the engine is not compiled here: make test-compiled")
def test_compiled_engine_decides_the_same_as_python() -> None:
    compiled = list(digests(Path(pykueue.__path__[0]).parent))
    python = list(digests(ROOT / "src"))
    assert compiled[0] == "the engine is compiled"
    assert python[0] == "the engine is Python"
    assert compiled[1:] == python[1:]
    assert len(python) > 10
