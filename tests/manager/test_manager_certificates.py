"""Certificates over years, in virtual time: every client trusts the one it gets at all times."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from pykueue.api.crds import crds_with_webhook
from pykueue.api.resources import (
    API_SERVICES,
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.manager.certificates import authority
from pykueue.manager.certificates.managed import ManagedCertificates
from pykueue.manager.certificates.mounted import MountedCertificates
from pykueue.manager.configuration import parse
from pykueue.manager.install_names import InstallNames

Object = dict[str, Any]

NAMES = InstallNames.of(parse("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"))
HOST = "kueue-webhook-service.kueue-system.svc"
SECRET = ("kueue-webhook-server-cert", "kueue-system")
SERVICE = {"namespace": "kueue-system", "name": "kueue-webhook-service"}


class LateClock(Clock):
    """A clock that is set forward by days."""

    def jump(self, span: timedelta) -> None:
        assert self._epoch is not None
        self._epoch += span.total_seconds()


class Holder:
    """A replica: what it serves with."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.managed = ManagedCertificates(client, clock, NAMES, lambda *pair: self.pairs.append(pair))
        self.task = asyncio.create_task(self.managed.run())

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.pairs[-1][0])

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _is_called(crd: Object, kind: str) -> bool:
    return bool(crd["spec"]["names"]["kind"] == kind)


class Cluster:
    """An API server with what an installation registers, and replicas on it."""

    def __init__(self, clock: LateClock) -> None:
        self.clock = clock
        self.server = Server(MemoryStore(), clock, random.Random(1))
        self.client = Client(self.server.transport(), clock=clock)
        self.replicas: list[Holder] = []

    async def start(self) -> None:
        await self.server.start()
        service = {**SERVICE, "path": "/convert"}
        definitions = crds_with_webhook({"service": service})
        (needed,) = (one["spec"]["conversion"] for one in definitions if _is_called(one, "Workload"))
        # Kueue's chart has kinds converted that do not need it, and taking over the definition leaves that.
        taken_over = [
            {**one, "spec": {**one["spec"], "conversion": needed}} if _is_called(one, "Topology") else one
            for one in definitions
        ]
        await self.server.install_crds(taken_over)
        await self.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        )

    async def install(self) -> None:
        """The objects that must trust the manager, as manifests hold them."""
        foreign = {"name": "other", "namespace": "kueue-system"}
        for resource, name in (
            (MUTATING_WEBHOOKS, NAMES.mutating_configuration),
            (VALIDATING_WEBHOOKS, NAMES.validating_configuration),
        ):
            hooks = [
                {
                    "name": f"{each['name']}.example.com",
                    "clientConfig": {"service": each},
                    "rules": [],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
                for each in (SERVICE, foreign)
            ]
            obj = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": name},
                "webhooks": hooks,
            }
            await self.client.create(resource, obj)
        for name in NAMES.api_services:
            version, _, group = name.partition(".")
            spec = {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {"namespace": "kueue-system", "name": "kueue-visibility-server"},
            }
            service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
            await self.client.create(API_SERVICES, {**service, "metadata": {"name": name}, "spec": spec})

    def replica(self) -> Holder:
        self.replicas.append(Holder(self.client, self.clock))
        return self.replicas[-1]

    async def bundles(self) -> dict[str, bytes]:
        """What everybody trusts who calls the manager."""
        found: dict[str, str] = {}
        for resource, name in (
            (MUTATING_WEBHOOKS, NAMES.mutating_configuration),
            (VALIDATING_WEBHOOKS, NAMES.validating_configuration),
        ):
            ours, foreign = (await self.client.get(resource, name))["webhooks"]
            found[name] = ours["clientConfig"].get("caBundle", "")
            assert "caBundle" not in foreign["clientConfig"]
        for name in ("workloads.kueue.x-k8s.io", "topologies.kueue.x-k8s.io"):
            crd = await self.client.get(CRDS, name)
            found[name] = crd["spec"]["conversion"]["webhook"]["clientConfig"].get("caBundle", "")
        for name in NAMES.api_services:
            spec = (await self.client.get(API_SERVICES, name))["spec"]
            assert "insecureSkipTLSVerify" not in spec or not spec.get("caBundle")
            found[name] = spec.get("caBundle", "")
        return {name: base64.b64decode(bundle) for name, bundle in found.items()}

    async def check(self) -> None:
        """Everybody trusts every replica now."""
        now = self.clock.now()
        for where, bundle in (await self.bundles()).items():
            store = Store(x509.load_pem_x509_certificates(bundle))
            verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(HOST))
            for replica in self.replicas:
                try:
                    verifier.verify(replica.certificate, [])
                except VerificationError as error:
                    raise AssertionError(f"{now}: {where}: {error}") from error

    async def secret(self) -> Object:
        return await self.client.get(SECRETS, *SECRET)

    async def authorities(self) -> list[x509.Certificate]:
        data = (await self.secret())["data"]
        return x509.load_pem_x509_certificates(base64.b64decode(data["ca.crt"]))


def story(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main(clock: Clock) -> None:
        assert clock._epoch is not None
        cluster = Cluster(LateClock(clock._epoch))
        await cluster.start()
        try:
            await test(cluster)
        finally:
            for replica in cluster.replicas:
                await replica.stop()
            await cluster.server.stop()

    run_virtual(main)


def test_two_replicas_that_start_together_serve_one_certificate_that_all_trust() -> None:
    async def test(c: Cluster) -> None:
        await c.install()
        first, second = c.replica(), c.replica()
        await c.clock.sleep(1)
        assert first.pairs[-1] == second.pairs[-1]
        assert len(set((await c.bundles()).values())) == 1
        await c.check()
        names = first.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "kueue-visibility-server.kueue-system.svc" in names.get_values_for_type(x509.DNSName)

    story(test)


def test_objects_installed_later_or_again_get_the_ca_bundle() -> None:
    async def test(c: Cluster) -> None:
        c.replica()
        await c.clock.sleep(600)
        await c.install()
        await c.clock.sleep(61)
        await c.check()
        name = NAMES.mutating_configuration
        stored = await c.client.get(MUTATING_WEBHOOKS, name)
        for hook in stored["webhooks"]:
            hook = hook["clientConfig"].pop("caBundle", None)
        await c.client.update(MUTATING_WEBHOOKS, stored)
        await c.clock.sleep(61)
        await c.check()

    story(test)


def test_clients_trust_the_certificate_at_all_times_for_twelve_years() -> None:
    async def test(c: Cluster) -> None:
        await c.install()
        first, second = c.replica(), c.replica()
        authorities: set[int] = set()
        await c.clock.sleep(1)
        for _ in range(12 * 365 // 60):
            await c.check()
            c.clock.jump(timedelta(days=60))
            # The replica that checks first renews; the other loads the result at its next check.
            await c.clock.sleep(130)
            authorities.update(found.serial_number for found in await c.authorities())
        await c.check()
        assert first.pairs == second.pairs
        assert len(first.pairs) in range(13, 18)
        assert len(authorities) == 2

    story(test)


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_after() -> None:
    async def test(c: Cluster) -> None:
        await c.install()
        c.replica()
        await c.clock.sleep(1)
        # Renewed in time every year, until the authority's last year begins.
        due = (await c.authorities())[0].not_valid_after_utc - timedelta(days=365, minutes=5)
        while c.clock.now() < due:
            c.clock.jump(min(timedelta(days=200), due - c.clock.now()))
            await c.clock.sleep(61)
        replica = c.replica()
        states: list[tuple[int, bool]] = []
        for _ in range(200):
            await c.clock.sleep(60)
            await c.check()
            newest = (await c.authorities())[0]
            signed = replica.certificate.issuer == newest.subject
            try:
                replica.certificate.verify_directly_issued_by(newest)
            except Exception:
                signed = False
            state = (len(await c.authorities()), signed)
            if not states or states[-1] != state:
                states.append(state)
        # Alone, announced, in use, and the old one forgotten.
        assert states == [(1, True), (2, False), (2, True), (1, True)]

    story(test)


def test_a_deleted_secret_comes_back_as_it_was() -> None:
    async def test(c: Cluster) -> None:
        await c.install()
        first, second = c.replica(), c.replica()
        await c.clock.sleep(1)
        before = (await c.secret())["data"]
        await c.client.delete(SECRETS, *SECRET)
        await c.clock.sleep(130)
        assert (await c.secret())["data"] == before
        assert len(first.pairs) == len(second.pairs) == 1

    story(test)


def as_kueue_leaves_it() -> dict[str, str]:
    """RSA keys, and an authority whose serial number is 0, which RFC 5280 forbids and libraries warn of."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca")])
    years = datetime(2025, 1, 1, tzinfo=UTC), datetime(2035, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, *years)
    der = builder.sign(key, SHA256()).public_bytes(Encoding.DER)
    version = b"\xa0\x03\x02\x01\x02"
    der = der.replace(version + b"\x02\x01\x01", version + b"\x02\x01\x00")
    certificate = ssl.DER_cert_to_PEM_cert(der).encode()
    data = {"ca.crt": certificate, "ca.key": pem, "tls.crt": certificate, "tls.key": pem}
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


@pytest.mark.parametrize(
    "data",
    [{"ca.crt": "AAAA", "more": "AAAA"}, {"tls.crt": "not base64 !"}, {}, as_kueue_leaves_it()],
    ids=["others", "broken", "empty", "of Kueue"],
)
def test_a_secret_that_holds_something_else_is_filled(data: dict[str, str]) -> None:
    async def test(c: Cluster) -> None:
        await c.install()
        metadata = {"name": SECRET[0], "namespace": SECRET[1]}
        valid = {key: value for key, value in data.items() if "!" not in value}
        await c.client.create(
            SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": valid}
        )
        c.replica()
        await c.clock.sleep(1)
        await c.check()
        found = (await c.secret())["data"]
        assert {"ca.crt", "ca.key", "tls.crt", "tls.key"} <= found.keys()
        assert found.get("more") == valid.get("more")

    story(test)


def test_without_the_api_server_the_certificate_stays_and_work_goes_on_after() -> None:
    async def test(c: Cluster) -> None:
        await c.install()
        down = True

        class Cut:
            async def call(self, request: Request) -> Any:
                if down:
                    raise ConnectionError("cut")
                return await c.server.transport().call(request)

        replica = Holder(Client(Cut(), clock=c.clock), c.clock)  # type: ignore[arg-type]
        c.replicas.append(replica)
        await c.clock.sleep(600)
        assert replica.pairs == []
        down = False
        await c.clock.sleep(61)
        await c.check()

    story(test)


def test_names_that_changed_are_in_the_certificate_at_once() -> None:
    async def main(clock: Clock) -> None:
        now = clock.now()
        material = authority.made(["a.svc"], now)
        assert authority.renewed(material, ["a.svc"], now, True) is material
        changed = authority.renewed(material, ["b.svc"], now, False)
        assert changed.authorities == material.authorities
        assert changed.certificate != material.certificate
        read = authority.read(changed.data())
        assert read is not None
        assert read.data() == changed.data()
        late = now + timedelta(days=4000)
        assert authority.renewed(material, ["a.svc"], late, True).authorities != material.authorities

    run_virtual(main)


def test_two_creators_of_the_secret_agree() -> None:
    """Both find no Secret, both create it: the one who is late takes over what it finds."""

    async def test(c: Cluster) -> None:
        inner, gate = c.server.transport(), asyncio.Event()

        class Slow:
            def __init__(self, wait: bool) -> None:
                self.wait = wait

            async def call(self, request: Request) -> Any:
                if request.method == "POST" and self.wait:
                    await gate.wait()
                answer = await inner.call(request)
                if request.method == "POST":
                    gate.set()
                return answer

        holders = [Holder(Client(Slow(wait), clock=c.clock), c.clock) for wait in (True, False)]  # type: ignore[arg-type]
        c.replicas.extend(holders)
        await c.clock.sleep(5)
        assert holders[0].pairs == holders[1].pairs
        assert len(holders[0].pairs) == 1

    story(test)


def test_a_mounted_certificate_is_read_again_when_it_changes(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        pairs: list[tuple[bytes, bytes]] = []
        task = asyncio.create_task(MountedCertificates(tmp_path, clock, lambda *p: pairs.append(p)).run())
        await clock.sleep(30)
        assert pairs == []
        for number in (1, 2):
            (tmp_path / "tls.crt").write_bytes(b"certificate %d" % number)
            (tmp_path / "tls.key").write_bytes(b"key %d" % number)
            await clock.sleep(30)
        (tmp_path / "tls.key").unlink()
        await clock.sleep(30)
        assert pairs == [(b"certificate 1", b"key 1"), (b"certificate 2", b"key 2")]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main)


def test_managed_certificates_access_one_secret_by_name_only() -> None:
    """The Secret is written by name only: no other Secret is ever read, listed or watched."""

    async def test(c: Cluster) -> None:
        seen: set[tuple[str, str]] = set()
        inner = c.server.transport()

        class Noted:
            async def call(self, request: Request) -> Any:
                seen.add((request.method, request.path))
                return await inner.call(request)

        await c.install()
        holder = Holder(Client(Noted(), clock=c.clock), c.clock)  # type: ignore[arg-type]
        c.replicas.append(holder)
        await c.clock.sleep(200)
        path = SECRETS.path("kueue-system", SECRET[0])
        secrets = {(method, found) for method, found in seen if "/secrets" in found}
        assert secrets == {("GET", path), ("POST", SECRETS.path("kueue-system"))}

    story(test)


def test_a_refused_secret_does_not_end_the_replica() -> None:
    async def test(c: Cluster) -> None:
        class Forbidding:
            async def call(self, request: Request) -> Any:
                raise ApiError(403, "Forbidden", "forbidden")

        holder = Holder(Client(Forbidding(), clock=c.clock), c.clock)  # type: ignore[arg-type]
        await c.clock.sleep(300)
        assert not holder.task.done()
        await holder.stop()

    story(test)
