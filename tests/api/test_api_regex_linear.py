"""The program's own patterns are matched by a backtracking engine: none of them may be ambiguous.

A pattern takes more than linear time only if it has a loop that reads a text in two ways (exponential), or
two loops that follow each other and read the same text (polynomial). Both are decided here on the automaton
of the pattern's positions, for every pattern of the source. A pattern that is searched for, not matched from
the start, counts as one that begins with a loop over everything.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter, deque
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pykueue

PARSER: Any = re._parser  # type: ignore[attr-defined]
SOURCE = Path(pykueue.__file__).parent

#: Characters that stand for all others of their classes.
ALPHABET = [chr(code) for code in range(128)] + ["µ", "μ", "é", "٣", "\u2003", "\uffff"]
EVERYTHING = (1 << len(ALPHABET)) - 1

#: Searched for in texts of bounded length or of the program's own making.
BOUNDED = {
    "embedded/objects/selectors.py:_TERM": "matches wherever it is tried",
    "api/durations.py:_PART": "matched as a whole before",
    "api/cel/program.py": "messages of the CEL library about one value",
    "embedded/nodes/pool.py": "messages of msgspec about one value, of a file of the administrator",
    "embedded/nodes/processes/files.py": "the host's nsswitch.conf",
    "manager/install/chart.py": "the program's own manifests",
}


class Automaton(NamedTuple):
    """Positions of a pattern and which may follow which, in how many ways."""

    masks: list[int]
    follow: Counter[tuple[int, int]]
    first: list[int]
    last: list[int]
    #: The loop over what precedes a pattern that is searched for, and whether its end is anchored.
    before: int | None
    anchored: bool


class Builder:
    """Makes the automaton of a parsed pattern. Bounded repetitions count as two, which adds no loop."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.masks: list[int] = []
        self.follow: Counter[tuple[int, int]] = Counter()
        self.inner: list[Any] = []

    def position(self, text: str) -> tuple[list[int], list[int], int]:
        one = re.compile(text, self.flags)
        mask = sum(1 << number for number, char in enumerate(ALPHABET) if one.fullmatch(char))
        self.masks.append(mask)
        at = [len(self.masks) - 1]
        return at, at, 0

    def link(self, ends: list[int], starts: list[int]) -> None:
        self.follow.update((end, start) for end in ends for start in starts)

    def sequence(self, items: Any) -> tuple[list[int], list[int], int]:
        first: list[int] = []
        last: list[int] = []
        ways = 1  # to read nothing so far
        for item in items:
            starts, ends, empty = self.item(item)
            self.link(last, starts)
            first = first + starts * ways
            last = last * min(empty, 2) + ends
            ways = min(ways * empty, 2)
        return first, last, ways

    def item(self, item: Any) -> tuple[list[int], list[int], int]:
        kind, value = str(item[0]), item[1]
        match kind:
            case "LITERAL":
                return self.position(re.escape(chr(value)))
            case "NOT_LITERAL":
                return self.position(f"[^{re.escape(chr(value))}]")
            case "ANY":
                return self.position(".")
            case "IN":
                return self.position(self.char_class(value))
            case "BRANCH":
                parts = [self.sequence(branch) for branch in value[1]]
                return (
                    [one for part in parts for one in part[0]],
                    [one for part in parts for one in part[1]],
                    sum(part[2] for part in parts),
                )
            case "SUBPATTERN":
                return self.sequence(value[3])
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high, body = value
                if high is PARSER.MAXREPEAT:
                    parts = [self.sequence(body) for _ in range(min(low, 2))] or [self.sequence(body)]
                    starts, ends, empty = parts[-1]
                    self.link(ends, starts)
                    for before, after in pairwise(parts):
                        self.link(before[1], after[0])
                    return parts[0][0], ends, int(low == 0) or empty
                copies = [self.sequence(body) for _ in range(min(high, 2))]
                if not copies:
                    return [], [], 1
                for before, after in pairwise(copies):
                    self.link(before[1], after[0])
                ends = [end for copy in copies for end in copy[1]]
                return copies[0][0], ends, int(low == 0) or copies[0][2]
            case "ASSERT" | "ASSERT_NOT":
                self.inner.append(value[1])
                return [], [], 1
            case "AT" | "GROUPREF":  # a group that is referred to has a bounded length
                return [], [], 1
        raise AssertionError(f"unknown item {kind}")

    def char_class(self, items: Any) -> str:
        categories = {
            "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
            "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
        }  # fmt: skip
        text = ""
        for kind, value in items:
            match str(kind):
                case "NEGATE":
                    text = "^" + text
                case "LITERAL":
                    text += re.escape(chr(value))
                case "RANGE":
                    text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
                case "CATEGORY":
                    text += categories[str(value)]
        return f"[{text}]"


def automata(pattern: str, flags: int, searched: bool) -> Iterator[Automaton]:
    """Of the pattern and of what it looks ahead for."""
    flags &= re.IGNORECASE | re.ASCII | re.DOTALL | re.MULTILINE | re.VERBOSE
    parsed: list[tuple[Any, bool]] = [(PARSER.parse(pattern, flags), searched)]
    while parsed:
        tree, anywhere = parsed.pop()
        builder = Builder(flags)
        loop: list[int] = []
        anchored = len(tree) > 0 and str(tree[0][0]) == "AT" and str(tree[0][1]).startswith("AT_BEGINNING")
        if anywhere and not anchored:
            loop, _, _ = builder.position(r"[\s\S]")
            builder.link(loop, loop)
        first, last, _ = builder.sequence(tree)
        builder.link(loop, first)
        ends = len(tree) > 0 and str(tree[-1][0]) == "AT"
        yield Automaton(builder.masks, builder.follow, first, last, loop[0] if loop else None, ends)
        parsed += [(inner, False) for inner in builder.inner]


def reachable(start: tuple[int, ...], after: dict[int, list[int]], masks: list[int]) -> set[tuple[int, ...]]:
    """What can be reached from a tuple of positions when all read the same text of at least one character."""
    seen: set[tuple[int, ...]] = set()
    todo = deque([start])
    while todo:
        at = todo.popleft()
        nexts: list[tuple[int, ...]] = [()]
        for position in at:
            nexts = [(*one, then) for one in nexts for then in after.get(position, ())]
        for one in nexts:
            if one not in seen and reduce(lambda mask, place: mask & masks[place], one, EVERYTHING):
                seen.add(one)
                todo.append(one)
    return seen


def ambiguity(automaton: Automaton) -> str:
    """`exponential`, `polynomial` or nothing."""
    masks = automaton.masks
    after: dict[int, list[int]] = {}
    for (start, end), _ in automaton.follow.items():
        after.setdefault(start, []).append(end)
    loops = [place for place in range(len(masks)) if (place,) in reachable((place,), after, masks)]
    for place in loops:
        around = {one[0] for one in reachable((place,), after, masks)}
        cycle = {one for one in around if (place,) in reachable((one,), after, masks)}
        if any(ways > 1 for (start, end), ways in automaton.follow.items() if {start, end} <= cycle):
            return "exponential"
        pairs = reachable((place, place), after, masks)
        if any(a != b and (place, place) in reachable((a, b), after, masks) for a, b in pairs):
            return "exponential"
    for one in loops:
        for other in loops:
            # What is searched for is found as soon as a position is reached in which it may end.
            found = one == automaton.before and other in automaton.last and not automaton.anchored
            if (
                one != other
                and not found
                and (one, other, other) in reachable((one, one, other), after, masks)
            ):
                return "polynomial"
    return ""


class Use(NamedTuple):
    """A pattern as the source uses it."""

    file: str
    name: str
    line: int
    pattern: str
    flags: int
    searched: bool


SEARCHES = {"search", "findall", "finditer", "split", "sub", "subn"}


def module_of(path: Path) -> Any:
    name = ".".join(("pykueue", *path.relative_to(SOURCE).with_suffix("").parts))
    return importlib.import_module(name.removesuffix(".__init__"))


def uses() -> Iterator[Use]:
    """Every pattern that the source gives to `re`."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if "import re\n" not in text:
            continue
        file, module = str(path.relative_to(SOURCE)), module_of(path)
        tree = ast.parse(text)
        searched = {
            node.value.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in SEARCHES
        }
        named = {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, re.Pattern) and f"\n{name}" in text
        }
        for name, value in named.items():
            yield Use(file, name, 0, value.pattern, value.flags, name in searched)
        assigned = {node.value for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            function = node.func
            if not (isinstance(function.value, ast.Name) and function.value.id == "re"):
                continue
            if function.attr == "escape" or (function.attr == "compile" and node in assigned):
                continue
            given = node.args[0]
            if isinstance(given, ast.Constant):
                # How compiled ones in tables are used is not known.
                searched_for = function.attr in {*SEARCHES, "compile"}
                yield Use(file, "", node.lineno, str(given.value), 0, searched_for)
            elif not isinstance(given, ast.Name):
                raise AssertionError(f"{file}:{node.lineno}: a pattern that is put together at run time")


ALL = sorted(set(uses()))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("(a+)+b", "exponential"),
        ("(a|a)*b", "exponential"),
        ("(a|ab|b)*c", "exponential"),
        ("(.+)+Q", "exponential"),
        (r"\d+\.?\d*s", "polynomial"),
        ("a*a*b", "polynomial"),
        ("[a-z]*x[a-z]*y", "polynomial"),
        ("[a-z0-9]([-a-z0-9]*[a-z0-9])?", ""),
        (r"\d+(\.\d*)?s", ""),
        ("(?:[^'\\\\]|\\\\.)*'", ""),
        ("a{1,50}b*", ""),
    ],
)
def test_ambiguous_patterns_are_recognised(pattern: str, found: str) -> None:
    (automaton,) = automata(pattern, 0, False)
    assert ambiguity(automaton) == found


def test_searching_for_a_loop_is_recognised_as_quadratic() -> None:
    (automaton,) = automata(r"\d+s", 0, True)
    assert ambiguity(automaton) == "polynomial"


def test_every_pattern_of_the_source_is_found() -> None:
    assert len(ALL) > 80
    assert set(BOUNDED) <= {use.file for use in ALL} | {f"{use.file}:{use.name}" for use in ALL}


@pytest.mark.parametrize("use", ALL, ids=lambda use: f"{use.file}:{use.name or use.line}")
def test_patterns_of_the_source_take_linear_time(use: Use) -> None:
    if use.file in BOUNDED or f"{use.file}:{use.name}" in BOUNDED:
        return
    for automaton in automata(use.pattern, use.flags, use.searched):
        assert not ambiguity(automaton), use
