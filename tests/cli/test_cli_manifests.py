"""`pykueue manifests`: what is printed hangs together, follows the choices, and is taken by kubectl."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_processes import ROOT, Kubectl, Up
from click.testing import CliRunner

from pykueue.cli.main import main
from pykueue.kube.informer import Informer
from pykueue.manager.configuration import parse

Object = dict[str, Any]


def manifests(*options: str) -> list[Object]:
    done = CliRunner().invoke(main, ["manifests", *options])
    assert done.exit_code == 0, done.output
    return [obj for obj in yaml.load_all(done.output, Loader=yaml.CSafeLoader) if obj]


def refusal(*options: str) -> str:
    done = CliRunner().invoke(main, ["manifests", *options])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.output


def of_kind(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = (obj for obj in objects if obj["kind"] == kind and name in (None, obj["metadata"]["name"]))
    return found


@pytest.fixture(scope="module")
def shipped() -> list[Object]:
    return manifests()


def pod_of(objects: list[Object]) -> Object:
    template: Object = of_kind(objects, "Deployment")["spec"]["template"]
    return template


class TestWholeInstallation:
    def test_every_kind_of_the_group_is_there_and_served_in_both_versions(
        self, shipped: list[Object]
    ) -> None:
        everything = [obj for obj in shipped if obj["kind"] == "CustomResourceDefinition"]
        definitions = [obj for obj in everything if obj["spec"]["group"] == "kueue.x-k8s.io"]
        assert len(definitions) == 11
        own = [obj["metadata"]["name"] for obj in everything if obj not in definitions]
        assert own == [
            "backfillpolicies.pykueue.io",
            "budgetledgers.pykueue.io",
            "budgets.pykueue.io",
            "jobkinds.pykueue.io",
            "preemptionpolicies.pykueue.io",
            "reservations.pykueue.io",
        ]
        for definition in definitions:
            versions = {one["name"]: one for one in definition["spec"]["versions"]}
            assert {name for name, one in versions.items() if one["served"]} == {"v1beta1", "v1beta2"}
            assert [name for name, one in versions.items() if one["storage"]] == ["v1beta2"]

    def test_objects_that_manifests_reference_exist(self, shipped: list[Object]) -> None:
        """References between objects lead somewhere."""
        there = {(obj["kind"], obj["metadata"]["name"]) for obj in shipped}
        services = set()
        for obj in shipped:
            if obj["kind"].endswith("Binding") and obj["metadata"].get("namespace") != "kube-system":
                assert (obj["roleRef"]["kind"], obj["roleRef"]["name"]) in there
            for subject in obj.get("subjects", ()):
                assert (subject["kind"], subject["name"]) in there
            services |= {(one["namespace"], one["name"]) for one in _services(obj)}
        assert services == {
            ("kueue-system", "kueue-webhook-service"),
            ("kueue-system", "kueue-visibility-server"),
        }
        assert {("Service", name) for _, name in services} <= there
        for volume in pod_of(shipped)["spec"]["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
        assert ("ServiceAccount", pod_of(shipped)["spec"]["serviceAccountName"]) in there

    def test_service_target_ports_are_ports_of_the_pods(self, shipped: list[Object]) -> None:
        template = pod_of(shipped)
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        for obj in shipped:
            if obj["kind"] == "Service":
                assert obj["spec"]["selector"].items() <= template["metadata"]["labels"].items()
                assert {port["targetPort"] for port in obj["spec"]["ports"]} <= ports

    def test_manager_pods_run_without_privileges(self, shipped: list[Object]) -> None:
        pod = pod_of(shipped)["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
        namespace = of_kind(shipped, "Namespace")
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"

    def test_jobs_of_the_system_do_not_need_the_manager(self, shipped: list[Object]) -> None:
        """Else a manager that is away would keep itself from coming back."""
        configurations = [obj for obj in shipped if obj["kind"].endswith("WebhookConfiguration")]
        assert len(configurations) == 2
        for configuration in configurations:
            for webhook in configuration["webhooks"]:
                passes = "-without-queue." in webhook["name"]
                assert webhook["failurePolicy"] == ("Ignore" if passes else "Fail")
                (rule,) = webhook["rules"]
                if rule["apiGroups"] in (["kueue.x-k8s.io"], ["pykueue.io"]):
                    continue
                (expression,) = webhook["namespaceSelector"]["matchExpressions"]
                assert expression["operator"] == "NotIn"
                assert {"kube-system", "kueue-system"} <= set(expression["values"])

    def test_the_manager_may_read_all_that_it_caches(self, shipped: list[Object]) -> None:
        from pykueue.clock import Clock
        from pykueue.jobs.kinds import BUILT_IN
        from pykueue.manager.cluster import Cluster
        from pykueue.manager.connection import Connection

        configuration = parse(of_kind(shipped, "ConfigMap")["data"]["controller_manager_config.yaml"])
        cluster = Cluster(
            Connection(None, Clock()),  # type: ignore[arg-type]
            BUILT_IN.enabled(configuration.integrations.frameworks),
            configuration,
        )
        rules = of_kind(shipped, "ClusterRole", "kueue-manager-role")["rules"]
        informers = [value for value in vars(cluster).values() if isinstance(value, Informer)]
        for informer in [*informers, *cluster.jobs.values()]:
            resource = informer.resource
            allowed = {
                verb
                for rule in rules
                if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]
                for verb in rule["verbs"]
            }
            assert {"get", "list", "watch"} <= allowed, resource

    def test_the_manager_has_no_rights_without_bounds(self, shipped: list[Object]) -> None:
        for obj in shipped:
            for rule in obj.get("rules", ()) if obj["kind"] in ("ClusterRole", "Role") else ():
                for part in ("apiGroups", "resources", "verbs"):
                    assert "*" not in rule.get(part, ())
                if "secrets" in rule.get("resources", ()):
                    # In its own namespace it reads those with kubeconfigs of worker clusters.
                    assert obj["kind"] == "Role"
                    names = rule.get("resourceNames")
                    assert names == ["kueue-webhook-server-cert"] or rule["verbs"] == ["get", "list", "watch"]


def _services(obj: Object) -> list[Object]:
    """The Services that the API server calls."""
    found = []
    if obj["kind"] == "APIService":
        found.append(obj["spec"]["service"])
    if obj["kind"] == "CustomResourceDefinition":
        conversion = obj["spec"].get("conversion")
        if conversion is not None:
            found.append(conversion["webhook"]["clientConfig"]["service"])
    if obj["kind"].endswith("WebhookConfiguration"):
        found += [one["clientConfig"]["service"] for one in obj["webhooks"]]
    return found


def _hours(duration: str) -> int:
    assert duration.endswith("h")
    return int(duration[:-1])


class TestChoices:
    def test_namespace_option_applies_to_all_objects(self) -> None:
        objects = manifests("--namespace", "queues")
        assert of_kind(objects, "Namespace")["metadata"]["name"] == "queues"
        text = of_kind(objects, "ConfigMap")["data"]["controller_manager_config.yaml"]
        assert parse(text).namespace == "queues"
        namespaces = {obj["metadata"].get("namespace") for obj in objects}
        assert namespaces == {None, "queues", "kube-system"}
        assert {one["namespace"] for obj in objects for one in _services(obj)} == {"queues"}
        # The manager that is not asked about its own writes is the one that is installed.
        account = "system:serviceaccount:queues:kueue-controller-manager"
        for webhook in of_kind(objects, "ValidatingWebhookConfiguration")["webhooks"]:
            condition = webhook["matchConditions"][0]
            assert condition["expression"] == f'request.userInfo.username != "{account}"'

    def test_a_configuration_is_installed_as_it_was_written(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
            "# ours since spring\nnamespace: queues\nwebhook: {port: 10250}\n"
            "integrations: {frameworks: [batch/job]}\n"
        )
        objects = manifests("--config", str(file))
        assert of_kind(objects, "ConfigMap")["data"]["controller_manager_config.yaml"] == file.read_text()
        ports = {
            one["name"]: one["containerPort"] for one in pod_of(objects)["spec"]["containers"][0]["ports"]
        }
        assert ports["webhook-server"] == 10250
        configuration = of_kind(objects, "MutatingWebhookConfiguration")
        names = {one["name"] for one in configuration["webhooks"]}
        assert "mjob.kb.io" in names
        assert "mjobset.kb.io" not in names
        rules = of_kind(objects, "ClusterRole", "kueue-manager-role")["rules"]
        assert not any("jobsets" in rule["resources"] for rule in rules)

    def test_names_follow_the_webhook_service(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
            "internalCertManagement: {webhookServiceName: lab-webhook-service}\n"
        )
        objects = manifests("--config", str(file))
        assert of_kind(objects, "Deployment")["metadata"]["name"] == "lab-controller-manager"
        assert of_kind(objects, "Service", "lab-webhook-service")

    def test_a_new_configuration_replaces_the_pods(self, shipped: list[Object], tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n")
        changed = pod_of(manifests("--config", str(file)))["metadata"]["annotations"]
        assert changed != pod_of(shipped)["metadata"]["annotations"]

    def test_replicas_and_image(self) -> None:
        objects = manifests("--replicas", "1", "--image", "example.org/pykueue:7")
        assert of_kind(objects, "Deployment")["spec"]["replicas"] == 1
        assert pod_of(objects)["spec"]["containers"][0]["image"] == "example.org/pykueue:7"
        # A budget would keep the only replica from ever being moved.
        assert not any(obj["kind"] == "PodDisruptionBudget" for obj in objects)

    def test_certificates_by_cert_manager(self) -> None:
        objects = manifests("--cert-manager")
        certificate = of_kind(objects, "Certificate", "kueue-serving-cert")
        assert "kueue-webhook-service.kueue-system.svc" in certificate["spec"]["dnsNames"]
        secret = certificate["spec"]["secretName"]
        assert {"name": "cert", "secret": {"secretName": secret}} in pod_of(objects)["spec"]["volumes"]
        assert not any(obj["kind"] == "Secret" for obj in objects)
        text = of_kind(objects, "ConfigMap")["data"]["controller_manager_config.yaml"]
        assert not parse(text).internal_cert_management.enable
        source = f"kueue-system/{certificate['metadata']['name']}"
        for obj in objects:
            injected = obj["metadata"].get("annotations", {}).get("cert-manager.io/inject-ca-from")
            # Definitions always: taken over from Kueue's chart, all of them have their kind converted.
            called = _services(obj) or obj["kind"] == "CustomResourceDefinition"
            assert injected == (source if called else None)
        # Who makes no certificates may write neither webhooks nor definitions nor secrets.
        rules = [
            rule for obj in objects if obj["kind"] in ("Role", "ClusterRole") for rule in obj.get("rules", ())
        ]
        reading = {"get", "list", "watch"}
        written = {one for rule in rules if set(rule["verbs"]) - reading for one in rule.get("resources", ())}
        assert not written & {"secrets", "customresourcedefinitions", "mutatingwebhookconfigurations"}

    def test_the_secret_that_cert_manager_filled_is_taken_over(self, shipped: list[Object]) -> None:
        """Its type is another than the usual one and cannot be changed, so none may be asked for."""
        secret = of_kind(shipped, "Secret")
        assert (
            secret["metadata"]["name"]
            == of_kind(manifests("--cert-manager"), "Certificate", "kueue-serving-cert")["spec"]["secretName"]
        )
        assert set(secret) == {"apiVersion", "kind", "metadata"}

    def test_certificate_that_cert_manager_renews_is_trusted_before_pods_load_it(self) -> None:
        """The authority is not the certificate itself: a renewed one would be trusted before it is served."""
        objects = manifests("--cert-manager")
        serving = of_kind(objects, "Certificate", "kueue-serving-cert")["spec"]
        issuer = of_kind(objects, "Issuer", serving["issuerRef"]["name"])
        secret = issuer["spec"]["ca"]["secretName"]
        [authority] = [
            obj["spec"]
            for obj in objects
            if obj["kind"] == "Certificate" and obj["spec"]["secretName"] == secret
        ]
        assert authority["isCA"]
        assert "selfSigned" in of_kind(objects, "Issuer", authority["issuerRef"]["name"])["spec"]
        # It is renewed long before it ends, and every serving certificate again before its authority ends.
        serving_renewals = _hours(serving["duration"]) - _hours(serving["renewBefore"])
        assert serving_renewals < _hours(authority["renewBefore"]) < _hours(authority["duration"])
        # Clients built on OpenSSL refuse a certificate whose issuer has no name.
        assert authority["commonName"]

    def test_without_network_policy(self, shipped: list[Object]) -> None:
        assert of_kind(shipped, "NetworkPolicy")
        assert not any(obj["kind"] == "NetworkPolicy" for obj in manifests("--no-network-policy"))

    def test_contradictions_are_refused_by_name(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
            "namespace: queues\ninternalCertManagement: {enable: true}\n"
        )
        assert "namespace: queues" in refusal("--config", str(file), "--namespace", "others")
        assert "internalCertManagement.enable" in refusal("--config", str(file), "--cert-manager")

    def test_a_configuration_that_is_not_accepted(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhook: {prot: 1}\n"
        )
        assert "webhook.prot" in refusal("--config", str(file))

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (("--namespace", "Bad Name"), "--namespace: 'Bad Name' is not accepted: must consist of lower"),
            (("--namespace", ""), "--namespace: '' is not accepted"),
            (("--namespace", "a.b"), "--namespace: 'a.b' is not accepted"),
            (("--namespace", "n" * 64), "must be no more than 63 characters"),
            (("--image", ""), "--image: '' is not accepted: must be an image reference, for example"),
            (("--image", "two words"), "--image: 'two words' is not accepted"),
            (("--image", "UPPER:1"), "--image: 'UPPER:1' is not accepted"),
            (("--image", "a" * 256), "must be an image reference"),
            (("--image", "pykueue@sha256:12"), "must be an image reference"),
            (("--replicas", "0"), "0 is not in the range"),
            (("--replicas", str(2**31)), "is not in the range"),
            (("--replicas", "two"), "'two' is not a valid integer"),
            (("--config", "missing.yaml"), "missing.yaml"),
        ],
    )
    def test_invalid_option_value_is_rejected(self, options: tuple[str, ...], wanted: str) -> None:
        assert wanted in " ".join(refusal(*options).split())

    @pytest.mark.parametrize(
        "image",
        ["pykueue", "pykueue:0.1", "r.example.com:5000/a/b_c:v1.2-3", "localhost/p@sha256:" + "0a" * 32],
    )
    def test_every_form_of_an_image_reference_is_accepted(self, image: str) -> None:
        (container,) = pod_of(manifests("--image", image))["spec"]["containers"]
        assert container["image"] == image

    @pytest.mark.parametrize(
        ("section", "wanted"),
        [
            ("namespace: Bad Name", 'namespace: "Bad Name" is not accepted: must consist of'),
            (
                "internalCertManagement: {webhookServiceName: 1st}",
                'internalCertManagement.webhookServiceName: "1st" is not accepted',
            ),
            (
                "internalCertManagement: {webhookSecretName: A}",
                'internalCertManagement.webhookSecretName: "A" is not accepted',
            ),
            ("leaderElection: {resourceName: a_b}", 'leaderElection.resourceName: "a_b" is not accepted'),
            (
                "leaderElection: {resourceNamespace: a.b}",
                'leaderElection.resourceNamespace: "a.b" is not accepted',
            ),
        ],
    )
    def test_invalid_name_in_the_configuration_is_rejected(
        self, tmp_path: Path, section: str, wanted: str
    ) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{section}\n")
        assert wanted in " ".join(refusal("--config", str(file)).split())

    def test_a_configuration_that_is_not_text(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_bytes(b"\xff\xfe")
        assert "not UTF-8 text" in " ".join(refusal("--config", str(file)).split())


def test_roles_of_people_grant_what_the_published_roles_of_kueue_grant() -> None:
    roles = {
        one["metadata"]["name"]: one for one in manifests() if one["kind"] == "ClusterRole" and "rules" in one
    }
    read = {"get", "list", "watch"}
    verbs = {"editor": read | {"create", "delete", "patch", "update"}, "viewer": read}
    compared = set()
    for kinds, role, labels in _published_roles():
        for kind in kinds:
            name = f"kueue-{kind}" if kind.startswith("pending-") else f"kueue-{kind}-{role}"
            compared.add(f"{name}-role")
            published = roles[f"{name}-role"]
            joined = {label for label in published["metadata"]["labels"] if "rbac." in label}
            assert joined == set(labels), name
            resources, *status = published["rules"]
            assert set(resources["verbs"]) == verbs[role], name
            assert [one["verbs"] for one in status] == [["get"]] * len(status), name
            assert all(one["resources"][0].endswith("/status") for one in status), name
            without = kind in ("resourceflavor", "topology") or kind.startswith("pending-")
            assert bool(status) is not without, name
    people = {name for name in roles if name.endswith(("-editor-role", "-viewer-role"))}
    ours = {
        f"kueue-{kind}-{role}-role"
        for kind in ("backfillpolicy", "budget", "jobkind", "preemptionpolicy", "reservation")
        for role in ("editor", "viewer")
    }
    more = {
        "kueue-budgetledger-viewer-role",
        "kueue-pending-workloads-viewer-role",
        "kueue-workloads-why-viewer-role",
    }
    assert compared | ours | more == people


def test_only_administrators_write_job_kinds() -> None:
    roles = [one for one in manifests() if one["kind"] == "ClusterRole" and "rules" in one]
    writing = {
        role["metadata"]["name"]: [label for label in role["metadata"]["labels"] if "rbac." in label]
        for role in roles
        for rule in role["rules"]
        if {"jobkinds", "*"} & set(rule.get("resources", ())) and {"create", "update"} & set(rule["verbs"])
    }
    assert writing == {"kueue-jobkind-editor-role": ["rbac.kueue.x-k8s.io/batch-admin"]}


def _published_roles() -> Iterator[tuple[list[str], str, list[str]]]:
    """Kinds, editor or viewer, labels of aggregation; source: docs/reference/kueue-api.md, section 10.3."""
    text = (ROOT / "docs" / "reference" / "kueue-api.md").read_text()
    rows = text.partition("| Role | batch-admin | batch-user |")[2].partition("\n\n")[0].splitlines()[2:]
    kinds: list[str] = []
    for row in rows:
        names, admin, user, built_in = (cell.strip() for cell in row.strip("|").split("|"))
        listed, _, role = names.replace(",", "").rpartition(" ")
        if names.startswith("pending-"):
            listed, role = names, "viewer"
        kinds = kinds if listed == "the same" else listed.split()
        labels = [
            f"rbac.kueue.x-k8s.io/batch-{name}"
            for name, joins in (("admin", admin), ("user", user))
            if joins == "yes"
        ]
        if built_in != "–":
            labels += [f"rbac.authorization.k8s.io/aggregate-to-{name}" for name in built_in.split(", ")]
        yield kinds, role, labels


def test_pod_viewer_lets_users_of_queues_read_pods_and_is_left_out_by_default() -> None:
    name = "kueue-pod-viewer-role"
    assert not [one for one in manifests() if one["metadata"]["name"] == name]
    role = of_kind(manifests("--pod-viewer"), "ClusterRole", name)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    for gathered in ("batch-user", "batch-admin"):
        assert role["metadata"]["labels"][f"rbac.kueue.x-k8s.io/{gathered}"] == "true"


def test_the_dashboard_reads_only_and_is_left_out_by_default() -> None:
    name = "kueue-dashboard"
    assert not [one for one in manifests() if one["metadata"]["name"] == name]
    installed = manifests("--dashboard")
    found = [one for one in installed if one["metadata"]["name"] == name]
    kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"]
    assert [one["kind"] for one in found] == kinds
    verbs = {verb for one in found for rule in one.get("rules", ()) for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    labels = found[-1]["spec"]["template"]["metadata"]["labels"]
    for other in installed:
        selector = other.get("spec", {}).get("selector", {})
        if other["kind"] in ("Service", "PodDisruptionBudget"):
            assert not (selector.get("matchLabels") or selector).items() <= labels.items()


def test_a_host_of_the_dashboard_adds_a_service_and_an_ingress() -> None:
    host = "queues.example.org"
    alone = manifests("--dashboard", f"--dashboard-host={host}")
    assert not [one for one in alone if one["kind"] == "Ingress"]
    installed = manifests("--dashboard", f"--dashboard-host={host}", "--dashboard-ingress")
    ingress = of_kind(installed, "Ingress", "kueue-dashboard")
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == host
    assert ingress["spec"]["tls"][0]["hosts"] == [host]
    service = of_kind(installed, "Service", "kueue-dashboard")
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]
    deployment = of_kind(installed, "Deployment", "kueue-dashboard")
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert {"--host=0.0.0.0", "--behind-tls", f"--allowed-host={host}"} <= set(container["args"])
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--dashboard-host=h.example.org"], "--dashboard-host needs --dashboard"),
        (["--dashboard", "--dashboard-ingress"], "--dashboard-ingress needs --dashboard-host"),
        (["--dashboard", "--dashboard-host=https://h"], "'https://h' is not accepted"),
    ],
)
def test_options_of_the_dashboard_that_need_another_are_refused(options: list[str], problem: str) -> None:
    done = CliRunner().invoke(main, ["manifests", *options])
    assert done.exit_code == 2
    assert problem in done.output


@pytest.mark.kubectl
def test_embedded_server_accepts_all_manifests(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    kubectl = kubectl_for(start_up("--only", "apiserver,kube", "--in-memory"))
    text = CliRunner().invoke(main, ["manifests"]).output
    applied = kubectl("apply", "--server-side", "-f", "-", stdin=text).splitlines()
    assert len(applied) == len(list(yaml.load_all(text, Loader=yaml.CSafeLoader)))
    assert all(line.endswith("serverside-applied") for line in applied)
    again = kubectl("apply", "--server-side", "-f", "-", stdin=text).splitlines()
    assert again == applied
    stored = json.loads(kubectl("get", "deployment", "-n", "kueue-system", "-o", "json"))["items"]
    assert [one["metadata"]["name"] for one in stored] == ["kueue-controller-manager"]
    admin = json.loads(kubectl("get", "clusterrole", "kueue-batch-admin-role", "-o", "json"))
    assert any("clusterqueues" in rule["resources"] and "create" in rule["verbs"] for rule in admin["rules"])


@pytest.mark.parametrize(
    ("options", "directory", "claim"),
    [
        (["--flight-recorder"], "/tmp/flight", None),
        (["--flight-recorder-claim=recordings"], "/var/lib/pykueue/flight", "recordings"),
    ],
)
def test_manager_records_where_asked_with_options_that_it_accepts(
    options: list[str], directory: str, claim: str | None
) -> None:
    pod = of_kind(manifests(*options, "--forecasts"), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, _, _, *arguments = container["args"]
    assert arguments == [
        f"--flight-recorder={directory}",
        "--flight-recorder-size=1Gi",
        "--flight-recorder-age=7d",
        "--forecasts",
    ]
    printed = CliRunner().invoke(main, [command, *arguments, "--print-config"])
    assert printed.exit_code == 0, printed.output
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"] if each["name"] == "flight"
    ]
    assert claims == ([claim] if claim else [])
    # Some volume of the container is mounted above the directory, and its user may write there.
    assert any(directory.startswith(mount["mountPath"] + "/") for mount in container["volumeMounts"])
    assert pod["securityContext"].get("fsGroup") == (65532 if claim else None)


def test_size_of_recordings_is_checked() -> None:
    found = CliRunner().invoke(main, ["manifests", "--flight-recorder", "--flight-recorder-size=lots"])
    assert found.exit_code == 2
    assert "--flight-recorder-size" in found.output
