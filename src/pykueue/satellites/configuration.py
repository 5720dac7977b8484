"""Configuration files of the populator and the priority booster.

Source: docs/reference/kueue-api.md 8.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.durations import parse_duration
from pykueue.api.meta import LabelSelector
from pykueue.api.selectors import Requirement, Selector, SelectorError

#: Where no selector is configured the populator leaves out this namespace.
_NOT_SYSTEM = Selector([Requirement("kubernetes.io/metadata.name", "NotIn", ("kube-system",))])

STATIC, AS_CLUSTER_QUEUE = "Static", "AsClusterQueue"


class ConfigurationError(ValueError):
    """A configuration cannot be used; the message is one line and names the field."""


@dataclass(frozen=True)
class PopulatorConfiguration:
    """Which LocalQueues are created; without a name they are called like their ClusterQueue."""

    local_queue_name: str | None = "default"
    namespaces: Selector = _NOT_SYSTEM


@dataclass(frozen=True)
class BoosterConfiguration:
    """Which Workloads lose priority, and after how many seconds of admission; 0 for never."""

    interval: float = 0.0
    negative_boost: int = 100000
    workloads: Selector | None = None
    max_priority: int | None = None


def populator_configuration(path: Path | None) -> PopulatorConfiguration:
    """From a file, or the defaults. Raises ConfigurationError."""
    content = _read(path, ("localQueueName", "localQueueNameMode", "managedJobsNamespaceSelector"))
    mode = content.get("localQueueNameMode") or STATIC
    name = content.get("localQueueName")
    if mode not in (STATIC, AS_CLUSTER_QUEUE):
        raise ConfigurationError(f"localQueueNameMode: {mode!r}; accepted: {STATIC}, {AS_CLUSTER_QUEUE}")
    if name is not None and not isinstance(name, str):
        raise ConfigurationError("localQueueName must be a string")
    if mode == AS_CLUSTER_QUEUE and name:
        raise ConfigurationError("localQueueName cannot be set when localQueueNameMode is AsClusterQueue")
    selector = _selector(content, "managedJobsNamespaceSelector")
    return PopulatorConfiguration(
        None if mode == AS_CLUSTER_QUEUE else name or "default", _NOT_SYSTEM if selector is None else selector
    )


def booster_configuration(path: Path | None) -> BoosterConfiguration:
    """From a file, or the defaults. Raises ConfigurationError.

    `timeSharing.duration`, as Kueue documents it, means the same as `timeSharing.interval`, which it reads.
    """
    content = _read(path, ("timeSharing", "workloadSelector", "maxWorkloadPriority"))
    sharing = content.get("timeSharing") or {}
    if not isinstance(sharing, dict):
        raise ConfigurationError("timeSharing must be a mapping")
    _known(sharing, ("interval", "duration", "negativeBoost"), "timeSharing.")
    text = sharing.get("interval", sharing.get("duration", "0"))
    try:
        interval = 0.0 if text in ("", "0", 0) else parse_duration(str(text))
    except ValueError:
        raise ConfigurationError(f"timeSharing.interval: {text!r} is not a duration such as 30m") from None
    boost, most = sharing.get("negativeBoost", 100000), content.get("maxWorkloadPriority")
    for field, value in (("timeSharing.negativeBoost", boost), ("maxWorkloadPriority", most)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise ConfigurationError(f"{field} must be a whole number")
    if interval < 0 or not 0 <= boost < 2**31:
        raise ConfigurationError("timeSharing: interval and negativeBoost must not be negative")
    return BoosterConfiguration(interval, boost, _selector(content, "workloadSelector"), most)


def _read(path: Path | None, fields: Sequence[str]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: expected a mapping")
    _known(content, fields, "")
    return content


def _known(content: dict[str, Any], fields: Sequence[str], prefix: str) -> None:
    for key in content:
        if key not in fields:
            raise ConfigurationError(f"unknown field {prefix}{key}; accepted: {', '.join(fields)}")


def _selector(content: dict[str, Any], field: str) -> Selector | None:
    value = content.get(field)
    if value is None:
        return None
    try:
        return decode_as(LabelSelector, value).selector()
    except (DecodeError, SelectorError) as error:
        raise ConfigurationError(f"{field}: {error}") from None
