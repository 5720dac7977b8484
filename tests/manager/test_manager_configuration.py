"""The configuration file: what is accepted, what it means, and how a mistake is named."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from pykueue.manager.configuration import Configuration, ConfigurationError, load, parse, render

V1BETA1 = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
V1BETA2 = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def read(body: str, version: str = V1BETA2) -> Configuration:
    return parse(version + dedent(body))


def errors(body: str, version: str = V1BETA2) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(body, version)
    return [str(problem) for problem in caught.value.problems]


def test_no_file_means_the_defaults_of_the_current_version() -> None:
    configuration = load(None)
    waiting = configuration.wait_for_pods_ready
    assert waiting is not None
    assert (waiting.timeout, waiting.recovery_timeout, waiting.block_admission) == (1800, 1800, False)
    assert waiting.requeuing_strategy.timestamp == "Eviction"
    assert waiting.requeuing_strategy.backoff_limit_count is None
    assert configuration.integrations.frameworks == ("batch/job",)
    assert not configuration.manage_jobs_without_queue_name
    assert configuration.fair_sharing is None
    assert configuration.client_connection.qps is None
    assert configuration.metrics.local_queue_metrics.enable
    assert configuration.managed_jobs_namespace_selector == {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "kueue-system"],
            }
        ]
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", None),
        ("waitForPodsReady: {timeout: 10m}", None),
        ("waitForPodsReady: {enable: true}", (300, True)),
        ("waitForPodsReady: {enable: true, timeout: 10m, blockAdmission: false}", (600, False)),
    ],
)
def test_the_old_version_waits_only_when_enabled_and_then_blocks(
    body: str, expected: tuple[float, bool] | None
) -> None:
    waiting = read(body, V1BETA1).wait_for_pods_ready
    assert (waiting and (waiting.timeout, waiting.block_admission)) == expected


def test_the_seed_file_is_read() -> None:
    waiting = read(
        """
        waitForPodsReady:
          enable: true
          timeout: 10m
          blockAdmission: true
          requeuingStrategy:
            timestamp: Eviction
            backoffLimitCount: 5
            backoffBaseSeconds: 60
            backoffMaxSeconds: 3600
        """,
        V1BETA1,
    ).wait_for_pods_ready
    assert waiting is not None
    assert waiting.timeout == 600
    assert waiting.requeuing_strategy.backoff_limit_count == 5


def test_two_values_joined_by_a_bar_are_rejected_with_the_accepted_values() -> None:
    assert errors('waitForPodsReady: {requeuingStrategy: {timestamp: "Eviction | Creation"}}') == [
        'waitForPodsReady.requeuingStrategy.timestamp: "Eviction | Creation" is not accepted; '
        'accepted: "Eviction", "Creation"'
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("waitForPodsReady: {enable: true}", "waitForPodsReady.enable: unknown field"),
        ("nonsense: 1", "nonsense: unknown field"),
        (
            "waitForPodsReady: {timeout: 5}",
            "waitForPodsReady.timeout: 5 is not accepted; accepted: a dur",
        ),
        ("waitForPodsReady: {timeout: -5m}", "accepted: a duration of at least 0s"),
        (
            "manageJobsWithoutQueueName: 'yes'",
            'manageJobsWithoutQueueName: "yes" is not accepted; accepted: true',
        ),
        (
            "webhook: {port: 70000}",
            "webhook.port: 70000 is not accepted; accepted: a whole number from 0",
        ),
        ("webhook: []", "webhook: [] is not accepted; accepted: a section with fields"),
        (
            "integrations: {frameworks: [batch/jobs]}",
            'integrations.frameworks[0]: "batch/jobs" is not accepted',
        ),
        ("integrations: {frameworks: [pod, pod]}", 'integrations.frameworks[1]: "pod" is listed twice'),
        ("featureGates: {PartialAdmision: true}", "featureGates.PartialAdmision: unknown feature gate"),
        ("featureGates: {PartialAdmision: true}", "did you mean PartialAdmission?"),
        ("featureGates: {partialadmission: true}", "did you mean PartialAdmission?"),
        ("featureGates: {Zzz: true}", "unknown feature gate; accepted: AdmissionFairSharing, "),
        ("metrics: {bindAddress: abc}", 'metrics.bindAddress: "abc" is not accepted; accepted: host:port'),
        ("health: {healthProbeBindAddress: ':99999'}", 'health.healthProbeBindAddress: ":99999"'),
        ("pprofBindAddress: '6060'", 'pprofBindAddress: "6060" is not accepted'),
        ("leaderElection: {leaseDuration: 5s}", "leaderElection: accepted: retryPeriod below renewDeadline"),
        ("controller: {cacheSyncTimeout: 0s}", "accepted: a duration above 0s"),
        (
            "multiKueue: {externalFrameworks: [{name: x}]}",
            'multiKueue.externalFrameworks[0].name: "x" is not accepted; accepted: kind.version.group',
        ),
        (
            "multiKueue: {externalFrameworks: [{name: a.v1.b.c}, {name: a.v1.b.c}]}",
            'multiKueue.externalFrameworks[1].name: "a.v1.b.c" is listed twice',
        ),
        ("featureGates: {TLSOptions: false}", "featureGates.TLSOptions: is locked to true"),
        (
            "featureGates: {FlavorFungibility: false}",
            "FlavorFungibilityPreserveScanProgress is on and needs FlavorFungibility, which is off",
        ),
        ("fairSharing: {}", "fairSharing.preemptionStrategies: required"),
        ("fairSharing: {preemptionStrategies: [LessThanShare]}", "fairSharing.preemptionStrategies[0]"),
        ("admissionFairSharing: {usageSamplingInterval: 0s}", "a duration above 0s"),
        ("managedJobsNamespaceSelector: {}", "matches the namespace kube-system"),
        (
            "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Near}]}",
            "is not a label selector",
        ),
        ("visibilityServer: {bindAddress: here}", "visibilityServer.bindAddress"),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a/]}",
            "resources.quotaCheckStrategy",
        ),
        ("metrics: {customLabels: [{name: 1x}]}", "metrics.customLabels[0].name"),
    ],
)
def test_invalid_value_is_reported_with_path_value_and_accepted_values(body: str, expected: str) -> None:
    assert expected in "\n".join(errors(body))


def test_one_mistake_in_a_list_is_one_error() -> None:
    (found,) = errors("fairSharing: {preemptionStrategies: [LessThanInitialShare, Other]}")
    assert found.startswith('fairSharing.preemptionStrategies[1]: "Other" is not accepted')


def test_items_of_lists_have_the_fields_of_their_version_only() -> None:
    label = "metrics: {customLabels: [{name: a, sourceKind: Cohort}]}"
    assert errors(label, V1BETA1) == [
        "metrics.customLabels[0].sourceKind: unknown field in config.kueue.x-k8s.io/v1beta1; "
        "use config.kueue.x-k8s.io/v1beta2"
    ]
    assert read(label).metrics.custom_labels[0].source_kind == "Cohort"


def test_the_namespace_is_that_of_the_pod_unless_the_file_names_one() -> None:
    assert parse(V1BETA2, namespace="jobs").namespace == "jobs"
    assert parse(V1BETA2 + "namespace: ''\n", namespace="jobs").namespace == "jobs"
    assert parse(V1BETA2 + "namespace: mine\n", namespace="jobs").namespace == "mine"
    assert parse(V1BETA2 + "namespace: ''\n").namespace == "kueue-system"


def test_all_errors_of_a_file_are_reported_at_once() -> None:
    found = errors("webhook: {port: x}\nnonsense: 1\nfeatureGates: {Nope: true}")
    assert len(found) == 3


def test_fields_of_the_new_version_are_unknown_to_the_old_one() -> None:
    assert errors("visibilityServer: {bindPort: 1}", V1BETA1) == [
        "visibilityServer: unknown field in config.kueue.x-k8s.io/v1beta1; use config.kueue.x-k8s.io/v1beta2"
    ]


def test_the_old_fair_sharing_is_off_until_enabled_and_then_uses_both_strategies() -> None:
    assert read("fairSharing: {}", V1BETA1).fair_sharing is None
    sharing = read("fairSharing: {enable: true}", V1BETA1).fair_sharing
    assert sharing is not None
    assert sharing.preemption_strategies == ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nkind: Configuration\n", "apiVersion"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Config\n", 'kind: "Config" is not accepted'),
        (V1BETA2 + "---\n" + V1BETA2, "has 2 YAML documents; exactly one is accepted"),
        (V1BETA2 + "a: [", "configuration: document 1: line "),
    ],
)
def test_file_that_is_no_configuration_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert expected in str(caught.value)
    assert str(caught.value).count("configuration: ") == 1


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "manager.yaml"
    file.write_bytes(V1BETA2.encode() + b"\xff")
    with pytest.raises(ConfigurationError, match=r"manager\.yaml: not UTF-8 text: byte \d+ is "):
        load(file)


def test_gates_of_the_command_line_and_of_the_file_exclude_each_other() -> None:
    assert parse(V1BETA2, feature_gates={"PartialAdmission": False}).gates["PartialAdmission"] is False
    with pytest.raises(ConfigurationError, match="use one"):
        parse(V1BETA2 + "featureGates: {PartialAdmission: true}\n", feature_gates={"PartialAdmission": False})


@pytest.mark.parametrize("version", [V1BETA1, V1BETA2])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "metrics: {localQueueMetrics: {}}",
        """
        namespace: batch
        manageJobsWithoutQueueName: true
        clientConnection: {qps: 50, burst: 100}
        waitForPodsReady: {timeout: 1h30m, recoveryTimeout: 0s, requeuingStrategy: {backoffLimitCount: 0}}
        admissionFairSharing: {usageHalfLifeTime: 168h, resourceWeights: {cpu: 2, memory: 0.5}}
        resources:
          transformations:
          - {input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.com/gpu-memory: 5Gi}}
        objectRetentionPolicies: {workloads: {afterFinished: 250ms}}
        featureGates: {PartialAdmission: false}
        """,
    ],
)
def test_printed_configuration_is_parsed_to_the_same_values(body: str, version: str) -> None:
    configuration = read(body, version)
    again = parse(render(configuration))
    assert render(again) == render(configuration)
    assert again.wait_for_pods_ready == configuration.wait_for_pods_ready
    assert dict(again.gates) == {
        **configuration.gates,
        "DisableWaitForPodsReady": configuration.wait_for_pods_ready is None,
    }
