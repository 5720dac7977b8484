"""A tree of cohorts and ClusterQueues, with arrows for what members lend and borrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from .texts import decimal, shortened

#: Nodes that are drawn; of a larger tree the first.
NODES_MAX: Final = 150
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 190, 54, 150, 14
#: Characters of a name and of a label that fit.
_NAME_MAX, _LABEL_MAX = 22, 22


class TreeNode(NamedTuple):
    """A node, each after its parent."""

    kind: str
    name: str
    parent: str
    depth: int
    link: str
    """Address of its page; empty where the user may not see it."""
    detail: str
    fraction: float
    borrows: str
    """What it borrows from its parent now; empty for nothing."""
    lends: str
    """What it lends to its parent now; empty for nothing."""


def tree(nodes: Sequence[TreeNode], text: str) -> Markup:
    """The picture of one tree, described by `text`."""
    shown = nodes[:NODES_MAX]
    places = _places(shown)
    width = (max((node.depth for node in shown), default=0) + 1) * (_BOX_WIDTH + _GAP_X) - _GAP_X + 4
    height = max((y for _, y in places.values()), default=0.0) + _BOX_HEIGHT + 4
    edges, labels, boxes = [], [], []
    for node in shown:
        x, y = places[node.kind, node.name]
        above = places.get(("Cohort", node.parent))
        if node.parent and above is not None:
            edge, label = _edge(node, above, (x, y))
            edges.append(edge)
            labels.append(label)
        boxes.append(_box(node, x, y))
    return Markup(
        '<svg class="tree" viewBox="-2 -2 {} {}" width="{}" height="{}" role="group" aria-label="{}">'
        '<defs><marker id="arrow-lends" class="lends" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker>'
        '<marker id="arrow-borrows" class="borrows" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>{}{}{}</svg>'
    ).format(
        decimal(width),
        decimal(height),
        decimal(width),
        decimal(height),
        text,
        *(Markup("").join(p) for p in (edges, boxes, labels)),
    )


def _places(nodes: Sequence[TreeNode]) -> dict[tuple[str, str], tuple[float, float]]:
    """The corner of each box: leaves below each other, a cohort at the middle of its members."""
    members: dict[str, list[TreeNode]] = {}
    for node in nodes:
        members.setdefault(node.parent, []).append(node)
    places: dict[tuple[str, str], tuple[float, float]] = {}
    row = 0
    for node in reversed(nodes):
        below = members.get(node.name, []) if node.kind == "Cohort" else []
        ys = [places[each.kind, each.name][1] for each in below if (each.kind, each.name) in places]
        if ys:
            y = (min(ys) + max(ys)) / 2
        else:
            y = row * (_BOX_HEIGHT + _GAP_Y)
            row += 1
        places[node.kind, node.name] = (node.depth * (_BOX_WIDTH + _GAP_X), y)
    bottom = max((y for _, y in places.values()), default=0.0)
    return {key: (x, bottom - y) for key, (x, y) in places.items()}


def _edge(node: TreeNode, above: tuple[float, float], at: tuple[float, float]) -> tuple[Markup, Markup]:
    x1, y1 = above[0] + _BOX_WIDTH, above[1] + _BOX_HEIGHT / 2
    x2, y2 = at[0], at[1] + _BOX_HEIGHT / 2
    left, middle, right, top, bottom = map(decimal, (x1, (x1 + x2) / 2, x2, y1, y2))
    path = f"M{left} {top}C{middle} {top} {middle} {bottom} {right} {bottom}"
    kind, marks, text = "edge", Markup(""), ""
    if node.borrows:
        kind, marks, text = (
            "edge borrows",
            Markup(' marker-end="url(#arrow-borrows)"'),
            f"borrows {node.borrows}",
        )
    elif node.lends:
        kind, marks, text = "edge lends", Markup(' marker-start="url(#arrow-lends)"'), f"lends {node.lends}"
    label = Markup("")
    if text:
        label = Markup(
            '<text class="label" x="{}" y="{}" text-anchor="end">{}<title>{}</title></text>'
        ).format(decimal(x2 - 12), decimal(y2 - 7), shortened(text, _LABEL_MAX), text)
    return Markup('<path class="{}" d="{}"{}/>').format(kind, path, marks), label


def _box(node: TreeNode, x: float, y: float) -> Markup:
    filled = min(1.0, node.fraction) * (_BOX_WIDTH - 20)
    inner = Markup(
        '<rect class="box {}" x="{}" y="{}" width="{}" height="{}" rx="7"/>'
        '<text class="name" x="{}" y="{}">{}<title>{} {}</title></text>'
        '<text class="detail" x="{}" y="{}">{}</text>'
        '<rect class="track" x="{}" y="{}" width="{}" height="4" rx="2"/>'
        '<rect class="{}" x="{}" y="{}" width="{}" height="4" rx="2"/>'
    ).format(
        node.kind.lower(), decimal(x), decimal(y), _BOX_WIDTH, _BOX_HEIGHT,
        decimal(x + 10), decimal(y + 20), shortened(node.name, _NAME_MAX), node.kind, node.name,
        decimal(x + 10), decimal(y + 36), node.detail,
        decimal(x + 10), decimal(y + 43), _BOX_WIDTH - 20,
        "borrowed" if node.fraction > 1 else "used", decimal(x + 10), decimal(y + 43), decimal(filled),
    )  # fmt: skip
    if not node.link:
        return inner
    return Markup('<a href="{}" aria-label="{} {}">{}</a>').format(node.link, node.kind, node.name, inner)
