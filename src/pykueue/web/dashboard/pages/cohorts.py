"""Cohorts: trees as pictures, with arrows for what members lend and borrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pykueue.api.quantity import Quantity, parse
from pykueue.api.resources import CLUSTER_QUEUES, COHORTS
from pykueue.questions.top import QueueUse
from pykueue.web.dashboard.charts.tree import NODES_MAX, TreeNode, tree
from pykueue.web.dashboard.security.reviews import Need
from pykueue.web.dashboard.state.figures import fair_shares, figures, highest_fraction, queue_figures
from pykueue.web.dashboard.texts import amount

from .base import NotFoundError, Page, View, everywhere, link

#: Trees on one page; of a list of more, parts.
TREES_MAX: Final = 10


async def _cohorts(view: View) -> Mapping[str, Any]:
    view.require("list", COHORTS)
    trees: list[list[QueueUse]] = []
    for each in figures(view.board).queues:
        if each.depth == 0:
            trees.append([])
        trees[-1].append(each)
    trees = [one for one in trees if one[0].kind == "Cohort"]
    text = view.query.get("page", "1")
    number = max(1, int(text)) if text.isdecimal() and len(text) < 9 else 1
    shown = trees[(number - 1) * TREES_MAX : number * TREES_MAX]
    return {
        "trees": [
            {"name": one[0].name, "picture": _picture(view, one), "more": len(one) - NODES_MAX}
            for one in shown
        ],
        "count": len(trees),
        "number": number,
    }


async def _cohort(view: View) -> Mapping[str, Any]:
    view.require("get", COHORTS)
    name = view.name
    cohort = queue_figures(view.board).get(("Cohort", name))
    if cohort is None:
        raise NotFoundError(f"There is no cohort {name}.")
    below = _subtree(figures(view.board).queues, name)
    sees_queues = view.grants.lists(CLUSTER_QUEUES)
    return {
        "cohort": cohort,
        "obj": view.board.get("Cohort", "", name),
        "picture": _picture(view, below),
        "shares": next(
            (each for each in fair_shares(view.board).queues if each.kind == "Cohort" and each.name == name),
            None,
        ),
        "members": [
            each for each in below[1:] if each.parent == name and (each.kind == "Cohort" or sees_queues)
        ],
        "more": len(below) - NODES_MAX,
    }


def _subtree(queues: Sequence[QueueUse], name: str) -> list[QueueUse]:
    """A cohort and everything below it."""
    found: list[QueueUse] = []
    for each in queues:
        if each.kind == "Cohort" and each.name == name:
            found = [each]
        elif found and each.depth > found[0].depth:
            found.append(each)
        elif found:
            break
    return found


def _picture(view: View, queues: Sequence[QueueUse]) -> Any:
    """The tree; ClusterQueues have no names for a user who may not list them."""
    sees_queues, top = view.grants.lists(CLUSTER_QUEUES), queues[0].depth
    nodes = []
    hidden: dict[str, str] = {}
    for each in queues:
        named = each.kind == "Cohort" or sees_queues
        if not named:
            hidden[each.name] = f"queue {len(hidden) + 1}"
        folder = "cohorts" if each.kind == "Cohort" else "cluster-queues"
        nodes.append(
            TreeNode(
                each.kind,
                each.name if named else hidden[each.name],
                each.parent if each.depth > top else "",
                each.depth - top,
                link(folder, each.name) if named else "",
                f"{each.pending} pending, {each.admitted} admitted",
                highest_fraction(each),
                _amounts((quota.borrowed, quota.resource) for quota in each.quotas),
                _amounts((quota.lent, quota.resource) for quota in each.quotas),
            )
        )
    count = sum(each.kind == "ClusterQueue" for each in queues)
    text = f"Tree of cohort {queues[0].name} with {count} ClusterQueues"
    return tree(nodes, text)


def _amounts(found: Iterable[tuple[str, str]]) -> str:
    """Amounts (quantity, resource), those of one resource added up."""
    total: dict[str, Quantity] = {}
    for text, resource in found:
        if text not in ("0", "unlimited"):
            total[resource] = total.get(resource, Quantity(0)) + parse(text)
    return ", ".join(f"{amount(str(value))} {resource}" for resource, value in total.items())


PAGES = (
    Page(
        "/cohorts",
        "Cohorts",
        "cohorts.html",
        _cohorts,
        lambda params: everywhere(COHORTS, CLUSTER_QUEUES),
        section="Cohorts",
    ),
    Page(
        "/cohorts/{name}",
        "Cohort {name}",
        "cohort.html",
        _cohort,
        lambda params: [Need("get", COHORTS), *everywhere(CLUSTER_QUEUES)],
        parent="/cohorts",
    ),
)
