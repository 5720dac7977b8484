"""Worker clusters of ClusterProfiles, and the programs that give their credentials."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from manager_stack import Object, job
from multikueue_world import NAMESPACE, Clusters, cluster, dispatched

from pykueue.api.resources import CRDS, MULTIKUEUE_CLUSTERS, MULTIKUEUE_CONFIGS
from pykueue.kube.http import HttpTransport
from pykueue.manager.multikueue.kubeconfig import KubeConfigError, connect, of_profile
from pykueue.manager.multikueue.sources import CLUSTER_PROFILES

CONFIGURATION = """
featureGates: {MultiKueueClusterProfile: true}
multiKueue:
  clusterProfile: {accessProviders: [{name: fleet, execConfig: {command: give}}]}
"""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
API = "client.authentication.k8s.io/v1"
PLUGIN = {"apiVersion": API, "command": sys.executable}
TOKEN = json.dumps({"kind": "ExecCredential", "apiVersion": API, "status": {"token": "s3cret"}})


def definition() -> Object:
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "ClusterProfile", "plural": "clusterprofiles", "singular": "clusterprofile"}
    spec = {"group": CLUSTER_PROFILES.group, "scope": "Namespaced", "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"clusterprofiles.{CLUSTER_PROFILES.group}"},
        "spec": {**spec, "names": {**names, "listKind": "ClusterProfileList"}},
    }


def profile(provider: str) -> Object:
    access = [{"name": provider, "cluster": {"server": "https://w2.test"}}]
    return {
        "apiVersion": CLUSTER_PROFILES.api_version,
        "kind": "ClusterProfile",
        "metadata": {"name": "p", "namespace": NAMESPACE},
        "spec": {},
        "status": {"accessProviders": access},
    }


def of_cluster_profile(name: str) -> Object:
    return {**cluster("x"), "spec": {"clusterSource": {"clusterProfileRef": {"name": name}}}}


@pytest.mark.parametrize("gate", [True, False], ids=["on", "off"])
def test_worker_of_a_cluster_profile_is_connected(gate: bool) -> None:
    async def test(c: Clusters) -> None:
        m = c.manager
        await c.add_worker("w2")
        await m.client.create(CRDS, definition())
        await m.client.create(MULTIKUEUE_CLUSTERS, of_cluster_profile("p"))
        await c.wait(10)
        if not gate:
            assert (await c.active("x"))[:2] == ("False", "MultiKueueClusterProfileFeatureDisabled")
            return
        assert (await c.active("x"))[:2] == ("False", "BadClusterProfile")
        await m.client.create(CLUSTER_PROFILES, profile("other"))
        await c.wait(10)
        message = "ClusterProfile p has no access provider of multiKueue.clusterProfile (fleet)"
        assert await c.active("x") == ("False", "BadClusterProfile", message)
        status = {"status": profile("fleet")["status"]}
        await m.client.patch(CLUSTER_PROFILES, "p", NAMESPACE, status)
        await c.wait(10)
        assert await c.active("x") == ("True", "Active", "Connected")
        await m.client.patch(MULTIKUEUE_CONFIGS, "config", None, {"spec": {"clusters": ["x"]}})
        await m.apply(job("a"))
        await c.wait()
        assert (await c.status())["clusterName"] == "x"
        assert await c.jobs() == ["w2"]

    dispatched(test, "w1", configuration=CONFIGURATION if gate else "")


def authorization(script: str, **plugin: object) -> str | None:
    target = of_profile({"server": "http://w.test"}, {**PLUGIN, "args": ["-c", script], **plugin})
    transport = connect(target)
    assert isinstance(transport, HttpTransport)
    return asyncio.run(transport.authorization())


def test_program_gives_the_token_and_receives_the_cluster() -> None:
    told = (
        "import json, os; i = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "assert i['spec']['cluster']['server'] == 'http://w.test', i;"
        "assert i['spec']['interactive'] is False, i;"
    )
    assert authorization(f"{told}print('''{TOKEN}''')", provideClusterInfo=True) == "Bearer s3cret"


@pytest.mark.parametrize(
    "script", ["print('s3cret')", "import sys; sys.exit('s3cret')", "raise SystemExit(0)"]
)
def test_program_that_fails_is_reported_without_what_it_prints(
    script: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with pytest.raises(ConnectionError) as raised:
        authorization(script)
    assert str(raised.value) == f"the program {sys.executable} gives no credentials"
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "fields",
    [
        {"server": ""},
        {"server": "ftp://w.test"},
        {"insecure-skip-tls-verify": True},
        {"certificate-authority": "/etc/passwd"},
    ],
)
def test_cluster_of_a_profile_that_is_not_verified_is_refused(fields: Object) -> None:
    with pytest.raises(KubeConfigError) as raised:
        of_profile({"server": "https://w.test", **fields}, PLUGIN)
    assert raised.value.reason == "BadRestConfig"
