"""`python -m bench.apiserver`: a table on the terminal, and JSON where `--json` says.

Latencies at low load are those of one connection; at saturation of `--connections`. Watch deliveries count
frames that reached any watcher. Figures per CPU second say what one core of the server alone would do; those
of deliveries are given with the CPU time of the writes that cause them, without it (what the same writes cost
without watches), and then from inside the server (`fanout`), with TLS and without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from bench.apiserver import fanout
from bench.apiserver.load import WORKLOADS, drive, request, status_patch, workload
from bench.apiserver.server import ServerProcess
from bench.apiserver.watchers import Watchers

MERGE = "application/merge-patch+json"


def creates(server: ServerProcess, prefix: str, count: int) -> Iterator[bytes]:
    return (request(server, "POST", WORKLOADS, workload(f"{prefix}-{n}")) for n in range(count))


def patches(server: ServerProcess, prefix: str, objects: int, numbers: range) -> Iterator[bytes]:
    """Each says something new when its number is new: what changes nothing is not written."""
    for n in numbers:
        path = f"{WORKLOADS}/{prefix}-{n % objects}/status"
        yield request(server, "PATCH", path, status_patch(n), MERGE)


def gets(server: ServerProcess, prefix: str, objects: int, count: int) -> Iterator[bytes]:
    return (request(server, "GET", f"{WORKLOADS}/{prefix}-{n % objects}") for n in range(count))


def current_version(server: ServerProcess) -> str:
    """The resourceVersion to watch from."""
    version: str = json.loads(server.read(f"{WORKLOADS}?limit=1"))["metadata"]["resourceVersion"]
    return version


async def watched(
    server: ServerProcess, ca: str, watchers: int, count: int, connections: int, unwatched: float
) -> dict[str, Any]:
    """Status patches while many watch. `unwatched` is the cost of one without watches, in CPU seconds."""
    version = await asyncio.to_thread(current_version, server)
    head = request(server, "GET", f"{WORKLOADS}?watch=true&resourceVersion={version}")
    crowd = Watchers(server.host, server.port, ca, head, watchers)
    try:
        before, start = crowd.seen()[0], time.perf_counter()
        cpu = server.cpu()
        run = await drive(server, patches(server, "s", 1000, range(10**6, 10**6 + count)), connections)
        give_up = start + 120
        while True:
            frames = crowd.seen()[0] - before
            if frames >= count * watchers or time.perf_counter() > give_up:
                break
        seconds, cpu = time.perf_counter() - start, server.cpu() - cpu
    finally:
        crowd.stop()
    return {
        "watchers": watchers,
        "patches_per_second": round(run.requests / seconds, 1),
        "deliveries_per_second": round(frames / seconds),
        "deliveries_per_cpu_second": round(frames / cpu),
        "without_the_writes": round(frames / max(cpu - run.requests * unwatched, 1e-9)),
        "p50_ms": run.report()["p50_ms"],
        "p99_ms": run.report()["p99_ms"],
        "cpu_us_per_write": round(unwatched * 1e6, 1),
        "cpu_us_per_delivery": round((cpu - run.requests * unwatched) / frames * 1e6, 3),
        "missed": count * watchers - frames,
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    scale, many = options.scale, options.connections
    result: dict[str, Any] = {}
    with ServerProcess(options.in_memory, options.profile) as server:
        ca = "".join(_pem(server))
        warm = await drive(server, creates(server, "warm", 500), 8)
        assert not warm.refused, "the server refuses what the bench sends"
        empty = server.memory()
        run = await drive(server, creates(server, "s", 10_000 * scale), many)
        result["create"] = run.report()
        grown = server.memory() - empty
        result["memory"] = {"objects": run.requests, "bytes_per_object": round(grown / run.requests)}
        result["create, one connection"] = (await drive(server, creates(server, "o", 1000), 1)).report()
        run = await drive(server, patches(server, "s", 1000, range(10_000 * scale)), many)
        result["patch status"] = run.report()
        result["patch status, one connection"] = (
            await drive(server, patches(server, "s", 1000, range(10**7, 10**7 + 1000)), 1)
        ).report()
        run = await drive(server, gets(server, "s", 1000, 20_000 * scale), many)
        result["get"] = run.report()
        result["get, one connection"] = (await drive(server, gets(server, "s", 1000, 2000), 1)).report()
        ten_thousand = request(server, "GET", f"{WORKLOADS}?limit=10000")
        run = await drive(server, iter([ten_thousand] * 5), 1)
        result["list of 10 000"] = run.report()
        unwatched = result["patch status"]["server_cpu_us"] / 1e6
        result["watch"] = await watched(server, ca, options.watchers, 2000 * scale, many, unwatched)
        if options.objects:
            have = 500 + 10_000 * scale + 1000
            await drive(server, creates(server, "m", options.objects - have), many)
            result["memory"] = {
                "objects": options.objects,
                "bytes_per_object": round((server.memory() - empty) / (options.objects - 500)),
                "total_mb": round(server.memory() / 1e6),
            }
    return result


def _pem(server: ServerProcess) -> Iterator[str]:
    for der in server.context.get_ca_certs(binary_form=True):
        yield ssl.DER_cert_to_PEM_cert(der)


def table(result: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"{'':30}{'per s':>10}{'per CPU s':>11}{'CPU us':>9}{'p50 ms':>9}{'p99 ms':>9}"]
    for name, row in result.items():
        if "per_second" in row:
            figures = (row["per_second"], row["per_cpu_second"], row["server_cpu_us"])
            lines.append(
                f"{name:30}{figures[0]:>10,.0f}{figures[1]:>11,.0f}{figures[2]:>9,.0f}"
                f"{row['p50_ms']:>9,.2f}{row['p99_ms']:>9,.2f}"
            )
    inside = result["deliveries"]
    rows = [(name, result[name]) for name in ("watch", "memory")]
    rows += [(f"deliveries alone, {name}", inside[name]) for name in ("tls", "plain")]
    for name, row in rows:
        figures_text = ", ".join(f"{key.replace('_', ' ')} {value:,}" for key, value in row.items())
        lines.append(f"{name}: {figures_text}")
    lines.append(f"share of TLS in a delivery's CPU time: {inside['tls_share']:.0%}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.apiserver", description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="how many times the requests of a short run")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--objects", type=int, default=0, help="also fill the server up to so many workloads")
    parser.add_argument("--in-memory", action="store_true", help="without the durable store")
    parser.add_argument("--profile", type=Path, help="run the server under cProfile and write this file")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    result = uvloop.run(measure(options))
    result["deliveries"] = fanout.measure(options.watchers, 12_800 * options.scale, 64)
    print(table(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
