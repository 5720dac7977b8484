"""`python -m bench.dashboard`: the dashboard's process on a cluster with many Workloads and open pages.

An API server without controllers holds the objects; the dashboard is a separate process. Printed are its
memory, the time until its first page, the times of pages, and its CPU while Workloads change and many
browsers' streams are open. With `--browser`, a headless Chromium opens pages meanwhile, and their first
contentful paint is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from bench import usage

from pykueue.api.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from pykueue.kube.client import Client
from pykueue.kube.config import bearer_token, load

#: Streams that one session opens.
STREAMS_OF_ONE = 10
PAGES = (
    "/",
    "/workloads",
    "/workloads?state=Pending&page=400",
    "/cluster-queues/cq-0",
    "/cohorts",
    "/preemptions",
)


def workload(index: int, queues: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    queue = index % queues
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"job-{index}", "namespace": f"team-{queue}"},
        "spec": {
            "queueName": "main",
            "priority": index % 5,
            "podSets": [{"name": "main", "count": 2, "template": template}],
        },
    }


async def create(client: Client, resource: Resource, obj: dict[str, Any]) -> None:
    await client.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **obj})


async def fill(client: Client, count: int, queues: int) -> None:
    await create(client, RESOURCE_FLAVORS, {"metadata": {"name": "default"}, "spec": {}})
    for queue in range(queues):
        quota = [
            {"name": name, "nominalQuota": amount} for name, amount in (("cpu", "20"), ("memory", "100Gi"))
        ]
        group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quota}]}
        spec = {"cohortName": f"cohort-{queue // 10}", "namespaceSelector": {}, "resourceGroups": [group]}
        await create(client, CLUSTER_QUEUES, {"metadata": {"name": f"cq-{queue}"}, "spec": spec})
    limit = asyncio.Semaphore(64)

    async def one(index: int) -> None:
        async with limit:
            await create(client, WORKLOADS, workload(index, queues))

    for start in range(0, count, 5000):
        await asyncio.gather(*(one(index) for index in range(start, min(count, start + 5000))))


def megabytes(size: int) -> int:
    return round(size / (1 << 20))


def started(*arguments: str, until: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pykueue.cli.main", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if until in line:
            return process, line
    raise RuntimeError(f"pykueue {arguments[0]} ended")


async def measure(
    folder: Path, count: int, queues: int, streams: int, seconds: float, browser: bool
) -> dict[str, Any]:
    kubeconfig = folder / "kubeconfig"
    server, _ = started(
        "up", "--data-dir", str(folder), "--in-memory", "--port", "0",
        "--only", "apiserver", "--no-dashboard",
        until="KUBECONFIG=",
    )  # fmt: skip
    results: dict[str, Any] = {"workloads": count, "queues": queues, "streams": streams}
    transport = await load(kubeconfig)
    client = Client(transport)
    dashboard = None
    try:
        for queue in range(queues):
            await create(client, NAMESPACES, {"metadata": {"name": f"team-{queue}"}})
        await fill(client, count, queues)
        for queue in range(queues):
            spec = {"clusterQueue": f"cq-{queue}"}
            metadata = {"name": "main", "namespace": f"team-{queue}"}
            await create(client, LOCAL_QUEUES, {"metadata": metadata, "spec": spec})
        dashboard, line = started(
            "dashboard", "--port", "0", "--kubeconfig", str(kubeconfig), until="dashboard is up"
        )
        url = re.search(r"http://\S+", line)[0].rstrip(".")  # type: ignore[index]
        token = await bearer_token(transport)
        jar = aiohttp.CookieJar(unsafe=True)
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout, connector=connector) as session:
            began = time.perf_counter()
            await session.post(f"{url}/sign-in", data={"token": token}, allow_redirects=False)
            while (await page(session, url, "/"))[0] != 200:
                pass
            results["first_page_after_first_sign_in_s"] = round(time.perf_counter() - began, 2)
            results["memory_mb_after_first_list"] = megabytes(usage.memory(dashboard.pid))
            times = {}
            for path in PAGES:
                _, first = await page(session, url, path)
                _, again = await page(session, url, path)
                times[path] = [round(first, 3), round(again, 3)]
            results["page_s_first_and_again"] = times
            results |= await with_streams(
                session, url, client, dashboard.pid, streams, seconds, queues, token, browser
            )
        results["peak_mb"] = megabytes(usage.peak(dashboard.pid))
    finally:
        await transport.close()
        for process in (dashboard, server):
            if process is not None:
                process.terminate()
                process.wait()
    return results


async def page(session: aiohttp.ClientSession, url: str, path: str) -> tuple[int, float]:
    began = time.perf_counter()
    async with session.get(url + path, headers={"Accept": "text/html"}, allow_redirects=False) as answer:
        await answer.read()
        return answer.status, time.perf_counter() - began


async def cookie(url: str, token: str) -> str:
    """The cookie of a new session; attempts to sign in are limited to one in five seconds."""
    while True:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/sign-in", data={"token": token}, allow_redirects=False) as answer,
        ):
            if answer.status == 303:
                return answer.headers["Set-Cookie"].partition(";")[0]
        await asyncio.sleep(1)


async def with_streams(
    session: aiohttp.ClientSession,
    url: str,
    client: Client,
    pid: int,
    streams: int,
    seconds: float,
    queues: int,
    token: str,
    browser: bool,
) -> dict[str, Any]:
    """CPU and memory while Workloads are created at 20 per second and pages of many browsers are open."""
    received = [0]
    secrets = [await cookie(url, token) for _ in range(-(-streams // STREAMS_OF_ONE))]

    async def stream(number: int) -> None:
        path = f"/cluster-queues/cq-{number % queues}" if number % 2 else "/"
        headers = {"Cookie": secrets[number // STREAMS_OF_ONE]}
        async with (
            aiohttp.ClientSession(timeout=session.timeout) as own,
            own.get(f"{url}/stream", params={"path": path}, headers=headers) as answer,
        ):
            async for line in answer.content:
                received[0] += line.startswith(b"event: page")

    tasks = [asyncio.create_task(stream(number)) for number in range(streams)]
    await asyncio.sleep(10)
    received[0], before, began = 0, usage.cpu(pid), time.perf_counter()
    created = 0
    while time.perf_counter() - began < seconds:
        await create(client, WORKLOADS, workload(1_000_000 + created, queues))
        created += 1
        await asyncio.sleep(0.05)
    took = time.perf_counter() - began
    _, first_page = await page(session, url, "/")
    used = usage.cpu(pid) - before
    paints = await painted(client, url, secrets[0], queues) if browser else {}
    found = {
        "cpu_cores_with_streams": round(used / took, 2),
        "pages_pushed_per_second": round(received[0] / took, 1),
        "page_s_with_streams": round(first_page, 3),
        "memory_mb_with_streams": megabytes(usage.memory(pid)),
        "open_streams": sum(not task.done() for task in tasks),
        "first_contentful_paint_ms_with_streams": paints,
    }
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def painted(client: Client, url: str, secret: str, queues: int) -> dict[str, list[int]]:
    """First contentful paint of pages in a browser, in milliseconds, while Workloads are created."""
    looking = asyncio.create_task(asyncio.to_thread(paints, url, secret))
    created = 0
    while not looking.done():
        await create(client, WORKLOADS, workload(2_000_000 + created, queues))
        created += 1
        await asyncio.sleep(0.05)
    return await looking


def paints(url: str, secret: str) -> dict[str, list[int]]:
    """The same of each page, opened three times."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(f"{url}/sign-in")
        name, _, value = secret.partition("=")
        driver.add_cookie({"name": name, "value": value})
        return {path: [paint(driver, url + path) for _ in range(3)] for path in PAGES}
    finally:
        driver.quit()


def paint(driver: Any, address: str) -> int:
    """First contentful paint of one page."""
    driver.get(address)
    found = driver.execute_async_script(
        "const done = arguments[0];"
        "new PerformanceObserver(list => done(list.getEntries().map(one => [one.name, one.startTime])))"
        ".observe({type: 'paint', buffered: true});"
    )
    return round(dict(found).get("first-contentful-paint", found[-1][1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=50_000)
    parser.add_argument("--queues", type=int, default=100)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--browser", action="store_true", help="needs Chromium and its driver")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(
            measure(Path(folder), given.workloads, given.queues, given.streams, given.seconds, given.browser)
        )
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
