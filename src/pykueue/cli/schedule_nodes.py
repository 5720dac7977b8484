"""The placement of pods as a picture: the domains of each topology, and the workloads in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

Placement = dict[str, Any]


def show(placements: Sequence[Placement], console: Console) -> None:
    """Print the domains of flavors to whose nodes pods are assigned; nothing if there are none."""
    for flavor, found in groupby(placements, key=lambda each: str(each["flavor"])):
        domains = list(found)
        if any(each["workloads"] for each in domains):
            console.print(f"Nodes of flavor {flavor}, topology {domains[0]['topology']}:")
            console.print(_table(domains))
            console.print()


def _table(domains: Sequence[Placement]) -> Table:
    resources = sorted({name for each in domains for name in each["used"]})
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("DOMAIN", no_wrap=True)
    for resource in resources:
        table.add_column(resource.upper(), no_wrap=True, justify="right")
    table.add_column("PODS", overflow="fold")
    for row in _rows(domains, 0, resources):
        table.add_row(*row)
    return table


def _rows(domains: Sequence[Placement], level: int, resources: Sequence[str]) -> Iterator[list[str]]:
    """A row for each domain of a level, with those below it; domains without pods in one row."""
    indent = "  " * level
    lowest = level == len(domains[0]["levels"]) - 1
    idle = 0
    for value, found in groupby(domains, key=lambda each: str(each["values"][level])):
        inside = list(found)
        if not any(each["workloads"] for each in inside):
            idle += 1
        elif lowest:
            yield [indent + value, *_use(inside[0], resources), _pods(inside[0])]
        else:
            yield [indent + value, *[""] * len(resources), ""]
            yield from _rows(inside, level + 1, resources)
    if idle:
        more = "domain" if idle == 1 else "domains"
        yield [f"{indent}({idle} {more} without pods)", *[""] * len(resources), ""]


def _use(domain: Placement, resources: Sequence[str]) -> list[str]:
    used, available = domain["used"], domain["available"]
    return [f"{used.get(name, '0')}/{available.get(name, '0')}" for name in resources]


def _pods(domain: Placement) -> str:
    return ", ".join(f"{workload}: {pods}" for workload, pods in domain["workloads"].items())
