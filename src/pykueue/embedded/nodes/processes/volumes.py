"""Volumes: folders of the pod's own, filled from what the API holds, and where containers see them."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from pykueue.api.objects import Object
from pykueue.api.quantity import parse
from pykueue.embedded.nodes.processes.environment import (
    ConfigError,
    Sources,
    Surroundings,
    contents,
    expand,
    pod_field,
    resource_field,
)

#: Gives a token of the pod's service account for an audience ("" for the API server), for so many seconds.
Tokens = Callable[[str, int], Awaitable[str]]
#: Makes a folder one in memory, of at most so many bytes.
InMemory = Callable[[Path, int | None], Awaitable[None]]

_SOURCES = ("configMap", "secret", "downwardAPI")
_FILE_MODE = 0o644
_TOKEN_SECONDS = 3600
#: The shortest life a TokenRequest may ask for.
_LEAST_TOKEN_SECONDS = 600
_TOKEN_MODE = 0o600


class VolumeError(Exception):
    """A volume cannot be set up; the text says why."""


class Volumes:
    """The volumes of one pod, below a folder that is the pod's."""

    def __init__(self, folder: Path, pod: Object, sources: Sources, around: Surroundings) -> None:
        self._folder = folder
        self._pod = pod
        self._sources = sources
        self._around = around
        #: Where each volume is.
        self._places: dict[str, Path] = {}

    async def set_up(self, tokens: Tokens, in_memory: InMemory) -> None:
        """Make all of them. Raises VolumeError; what it made it finds again the next time."""
        for volume in self._pod["spec"].get("volumes") or ():
            name = volume["name"]
            try:
                self._places[name] = await self._make(volume, self._folder / name, tokens, in_memory)
            except (ConfigError, OSError) as error:
                raise VolumeError(f'MountVolume.SetUp failed for volume "{name}" : {error}') from None

    async def _make(self, volume: Object, place: Path, tokens: Tokens, in_memory: InMemory) -> Path:
        if "hostPath" in volume:
            return _host_path(volume["hostPath"])
        if "emptyDir" in volume:
            specified = volume["emptyDir"] or {}
            if _new_folder(place) and specified.get("medium") == "Memory":
                limit = specified.get("sizeLimit")
                await in_memory(place, None if limit is None else parse(limit).nanos // 10**9)
            return place
        for field in _SOURCES:
            if field in volume:
                default = volume[field].get("defaultMode")
                self._write(place, self._files(volume, field), default)
                return place
        if "projected" in volume:
            specified = volume["projected"]
            files: dict[str, tuple[bytes, int | None]] = {}
            for source in specified.get("sources") or ():
                if "serviceAccountToken" in source:
                    wanted = source["serviceAccountToken"]
                    seconds = max(wanted.get("expirationSeconds") or _TOKEN_SECONDS, _LEAST_TOKEN_SECONDS)
                    token = await tokens(wanted.get("audience") or "", seconds)
                    files[wanted["path"]] = (token.encode(), _TOKEN_MODE)
                    continue
                kind = next((one for one in _SOURCES if one in source), None)
                if kind is None:
                    raise ConfigError(f"{', '.join(source)} is not supported here")
                files |= self._files(source, kind)
            self._write(place, files, specified.get("defaultMode"))
            return place
        unknown = ", ".join(key for key in volume if key != "name")
        raise ConfigError(f"{unknown} volumes are not supported by nodes that run processes")

    def _files(self, source: Object, field: str) -> dict[str, tuple[bytes, int | None]]:
        """path -> content and mode of the files of one source."""
        specified = source[field]
        items = specified.get("items")
        if field == "downwardAPI":
            return {one["path"]: (self._downward(one), one.get("mode")) for one in items or ()}
        # A volume of its own names a Secret otherwise than a part of a projected one does.
        name = specified.get("secretName") or specified.get("name") or ""
        kind, find = (
            ("configmap", self._sources.config_map)
            if field == "configMap"
            else ("secret", self._sources.secret)
        )
        obj = find(name)
        if obj is None:
            if specified.get("optional"):
                return {}
            raise ConfigError(f'{kind} "{name}" not found')
        held = contents(obj)
        if not items:
            return {key: (value, None) for key, value in held.items()}
        files = {}
        for one in items:
            if one["key"] in held:
                files[one["path"]] = (held[one["key"]], one.get("mode"))
            elif not specified.get("optional"):
                raise ConfigError(f'{kind} references non-existent config key: "{one["key"]}"')
        return files

    def _downward(self, item: Object) -> bytes:
        if "fieldRef" in item:
            return pod_field(self._pod, item["fieldRef"].get("fieldPath") or "", self._around).encode()
        return resource_field(self._pod, None, item["resourceFieldRef"], self._around).encode()

    @staticmethod
    def _write(place: Path, files: Mapping[str, tuple[bytes, int | None]], default: int | None) -> None:
        place.mkdir(parents=True, exist_ok=True)
        for path, (content, mode) in files.items():
            file = place / path
            if ".." in Path(path).parts or Path(path).is_absolute():
                raise ConfigError(f"path {path!r} leads out of the volume")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode if mode is not None else default if default is not None else _FILE_MODE)

    def mounts(self, container: Object, environment: Mapping[str, str]) -> list[Object]:
        """Source, target and readOnly of what the container mounts. Raises ConfigError and OSError."""
        found = []
        kinds = {one["name"]: one for one in self._pod["spec"].get("volumes") or ()}
        for mount in container.get("volumeMounts") or ():
            source = self._places.get(mount["name"])
            if source is None:
                raise ConfigError(f'volume "{mount["name"]}" is not found in the pod')
            below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", environment)
            if below:
                source = _below(source, below)
            given = kinds[mount["name"]].keys() & {"configMap", "secret", "downwardAPI", "projected"}
            read_only = bool(mount.get("readOnly") or given)
            target = os.path.normpath(os.path.join("/", mount["mountPath"]))
            found.append({"source": str(source), "target": target, "readOnly": read_only})
        return found


def _new_folder(place: Path) -> bool:
    """Make a folder that everybody may use; whether it was not there."""
    if place.exists():
        return False
    place.mkdir(parents=True)
    place.chmod(0o777)
    return True


def _below(source: Path, path: str) -> Path:
    if ".." in Path(path).parts or Path(path).is_absolute():
        raise ConfigError(f"subPath {path!r} leads out of the volume")
    place = source / path
    if not place.exists():
        place.mkdir(parents=True)
    return place


def _host_path(specified: Object) -> Path:
    """The place on this machine, made where the type says so. Raises ConfigError and OSError."""
    place, kind = Path(specified["path"]), specified.get("type") or ""
    if kind == "DirectoryOrCreate":
        place.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        place.touch(mode=_FILE_MODE, exist_ok=True)
    mode = place.stat().st_mode if place.exists() else 0
    fits = {
        "Directory": stat.S_ISDIR(mode),
        "File": stat.S_ISREG(mode),
        "Socket": stat.S_ISSOCK(mode),
        "CharDevice": stat.S_ISCHR(mode),
        "BlockDevice": stat.S_ISBLK(mode),
    }
    if not mode or not fits.get(kind, True):
        raise ConfigError(f"hostPath type check failed: {place} is not a {kind or 'path of this machine'}")
    return place
