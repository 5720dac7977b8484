"""A real control plane on loopback: etcd and kube-apiserver as processes, and what is needed to talk to them.

RBAC is enforced, ServiceAccounts have tokens, aggregation is configured, requests are recorded in an audit
log. There are no other controllers: tests play those they need.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

T = TypeVar("T")

#: A bound on how long a step may take before the test gives up; nothing is asserted about it.
PATIENCE = 60.0
#: Seconds between two looks at a condition.
INTERVAL = 0.1


def until(look: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """What `look` returns as soon as it is true; AssertionError naming `what` when that takes too long."""
    end = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {patience:g} s"
        time.sleep(INTERVAL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_address() -> str:
    """An address of this host that is not loopback: what Endpoints may name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; the address need not exist
        address: str = probe.getsockname()[0]
        return address


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._build(subject, subject, self._key, True, ())
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """Certificate and key files of a user, or of a server for these hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        certificate = self._build(subject, self._certificate.subject, key, False, hosts)
        stem = self._folder / f"{self._name}-{user.replace(':', '-')}"
        files = stem.with_suffix(".crt"), stem.with_suffix(".key")
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(private(key))
        return files

    def _build(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        authority: bool,
        hosts: Sequence[str],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
            for host in hosts
        ]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if authority:
            builder = builder.add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
            )
        else:
            issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer_key, False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        return builder.sign(self._key, hashes.SHA256())


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def now() -> str:
    """The time as the API server writes it in its audit log."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Process:
    """A program with its output in a file, that can be killed and started again."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self._environment = environment
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._running = subprocess.Popen(
                self.command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=self._environment
            )

    @property
    def pid(self) -> int:
        """The number of the running process."""
        assert self._running is not None
        return self._running.pid

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._running is not None and self._running.poll() is not None

    def check(self) -> None:
        """Fail with the end of its log when it has ended by itself."""
        if self.has_ended:
            assert self._running is not None
            tail = "\n".join(self.text().splitlines()[-20:])
            raise AssertionError(f"{self.command[0]} ended with {self._running.returncode}:\n{tail}")

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """As the machine's power switch would."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def tell_to_end(self) -> None:
        if self._running is not None:
            self._running.terminate()

    def stop(self) -> int:
        """As a kubelet would; the exit code."""
        self.tell_to_end()
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended after a signal; the exit code."""
        if self._running is None:
            return 0
        try:
            code = self._running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.command[0]} does not end after a signal") from None
        self._running = None
        return code


class Plane:
    """etcd and kube-apiserver, with further options of the latter, and an administrator's kubectl."""

    def __init__(self, assets: Path, folder: Path, *options: str) -> None:
        self.folder = folder
        self.authority = Authority(folder, "cluster-ca")
        front = Authority(folder, "front-proxy-ca")
        proxy = front.issue("front-proxy-client")
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        serving = self.authority.issue("kube-apiserver", hosts=("127.0.0.1", "localhost"))
        self.admin = self.authority.issue("admin", groups=("system:masters",))
        account_key = folder / "service-accounts.key"
        account_key.write_bytes(private(ec.generate_private_key(ec.SECP256R1())))
        policy = folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        self.audit_log = folder / "audit.log"
        #: When it was away, from the kill until it was ready again.
        self._away: list[tuple[str, str]] = []
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        peer_url = f"http://127.0.0.1:{free_port()}"
        self.etcd = Process(
            [
                str(assets / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={self.etcd_url}",
                f"--advertise-client-urls={self.etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                # The store is thrown away with the test: nothing is lost by not waiting for the disk.
                "--unsafe-no-fsync",
            ],
            folder / "etcd.log",
        )
        self.apiserver = Process(
            [
                str(assets / "kube-apiserver"),
                f"--etcd-servers={self.etcd_url}",
                "--bind-address=127.0.0.1",
                f"--advertise-address={own_address()}",
                "--endpoint-reconciler-type=none",
                f"--secure-port={self.port}",
                f"--tls-cert-file={serving[0]}",
                f"--tls-private-key-file={serving[1]}",
                f"--client-ca-file={self.authority.file}",
                "--authorization-mode=RBAC",
                "--anonymous-auth=false",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={account_key}",
                f"--service-account-signing-key-file={account_key}",
                f"--requestheader-client-ca-file={front.file}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={proxy[0]}",
                f"--proxy-client-key-file={proxy[1]}",
                # There is no network of Services here: their endpoints are called directly.
                "--enable-aggregator-routing=true",
                # Some distributions have it on: then naming an owner needs a right as well.
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self.audit_log}",
                f"--cert-dir={folder}",
                *options,
            ],
            folder / "kube-apiserver.log",
        )
        self.kubectl = Kubectl(self.kubeconfig("admin", certificate=self.admin), folder / "home")
        self._context = ssl.create_default_context(cafile=str(self.authority.file))
        self._context.load_cert_chain(*map(str, self.admin))

    def start(self) -> None:
        self.etcd.start()
        self.apiserver.start()
        self.wait_ready()

    @contextlib.contextmanager
    def away(self, process: Process) -> Iterator[None]:
        """Without one of the two, killed, in the block; ready again after it."""
        begun = now()
        process.kill()
        yield
        process.start()
        self.wait_ready()
        self._away.append((begun, now()))

    def wait_ready(self) -> None:
        until(self._is_ready, "kube-apiserver ready")

    def _is_ready(self) -> bool:
        self.etcd.check()
        self.apiserver.check()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2, context=self._context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """The answer to a request of the administrator; urllib.error.HTTPError where it is refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": content})
        request.method = method
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE, context=self._context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.msg = error.read().decode(errors="replace")
            raise

    def stop(self) -> None:
        self.apiserver.kill()
        self.etcd.kill()

    def kubeconfig(
        self, user: str, *, token: str | None = None, certificate: tuple[Path, Path] | None = None
    ) -> Path:
        """A kubeconfig file of a user known by a token or a certificate."""
        credentials: dict[str, str] = {}
        if token is not None:
            credentials["token"] = token
        if certificate is not None:
            credentials["client-certificate"], credentials["client-key"] = map(str, certificate)
        file = self.folder / f"{user}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority.file)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        file.write_text(yaml.safe_dump(document))
        return file

    def requests_of(self, user: str) -> list[dict[str, Any]]:
        """The audit records of a user's requests.

        Those while it was starting are left out: it refuses until it has read its roles.
        """
        records = []
        for line in self.audit_log.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the line is being written
            at = record["requestReceivedTimestamp"]
            starting = any(begun <= at <= ready for begun, ready in self._away)
            if record["user"].get("username") == user and not starting:
                records.append(record)
        return records


_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


class Kubectl:
    """Runs kubectl with one kubeconfig."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def shell(self, commands: str, folder: Path) -> str:
        """The output of commands in a directory, up to the first failure."""
        here = Path(sys.executable).parent
        environment = {**self.environment, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-exc", commands],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str, stdin: str | None = None) -> str:
        """The error of a command that must fail."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} was accepted: {done.stdout}"
        return done.stderr

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """The object; None where there is none."""
        done = self.run("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None

    def list(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """The objects of a kind."""
        found: list[dict[str, Any]] = json.loads(self("get", kind, "-o", "json", *arguments))["items"]
        return found

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create the objects, or make them what is given."""
        self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(objects))


def assets() -> Path:
    """The folder of etcd and kube-apiserver; skips the test where there is none."""
    name = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not name:
        pytest.skip("KUBEBUILDER_ASSETS is not set: it names a folder with etcd and kube-apiserver")
    folder = Path(name)
    for program in ("etcd", "kube-apiserver"):
        if not (folder / program).exists():
            pytest.fail(f"KUBEBUILDER_ASSETS={name}: there is no {program} in it")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    return folder
