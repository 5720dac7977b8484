"""What the sections of the configuration must satisfy together, beyond the type of each field."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable
from ipaddress import ip_address
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import LabelSelector, Selector, SelectorError
from pykueue.api.validation.syntax import dns_label, service_name, subdomain

from . import gates
from .decode import Problem, shown
from .device_rules import device_rules
from .tls import TLS_CIPHERS, TLS_CURVES
from .types import Configuration, FairSharing, LeaderElection, Metrics, Tls

#: Job kinds that can be named in integrations.frameworks (docs/reference/kueue-integrations.md 9.1).
FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/mpijob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/jaxjob",
    "trainer.kubeflow.org/trainjob",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
#: What fairSharing.preemptionStrategies may be.
SHARING_STRATEGIES = (
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
)
#: Most custom metric labels of one source kind (docs/reference/kueue-api.md 3).
_CUSTOM_LABEL_LIMITS = {"Workload": 2, "ClusterQueue": 6, "LocalQueue": 6, "Cohort": 6}


def broken_rules(configuration: Configuration) -> Iterable[Problem]:
    """Every rule that a configuration breaks."""
    for name, message in gates.problems(configuration.feature_gates):
        yield Problem(f"featureGates.{name}", message)
    yield from _name_rules(configuration)
    yield from _address_rules(configuration)
    yield from _election_rules(configuration.leader_election)
    yield from _integration_rules(configuration)
    yield from _selector_rules(configuration)
    if configuration.fair_sharing:
        yield from _sharing_rules(configuration.fair_sharing)
    yield from _metrics_rules(configuration.metrics)
    yield from _resource_rules(configuration)
    address = configuration.visibility_server.bind_address
    if address:
        try:
            ip_address(address)
        except ValueError:
            yield Problem(
                "visibilityServer.bindAddress", f"{shown(address)} is not accepted; accepted: an IP address"
            )
    if configuration.tls:
        yield from _tls_rules(configuration.tls)


def _name_rules(configuration: Configuration) -> Iterable[Problem]:
    """Names of objects that the manager creates or reads, by the rules of their kinds."""
    management, election = configuration.internal_cert_management, configuration.leader_election
    for path, name, rule in (
        ("namespace", configuration.namespace, dns_label),
        ("internalCertManagement.webhookServiceName", management.webhook_service_name, service_name),
        ("internalCertManagement.webhookSecretName", management.webhook_secret_name, subdomain),
        ("leaderElection.resourceName", election.resource_name, subdomain),
        ("leaderElection.resourceNamespace", election.resource_namespace or "default", dns_label),
    ):
        problem = rule(name)
        if problem:
            yield Problem(path, f"{shown(name)} is not accepted: {problem}")


def _address_rules(configuration: Configuration) -> Iterable[Problem]:
    for path, address in (
        ("metrics.bindAddress", configuration.metrics.bind_address),
        ("health.healthProbeBindAddress", configuration.health.health_probe_bind_address),
        ("pprofBindAddress", configuration.pprof_bind_address),
    ):
        _, colon, port = address.rpartition(":")
        valid = colon and port.isascii() and port.isdigit() and int(port) <= 65535
        if address not in ("", "0") and not valid:
            yield Problem(
                path, f'{shown(address)} is not accepted; accepted: host:port, :port, or "0" for off'
            )


def _election_rules(election: LeaderElection) -> Iterable[Problem]:
    retry, deadline, lease = election.retry_period, election.renew_deadline, election.lease_duration
    if election.leader_elect and not 0 < retry < deadline < lease:
        yield Problem("leaderElection", "accepted: retryPeriod below renewDeadline below leaseDuration")


def _tls_rules(tls: Tls) -> Iterable[Problem]:
    if tls.min_version == "VersionTLS13" and tls.cipher_suites:
        yield Problem("tls.cipherSuites", "may not be set with minVersion VersionTLS13")
    for index, suite in enumerate(tls.cipher_suites):
        if suite not in TLS_CIPHERS:
            accepted = ", ".join(TLS_CIPHERS)
            yield Problem(
                f"tls.cipherSuites[{index}]", f"{shown(suite)} is not accepted; accepted: {accepted}"
            )
    for index, curve in enumerate(tls.curve_preferences):
        if curve not in TLS_CURVES:
            accepted = ", ".join(map(str, TLS_CURVES))
            yield Problem(
                f"tls.curvePreferences[{index}]", f"{shown(curve)} is not accepted; accepted: {accepted}"
            )


def _integration_rules(configuration: Configuration) -> Iterable[Problem]:
    names = configuration.integrations.frameworks
    for index, name in enumerate(names):
        path = f"integrations.frameworks[{index}]"
        if name not in FRAMEWORKS:
            yield Problem(path, f"{shown(name)} is not accepted; accepted: {', '.join(FRAMEWORKS)}")
        elif name in names[:index]:
            yield Problem(path, f"{shown(name)} is listed twice")
    for index, name in enumerate(configuration.integrations.external_frameworks):
        if not re.fullmatch(r"[A-Za-z]+\.[a-z0-9]+\.[a-z0-9.-]+", name):
            yield Problem(
                f"integrations.externalFrameworks[{index}]",
                f"{shown(name)} is not accepted; accepted: Kind.version.group",
            )
    multi = configuration.multi_kueue
    for names_of, providers in (
        ("accessProviders", multi.cluster_profile and multi.cluster_profile.access_providers),
        ("credentialsProviders", multi.cluster_profile and multi.cluster_profile.credentials_providers),
    ):
        for name, count in Counter(provider.name for provider in providers or ()).items():
            if count > 1:
                yield Problem(f"multiKueue.clusterProfile.{names_of}", f"{shown(name)} is listed twice")
    external = [framework.name for framework in multi.external_frameworks]
    for index, name in enumerate(external):
        path = f"multiKueue.externalFrameworks[{index}].name"
        if not re.fullmatch(r"[A-Za-z]+\.[a-z0-9]+\.[a-z0-9.-]+", name):
            yield Problem(path, f"{shown(name)} is not accepted; accepted: kind.version.group")
        elif name in external[:index]:
            yield Problem(path, f"{shown(name)} is listed twice")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", multi.origin):
        yield Problem("multiKueue.origin", f"{shown(multi.origin)} is not accepted; accepted: a label value")
    incremental = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
    if multi.incremental_dispatcher_config and multi.dispatcher_name != incremental:
        yield Problem("multiKueue.incrementalDispatcherConfig", f"needs dispatcherName {incremental}")


def _selector_rules(configuration: Configuration) -> Iterable[Problem]:
    path = "managedJobsNamespaceSelector"
    selector = configuration.managed_jobs_namespace_selector
    if selector is not None:
        compiled = yield from _selector(path, selector)
        for namespace in ("kube-system", configuration.namespace):
            if compiled and compiled.matches({"kubernetes.io/metadata.name": namespace}):
                yield Problem(path, f"matches the namespace {namespace}, which may not be managed")
    selector = configuration.metrics.local_queue_metrics.local_queue_selector
    if selector is not None:
        yield from _selector("metrics.localQueueMetrics.localQueueSelector", selector)


def _selector(path: str, selector: dict[str, Any]) -> Generator[Problem, None, Selector | None]:
    try:
        return decode_as(LabelSelector, selector).selector()
    except (DecodeError, SelectorError) as error:
        yield Problem(path, f"{shown(selector)} is not a label selector: {error}")
        return None


def _sharing_rules(sharing: FairSharing) -> Iterable[Problem]:
    if tuple(sharing.preemption_strategies) not in SHARING_STRATEGIES:
        accepted = ", ".join(shown(list(strategies)) for strategies in SHARING_STRATEGIES)
        found = shown(list(sharing.preemption_strategies))
        yield Problem("fairSharing.preemptionStrategies", f"{found} is not accepted; accepted: {accepted}")


def _metrics_rules(metrics: Metrics) -> Iterable[Problem]:
    seen: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for index, label in enumerate(metrics.custom_labels):
        path = f"metrics.customLabels[{index}]"
        seen[label.name] += 1
        kinds[label.source_kind] += 1
        if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", label.name):
            yield Problem(
                f"{path}.name", f"{shown(label.name)} is not accepted; accepted: [a-zA-Z][a-zA-Z0-9_]*"
            )
        if seen[label.name] > 1:
            yield Problem(f"{path}.name", f"{shown(label.name)} is listed twice")
        if label.source_label_key and label.source_annotation_key:
            yield Problem(path, "sourceLabelKey and sourceAnnotationKey are both set; use one")
        low, high = (1, 12) if label.source_kind == "Workload" else (0, 16)
        if not low <= len(label.tracked_values) <= high:
            yield Problem(
                f"{path}.trackedValues",
                f"{len(label.tracked_values)} values; accepted for {label.source_kind}: {low} to {high}",
            )
    for kind, limit in _CUSTOM_LABEL_LIMITS.items():
        if kinds[kind] > limit:
            yield Problem("metrics.customLabels", f"{kinds[kind]} of kind {kind}; accepted: at most {limit}")


def _resource_rules(configuration: Configuration) -> Iterable[Problem]:
    resources = configuration.resources
    if resources.quota_check_strategy == "IgnoreUndeclared" and resources.exclude_resource_prefixes:
        yield Problem(
            "resources.quotaCheckStrategy",
            "IgnoreUndeclared may not be combined with excludeResourcePrefixes",
        )
    inputs = [transformation.input for transformation in resources.transformations]
    for index, name in enumerate(inputs):
        if name in inputs[:index]:
            yield Problem(f"resources.transformations[{index}].input", f"{shown(name)} is listed twice")
    yield from device_rules(resources.device_class_mappings, configuration.gates)
