"""What clusters do to a manager: leaders die, API servers and stores restart, certificates end, kinds change.

Nothing may be admitted twice, nothing lost, and work goes on by itself.
"""

from __future__ import annotations

import base64
import datetime
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from realcluster_install import NAMESPACE, Installation, Replica
from realcluster_jobs import JobController, Queues
from realcluster_plane import INTERVAL, Plane, until

from pykueue.manager.certificates import authority, lifetimes
from pykueue.manager.configuration import Configuration
from pykueue.manager.install_names import InstallNames

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/c1f6bfd2.kueue.x-k8s.io"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
#: Seconds in which another replica leads after the leader died: its lease runs out after 15.
HAND_OVER = 20.0


@pytest.fixture(scope="module")
def jobs(running: Installation) -> Iterator[JobController]:
    with JobController(running.plane) as controller:
        yield controller


def holder(plane: Plane) -> str:
    return str(plane.call("GET", LEASE)["spec"].get("holderIdentity") or "")


def leader(installation: Installation) -> Replica:
    """The replica that holds the lease: it says so in its log."""

    def look() -> Replica | None:
        identity = holder(installation.plane)
        told = f"{identity} leads by lease"
        return next((one for one in installation.replicas if identity and told in one.process.text()), None)

    return until(look, "a leader")


def test_another_leads_when_the_leader_is_killed(running: Installation, jobs: JobController) -> None:
    plane = running.plane
    second = running.start_replica()
    queues = Queues(plane, "crash", cpu="4")
    for number in range(8):
        queues.submit(f"crash-{number}")
    until(lambda: len(queues.admitted()) == 4, "the queue full")
    before = queues.admitted()
    dead = leader(running)
    assert dead is not second
    old = holder(plane)
    running.kill(dead)
    # Webhooks are answered by who is left, at once.
    queues.submit("crash-late")
    assert queues.job("crash-late")["spec"]["suspend"] is True
    until(lambda: holder(plane) not in ("", old), "another leader", HAND_OVER)
    assert leader(running) is second
    assert queues.admitted() == before
    for name in sorted(before):
        jobs.finish(name)
    until(lambda: len(queues.admitted()) == 4 and not queues.admitted() & before, "the next four")
    for name in sorted(queues.admitted()):
        jobs.finish(name)
    queues.wait_running("crash-late")
    jobs.finish("crash-late")
    until(lambda: not queues.admitted(), "the queue empty")


class _Asking:
    """Asks for admission all the time, and keeps what was refused."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.refusals: list[str] = []
        self.asked = 0

    def __enter__(self) -> _Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        queue = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "asked"},
            "spec": {},
        }
        while not self._stopping.wait(INTERVAL):
            self.asked += 1
            try:
                self._plane.call("POST", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues?dryRun=All", queue)
            except urllib.error.HTTPError as error:
                self.refusals.append(str(error))


def test_no_request_is_rejected_during_a_rolling_update(running: Installation) -> None:
    """A new replica is ready before the old one goes, which answers until it is called no more.

    It releases its lease, so that no replica waits for it to expire.
    """
    old = leader(running)
    with _Asking(running.plane) as asking:
        new = running.start_replica()
        running.end(old)
        assert leader(running) is new
        asked = asking.asked
        until(lambda: asking.asked >= asked + 5, "requests afterwards")
    assert not asking.refusals
    assert "not renewed for" not in new.process.text()


def test_work_goes_on_after_the_api_server_was_away(running: Installation, jobs: JobController) -> None:
    """For so long that the leader gave up: it may not lead once its lease may have run out."""
    plane = running.plane
    queues = Queues(plane, "away", cpu="1")
    queues.submit("away-first")
    queues.wait_running("away-first")
    queues.submit("away-second")
    old = leader(running)
    with plane.away(plane.apiserver):
        until(lambda: old.process.has_ended, "the leader gave up")
    assert "not renewed for" in old.process.text()
    running.keep()
    jobs.finish("away-first")
    until(lambda: queues.admitted() == {"away-second"}, "the next one", patience=120)
    jobs.finish("away-second")
    queues.wait_for("away-second", "Finished")


def test_work_goes_on_after_the_store_was_away(running: Installation, jobs: JobController) -> None:
    plane = running.plane
    queues = Queues(plane, "store", cpu="1")
    queues.submit("store-first")
    queues.wait_running("store-first")
    queues.submit("store-second")
    with plane.away(plane.etcd):
        pass
    running.keep()
    jobs.finish("store-first")
    until(lambda: queues.admitted() == {"store-second"}, "the next one", patience=120)
    jobs.finish("store-second")
    queues.wait_for("store-second", "Finished")


def test_a_certificate_is_renewed_while_it_is_used(running: Installation) -> None:
    """Its end is near: it is replaced in time, and not one request is refused over it."""
    plane = running.plane
    names = InstallNames.of(Configuration()).dns_names
    stored = plane.call("GET", SECRET)
    material = authority.read({key: base64.b64decode(value) for key, value in stored["data"].items()})
    assert material is not None
    long_ago = datetime.datetime.now(datetime.UTC) - lifetimes.SERVING_VALIDITY + lifetimes.SERVING_RENEWAL
    # One for other names is always replaced: so this is what the same authority signed then.
    other = authority.renewed(material, ["another"], long_ago, True)
    ending = authority.renewed(other, names, long_ago, True)
    data = {key: base64.b64encode(value).decode() for key, value in ending.data().items()}
    with _Asking(plane) as asking:
        plane.call("PUT", SECRET, {**stored, "data": data})
        fresh = until(
            lambda: (found := plane.call("GET", SECRET)["data"]["tls.crt"]) != data["tls.crt"] and found,
            "a new certificate",
            patience=120,
        )
        for replica in running.replicas:
            until(
                lambda port=replica.ports["webhooks"]: served(port) == base64.b64decode(fresh), "it is served"
            )
        asked = asking.asked
        until(lambda: asking.asked >= asked + 5, "requests with the new certificate")
    assert not asking.refusals


def served(port: int) -> bytes:
    """The certificate that a server shows."""
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


def etcd_versions(plane: Plane, plural: str) -> set[str]:
    """The apiVersions in which objects of a kind are kept in the store."""
    start = f"/registry/kueue.x-k8s.io/{plural}/".encode()
    end = start[:-1] + bytes([start[-1] + 1])
    body = json.dumps(
        {"key": base64.b64encode(start).decode(), "range_end": base64.b64encode(end).decode()}
    ).encode()
    with urllib.request.urlopen(f"{plane.etcd_url}/v3/kv/range", body, timeout=10) as answer:
        found = json.load(answer).get("kvs", ())
    return {json.loads(base64.b64decode(one["value"]))["apiVersion"] for one in found}


def test_objects_kept_in_the_old_version_are_taken_over(running: Installation, jobs: JobController) -> None:
    """As after an upgrade from a release that stored v1beta1: served, used, and rewritten when asked."""
    plane = running.plane
    old, new = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
    plurals = ("clusterqueues", "localqueues", "workloads", "resourceflavors")
    store_as(plane, "v1beta1", plurals)
    queues = Queues(plane, "upgrade", cpu="1", cohortName="old-times")
    queues.submit("upgrade-first")
    queues.wait_running("upgrade-first")
    queues.submit("upgrade-second")
    queues.wait_for("upgrade-second", "QuotaReserved", "False")
    for plural in plurals:
        assert old in etcd_versions(plane, plural), plural
    # The upgrade: no converter runs until the new manager does.
    for replica in list(running.replicas):
        running.end(replica)
    store_as(plane, "v1beta2", plurals)
    running.start_replica()
    assert queues.admitted() == {"upgrade-first"}
    found = plane.call("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/upgrade")
    assert found["spec"]["cohortName"] == "old-times"
    jobs.finish("upgrade-first")
    queues.wait_running("upgrade-second")
    # Rewriting each object, as docs/use/install.md says.
    for plural in plurals:
        until(lambda plural=plural: rewritten(plane, plural), f"{plural} rewritten")
        assert etcd_versions(plane, plural) == {new}, plural
        patch = json.dumps({"status": {"storedVersions": ["v1beta2"]}})
        plane.kubectl(
            "patch", "crd", f"{plural}.kueue.x-k8s.io", "--subresource=status", "--type=merge", "-p", patch
        )
    jobs.finish("upgrade-second")
    queues.wait_for("upgrade-second", "Finished")


def rewritten(plane: Plane, plural: str) -> bool:
    """Whether every object could be written back as it was read; another may write in between."""
    objects = plane.kubectl("get", plural, "-A", "-o", "yaml")
    return plane.kubectl.run("replace", "-f", "-", stdin=objects).returncode == 0


def store_as(plane: Plane, version: str, plurals: tuple[str, ...]) -> None:
    for plural in plurals:
        crd: dict[str, Any] = plane.kubectl.get("crd", f"{plural}.kueue.x-k8s.io") or {}
        crd["metadata"].pop("managedFields", None)
        for one in crd["spec"]["versions"]:
            one["storage"] = one["name"] == version
        plane.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(crd))
