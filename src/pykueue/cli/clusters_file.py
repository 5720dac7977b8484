"""The file of `pykueue up --clusters`: a manager cluster and its workers.

```yaml
manager:                       # may be left out
  manifests: [manager.yaml]    # applied at every start; paths are relative to this file
  config: configuration.yaml   # of the manager of this cluster
  pools: []                    # nodes, as in a nodes file; without it there are none
workers:
- name: west
  manifests: [worker.yaml]
  pools:                       # without it the worker gets the nodes of `pykueue up`
  - {name: west, count: 2, allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
tokenLifetime: 24h             # of the manager's account on the workers
```
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from pykueue.api.yaml_values import YamlSyntaxError, read_documents
from pykueue.embedded.nodes.durations import parse_duration
from pykueue.embedded.nodes.pool import parse_pools

#: Name and context of the cluster that dispatches.
MANAGER = "manager"
#: The most workers of a MultiKueueConfig.
MOST_WORKERS = 20
#: Seconds: API servers issue no token for less time.
SHORTEST_LIFETIME = 600
LONGEST_LIFETIME = 365 * 86_400
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")


class ClustersError(ValueError):
    """A file of clusters cannot be used; the text names the file, the field and what is accepted."""


class _Strict(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Unknown fields are errors."""


class ClusterSpec(_Strict):
    """One cluster."""

    name: str = MANAGER
    manifests: list[str] = []
    config: str | None = None
    #: As in a nodes file; None: the default nodes on a worker, no nodes on the manager.
    pools: list[Any] | None = None

    def nodes(self) -> str | None:
        """The text of its nodes file; None: there is none."""
        pools = [] if self.pools is None and self.name == MANAGER else self.pools
        return None if pools is None else yaml.safe_dump({"pools": pools}, sort_keys=False)


class ClustersFile(_Strict):
    """The manager and its workers. Paths are absolute."""

    workers: list[ClusterSpec]
    manager: ClusterSpec = msgspec.field(default_factory=ClusterSpec)
    token_lifetime: str | int = "24h"

    @property
    def lifetime(self) -> int:
        """Seconds that a token is valid."""
        return int(parse_duration(str(self.token_lifetime)))

    @property
    def clusters(self) -> list[ClusterSpec]:
        """All of them, the manager first."""
        return [self.manager, *self.workers]


def load_clusters(path: Path) -> ClustersFile:
    """The clusters of a file. Raises ClustersError, PoolError and OSError."""
    try:
        documents = list(read_documents(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise ClustersError(f"{path}: not UTF-8 text") from error
    except YamlSyntaxError as error:
        raise ClustersError(f"{path}: {error}") from None
    if len(documents) != 1:
        raise ClustersError(f"{path}: has {len(documents)} YAML documents; exactly one is accepted")
    try:
        found = msgspec.convert(documents[0].value, ClustersFile)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$").removeprefix(".") or "the document"
        raise ClustersError(f"{path}: {field}: {what}") from None
    _check(found, path)
    for spec in found.clusters:
        if spec.pools is not None:
            parse_pools(spec.nodes() or "", f"{path}: {spec.name}")
        spec.manifests = [str(path.parent.absolute() / one) for one in spec.manifests]
        spec.config = None if spec.config is None else str(path.parent.absolute() / spec.config)
        for name in (*spec.manifests, *([] if spec.config is None else [spec.config])):
            if not Path(name).is_file():
                raise ClustersError(f"{path}: {spec.name}: {name}: no such file")
    return found


def _check(file: ClustersFile, path: Path) -> None:
    if file.manager.name != MANAGER:
        raise ClustersError(
            f"{path}: manager.name: {file.manager.name!r} is not accepted; accepted: {MANAGER}"
        )
    if not 1 <= len(file.workers) <= MOST_WORKERS:
        raise ClustersError(f"{path}: workers: has {len(file.workers)}; accepted: 1 to {MOST_WORKERS}")
    known = {MANAGER}
    for index, worker in enumerate(file.workers):
        if not _NAME.fullmatch(worker.name):
            raise ClustersError(
                f"{path}: workers[{index}].name: {worker.name!r} is not lower case letters, digits and '-'"
            )
        if worker.name in known:
            raise ClustersError(
                f"{path}: workers[{index}].name: {worker.name!r} is the name of another cluster"
            )
        known.add(worker.name)
    try:
        lifetime = parse_duration(str(file.token_lifetime))
    except ValueError as error:
        raise ClustersError(f"{path}: tokenLifetime: {error}") from None
    if not SHORTEST_LIFETIME <= lifetime <= LONGEST_LIFETIME:
        text = f"{file.token_lifetime} is not accepted; accepted: 10m to 8760h"
        raise ClustersError(f"{path}: tokenLifetime: {text}")
