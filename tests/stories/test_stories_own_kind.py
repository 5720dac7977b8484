"""The guide docs/use/your-own-kind.md, followed on an embedded cluster."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from click.testing import CliRunner
from stories_world import Story, story_cluster

from pykueue.api.resources import JOBS, Resource
from pykueue.api.userkinds import JOB_KINDS
from pykueue.cli.main import main
from pykueue.clock import Clock, run_virtual
from queue_manifests import cluster_queue, flavor, local_queue

PAGE = Path(__file__).parents[2] / "docs" / "use" / "your-own-kind.md"
DEFINITION, KIND, JOB = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
SIMULATIONS = Resource("science.example.com", "v1", "simulations", "Simulation", True)


def run(test: Callable[[Story], Awaitable[None]]) -> None:
    """Run a test against a cluster in virtual time."""

    async def main(clock: Clock) -> None:
        async with story_cluster(clock, None, [], "default", 1) as found:
            await test(found)

    run_virtual(main)


def test_the_description_has_ten_lines() -> None:
    assert len(KIND.splitlines()) == 10


def test_the_guide_prints_workload_start_and_stop(tmp_path: Path) -> None:
    for name, text in (("crd", DEFINITION), ("kind", KIND), ("job", JOB)):
        (tmp_path / f"{name}.yaml").write_text(text)
    result = CliRunner().invoke(main, ["kind", "test", "-f", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "name: workers\n    count: 4" in result.stdout


QUEUES = [flavor("default"), cluster_queue("cq", {"default": {"cpu": 5}}), local_queue("user-queue", "cq")]


def test_the_kind_of_the_guide_queues_and_is_suspended_when_it_is_created() -> None:
    async def test(s: Story) -> None:
        await s.create(*QUEUES, DEFINITION)
        await s.wait()
        await s.create(KIND)
        await s.wait()
        (condition,) = (await s.client.get(JOB_KINDS, "simulations.science.example.com"))["status"][
            "conditions"
        ]
        assert (condition["status"], condition["reason"]) == ("True", "Ready")
        await s.create(JOB)
        created = await s.client.get(SIMULATIONS, "weather", "default")
        assert created["spec"]["suspend"] is True, "the admission rules of the kind suspend it"
        await s.create(JOB.replace("weather", "tides"))
        await s.wait()
        suspended = {
            one["metadata"]["name"]: one["spec"]["suspend"]
            for one in (await s.client.list(SIMULATIONS, "default")).items
        }
        assert suspended == {"weather": False, "tides": True}
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        await s.client.patch(SIMULATIONS, "weather", "default", {"status": done}, subresource="status")
        await s.wait()
        assert (await s.client.get(SIMULATIONS, "tides", "default"))["spec"]["suspend"] is False
        # Rules of a kind that is not described any more are gone.
        await s.client.delete(JOB_KINDS, "simulations.science.example.com")
        await s.wait()
        await s.create(JOB.replace("weather", "storms"))
        assert "suspend" not in (await s.client.get(SIMULATIONS, "storms", "default"))["spec"]

    run(test)


def test_a_kind_that_is_called_like_a_built_in_one_replaces_none_of_its_rules() -> None:
    async def test(s: Story) -> None:
        names = {"Simulation": "Job", "simulation": "job"}
        definition, kind = DEFINITION, KIND
        for old, new in names.items():
            definition, kind = definition.replace(old, new), kind.replace(old, new)
        await s.create(*QUEUES, definition)
        await s.wait()
        await s.create(kind)
        await s.wait()
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}
        await s.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": "j",
                    "namespace": "default",
                    "labels": {"kueue.x-k8s.io/queue-name": "user-queue"},
                },
                "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
            }
        )
        assert (await s.client.get(JOBS, "j", "default"))["spec"]["suspend"] is True

    run(test)
