"""docs/develop/journey.md names existing functions, which a Job of the embedded cluster calls in order."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from functools import reduce
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from stories_world import EXAMPLE, Story, play

from pykueue.simulate.submit import read

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "journey.md"
STEP = re.compile(r"^\d+\. .*?(?=^\d+\. |^\S)", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`(pykueue[\w.]*):([\w.]+)`")


def steps() -> list[list[tuple[str, str]]]:
    """Module and function of each step, in the order of the page."""
    return [NAME.findall(step) for step in STEP.findall(PAGE.read_text())]


def code_of(module: str, name: str) -> CodeType:
    found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    return inspect.unwrap(found).__code__


class Calls:
    """Names of the functions to observe, in the order in which they are called."""

    def __init__(self, names: list[str]) -> None:
        self.names: list[str] = []
        self._wanted = {code_of(*name.split(":")): name for name in names}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in self._wanted:
            self.names.append(self._wanted[frame.f_code])


def test_every_step_names_functions_and_there_are_at_most_twelve() -> None:
    assert 8 <= len(steps()) <= 12
    assert all(steps())


def test_functions_of_the_journey_exist_where_the_page_says() -> None:
    for module, name in (function for step in steps() for function in step):
        assert inspect.unwrap(reduce(getattr, name.split("."), importlib.import_module(module))), name


def test_job_that_runs_to_completion_calls_the_functions_of_the_page_in_order() -> None:
    journey = [f"{module}:{name}" for step in steps() for module, name in step]
    calls = Calls(journey)

    async def story(s: Story) -> None:
        await s.submitter.create(read(EXAMPLE / "queues.yaml"))
        await s.wait(5)
        sys.setprofile(calls)
        try:
            await s.submitter.create(read(EXAMPLE / "quick-job.yaml"))
            await s.history.until_finished("quick-job")
            await s.wait(5)
        finally:
            sys.setprofile(None)

    play(story)
    seen = iter(calls.names)
    missing = next((name for name in journey if name not in seen), None)
    assert missing is None, f"{missing} is not called after the functions that the page names before it"
