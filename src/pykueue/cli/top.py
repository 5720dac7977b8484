"""`pykueue top`: how full queues, cohorts, flavors and nodes are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import click

from pykueue.api.resources import NODES, PODS
from pykueue.cli.amounts import rounded, weighted_share
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import INCOMPLETE, QuestionSource, print_answer, read_source
from pykueue.clock import Clock
from pykueue.questions.top import Top
from pykueue.questions.top import top as answer_top

#: Width of a bar in characters.
BAR = 20
#: Clears a terminal and goes to its first line.
_CLEAR = "\x1b[2J\x1b[H"


def run(source: SourceOptions, section: str | None, watch: bool, interval: float, output: str) -> None:
    """Carry out the command, whose options `questions` describes."""
    while True:
        answer = _answer(read_source(source, (NODES, PODS)))
        if watch and output == "text":
            click.echo(_CLEAR, nl=False)
        print_answer(answer, output, lambda found: lines(found, section))
        if not watch:
            break
        asyncio.run(Clock().sleep(interval))
    if answer.unread:
        sys.exit(INCOMPLETE)


def _answer(source: QuestionSource) -> Top:
    answer = answer_top(source.engine, source.others.get(NODES, ()), source.others.get(PODS, ()))
    answer.unread, answer.notes = source.unread, source.notes
    return answer


def lines(answer: Top, section: str | None = None) -> Iterator[str]:
    """The answer, or one section of it, as text, a bar for each amount."""
    parts = {
        "queues": [_queues(answer)],
        "flavors": [_flavors(answer)],
        "nodes": [_nodes(answer), _placement(answer)],
    }
    shown = [found for part in parts if section in (None, part) for found in map(list, parts[part]) if found]
    if not shown:
        yield f"No {section} found"
    for number, part_lines in enumerate(shown):
        if number:
            yield ""
        yield from part_lines


def _queues(answer: Top) -> Iterator[str]:
    yield "QUEUES AND COHORTS"
    for row in answer.queues:
        indent = "  " * row.depth
        counts = f"{row.pending} pending, {row.reserving} with quota, {row.admitted} admitted"
        yield f"{indent}{row.kind} {row.name}: {counts}, weighted share {weighted_share(row.weighted_share)}"
        yield from (f"{indent}  ! {problem}" for problem in row.problems)
        for quota in row.quotas:
            resource = quota.resource
            extra = [
                f"{rounded(resource, value)} {name}"
                for name, value in (("borrowed", quota.borrowed), ("lent", quota.lent))
                if value != "0"
            ]
            if quota.used != quota.reserved:
                extra.append(f"{rounded(resource, quota.used)} admitted")
            amounts = ", ".join([_of(resource, quota.reserved, quota.quota), *extra])
            yield f"{indent}  {bar(quota.fraction)} {quota.flavor}: {amounts}"
        if row.requested:
            wanted = ", ".join(
                f"{rounded(resource, value)} {resource}" for resource, value in row.requested.items()
            )
            yield f"{indent}  pending: {wanted}"


def _flavors(answer: Top) -> Iterator[str]:
    if answer.flavors:
        yield "FLAVORS"
        for flavor in answer.flavors:
            amounts = _of(flavor.resource, flavor.reserved, flavor.nominal)
            yield f"  {bar(flavor.fraction)} {flavor.flavor}: {amounts}"


def _nodes(answer: Top) -> Iterator[str]:
    if answer.nodes:
        yield "NODES"
        for node in answer.nodes:
            amounts = _of(node.resource, node.requested, node.allocatable)
            yield f"  {bar(node.fraction)} {node.node}: {amounts}"


def _placement(answer: Top) -> Iterator[str]:
    """The domains of each flavor as a tree, with the workloads whose pods are assigned to its leaves."""
    if answer.domains:
        yield "PLACEMENT"
    before: list[str] = []
    for leaf in answer.domains:
        path = [f"flavor {leaf.flavor}, topology {leaf.topology}", *leaf.domain]
        same = next((n for n, (a, b) in enumerate(zip(before, path, strict=False)) if a != b), len(before))
        for depth, value in enumerate(path[same:-1], same):
            yield f"{'  ' * (depth + 1)}{value}"
        pods = ", ".join(f"{workload} {count}" for workload, count in leaf.pods.items()) or "-"
        yield f"{'  ' * len(path)}{path[-1]}: {pods}"
        before = path


def _of(resource: str, used: str, total: str) -> str:
    return f"{rounded(resource, used)} of {rounded(resource, total)} {resource}"


def bar(fraction: float) -> str:
    """A bar of fixed width; `>` at its end means more than 100%."""
    full = min(BAR, round(fraction * BAR))
    if fraction > 0:
        full = max(1, full)
    text = "#" * full + "." * (BAR - full)
    return f"[{text[:-1]}>]" if fraction > 1 else f"[{text}]"
