"""The manager's servers, used by the API server, a scraper, a kubelet and a malicious client."""

from __future__ import annotations

import asyncio
import gzip
import io
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp
import pytest
import uvloop
from manager_replica import HOST, Running, configured, with_replica
from manager_stack import job

from pykueue.api.resources import MUTATING_WEBHOOKS, RESOURCE_FLAVORS, WORKLOADS, Resource
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.serving import listener, reviews, servers
from pykueue.manager.webhooks import Registration

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u", "operation": "CREATE", "object": job("a")},
}
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "cq"},
    "spec": {"cohortName": "all"},
}
MUTATE = "/mutate-batch-v1-job"


def conversion(*objects: Any, version: str = "kueue.x-k8s.io/v1beta1") -> dict[str, Any]:
    request = {"uid": "u", "desiredAPIVersion": version, "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def test_probes_reviews_and_conversions_are_answered() -> None:
    async def test(r: Running) -> None:
        assert (await r.get("health", "/healthz"))[0] == 200
        await r.replica.manager.synced()
        assert (await r.get("health", "/readyz"))[0] == 200
        code, review = await r.post(MUTATE, json=REVIEW)
        assert (code, review["response"]["patchType"]) == (200, "JSONPatch")
        code, there = await r.post("/convert", json=conversion(QUEUE))
        (old,) = there["response"]["convertedObjects"]
        assert (code, old["spec"]["cohort"]) == (200, "all")
        _, back = await r.post("/convert", json=conversion(old, version="kueue.x-k8s.io/v1beta2"))
        assert back["response"]["convertedObjects"][0]["spec"] == QUEUE["spec"]
        _, failed = await r.post("/convert", json=conversion(QUEUE, version="kueue.x-k8s.io/v9"))
        assert failed["response"]["result"]["status"] == "Failure"
        assert failed["response"]["uid"] == "u"

    with_replica(test)


def test_a_replica_that_leaves_is_not_ready_any_more() -> None:
    async def test(r: Running) -> None:
        await r.replica.manager.synced()
        r.replica.serving.leave()
        assert (await r.get("health", "/readyz"))[0] == 503
        assert (await r.get("health", "/healthz"))[0] == 200

    with_replica(test)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"data": b"{", "headers": {"Content-Type": "application/json"}}, 400),
        ({"data": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}, 400),
        ({"data": b"[]", "headers": {"Content-Type": "application/json"}}, 400),
        ({"json": {"kind": "AdmissionReview"}}, 400),
        ({"json": {**REVIEW, "kind": "Pod"}}, 400),
        ({"json": {**REVIEW, "request": {"uid": "u"}}}, 400),
        ({"json": {**REVIEW, "request": {"uid": 7, "object": {}}}}, 400),
        ({"json": {**REVIEW, "request": {"uid": "u", "object": 3}}}, 400),
        ({"data": b"<a/>", "headers": {"Content-Type": "application/xml"}}, 415),
        (
            {
                "data": gzip.compress(b"{}"),
                "headers": {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            },
            415,
        ),
    ],
)
def test_body_that_is_no_review_is_rejected_with_a_status(arguments: dict[str, Any], code: int) -> None:
    async def test(r: Running) -> None:
        await r.replica.manager.synced()
        found, status = await r.post(MUTATE, **arguments)
        assert (found, status["kind"], status["code"]) == (code, "Status", code)
        assert "Traceback" not in status["message"]
        # The server goes on.
        assert (await r.post(MUTATE, json=REVIEW))[0] == 200

    with_replica(test)


@pytest.mark.parametrize(("error", "code"), [(KeyError("spec"), 400), (RuntimeError("secret"), 500)])
def test_failing_rule_is_answered_with_a_status_without_traceback(error: Exception, code: int) -> None:
    async def review(body: dict[str, Any]) -> dict[str, Any]:
        raise error

    async def synced() -> None:
        return None

    async def main() -> None:
        hook = Registration("h", True, [], review, None, None, MUTATE)
        server = listener.Listener(reviews.Reviews([hook], synced).handlers("/convert"), "POST")
        await server.open("127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.port}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}{MUTATE}", json=REVIEW) as answer,
        ):
            text = await answer.text()
            assert (answer.status, "Traceback" in text, "secret" in text) == (code, False, False)
        await server.close()

    asyncio.run(main())


def test_a_body_that_is_too_large_is_refused_by_its_length() -> None:
    async def test(r: Running) -> None:
        body = io.BytesIO(b" " * (reviews.REVIEW_LIMIT + 1))
        code, status = await r.post(MUTATE, data=body, headers={"Content-Type": "application/json"})
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge")

    with_replica(test)


def test_a_body_without_a_length_is_cut_off_at_the_limit() -> None:
    async def test(r: Running) -> None:
        async def endless() -> Any:
            for _ in range(reviews.REVIEW_LIMIT // 65536 + 2):
                yield b" " * 65536

        code, status = await r.post(MUTATE, data=endless(), headers={"Content-Type": "application/json"})
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge")

    with_replica(test)


def test_webhooks_of_kinds_that_are_not_queued_allow_every_request() -> None:
    """Webhooks that were applied for another configuration are still called; Kueue allows there, too."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    }
    asked = {**REVIEW, "request": {"uid": "u", "operation": "CREATE", "object": pod}}

    async def test(r: Running) -> None:
        for path in ("/mutate--v1-pod", "/validate--v1-pod", "/validate-apps-v1-statefulset"):
            code, review = await r.post(path, json=asked)
            assert (code, review["response"]) == (200, {"uid": "u", "allowed": True})
        assert (await r.post("/mutate--v1-pod", json={"kind": "Pod"}))[0] == 400

    with_replica(test)


def test_unknown_paths_and_methods_are_refused_with_a_status() -> None:
    async def test(r: Running) -> None:
        code, status = await r.post("/nothing", json=REVIEW)
        assert (code, status["reason"]) == (404, "NotFound")
        assert (await r.get("health", MUTATE))[0] == 404

    with_replica(test)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("sent", [b"", b"POST /convert HTTP/1.1\r\nHost: x\r\n"])
def test_idle_client_is_disconnected(
    sent: bytes, loop: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEAD_TIME", 0.1)

    async def test(r: Running) -> None:
        port = r.replica.serving.ports["webhooks"]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=await r.trust(), server_hostname=HOST
        )
        writer.write(sent)
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    with_replica(test, loop=loop)


def test_client_that_does_not_send_its_body_gets_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "BODY_TIME", 0.1)

    async def test(r: Running) -> None:
        port = r.replica.serving.ports["webhooks"]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=await r.trust(), server_hostname=HOST
        )
        head = f"POST {MUTATE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        assert b" 408 " in await reader.readline()
        writer.close()

    with_replica(test)


def test_bodies_wait_for_the_shared_limit_and_release_it() -> None:
    async def main() -> None:
        bodies = reviews.Bodies(10)
        inside: list[str] = []

        async def take(name: str, size: int, go: asyncio.Event) -> None:
            await bodies.take(size)
            inside.append(name)
            await go.wait()
            bodies.give_back(size)

        first, second = asyncio.Event(), asyncio.Event()
        a = asyncio.create_task(take("a", 8, first))
        await asyncio.sleep(0)
        b = asyncio.create_task(take("b", 4, second))
        given_up = asyncio.create_task(take("c", 10, second))
        d = asyncio.create_task(take("d", 2, second))
        await asyncio.sleep(0)
        assert inside == ["a"]
        given_up.cancel()
        first.set()
        await a
        await asyncio.sleep(0)
        second.set()
        await asyncio.gather(b, d)
        assert inside == ["a", "b", "d"]
        await bodies.take(10)

    asyncio.run(main())


def test_large_announced_bodies_that_are_not_sent_block_no_other_client() -> None:
    async def test(r: Running) -> None:
        await r.replica.manager.synced()
        port, head = r.replica.serving.ports["webhooks"], f"POST {MUTATE} HTTP/1.1\r\nHost: x\r\n"
        idle = []
        for _ in range(2 * reviews.ALL_BODIES // reviews.REVIEW_LIMIT):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=await r.trust(), server_hostname=HOST
            )
            size = reviews.REVIEW_LIMIT
            writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode())
            await writer.drain()
            idle.append(writer)
        assert (await r.post(MUTATE, json=REVIEW))[0] == 200
        for writer in idle:
            writer.close()

    with_replica(test)


class Held:
    """A way to the API server on which lists do not come back until it is opened."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.open = asyncio.Event()

    async def call(self, request: Request) -> Any:
        if request.path == WORKLOADS.path():
            await self.open.wait()
        return await self.inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self.inner.watch(request)

    async def close(self) -> None:
        await self.inner.close()


def test_a_review_waits_until_the_cluster_is_known_and_a_conversion_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[Held] = []

    def hold(inner: Transport) -> Transport:
        held.append(Held(inner))
        return held[0]

    async def test(r: Running) -> None:
        assert (await r.post(f"{MUTATE}?timeout=1050ms", json=REVIEW))[0] == 503
        assert (await r.get("health", "/readyz"))[0] == 503
        assert (await r.post("/convert", json=conversion(QUEUE)))[0] == 200
        # What it waits for may be objects that only a ready replica is asked to convert.
        monkeypatch.setattr(servers, "READY_ANYWAY", 0.0)
        assert (await r.get("health", "/readyz"))[0] == 200
        waiting = asyncio.create_task(r.post(MUTATE, json=REVIEW))
        await asyncio.sleep(0)
        held[0].open.set()
        assert (await waiting)[0] == 200

    with_replica(test, wrap=hold)


def test_metrics_require_authorization_by_the_api_server() -> None:
    async def test(r: Running) -> None:
        assert (await r.scrape())[0] == 401
        assert (await r.scrape("unknown"))[0] == 401
        accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
        for name in ("reader", "stranger"):
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": "default"},
            }
            await r.client.create(accounts, account)
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        group = "rbac.authorization.k8s.io"
        role = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "metrics-reader"},
            "rules": rules,
        }
        await r.client.create(Resource(group, "v1", "clusterroles", "ClusterRole", False), role)
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "metrics-reader"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        }
        bindings = Resource(group, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
        await r.client.create(bindings, binding)

        async def token(name: str) -> str:
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {},
                "metadata": {"name": name, "namespace": "default"},
            }
            answer = await r.client.create(accounts, request, subresource="token", name=name)
            return str(answer["status"]["token"])

        code, text = await r.scrape(await token("reader"))
        assert (code, "kueue_build_info" in text) == (200, True)
        code, text = await r.scrape(await token("stranger"))
        assert (code, "system:serviceaccount:default:stranger" in text) == (403, True)

    with_replica(test)


def test_api_server_reaches_the_webhooks_through_their_service_and_trusts_the_certificate() -> None:
    async def test(r: Running) -> None:
        ports = r.replica.serving.ports
        r.server.services.known["kueue-system/kueue-webhook-service"] = ("127.0.0.1", ports["webhooks"])
        hook = next(h for h in r.replica.manager.webhooks() if h.name == "mresourceflavor.kb.io")
        service = {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": hook.path}
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "kueue-mutating-webhook-configuration"},
            "webhooks": [
                {
                    "name": hook.name,
                    "rules": hook.rules,
                    "clientConfig": {"service": service},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
        await r.client.create(MUTATING_WEBHOOKS, configuration)
        name = configuration["metadata"]["name"]  # type: ignore[index]
        while True:
            stored = await r.client.get(MUTATING_WEBHOOKS, name)
            if stored["webhooks"][0]["clientConfig"].get("caBundle"):
                break
            await asyncio.sleep(0.1)
        flavor = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "f"},
        }
        created = await r.client.create(RESOURCE_FLAVORS, flavor)
        assert created["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

    with_replica(test)


def test_tls_is_as_strict_as_configured() -> None:
    async def test(r: Running) -> None:
        async def connect(**limits: Any) -> str:
            context = await r.trust()
            for name, value in limits.items():
                setattr(context, name, value)
            port = r.replica.serving.ports["webhooks"]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)
            cipher = writer.get_extra_info("cipher")[0]
            writer.close()
            return str(cipher)

        assert await connect(maximum_version=ssl.TLSVersion.TLSv1_2) == "ECDHE-ECDSA-AES256-GCM-SHA384"

    with_replica(
        test,
        "tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384],"
        " curvePreferences: [4588, 24]}\n",
    )

    async def modern(r: Running) -> None:
        context = await r.trust()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        port = r.replica.serving.ports["webhooks"]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)

    with_replica(modern, "tls: {minVersion: VersionTLS13}\n")


def test_unknown_tls_names_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"tls.cipherSuites\[0\]: .*RC4"):
        configured("tls: {cipherSuites: [TLS_RSA_WITH_RC4_128_SHA]}\n")
    with pytest.raises(ConfigurationError, match=r"tls.curvePreferences\[0\]: 1 is not accepted"):
        configured("tls: {curvePreferences: [1]}\n")


def test_profiles_are_taken_only_where_an_address_is_given() -> None:
    async def off(r: Running) -> None:
        assert "profiling" not in r.replica.serving.ports

    with_replica(off)

    async def on(r: Running) -> None:
        code, text = await r.get("profiling", "/debug/pprof/")
        assert (code, "/debug/pprof/heap" in text) == (200, True)
        _, stacks = await r.get("profiling", "/debug/pprof/goroutine?debug=2")
        assert "scheduler/loop.py" in stacks
        code, profile = await r.get("profiling", "/debug/pprof/profile?seconds=0.01&sort=cumulative")
        assert (code, "cumulative" in profile) == (200, True)
        assert (await r.get("profiling", "/debug/pprof/profile?seconds=1e9"))[0] == 400
        assert (await r.get("profiling", "/debug/pprof/heap"))[0] == 503
        await r.get("profiling", "/debug/pprof/heap?action=start")
        code, held = await r.get("profiling", "/debug/pprof/heap")
        assert (code, held.startswith("held ")) == (200, True)
        await r.get("profiling", "/debug/pprof/heap?action=stop")

    with_replica(on, 'pprofBindAddress: "127.0.0.1:0"\n')
