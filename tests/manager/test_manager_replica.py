"""A replica as a whole: what it says at the start, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest
from manager_replica import Running, configured, with_replica

from pykueue.api.crds import crds
from pykueue.api.resources import LEASES, NAMESPACES
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.shutdown import DrainingTransport
from pykueue.kube.transport import Request
from pykueue.manager.manager import without_effect
from pykueue.manager.replica import CacheSyncError, Replica


def test_settings_without_effect_are_reported() -> None:
    found = list(
        without_effect(
            configured(
                "integrations: {frameworks: [batch/job, sparkoperator.k8s.io/sparkapplication]}\n"
                "featureGates: {SparkApplicationIntegration: false}\n"
            )
        )
    )
    assert found == [
        "integrations.frameworks[1]: sparkoperator.k8s.io/sparkapplication is switched off by "
        "featureGates.SparkApplicationIntegration",
    ]
    assert list(without_effect(configured())) == []


def test_the_namespace_is_made_where_there_is_none() -> None:
    async def test(r: Running) -> None:
        assert await r.client.get(NAMESPACES, "kueue-system")

    with_replica(test)


def test_a_cluster_that_cannot_be_read_in_time_ends_the_replica() -> None:
    async def main(clock: Clock) -> None:
        # Without its kinds the cluster cannot be read.
        server = Server(MemoryStore(), clock, random.Random(1))
        await server.start()
        text = "controller: {cacheSyncTimeout: 40s}\n"
        replica = Replica(server.transport(), configured(text), clock, random.Random(1))
        with pytest.raises(CacheSyncError, match="within 40 s"):
            await replica.run()
        assert asyncio.get_running_loop().time() == pytest.approx(40, abs=1)
        await server.stop()

    run_virtual(main)


def test_the_lease_is_free_when_a_replica_has_ended_in_order() -> None:
    async def main(clock: Clock) -> None:
        server = Server(MemoryStore(), clock, random.Random(1))
        await server.start()
        await server.install_crds(crds())
        text = "leaderElection: {leaderElect: true}\n"
        replica = Replica(server.transport(), configured(text), clock, random.Random(1))
        running = asyncio.create_task(replica.run())
        await clock.sleep(5)
        assert replica.leads
        scrape = replica.manager.metrics.text().decode()
        assert 'leader_election_master_status{name="c1f6bfd2.kueue.x-k8s.io"} 1.0' in scrape
        replica.dump()
        replica.stop()
        await running
        lease = await Client(server.transport()).get(LEASES, "c1f6bfd2.kueue.x-k8s.io", "kueue-system")
        assert lease["spec"]["holderIdentity"] == ""
        assert not replica.leads
        await server.stop()

    run_virtual(main)


def test_dump_names_kinds_that_the_cluster_does_not_serve(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykueue.manager.replica")

    async def main(clock: Clock) -> None:
        server = Server(MemoryStore(), clock, random.Random(1))
        await server.start()
        await server.install_crds(crds())
        text = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}\n"
        replica = Replica(server.transport(), configured(text), clock, random.Random(1))
        running = asyncio.create_task(replica.run())
        await clock.sleep(5)
        replica.dump()
        replica.stop()
        await running
        await server.stop()

    run_virtual(main)
    found = [text for text in caplog.messages if text.startswith("not served by the cluster")]
    assert found == [
        "not served by the cluster: autoscaling.x-k8s.io/v1 ProvisioningRequest",
        "not served by the cluster: jobset.x-k8s.io/v1alpha2 JobSet",
    ]


def test_shutdown_completes_writes_in_flight_and_starts_no_other() -> None:
    async def main(clock: Clock) -> None:
        done: list[str] = []

        class Slow:
            async def call(self, request: Request) -> Any:
                await clock.sleep(1)
                done.append(request.path)

        transport = DrainingTransport(Slow())  # type: ignore[arg-type]
        first = asyncio.create_task(transport.call(Request("PATCH", "/first")))
        await clock.sleep(0.5)
        draining = asyncio.create_task(transport.drain(3))
        await clock.sleep(0)
        second = asyncio.create_task(transport.call(Request("PATCH", "/second")))
        await transport.call(Request("GET", "/read"))
        assert await draining
        await first
        await clock.sleep(10)
        assert sorted(done) == ["/first", "/read"]
        assert not second.done()
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    run_virtual(main)


def test_shutdown_waits_for_a_hanging_write_no_longer_than_its_timeout() -> None:
    async def main(clock: Clock) -> None:
        class Never:
            async def call(self, request: Request) -> Any:
                await asyncio.get_running_loop().create_future()

        transport = DrainingTransport(Never())  # type: ignore[arg-type]
        write = asyncio.create_task(transport.call(Request("POST", "/x")))
        await clock.sleep(0)
        assert await transport.drain(3) is False
        assert asyncio.get_running_loop().time() == 3
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)

    run_virtual(main)
