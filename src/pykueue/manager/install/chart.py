"""The Helm chart, generated: what `manifests` gives, with holes for values and conditions around options.

The objects are rendered with marks in place of what an installer chooses; the marks become Helm's
expressions. They are rendered several times with one option changed each, and what is not there every time
is put under the condition of that option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import yaml

from pykueue.api.objects import Object
from pykueue.jobs.kinds import BUILT_IN
from pykueue.manager.configuration import parse
from pykueue.manager.configuration.types import (
    Health,
    InternalCertManagement,
    LeaderElection,
    Metrics,
    VisibilityServer,
    Webhook,
)
from pykueue.manager.satellites import POPULATOR, PRIORITY_BOOSTER, Satellite

from .dashboard import RESOURCES as DASHBOARD_RESOURCES
from .dashboard import TLS_SECRET
from .monitoring import ALERTS, DASHBOARD_LABEL, alerts_text, dashboard_text, dashboards
from .objects import manifests
from .options import REPLICAS, FlightRecorder, Options, default_image, shipped_configuration
from .process import CHECKSUM, RESOURCES
from .satellites import RESOURCES as SATELLITE_RESOURCES
from .variants import Part, Tags, merged

#: Oldest Kubernetes that knows every field of the kinds (selectableFields).
_KUBERNETES = ">=1.30.0-0"

# Marks. Numbers are ports, of which there are none beyond 65535 but one of which must be valid.
_NAMESPACE = "mark-namespace"
_LEASE_NAMESPACE = "mark-lease-namespace"
_REPLICAS = 64999


class _Recorder(FlightRecorder):
    """With marks; the directory depends on the value of the claim."""

    directory = "mark-flight-directory"


_RECORDER = _Recorder("mark-flight-size", "mark-flight-age", "mark-flight-claim")
#: Its directory with a claim and without one.
_DIRECTORIES = [FlightRecorder(claim=claim).directory for claim in ("claim", "")]


def _config(path: str, default: str) -> str:
    """The expression for a field of the configuration."""
    keys = " ".join(f'"{key}"' for key in path.split("."))
    return f"(dig {keys} {default} (fromYaml .Values.config))"


def _port(path: str, default: str) -> str:
    """The expression for the port of an address in the configuration."""
    return f'{_config(path, json.dumps(default))} | splitList ":" | last'


#: Marks that are whole values or parts of one -> the expressions that take their place.
_HOLES: dict[str, str] = {
    _LEASE_NAMESPACE: f"{_config('leaderElection.resourceNamespace', '.Release.Namespace')}",
    _NAMESPACE: ".Release.Namespace",
    "mark-image": 'printf "%s:%v" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion)',
    "mark-dashboard-host": ".Values.dashboard.host",
    "mark-dashboard-tls": ".Values.dashboard.ingress.tlsSecretName",
    "/mark-cert-dir": _config("webhook.certDir", f'"{Webhook().cert_dir}"'),
    "mark-livez": _config("health.livenessEndpointName", f'"{Health().liveness_endpoint_name}"'),
    "mark-readyz": _config("health.readinessEndpointName", f'"{Health().readiness_endpoint_name}"'),
    "mark-flight-directory": (
        f'ternary "{_DIRECTORIES[0]}" "{_DIRECTORIES[1]}" (not (empty .Values.flightRecorder.existingClaim))'
    ),
    "mark-flight-claim": ".Values.flightRecorder.existingClaim",
    "mark-flight-size": ".Values.flightRecorder.size",
    "mark-flight-age": ".Values.flightRecorder.age",
    "mark-lease": _config("leaderElection.resourceName", f'"{LeaderElection().resource_name}"'),
    "mark-checksum": 'include "pykueue.config" . | sha256sum',
    "mark-populator-checksum": ".Values.populator.config | sha256sum",
    "mark-priority-booster-checksum": ".Values.priorityBooster.config | sha256sum",
}
#: Numbers -> the expressions that take their place, without quotes.
_NUMBERS: dict[int, str] = {
    _REPLICAS: ".Values.replicas",
    64001: _config("webhook.port", str(Webhook().port)),
    64002: _port("metrics.bindAddress", Metrics().bind_address),
    64003: _config("visibilityServer.bindPort", str(VisibilityServer().bind_port)),
    64004: _port("health.healthProbeBindAddress", Health().health_probe_bind_address),
}
#: Marks that are all of a key's value -> the expression of a text of several lines.
_CONFIGURATIONS: dict[str, str] = {
    "mark-config": 'include "pykueue.config" .',
    "mark-populator-config": ".Values.populator.config",
    "mark-priority-booster-config": ".Values.priorityBooster.config",
}
#: Marks that are all of a key's value -> the expression; the key is left out where it is empty.
_BLOCKS: dict[str, str] = {
    "mark-resources": ".Values.resources",
    "mark-populator-resources": ".Values.populator.resources",
    "mark-dashboard-resources": ".Values.dashboard.resources",
    "mark-priority-booster-resources": ".Values.priorityBooster.resources",
    "mark-dashboard-annotations": ".Values.dashboard.ingress.annotations",
    "mark-node-selector": ".Values.nodeSelector",
    "mark-tolerations": ".Values.tolerations",
    "mark-pull-secrets": ".Values.imagePullSecrets",
}
_TEXTS: dict[str, str] = {
    "mark-ingress-class": ".Values.dashboard.ingress.className",
    "mark-priority-class": ".Values.priorityClassName",
    "mark-pull-policy": ".Values.image.pullPolicy",
}

# Renderings: the usual one, and one for each option changed.
_USUAL, _CERT_MANAGER, _ONE, _CLOSED = "usual", "cert-manager", "one replica", "no network policy"
_NO_ALERTS, _NO_DASHBOARDS = "no alerts", "no dashboards"
_UNSEEN, _UNSCRAPED, _NO_PODS = "no visibility", "no service monitor", "no pod viewer"
_NO_POPULATOR, _NO_BOOSTER = "no populator", "no priority booster"
_NO_RECORDER, _NO_CLAIM, _NO_FORECASTS = "no flight recorder", "no claim", "no forecasts"
_NO_WEB, _NO_HOST, _NO_INGRESS = "no dashboard", "no dashboard host", "no ingress"

#: What is missing with that option -> the condition under which it is there.
_MISSING: dict[str, str] = {
    _CERT_MANAGER: "not .Values.certManager.enabled",
    _ONE: "gt (int .Values.replicas) 1",
    _CLOSED: ".Values.networkPolicy.enabled",
    _UNSEEN: _config("featureGates.VisibilityOnDemand", "true"),
    _UNSCRAPED: ".Values.metrics.serviceMonitor.enabled",
    _NO_ALERTS: ".Values.metrics.prometheusRule.enabled",
    _NO_DASHBOARDS: ".Values.metrics.grafanaDashboards.enabled",
    _NO_PODS: ".Values.podViewer.enabled",
    _NO_WEB: ".Values.dashboard.enabled",
    _NO_RECORDER: ".Values.flightRecorder.enabled",
    _NO_CLAIM: ".Values.flightRecorder.existingClaim",
    _NO_FORECASTS: ".Values.forecasts.enabled",
    _NO_HOST: ".Values.dashboard.host",
    _NO_INGRESS: ".Values.dashboard.ingress.enabled",
    _NO_POPULATOR: ".Values.populator.enabled",
    _NO_BOOSTER: ".Values.priorityBooster.enabled",
}


def _marked() -> Options:
    configuration = replace(
        parse(shipped_configuration()),
        namespace=_NAMESPACE,
        webhook=Webhook(port=64001, cert_dir="/mark-cert-dir"),
        metrics=Metrics(bind_address=":64002"),
        visibility_server=VisibilityServer(bind_port=64003),
        health=Health(":64004", readiness_endpoint_name="mark-readyz", liveness_endpoint_name="mark-livez"),
        leader_election=LeaderElection(resource_name="mark-lease", resource_namespace=_LEASE_NAMESPACE),
    )
    return Options(
        configuration,
        "mark-config",
        "mark-image",
        _REPLICAS,
        service_monitor=True,
        alerts=True,
        dashboards=True,
        pod_viewer=True,
        dashboard=True,
        flight_recorder=_RECORDER,
        forecasts=True,
        dashboard_host="mark-dashboard-host",
        dashboard_ingress=True,
        satellites={one: f"mark-{one.command}-config" for one in (POPULATOR, PRIORITY_BOOSTER)},
    )


def _renderings() -> dict[str, list[Object]]:
    usual = _marked()
    configuration = usual.configuration

    def with_configuration(**changes: Any) -> Options:
        return replace(usual, configuration=replace(configuration, **changes))

    chosen = {
        _USUAL: usual,
        _CERT_MANAGER: replace(
            with_configuration(internal_cert_management=InternalCertManagement(enable=False)),
            cert_manager=True,
        ),
        _ONE: replace(usual, replicas=1),
        _CLOSED: replace(usual, network_policy=False),
        _UNSCRAPED: replace(usual, service_monitor=False),
        _NO_ALERTS: replace(usual, alerts=False),
        _NO_DASHBOARDS: replace(usual, dashboards=False),
        _NO_PODS: replace(usual, pod_viewer=False),
        _NO_WEB: replace(usual, dashboard=False),
        _NO_RECORDER: replace(usual, flight_recorder=None),
        _NO_CLAIM: replace(usual, flight_recorder=replace(_RECORDER, claim="")),
        _NO_FORECASTS: replace(usual, forecasts=False),
        _NO_HOST: replace(usual, dashboard_host=""),
        _NO_INGRESS: replace(usual, dashboard_ingress=False),
        _NO_POPULATOR: replace(usual, satellites=_without(usual, POPULATOR)),
        _NO_BOOSTER: replace(usual, satellites=_without(usual, PRIORITY_BOOSTER)),
        _UNSEEN: with_configuration(feature_gates={"VisibilityOnDemand": False}),
    }
    for name in BUILT_IN.frameworks:
        chosen[name] = with_configuration(
            integrations=replace(configuration.integrations, frameworks=(name,))
        )
    return {tag: [_with_blocks(obj) for obj in manifests(one)] for tag, one in chosen.items()}


def _without(options: Options, satellite: Satellite) -> dict[Satellite, str]:
    return {one: text for one, text in options.satellites.items() if one != satellite}


def _with_blocks(obj: Object) -> Object:
    """A Deployment or Ingress with marks where an installer may add to it."""
    if obj["kind"] == "Ingress":
        metadata = {**obj["metadata"], "annotations": "mark-dashboard-annotations"}
        tls = [{**each, "secretName": "mark-dashboard-tls"} for each in obj["spec"]["tls"]]
        return {
            **obj,
            "metadata": metadata,
            "spec": {"ingressClassName": "mark-ingress-class", **obj["spec"], "tls": tls},
        }
    if obj["kind"] != "Deployment":
        return obj
    command = obj["spec"]["template"]["spec"]["containers"][0]["name"]
    mark = "mark-" if command == "manager" else f"mark-{command}-"
    template = obj["spec"]["template"]
    pod = template["spec"]
    containers = [
        {**one, "imagePullPolicy": "mark-pull-policy", "resources": f"{mark}resources"}
        for one in pod["containers"]
    ]
    pod = {
        **pod,
        "containers": containers,
        "nodeSelector": "mark-node-selector",
        "tolerations": "mark-tolerations",
        "imagePullSecrets": "mark-pull-secrets",
        "priorityClassName": "mark-priority-class",
    }
    metadata = template["metadata"]
    if "annotations" in metadata:
        annotations = {**metadata["annotations"], CHECKSUM: f"{mark}checksum"}
        metadata = {**metadata, "annotations": annotations}
    template = {"metadata": metadata, "spec": pod}
    return {**obj, "spec": {**obj["spec"], "template": template}}


@cache
def files() -> dict[str, str]:
    """The chart's files by path."""
    found = {"Chart.yaml": _chart(), "values.yaml": _values(), ".helmignore": "*.swp\n"}
    # For those without the operators: Prometheus and Grafana read them as they are.
    found[f"files/{ALERTS}"] = alerts_text()
    found |= {f"files/{name}.json": dashboard_text(one) for name, one in dashboards().items()}
    found["templates/_helpers.tpl"] = _HELPERS
    found["templates/NOTES.txt"] = _NOTES
    tree = merged(_renderings())
    texts: dict[str, list[str]] = {}
    for part in tree.value:
        kind = part.value["kind"].value
        if kind == "Namespace":
            continue  # Helm makes it: --create-namespace
        is_dashboard = DASHBOARD_LABEL in part.value["metadata"].value.get("labels", part).value
        file = "monitoring" if is_dashboard else _FILES.get(kind, "manager")
        texts.setdefault(file, []).append(_document(part, tree.tags))
    for name, documents in texts.items():
        found[f"templates/{name}.yaml"] = _HEAD + "".join(documents)
    return found


#: Kind -> the file it is in; all others are in one about the manager.
_FILES = {
    "CustomResourceDefinition": "definitions",
    "ClusterRole": "roles",
    "ClusterRoleBinding": "roles",
    "Role": "roles",
    "RoleBinding": "roles",
    "MutatingWebhookConfiguration": "webhooks",
    "ValidatingWebhookConfiguration": "webhooks",
    "Issuer": "certificates",
    "Certificate": "certificates",
    "Service": "network",
    "NetworkPolicy": "network",
    "Ingress": "network",
    "APIService": "network",
    "ServiceMonitor": "network",
    "PrometheusRule": "monitoring",
}

_HEAD = "{{- /* Generated: python -m pykueue.manager.install --write */}}\n"


def _chart() -> str:
    release = version("pykueue")
    return yaml.safe_dump(
        {
            "apiVersion": "v2",
            "name": "pykueue",
            "description": "Job queueing for Kubernetes that speaks Kueue's API",
            "type": "application",
            "version": release,
            "appVersion": release,
            "kubeVersion": _KUBERNETES,
        },
        sort_keys=False,
    )


def _values() -> str:
    repository = default_image().partition(":")[0]
    indented = "".join(f"  {line}\n" for line in shipped_configuration().splitlines())
    resources = "".join(f"  {line}\n" for line in yaml.safe_dump(RESOURCES, sort_keys=False).splitlines())
    satellite, dashboard = (
        "".join(f"    {line}\n" for line in yaml.safe_dump(found, sort_keys=False).splitlines())
        for found in (SATELLITE_RESOURCES, DASHBOARD_RESOURCES)
    )
    return f"""\
# Generated: python -m pykueue.manager.install --write
image:
  repository: {repository}
  # The chart's appVersion where it is empty.
  tag: ""
  pullPolicy: IfNotPresent
imagePullSecrets: []

# Replicas of the manager: one leads, all answer webhook requests.
replicas: {REPLICAS}

# The configuration file (config.kueue.x-k8s.io). The namespace is the release's.
config: |
{indented}
# Certificates by cert-manager instead of the manager itself.
certManager:
  enabled: false

networkPolicy:
  enabled: true

# Those who have the role of users or administrators of queues may read pods, their logs and events.
podViewer:
  enabled: false

metrics:
  # A ServiceMonitor for the Prometheus operator.
  serviceMonitor:
    enabled: false
  # A PrometheusRule with alerts, and ConfigMaps with dashboards for Grafana's sidecar.
  prometheusRule:
    enabled: false
  grafanaDashboards:
    enabled: false

resources:
{resources}
nodeSelector: {{}}
tolerations: []
priorityClassName: ""

# Records events and decisions, for pykueue replay. Without a claim recordings are lost with the pod.
flightRecorder:
  enabled: false
  size: {FlightRecorder().size}
  age: {FlightRecorder().age}
  # A PersistentVolumeClaim in the release's namespace; ReadWriteMany with more than one replica.
  existingClaim: ""

# kubectl get pendingworkloads prints when they start; needs memory for a second process now and then.
forecasts:
  enabled: false

# Web pages of queues and workloads; see pykueue dashboard.
dashboard:
  enabled: false
  # The host by which browsers reach it: adds a Service, in front of which TLS must end. Where it is empty,
  # the dashboard listens on loopback in its pod and is reached by kubectl port-forward.
  host: ""
  # An Ingress for the host; the Secret has its certificate.
  ingress:
    enabled: false
    className: ""
    tlsSecretName: {TLS_SECRET}
    annotations: {{}}
  resources:
{dashboard}
# Creates a LocalQueue in every namespace that a ClusterQueue admits from.
populator:
  enabled: false
  config: |
    localQueueName: default
  resources:
{satellite}
# Lowers the priority of Workloads admitted for longer than an interval; requires the gate PriorityBoost.
priorityBooster:
  enabled: false
  config: |
    timeSharing:
      interval: 30m
  resources:
{satellite}"""


_HELPERS = """\
{{- /* The configuration as the manager gets it. */}}
{{- define "pykueue.config" -}}
{{- $config := fromYaml .Values.config -}}
{{- if hasKey $config "Error" }}{{ fail (printf "config is not YAML: %s" $config.Error) }}{{ end -}}
{{- $namespace := .Release.Namespace -}}
{{- if ne (dig "namespace" $namespace $config) $namespace -}}
{{- fail (printf "config says namespace: %s, the release is in %s" $config.namespace $namespace) -}}
{{- end -}}
{{- range $key := list "webhookServiceName" "webhookSecretName" -}}
{{- if dig "internalCertManagement" $key "" $config -}}
{{- fail (printf "this chart has its own name for internalCertManagement.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- $internal := dict "enable" (not .Values.certManager.enabled) -}}
{{- $given := dict "namespace" $namespace "internalCertManagement" $internal -}}
{{- mergeOverwrite $config $given | toYaml -}}
{{- end -}}

{{- /* The job kinds that are queued, as JSON. */}}
{{- define "pykueue.frameworks" -}}
{{- dig "integrations" "frameworks" (list) (fromYaml .Values.config) | default (list "batch/job") | toJson -}}
{{- end -}}
"""

_NOTES = """\
The manager is starting. Wait for it:

  kubectl -n {{ .Release.Namespace }} rollout status deployment/kueue-controller-manager

Queues are next: ResourceFlavor, ClusterQueue and LocalQueue, as for Kueue.
"""


# Text


def _document(part: Part, whole: Tags) -> str:
    text = "".join(_mapping(part.value, "", part.tags))
    condition = _condition(part.tags, whole)
    body = _filled(f"---\n{text}")
    return body if not condition else f"{{{{- if {condition} }}}}\n{body}{{{{- end }}}}\n"


def _condition(tags: Tags, within: Tags) -> str:
    """Under which choices something is there that is in these renderings of those its surroundings are in."""
    if _USUAL not in tags:  # the one option that adds
        return ".Values.certManager.enabled" if _USUAL in within else ""
    conditions = [condition for tag, condition in _MISSING.items() if tag in within - tags]
    queued = [name for name in BUILT_IN.frameworks if name in tags]
    if any(name in within - tags for name in BUILT_IN.frameworks):
        has = [f'(has "{name}" (include "pykueue.frameworks" . | fromJsonArray))' for name in queued]
        conditions.append(f"or {' '.join(has)}" if len(has) > 1 else has[0])
    if len(conditions) > 1:
        return "and " + " ".join(f"({one})" for one in conditions)
    return conditions[0] if conditions else ""


def _lines(part: Part, within: Tags, lines: Iterable[str]) -> Iterator[str]:
    condition = _condition(part.tags, within)
    if condition:
        yield f"{{{{- if {condition} }}}}\n"
    yield from lines
    if condition:
        yield "{{- end }}\n"


def _mapping(entries: dict[str, Part], indent: str, tags: Tags) -> Iterator[str]:
    for key, part in entries.items():
        yield from _lines(part, tags, _entry(key, part, indent))


def _entry(key: str, part: Part, indent: str) -> Iterator[str]:
    value = part.value
    name = _scalar(key)
    inner = len(indent) + 2
    if isinstance(value, str) and value in _CONFIGURATIONS:
        yield f"{indent}{name}: |\n{indent}  {{{{- {_CONFIGURATIONS[value]} | nindent {inner} }}}}\n"
    elif isinstance(value, str) and value in _BLOCKS:
        yield f"{indent}{{{{- with {_BLOCKS[value]} }}}}\n"
        yield f"{indent}{name}:\n{indent}  {{{{- toYaml . | nindent {inner} }}}}\n"
        yield f"{indent}{{{{- end }}}}\n"
    elif isinstance(value, str) and value in _TEXTS:
        yield f"{indent}{{{{- with {_TEXTS[value]} }}}}\n"
        yield f"{indent}{name}: {{{{ . | quote }}}}\n"
        yield f"{indent}{{{{- end }}}}\n"
    elif isinstance(value, dict) and value:
        yield f"{indent}{name}:\n"
        yield from _mapping(value, indent + "  ", part.tags)
    elif isinstance(value, list) and value:
        yield f"{indent}{name}:\n"
        for item in value:
            yield from _lines(item, part.tags, _item(item, indent))
    else:
        yield f"{indent}{name}: {_scalar(value)}\n"


def _item(part: Part, indent: str) -> Iterator[str]:
    """An item of a list; a mapping's first line stands beside the dash."""
    value = part.value
    if not isinstance(value, dict) or not value:
        yield f"{indent}- {_scalar(value)}\n"
        return
    lines = list(_mapping(value, indent + "  ", part.tags))
    if lines[0].startswith("{{"):
        yield f"{indent}-\n"  # the first key is optional
        yield from lines
    else:
        yield f"{indent}- {lines[0][len(indent) + 2 :]}"
        yield from lines[1:]


def _scalar(value: Any) -> str:
    """One value on one line, safe from Helm: braces of ours only come afterwards."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    text = text.removesuffix("\n").removesuffix("\n...")
    return text.replace("{{", '{{ "{{" }}')


_WHOLE = re.compile(rf"(?<=[ ])({'|'.join(map(re.escape, _HOLES))})$", re.MULTILINE)
_WITHIN = re.compile("|".join(map(re.escape, _HOLES)))
_NUMBER = re.compile(rf"(?<=: )({'|'.join(map(str, _NUMBERS))})$", re.MULTILINE)


def _filled(text: str) -> str:
    """Marks become expressions: quoted where they are the whole value, for a name may look like a number."""
    text = _WHOLE.sub(lambda match: f"{{{{ {_HOLES[match[1]]} | quote }}}}", text)
    text = _WITHIN.sub(lambda match: f"{{{{ {_HOLES[match[0]]} }}}}", text)
    return _NUMBER.sub(lambda match: f"{{{{ {_NUMBERS[int(match[1])]} }}}}", text)
