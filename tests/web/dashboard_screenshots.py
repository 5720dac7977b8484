"""Screenshots of all pages of the dashboard: `python tests/web/dashboard_screenshots.py FOLDER`.

Each page light, dark and at the width of a phone, as PAGE.png, PAGE-dark.png and PAGE-phone.png. With
`--docs` only those that the documentation shows are written. Needs Chromium; run it with
`PYTHONPATH=tests:tests/web`.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
from pathlib import Path

from dashboard_browser import Browser
from dashboard_company import running_company
from dashboard_world import World

LONG = "language/hyperparameter-sweep-of-the-multilingual-translation-model-v2"
#: Name of the picture -> path of the page; {JOB} is the Workload of a job.
PAGES = {
    "overview": "/",
    "workloads": "/workloads",
    "workloads-pending": "/workloads?state=Pending",
    "workloads-none": "/workloads?q=no-such-job",
    "workload": "/workloads/etl/{etl/daily-report}",
    "workload-long-name": f"/workloads/language/{{{LONG}}}",
    "workload-clogged": "/workloads/serving/{serving/index-rebuild}",
    "workload-never-fits": "/workloads/vision/{vision/world-model}",
    "cluster-queues": "/cluster-queues",
    "cluster-queue": "/cluster-queues/language",
    "local-queues": "/local-queues",
    "local-queue": "/local-queues/language/main",
    "cohorts": "/cohorts",
    "cohort": "/cohorts/research",
    "flavors": "/resource-flavors",
    "flavor": "/resource-flavors/h100",
    "nodes": "/nodes",
    "preemptions": "/preemptions",
    "budgets": "/budgets",
    "reservations": "/reservations",
    "trends": "/trends",
    "object": "/objects/ClusterQueue/language",
    "missing": "/workloads/vision/no-such-workload",
}
#: What the documentation shows.
DOCS = (
    "overview",
    "workload",
    "cluster-queue",
    "cohorts",
    "nodes",
    "preemptions",
    "trends-dark",
    "budgets",
    "budgets-dark",
    "reservations",
    "workloads-pending",
    "workload-phone",
    "overview-phone",
)
LOOKS = {"": ("light", 1280), "-dark": ("dark", 1280), "-phone": ("light", 390)}
#: Pixels of the height of a picture in the documentation; of other pictures the whole page is shown.
DOCS_HEIGHT = 1100


def take(world: World, folder: Path, names: list[str], height: int | None) -> None:
    """Write the pictures. Without a height they show whole pages."""
    browser = Browser(world)
    try:
        browser.open("/sign-in")
        shoot(browser, folder, "sign-in", names, height)
        browser.sign_in(world.admin_token)
        for page, path in PAGES.items():
            for name in {part.split("}")[0] for part in path.split("{")[1:]}:
                namespace, job = name.split("/")
                path = path.replace(f"{{{name}}}", world.workload_of(namespace, job))
            browser.open(path)
            shoot(browser, folder, page, names, height)
    finally:
        browser.close()


def shoot(browser: Browser, folder: Path, page: str, names: list[str], height: int | None) -> None:
    for look, (scheme, width) in LOOKS.items():
        if names and page + look not in names:
            continue
        browser.emulate(scheme=scheme, width=width)
        full = int(browser.driver.execute_script("return document.documentElement.scrollHeight"))
        shown = min(full, height or 6000)
        clip = {"x": 0, "y": 0, "width": width, "height": shown, "scale": 1}
        options = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        found = browser.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        (folder / f"{page}{look}.png").write_bytes(base64.b64decode(found["data"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_company(Path(folder)) as world:
        names = [*given.names, *(DOCS if given.docs else ())]
        take(world, given.folder, names, DOCS_HEIGHT if given.docs else None)


if __name__ == "__main__":
    main()
