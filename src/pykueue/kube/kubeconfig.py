"""Kubeconfig files: merged as kubectl merges them, with kubectl's connection flags applied.

Source: docs/reference/kubernetes-api-machinery.md, section 21 (kubectl); the kubeconfig v1 format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

#: Namespace where neither a flag nor the context names one.
DEFAULT_NAMESPACE = "default"

#: Named lists of a kubeconfig, the field that holds each entry, and the name of an entry in kubectl's errors.
_LISTS = {
    "clusters": ("cluster", "cluster"),
    "contexts": ("context", "context"),
    "users": ("user", "auth info"),
}

#: Fields with paths that are relative to the directory of their file.
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")

#: Name of the context, cluster and user that `effective` returns.
_EFFECTIVE = "effective"


class ConfigError(Exception):
    """There is no usable configuration; the message says what was looked at and what is wrong."""


@dataclass(frozen=True)
class Overrides:
    """kubectl's connection flags: each replaces a field of the kubeconfig for one invocation.

    `impersonate`, `impersonate_groups`, `impersonate_uid` and `impersonate_extra` become request headers.
    `request_timeout` is in seconds, 0 for the default.
    """

    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    token: str = ""
    tls_server_name: str = ""
    certificate_authority: str = ""
    client_certificate: str = ""
    client_key: str = ""
    insecure: bool = False
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_uid: str = ""
    impersonate_extra: tuple[str, ...] = ()
    request_timeout: float = 0

    @property
    def cluster_fields(self) -> dict[str, Any]:
        """Fields of the cluster entry that are replaced."""
        fields: dict[str, Any] = {
            "server": self.server,
            "tls-server-name": self.tls_server_name,
            "certificate-authority": _absolute(self.certificate_authority),
            "insecure-skip-tls-verify": self.insecure,
        }
        return {key: value for key, value in fields.items() if value}

    @property
    def user_fields(self) -> dict[str, Any]:
        """Fields of the user entry that are replaced."""
        fields = {
            "token": self.token,
            "client-certificate": _absolute(self.client_certificate),
            "client-key": _absolute(self.client_key),
        }
        return {key: value for key, value in fields.items() if value}

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Impersonation headers. Raises ConfigError for groups or fields without a user."""
        if not self.impersonate:
            if self.impersonate_groups or self.impersonate_uid or self.impersonate_extra:
                raise ConfigError("requesting groups, a uid or extra fields for a user needs --as")
            return ()
        found = [("Impersonate-User", self.impersonate)]
        found += [("Impersonate-Group", group) for group in self.impersonate_groups]
        if self.impersonate_uid:
            found.append(("Impersonate-Uid", self.impersonate_uid))
        for pair in self.impersonate_extra:
            key, _, value = pair.partition("=")
            found.append((f"Impersonate-Extra-{key}", value))
        return found


def impersonation(config: Mapping[str, Any], overrides: Overrides) -> Sequence[tuple[str, str]]:
    """Impersonation headers of an effective kubeconfig: those of the flags, else those of its user.

    Raises ConfigError for groups or fields without a user, and for fields of another type.
    """
    flags = overrides.headers
    user = config["users"][0]["user"]
    if flags or not any(user.get(field) for field in ("as", "as-uid", "as-groups", "as-user-extra")):
        return flags
    name, groups, extra = user.get("as"), user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not name:
        raise ConfigError("kubeconfig: as-groups, as-uid and as-user-extra of a user need as")
    if not isinstance(groups, list) or not isinstance(extra, dict):
        raise ConfigError("kubeconfig: as-groups of a user must be a list, and as-user-extra a map of lists")
    found = [("Impersonate-User", str(name)), *(("Impersonate-Group", str(group)) for group in groups)]
    if user.get("as-uid"):
        found.append(("Impersonate-Uid", str(user["as-uid"])))
    for key, values in extra.items():
        found += [(f"Impersonate-Extra-{key}", str(value)) for value in values or ()]
    return found


def _absolute(path: str) -> str:
    """The path from the working directory; empty where there is none."""
    return os.path.abspath(path) if path else ""


def default_files() -> str:
    """`$KUBECONFIG` (several files, separated like PATH), else `~/.kube/config`."""
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def effective(files: str, overrides: Overrides) -> dict[str, Any]:
    """A kubeconfig with the selected context, its cluster and its user only, overrides applied.

    Raises ConfigError where the files cannot be read or do not have what is selected.
    """
    config = merged(files, required=not overrides.server)
    selected = overrides.context or str(config.get("current-context") or "")
    if selected:
        context = dict(_entry(config, "contexts", selected))
    elif overrides.server or overrides.cluster:
        context = {}
    else:
        raise ConfigError(
            f"kubeconfig {files} cannot be used: it has no current-context; "
            "kubectl config use-context NAME selects one"
        )
    cluster_name = overrides.cluster or context.get("cluster")
    user_name = overrides.user or context.get("user")
    cluster = dict(_entry(config, "clusters", cluster_name)) if cluster_name else {}
    user = dict(_entry(config, "users", user_name)) if user_name else {}
    if overrides.certificate_authority or overrides.insecure:
        cluster.pop("certificate-authority-data", None)
    if overrides.insecure:
        cluster.pop("certificate-authority", None)
    cluster |= overrides.cluster_fields
    if overrides.token:
        for other in ("tokenFile", "exec", "auth-provider", "username", "password"):
            user.pop(other, None)
    for field, value in overrides.user_fields.items():
        user.pop(f"{field}-data", None)
        user[field] = value
    if not isinstance(cluster.get("server"), str) or not cluster["server"]:
        raise ConfigError(f"kubeconfig {files}: cluster {cluster_name!r} has no server")
    context |= {"cluster": _EFFECTIVE, "user": _EFFECTIVE}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _EFFECTIVE,
        "contexts": [{"name": _EFFECTIVE, "context": context}],
        "clusters": [{"name": _EFFECTIVE, "cluster": cluster}],
        "users": [{"name": _EFFECTIVE, "user": user}],
    }


def namespace(files: str, overrides: Overrides) -> str:
    """The namespace of a command: the flag, else that of the context, else `default`.

    Raises ConfigError for a context that does not exist.
    """
    if overrides.namespace:
        return overrides.namespace
    config = merged(files, required=False)
    selected = overrides.context or str(config.get("current-context") or "")
    if not selected or (not overrides.context and not config.get("contexts")):
        return DEFAULT_NAMESPACE
    return str(_entry(config, "contexts", selected).get("namespace") or DEFAULT_NAMESPACE)


def names(files: str, field: str) -> list[str]:
    """Names of the `clusters`, `contexts` or `users`, for completion."""
    return sorted(str(one["name"]) for one in merged(files, required=False).get(field) or ())


def merged(files: str, *, required: bool = True) -> dict[str, Any]:
    """The content of kubeconfig files; what an earlier file has wins, and missing files are left out.

    Paths in it are absolute. Raises ConfigError for files that are not kubeconfigs, and with `required` where
    none of them exists.
    """
    result: dict[str, Any] = {"clusters": [], "contexts": [], "users": []}
    found = False
    for name in files.split(os.pathsep):
        path = Path(name).expanduser() if name else None
        if path is None or not path.exists():
            continue
        found = True
        content = _read(path)
        for field in _LISTS:
            known = {entry["name"] for entry in result[field]}
            result[field] += [entry for entry in content[field] if entry["name"] not in known]
        if not result.get("current-context"):
            result["current-context"] = content["current-context"]
    if required and not found:
        raise ConfigError(f"no kubeconfig found: {files} does not exist")
    return result


def _read(path: Path) -> dict[str, Any]:
    """One file, checked for its shape."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"kubeconfig {path} cannot be used: {reason}") from error
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"kubeconfig {path} cannot be used: expected a mapping, found {_kind(content)}")
    result: dict[str, Any] = {"current-context": str(content.get("current-context") or "")}
    for field, (inner, _) in _LISTS.items():
        entries = content.get(field) or []
        if not isinstance(entries, list):
            raise ConfigError(
                f"kubeconfig {path} cannot be used: {field} must be a list, found {_kind(entries)}"
            )
        result[field] = [_checked(path, f"{field}[{i}]", inner, one) for i, one in enumerate(entries)]
    return result


def _checked(path: Path, place: str, inner: str, entry: Any) -> dict[str, Any]:
    """An entry of a named list, with absolute paths."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConfigError(f"kubeconfig {path} cannot be used: {place} must be a mapping with a name")
    value = entry.get(inner)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        found = _kind(value)
        raise ConfigError(
            f"kubeconfig {path} cannot be used: {place}.{inner} must be a mapping, found {found}"
        )
    fields = dict(value)
    base = path.absolute().parent
    for field in _PATHS:
        if isinstance(fields.get(field), str) and fields[field]:
            fields[field] = os.path.normpath(base / fields[field])
    plugin = fields.get("exec")
    if isinstance(plugin, dict):
        command = plugin.get("command")
        if isinstance(command, str) and os.sep in command:
            fields["exec"] = {**plugin, "command": os.path.normpath(base / command)}
    return {"name": entry["name"], inner: fields}


def _entry(config: Mapping[str, Any], field: str, name: Any) -> Mapping[str, Any]:
    inner, noun = _LISTS[field]
    for one in config.get(field) or ():
        if one["name"] == name:
            found: Mapping[str, Any] = one[inner]
            return found
    raise ConfigError(f'{noun} "{name}" does not exist')


def _kind(value: Any) -> str:
    """A YAML value's type in YAML's words."""
    return {dict: "a mapping", list: "a list", str: "a string", bool: "a boolean"}.get(
        type(value), "a number"
    )
