"""How much work a pod of a Job is to the cluster: counts that do not depend on the machine."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from pykueue.api.resources import JOBS, PODS
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.nodes.pool import parse_pools
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller

PODS_OF_JOB = 20
POOL = """
pools:
- name: node
  count: 5
  allocatable: {cpu: "8", memory: 16Gi, pods: "110"}
  simulation: {startDelay: 0s, runTime: 1m}
"""


@pytest.mark.interpreted
def test_work_for_a_pod_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are followed once by each component, and looked at by a kubelet when they start and end."""
    reconciled: Counter[str] = Counter()
    once = Controller._once

    async def counted(self: Controller[object], key: object) -> None:
        reconciled[self.name] += 1
        await once(self, key)

    monkeypatch.setattr(Controller, "_once", counted)

    async def main(clock: Clock) -> int:
        store = MemoryStore()
        pools = parse_pools(POOL)
        cluster = Cluster(clock=clock, rng=random.Random(1), pools=pools, pace=None, store=store)
        await cluster.start()
        running = asyncio.create_task(cluster.run())
        await cluster.synced()
        await clock.sleep(60)
        reconciled.clear()
        client = Client(cluster.transport("test"), clock=clock)
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job", "namespace": "default"},
            "spec": {"parallelism": PODS_OF_JOB, "completions": PODS_OF_JOB, "template": template},
        }
        await client.create(JOBS, job)
        await clock.sleep(300)
        pods = (await client.list(PODS, "default")).items
        assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * PODS_OF_JOB
        assert not any(pod["metadata"].get("finalizers") for pod in pods)
        watchers = store.table("/pods").watchers
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await cluster.stop()
        return watchers

    # The controllers and stand-in operators, the scheduler and the kubelets; of the manager one each for pods
    # of Jobs, for pods of Ray clusters and for pods that queue themselves.
    assert run_virtual(main) == 6
    assert reconciled["kubelet"] == 2 * PODS_OF_JOB
