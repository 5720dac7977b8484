"""`python -m bench.namespaces`: how long many namespaces deleted at once take, and what is kept of them.

`pykueue up` without its manager in a separate process, in real time. Each namespace has ConfigMaps and a Job
whose pods run. Rounds of the same size follow one another on one server: memory that grows from round to
round is not given back; the first round also loads modules.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import uvloop
from bench.apiserver.load import drive, request
from bench.apiserver.server import ServerProcess

OPTIONS = ("--only", "apiserver,kube", "--no-dashboard")
#: Seconds after which a round is given up.
PATIENCE = 900.0


def namespace_path(name: str = "") -> str:
    return f"/api/v1/namespaces/{name}".rstrip("/")


def creations(server: ServerProcess, names: list[str], config_maps: int, pods: int) -> Iterator[bytes]:
    for name in names:
        yield request(server, "POST", namespace_path(), orjson.dumps({"metadata": {"name": name}}))
    for name in names:
        for number in range(config_maps):
            body = {"metadata": {"name": f"m{number}"}, "data": {"text": "x" * 500}}
            yield request(server, "POST", f"{namespace_path(name)}/configmaps", orjson.dumps(body))
        container = {"name": "main", "image": "i", "command": ["sleep", "3600"]}
        spec = {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                }
            },
        }
        job = orjson.dumps({"metadata": {"name": "job"}, "spec": spec})
        yield request(server, "POST", f"/apis/batch/v1/namespaces/{name}/jobs", job)


def items(server: ServerProcess, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(server.read(path))["items"]
    return found


async def until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(is_so):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {PATIENCE:g} s")
        await asyncio.sleep(0.2)


async def play(server: ServerProcess, tag: str, options: argparse.Namespace) -> dict[str, Any]:
    """One round: create, wait until all pods exist, delete all namespaces, wait until none is left."""
    names = [f"{tag}-{number}" for number in range(options.namespaces)]

    def pods_exist() -> bool:
        pods = items(server, "/api/v1/pods")
        wanted = options.namespaces * options.pods
        return sum(1 for pod in pods if pod["spec"].get("nodeName")) >= wanted

    def gone() -> bool:
        return not any(one["metadata"]["name"] in names for one in items(server, namespace_path()))

    before = server.memory()
    created = await drive(server, creations(server, names, options.config_maps, options.pods), 8)
    await until("pods have nodes", pods_exist)
    full, cpu, start = server.memory(), server.cpu(), time.monotonic()
    deletions = (request(server, "DELETE", namespace_path(name)) for name in names)
    deleted = await drive(server, deletions, 8)
    if refused := created.refused + deleted.refused:
        raise RuntimeError(f"the server refused {refused} requests")
    await until("namespaces are gone", gone)
    return {
        "seconds": round(time.monotonic() - start, 1),
        "server_cpu": round(server.cpu() - cpu, 2),
        "memory_before_mb": round(before / 1e6),
        "memory_full_mb": round(full / 1e6),
        "memory_after_mb": round(server.memory() / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.namespaces", description=__doc__)
    parser.add_argument("--namespaces", type=int, default=50, help="deleted at once")
    parser.add_argument("--config-maps", type=int, default=40, help="in each namespace")
    parser.add_argument("--pods", type=int, default=2, help="of the Job in each namespace")
    parser.add_argument("--rounds", type=int, default=3, help="on the same server")
    parser.add_argument("--json", action="store_true", help="one JSON object for each round")
    options = parser.parse_args()
    with ServerProcess(options=OPTIONS) as server:
        for number in range(options.rounds):
            figures = uvloop.run(play(server, f"round-{number}", options))
            if options.json:
                print(json.dumps(figures), flush=True)
                continue
            print(
                f"round {number + 1}: {options.namespaces} namespaces gone after {figures['seconds']} s; "
                f"server {figures['server_cpu']} s CPU, {figures['memory_before_mb']} MB before, "
                f"{figures['memory_full_mb']} MB full, {figures['memory_after_mb']} MB after",
                flush=True,
            )


if __name__ == "__main__":
    main()
