"""The visibility API of a replica: through a cluster's API server, directly, and by those who pretend."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from manager_replica import Running, running

from pykueue.api.resources import Resource
from pykueue.manager.install_names import VISIBILITY_GROUP as GROUP
from pykueue.manager.replica import Replica
from pykueue.web.visibility.server import VisibilityServer

CONFIGURATION = 'visibilityServer: {bindAddress: "127.0.0.1", bindPort: 0}'
SERVICE = "kueue-visibility-server"
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
PATH = f"/apis/{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"

Story = Callable[["Visible"], Awaitable[None]]


def of(resource: Resource, metadata: dict[str, Any], **content: Any) -> dict[str, Any]:
    """An object of a resource."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}


class Visible:
    """A replica whose visibility API is registered with the API server."""

    def __init__(self, replica: Running, server: VisibilityServer) -> None:
        self.replica, self.server = replica, server

    async def through(self, path: str, **headers: str) -> tuple[int, Any]:
        """What the API server answers to its administrator."""
        address = self.replica.address
        tls = ssl.create_default_context(cadata=address.ca.decode())
        sent = {"Authorization": f"Bearer {address.token}", **headers}
        async with self.replica._session.get(f"{address.url}{path}", headers=sent, ssl=tls) as answer:
            return answer.status, await answer.json()

    async def directly(self, path: str, identity: Path | None = None, **headers: str) -> tuple[int, Any]:
        """What the replica answers to a client that connects directly."""
        tls = await self.replica.trust()
        tls.check_hostname = False
        if identity is not None:
            tls.load_cert_chain(identity)
        url = f"https://127.0.0.1:{self.server.port}{path}"
        async with self.replica._session.get(url, headers=headers, ssl=tls) as answer:
            return answer.status, await answer.json()


def visible(story: Story) -> None:
    """Tell a story in real time."""

    async def main() -> None:
        made: list[VisibilityServer] = []

        def serve(replica: Replica) -> VisibilityServer:
            made.append(VisibilityServer(replica))
            return made[0]

        async with running(CONFIGURATION, servers=(serve,)) as replica:
            (server,) = made
            await server.started.wait()
            replica.server.services.known[f"kueue-system/{SERVICE}"] = ("127.0.0.1", server.port)
            await replica.client.create(CLUSTER_QUEUES, of(CLUSTER_QUEUES, {"name": "cq"}, spec={}))
            secret = await replica.client.get(
                Resource("", "v1", "secrets", "Secret", True), "kueue-webhook-server-cert", "kueue-system"
            )
            for version in ("v1beta1", "v1beta2"):
                spec = {
                    "group": GROUP,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "caBundle": secret["data"]["ca.crt"],
                    "service": {"namespace": "kueue-system", "name": SERVICE, "port": 443},
                }
                await replica.client.create(
                    API_SERVICES, of(API_SERVICES, {"name": f"{version}.{GROUP}"}, spec=spec)
                )
            await story(Visible(replica, server))

    asyncio.run(main())


async def available(world: Visible) -> None:
    """Wait until the API server found the replica, and the replica its ClusterQueue."""
    while (await world.through(PATH))[0] != 200:  # noqa: ASYNC110 (two parties have to take note)
        await asyncio.sleep(0.05)


def test_the_api_server_passes_requests_on() -> None:
    async def story(world: Visible) -> None:
        await available(world)
        code, summary = await world.through(PATH)
        assert (code, summary["kind"], summary["items"]) == (200, "PendingWorkloadsSummary", [])
        _, groups = await world.through("/apis")
        assert GROUP in [one["name"] for one in groups["groups"]]
        _, listed = await world.through(f"/apis/{GROUP}/v1beta1")
        assert "localqueues/pendingworkloads" in [one["name"] for one in listed["resources"]]
        _, index = await world.through("/openapi/v3")
        assert f"apis/{GROUP}/v1beta2" in index["paths"]
        code, described = await world.through(f"/openapi/v3/apis/{GROUP}/v1beta2")
        assert (code, described["openapi"]) == (200, "3.0.0")
        code, status = await world.through(PATH.replace("/cq/", "/none/"))
        assert (code, status["reason"]) == (404, "NotFound")
        code, status = await world.through(PATH, **{"Impersonate-User": "joe"})
        assert (code, status["reason"]) == (403, "Forbidden")

    visible(story)


def test_identity_headers_without_front_proxy_certificate_are_ignored() -> None:
    async def story(world: Visible) -> None:
        await available(world)
        forged = {"X-Remote-User": "kubernetes-admin", "X-Remote-Group": "system:masters"}
        assert (await world.directly(PATH, **forged))[0] == 401
        # A certificate of the same authority, but not the front proxy's.
        config = yaml.safe_load(world.replica.address.kubeconfig)["users"][0]["user"]
        identity = Path(world.replica.server._listeners[0]._directory) / "someone.pem"
        pair = [base64.b64decode(config[f"client-{part}-data"]) for part in ("certificate", "key")]
        identity.write_bytes(b"\n".join(pair))
        assert (await world.directly(PATH, identity, **forged))[0] == 401
        proxy = world.replica.server.services.identity
        assert (await world.directly(PATH, proxy, **forged))[0] == 200
        assert (await world.directly(PATH, proxy))[0] == 401
        # The aggregation layer itself names no groups; everybody may read what describes the API.
        aggregator = {"X-Remote-User": "system:aggregator"}
        assert (await world.directly("/openapi/v3", proxy, **aggregator))[0] == 200
        assert (await world.directly(f"/apis/{GROUP}/v1beta2", proxy, **aggregator))[0] == 200
        code, status = await world.directly(PATH, proxy, **{"X-Remote-User": "joe"})
        assert code == 403
        assert 'User "joe" cannot get resource "clusterqueues/pendingworkloads"' in status["message"]

    visible(story)


def test_bearer_tokens_are_checked_by_token_review() -> None:
    async def story(world: Visible) -> None:
        await available(world)
        token = world.replica.address.token
        assert (await world.directly(PATH, Authorization=f"Bearer {token}"))[0] == 200
        assert (await world.directly(PATH, Authorization="Bearer nonsense"))[0] == 401
        account = of(SERVICE_ACCOUNTS, {"name": "robot", "namespace": "default"})
        await world.replica.client.create(SERVICE_ACCOUNTS, account)
        path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
        tls = ssl.create_default_context(cadata=world.replica.address.ca.decode())
        async with world.replica._session.post(
            world.replica.address.url + path,
            json={"spec": {}},
            headers={"Authorization": f"Bearer {token}"},
            ssl=tls,
        ) as answer:
            issued = (await answer.json())["status"]["token"]
        code, status = await world.directly(PATH, Authorization=f"Bearer {issued}")
        assert code == 403
        assert "system:serviceaccount:default:robot" in status["message"]

    visible(story)
