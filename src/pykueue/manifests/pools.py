"""Files of node pools among manifests: the nodes that `pykueue up --nodes` makes of them."""

from __future__ import annotations

from typing import Any, Final

from pykueue.api.yaml_values import YamlSyntaxError, read_documents

from .files import InputError

#: The fields of a file of node pools.
_FIELDS: Final = frozenset({"pools", "seed"})


def nodes_of(text: str, source: str) -> list[dict[str, Any]] | None:
    """The nodes that a file of node pools declares, all ready; None for any other text.

    Raises InputError for pools that are wrong.
    """
    try:
        documents = [each.value for each in read_documents(text)]
    except YamlSyntaxError:
        return None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return None
    if "pools" not in documents[0] or not documents[0].keys() <= _FIELDS:
        return None
    # Most manifests have no pools, and need nothing of the embedded cluster.
    from pykueue.embedded.nodes.pool import PoolError, parse_pools

    try:
        pools = parse_pools(text, source)
    except PoolError as error:
        raise InputError(str(error)) from None
    return [_ready(node) for pool in pools for node in pool.nodes()]


def _ready(node: dict[str, Any]) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {**node, "status": {**node["status"], "conditions": conditions}}
