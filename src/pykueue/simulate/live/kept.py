"""Where the scores of a manager's forecasts are kept, so that they survive it: a file, or a ConfigMap."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from pykueue.api.objects import Object
from pykueue.api.resources import CONFIG_MAPS
from pykueue.kube.client import Client
from pykueue.manager.install_names import SCORES_CONFIG_MAP
from pykueue.simulate.scores import Scores, read, write

_KEY: Final = "scores.json"


class Store(Protocol):
    """Keeps scores."""

    async def save(self, scores: Scores) -> None:
        """Take over what is kept, and keep all. Raises OSError or what a client raises."""


class FileStore:
    """Keeps scores in a file that no other process writes."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def save(self, scores: Scores) -> None:
        """Take over what is kept, and keep all. Raises OSError."""
        scores.merge(read(self._file))
        write(self._file, scores)


class ConfigMapStore:
    """Keeps scores in a ConfigMap, which all replicas write."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def save(self, scores: Scores) -> None:
        """Take over what is kept, and keep all. Raises what the client raises, also for a conflict."""
        found = await self._client.find(CONFIG_MAPS, SCORES_CONFIG_MAP, self._namespace)
        kept = ((found or {}).get("data") or {}).get(_KEY, "")
        scores.merge(Scores(kept.encode()))
        text = scores.encode().decode()
        if found is None:
            metadata = {"name": SCORES_CONFIG_MAP, "namespace": self._namespace}
            made: Object = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": {_KEY: text},
            }
            await self._client.create(CONFIG_MAPS, made)
        elif text != kept:
            await self._client.update(
                CONFIG_MAPS, {**found, "data": {**(found.get("data") or {}), _KEY: text}}
            )
