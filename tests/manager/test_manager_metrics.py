"""Metrics as a dashboard written for Kueue reads them, and the servers that answer."""

from __future__ import annotations

import asyncio
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from manager_stack import Stack, job, story

from pykueue.api.crds import crds
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.resources import NAMESPACES, WORKLOADS
from pykueue.manager.configuration import parse
from pykueue.manager.replica import Replica

CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:0"}}
metrics: {{bindAddress: "127.0.0.1:0"}}
webhook: {{host: 127.0.0.1, port: 0, certDir: {directory}}}
leaderElection: {{leaderElect: {elect}, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 100ms}}
"""


def read(text: bytes) -> dict[str, float]:
    """Value by name and labels, without the role."""
    found = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[re.sub(r',?replica_role="[a-z]+"', "", name).replace("{,", "{")] = float(value)
    return found


def test_a_job_leaves_its_traces_in_every_metric() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.apply(job("b", 6))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        now = read(s.manager.metrics.text())
        assert now['kueue_pending_workloads{cluster_queue="cq",status="inadmissible"}'] == 1
        assert now['kueue_admitted_active_workloads{cluster_queue="cq"}'] == 1
        assert now['kueue_cluster_queue_status{cluster_queue="cq",status="active"}'] == 1
        assert now['kueue_local_queue_status{active="True",name="lq",namespace="default"}'] == 1
        amount = '{cohort="",cluster_queue="cq",flavor="default-flavor",resource="cpu"}'
        amounts = {
            name: value for name, value in now.items() if name.startswith("kueue_cluster_queue_resource")
        }
        assert sorted(amounts.values()) == [6, 6], amount
        await s.finish_job("a")
        name = (await s.workload("b"))["metadata"]["name"]
        await s.settle()
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        now = read(s.manager.metrics.text())
        for counter in ("quota_reserved", "admitted"):
            assert now[f'kueue_{counter}_workloads_total{{cluster_queue="cq",priority_class=""}}'] == 2
        assert now['kueue_finished_workloads_total{cluster_queue="cq",priority_class=""}'] == 1
        evicted = [v for k, v in now.items() if k.startswith("kueue_evicted_workloads_total")]
        assert evicted == [1]
        assert now['kueue_admission_wait_time_seconds_count{cluster_queue="cq",priority_class=""}'] == 2
        assert now['kueue_execution_time_seconds_count{cluster_queue="cq",priority_class=""}'] == 1
        assert any('kueue_admission_attempts_total{result="success"' in line for line in now)

    story(life, "metrics: {enableClusterQueueResources: true}")


def test_what_happened_before_the_start_is_not_counted_again() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.finish_job("a")
        await s.settle()
        await s.stop_manager()
        await s.start_manager()
        await s.settle()
        now = read(s.manager.metrics.text())
        assert not [name for name in now if name.startswith("kueue_admitted_workloads_total")]
        assert now['kueue_finished_workloads{cluster_queue="cq"}'] == 1

    story(life)


def certificate(directory: Path) -> None:
    """A self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    (directory / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "tls.key").write_bytes(private)


@pytest.mark.parametrize("elect", ["true", "false"])
def test_a_replica_answers_probes_scrapes_reviews_and_conversions(tmp_path: Path, elect: str) -> None:
    async def main() -> None:
        server = Server(MemoryStore(), Clock(), random.Random(1))
        await server.start()
        await server.install_crds(crds())
        configuration = parse(CONFIGURATION.format(directory=tmp_path, elect=elect))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        replica = Replica(server.transport(), configuration, Clock(), random.Random(1))
        await replica.manager.cluster.client.create(NAMESPACES, namespace)
        task = asyncio.create_task(replica.run())
        try:
            await replica.manager.synced()
            await replica.serving.started.wait()
            ports = replica.serving.ports
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
                for path in ("healthz", "readyz"):
                    async with session.get(f"http://127.0.0.1:{ports['health']}/{path}") as answer:
                        assert answer.status == 200
                async with session.get(f"http://127.0.0.1:{ports['metrics']}/metrics") as answer:
                    assert "kueue_build_info" in await answer.text()
                base = f"https://127.0.0.1:{ports['webhooks']}"
                review = {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "request": {"uid": "u", "operation": "CREATE", "object": job("a")},
                }
                async with session.post(f"{base}/mutate-batch-v1-job", json=review) as answer:
                    assert (await answer.json())["response"]["patchType"] == "JSONPatch"
                asked = {
                    "uid": "u",
                    "desiredAPIVersion": "kueue.x-k8s.io/v1beta1",
                    "objects": [
                        {
                            "apiVersion": "kueue.x-k8s.io/v1beta2",
                            "kind": "ClusterQueue",
                            "metadata": {"name": "cq"},
                            "spec": {"cohortName": "all"},
                        }
                    ],
                }
                body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": asked}
                async with session.post(f"{base}/convert", json=body) as answer:
                    (converted,) = (await answer.json())["response"]["convertedObjects"]
                    assert converted["spec"]["cohort"] == "all"
                async with session.post(f"{base}/convert", data=b"nonsense") as answer:
                    assert answer.status == 400
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()

    certificate(tmp_path)
    asyncio.run(main())
