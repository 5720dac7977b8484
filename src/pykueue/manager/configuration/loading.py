"""Reading a configuration file: version, defaults, conversion of the old version, rules between fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pykueue.api.yaml import YamlError, load_documents

from .decode import Problem, decode, encode, shown
from .rules import SHARING_STRATEGIES, broken_rules
from .types import Configuration, WaitForPodsReady

GROUP = "config.kueue.x-k8s.io"
CURRENT = f"{GROUP}/v1beta2"
OLD = f"{GROUP}/v1beta1"
#: The job kinds that are switched on where a file names none.
FRAMEWORKS = ("batch/job",)


class ConfigurationError(Exception):
    """The file is not accepted. `problems` are all of its faults, each with its path."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = list(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


def load(
    file: Path | str | None,
    feature_gates: Mapping[str, bool] | None = None,
    frameworks: tuple[str, ...] = FRAMEWORKS,
    namespace: str | None = None,
) -> Configuration:
    """The configuration in a file; None: the defaults.

    `feature_gates` are those of the command line; they cannot be combined with the file's. `frameworks` are
    the job kinds that are switched on where the file names none, `namespace` is the manager's where it names
    none. Raises ConfigurationError for a file that is not accepted and OSError for one that cannot be read.
    """
    if file is None:
        text = f"apiVersion: {CURRENT}\nkind: Configuration\n"
        return parse(text, "defaults", feature_gates, frameworks, namespace)
    return parse(read_text(file), str(file), feature_gates, frameworks, namespace)


def read_text(file: Path | str) -> str:
    """The text of a file. Raises ConfigurationError if it is not UTF-8, OSError if it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem("", f"not UTF-8 text: byte {error.start} is {error.reason}")
        raise ConfigurationError(str(file), [problem]) from None


def parse(
    text: str,
    source: str = "configuration",
    feature_gates: Mapping[str, bool] | None = None,
    frameworks: tuple[str, ...] = FRAMEWORKS,
    namespace: str | None = None,
) -> Configuration:
    """The configuration in a text; see `load`."""
    try:
        documents = load_documents(text, source)
    except YamlError as error:
        raise ConfigurationError(source, [Problem("", str(error).removeprefix(f"{source}: "))]) from None
    if len(documents) != 1:
        raise ConfigurationError(
            source, [Problem("", f"has {len(documents)} YAML documents; exactly one is accepted")]
        )
    problems: list[Problem] = []
    document = dict(documents[0])
    version, kind = document.pop("apiVersion", None), document.pop("kind", None)
    if kind != "Configuration":
        problems.append(Problem("kind", f'{shown(kind)} is not accepted; accepted: "Configuration"'))
    if version not in (CURRENT, OLD):
        accepted = f'"{CURRENT}", "{OLD}"'
        problems.append(Problem("apiVersion", f"{shown(version)} is not accepted; accepted: {accepted}"))
    if problems:
        raise ConfigurationError(source, problems)
    if version == OLD:
        document = _from_v1beta1(document, problems)
    if document.get("namespace") in (None, ""):
        document["namespace"] = namespace
    if feature_gates:
        if document.get("featureGates"):
            problems.append(Problem("featureGates", "set in the file and on the command line; use one"))
        document["featureGates"] = dict(feature_gates)
    configuration = decode(Configuration, document, problems)
    if configuration is not None:
        problems.extend(broken_rules(configuration))
    if problems or configuration is None:
        raise ConfigurationError(source, problems)
    return _settled(configuration, frameworks)


def render(configuration: Configuration) -> str:
    """The file that `parse` reads as the same configuration, every default spelt out (`--print-config`)."""
    document = {"apiVersion": CURRENT, "kind": "Configuration", **encode(configuration)}
    if configuration.wait_for_pods_ready is None:
        document["featureGates"] = {**document.get("featureGates", {}), "DisableWaitForPodsReady": True}
    if not configuration.metrics.local_queue_metrics.enable:
        document["metrics"]["localQueueMetrics"]["enable"] = False
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _settled(configuration: Configuration, frameworks: tuple[str, ...]) -> Configuration:
    """Defaults that follow from other fields."""
    waiting = configuration.wait_for_pods_ready or WaitForPodsReady()
    if waiting.timeout == 0:
        waiting = replace(waiting, timeout=WaitForPodsReady().timeout)
    if waiting.recovery_timeout is None:
        waiting = replace(waiting, recovery_timeout=waiting.timeout)
    off = configuration.gates["DisableWaitForPodsReady"]
    integrations = configuration.integrations
    if not integrations.frameworks:
        integrations = replace(integrations, frameworks=frameworks)
    selector = configuration.managed_jobs_namespace_selector
    if selector is None:
        selector = {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", configuration.namespace],
                }
            ]
        }
    return replace(
        configuration,
        wait_for_pods_ready=None if off else waiting,
        integrations=integrations,
        managed_jobs_namespace_selector=selector,
    )


# The old version

#: Fields that the old version does not have.
_NEW_FIELDS = (
    ("multiKueue", "clusterProfile"),
    ("multiKueue", "incrementalDispatcherConfig"),
    ("resources", "quotaCheckStrategy"),
    ("visibilityServer",),
)
#: The same of the items of lists.
_NEW_LIST_FIELDS = (
    ("metrics", "customLabels", "sourceKind"),
    ("metrics", "customLabels", "trackedValues"),
    ("resources", "deviceClassMappings", "sources"),
)


def _from_v1beta1(document: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The same configuration in the current version (docs/reference/kueue-api.md 3, "v1beta1
    differences")."""
    document = dict(document)
    for path in _NEW_FIELDS:
        if _present(document, path):
            problems.append(Problem(".".join(path), f"unknown field in {OLD}; use {CURRENT}"))
    for *section, field in _NEW_LIST_FIELDS:
        for index, item in enumerate(_at(document, section)):
            if isinstance(item, Mapping) and field in item:
                where = f"{'.'.join(section)}[{index}].{field}"
                problems.append(Problem(where, f"unknown field in {OLD}; use {CURRENT}"))
    document.pop("queueVisibility", None)
    if isinstance(document.get("integrations"), Mapping):
        document["integrations"] = {k: v for k, v in document["integrations"].items() if k != "podOptions"}
    _waiting_from_v1beta1(document, problems)
    sharing = document.get("fairSharing")
    if isinstance(sharing, Mapping):
        sharing = dict(sharing)
        enabled = _enable(sharing, "fairSharing", problems)
        sharing.setdefault("preemptionStrategies", list(SHARING_STRATEGIES[2]))
        document["fairSharing"] = sharing if enabled else None
    return document


def _waiting_from_v1beta1(document: dict[str, Any], problems: list[Problem]) -> None:
    """waitForPodsReady was off unless enabled, and then waited 5 minutes and blocked."""
    waiting = document.get("waitForPodsReady")
    enabled = False
    if isinstance(waiting, Mapping):
        waiting = dict(waiting)
        enabled = _enable(waiting, "waitForPodsReady", problems)
        waiting.setdefault("timeout", "5m")
        if waiting["timeout"] in ("0s", "0"):
            waiting["timeout"] = "5m"
        waiting.setdefault("blockAdmission", True)
        document["waitForPodsReady"] = waiting
    chosen = document.get("featureGates") or {}
    if not enabled and isinstance(chosen, Mapping):
        document["featureGates"] = {**chosen, "DisableWaitForPodsReady": True}


def _enable(section: dict[str, Any], path: str, problems: list[Problem]) -> bool:
    value = section.pop("enable", False)
    if not isinstance(value, bool):
        problems.append(Problem(f"{path}.enable", f"{shown(value)} is not accepted; accepted: true or false"))
        return False
    return value


def _at(document: Any, path: list[str]) -> list[Any]:
    """The list at a path; empty where there is none."""
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, list) else []


def _present(document: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(document, Mapping) or key not in document:
            return False
        document = document[key]
    return True
