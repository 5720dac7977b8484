"""Runs of hostile requests: what is sent follows from a seed, and two bounds hold for every answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hostile_encoding import as_json
from hostile_meter import Cost, Meter, Ordinary, metered_loop
from hostile_requests import SAMPLES, Requests, Sent, published
from hostile_world import Answer, Exchange, World

from pykueue.clock import Clock, run_virtual

#: Requests of one run: after them the world is a new one.
RUN = 100
#: How often a request that seems too expensive is measured again before that counts.
_AGAIN = 5

#: Answers of 500 and more that are meant: what this server does not offer or reach, or waited for too long.
_MEANT = {501, 503, 504, 505}
#: What any Kubernetes API server answers with 500: an applied configuration that does not fit the schema, and
#: a webhook that cannot be reached.
_MEANT_TEXTS = ("failed to create typed patch object", "failed calling webhook")


class Generator(Protocol):
    """Gives the requests of a run."""

    def next(self) -> Sent: ...

    async def fill(self, world: World) -> None:
        """Create what requests are about."""

    def learn(self, answer: Answer) -> None:
        """Take from an answer what later requests may use."""


Make = Callable[[random.Random, World], Generator]


@dataclass
class Failure:
    """A request that broke a bound."""

    seed: int
    number: int
    sent: Sent
    faults: list[str]
    before: list[Sent] = field(repr=False, default_factory=list)

    def __str__(self) -> str:
        told = "\n  ".join(self.faults)
        return f"request {self.number} of --hostile-seed {self.seed}:\n  {told}\n  {self.sent}"


def calibrate(meter: Meter) -> Ordinary:
    """What ordinary creates of some sizes cost: a Job whose container has environment variables."""
    measured: dict[int, float] = {}

    async def main(clock: Clock) -> None:
        async with World(clock, 0, meter) as world:
            for count in (0, 0, 30, 300, 1500):
                costs, size = [], 0
                for number in range(5):
                    job = {**SAMPLES["Job"], "metadata": {"name": f"ordinary-{count}-{number}"}}
                    job = _with_variables(job, count)
                    exchange = await world.ask("POST", "/apis/batch/v1/namespaces/default/jobs", as_json(job))
                    assert exchange.answers[0].code in (201, 409), exchange.answers[0].body
                    size = exchange.sent
                    costs.append(exchange.cost.total)
                measured[size] = min(costs)

    run_virtual(main)
    return Ordinary(measured)


def _with_variables(job: Any, count: int) -> Any:
    template = job["spec"]["template"]
    container = template["spec"]["containers"][0]
    variables = [{"name": f"VARIABLE_{number}", "value": str(number)} for number in range(count)]
    containers = [{**container, "env": variables}]
    spec = {**template["spec"], "containers": containers}
    return {**job, "spec": {**job["spec"], "template": {**template, "spec": spec}}}


def faults_of(sent: Sent, exchange: Exchange) -> list[str]:
    """What is wrong with an exchange, costs aside."""
    faults = [f"logged: {text}" for text in exchange.logged]
    if exchange.fault:
        faults.append(exchange.fault)
    if len(exchange.answers) < sent.answers:
        faults.append(f"{len(exchange.answers)} answers, expected {sent.answers}")
    for answer in exchange.answers:
        text = answer.body[:3000].decode("utf-8", "replace")
        if answer.code >= 500 and answer.code not in _MEANT and not any(one in text for one in _MEANT_TEXTS):
            faults.append(f"answered {answer.code}: {text}")
        elif answer.code >= 400 and text.startswith("{"):
            status = answer.value()
            if status is None or status.get("kind") != "Status" or status.get("code") != answer.code:
                faults.append(f"answered {answer.code} without its Status: {text}")
    return faults


def too_dear(exchange: Exchange, ordinary: Ordinary) -> list[str]:
    """Which bounds of cost an exchange breaks."""
    faults = []
    shown = sum(answer.shown() for answer in exchange.answers)
    longest = ordinary.longest()
    if exchange.cost.longest > longest:
        took = f"one callback took {exchange.cost.longest * 1000:.0f} ms of CPU"
        faults.append(f"{took}; {longest * 1000:.0f} ms are allowed")
    allowed = ordinary.allowed(exchange.sent, len(exchange.answers), shown)
    if exchange.cost.total > allowed:
        common = ordinary.cost(exchange.sent)
        faults.append(
            f"took {exchange.cost.total * 1000:.1f} ms of CPU for {exchange.sent} bytes and {shown} objects "
            f"shown; an ordinary create of this size takes {common * 1000:.2f} ms, {allowed * 1000:.1f} ms "
            "are allowed"
        )
    return faults


class Runner:
    """Plays runs and collects what breaks a bound."""

    def __init__(self, meter: Meter, make: Make) -> None:
        self._meter = meter
        self._make = make
        self.ordinary = calibrate(meter)
        self.failures: list[Failure] = []
        self.requests = 0
        #: How often each code was answered.
        self.codes: dict[int, int] = {}

    def run(self, seed: int, count: int = RUN) -> None:
        """One run."""
        history: list[Sent] = []

        async def main(clock: Clock) -> None:
            async with World(clock, seed, self._meter) as world:
                generator = await self._begin(seed, world)
                for number in range(count):
                    sent = generator.next()
                    exchange = await world.send(sent.pieces, sent.answers)
                    await self._judge(world, seed, number, sent, exchange, history)
                    history.append(sent)
                    for answer in exchange.answers:
                        self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
                        generator.learn(answer)
                    await world.tidy()

        run_virtual(main)
        self.requests += count
        for failure in self.failures:
            if failure.seed == seed and failure.faults == [""]:
                failure.faults = self._confirmed(failure)
        self.failures = [failure for failure in self.failures if failure.faults]

    async def _begin(self, seed: int, world: World) -> Generator:
        generator = self._make(random.Random(seed), world)
        await generator.fill(world)
        await world.tidy()
        return generator

    async def _judge(
        self,
        world: World,
        seed: int,
        number: int,
        sent: Sent,
        exchange: Exchange,
        history: list[Sent],
    ) -> None:
        faults = faults_of(sent, exchange)
        if not faults and too_dear(exchange, self.ordinary):
            faults = await self._still_too_dear(world, sent, exchange)
        if faults:
            self.failures.append(Failure(seed, number, sent, faults, list(history)))

    async def _still_too_dear(self, world: World, sent: Sent, exchange: Exchange) -> list[str]:
        """No faults where repeating it shows that it is cheap, else [""]: to be measured in new worlds."""
        if not sent.pieces[0].startswith((b"GET", b"HEAD")) and exchange.answers[-1].code < 400:
            return [""]
        for _ in range(_AGAIN):
            state = world.server.core.rng.getstate()
            again = await world.send(sent.pieces, sent.answers)
            world.server.core.rng.setstate(state)
            exchange.cost = exchange.cost.least(again.cost)
            if not too_dear(exchange, self.ordinary):
                return []
        return [""]

    def _confirmed(self, failure: Failure) -> list[str]:
        """Which bounds of cost a request breaks however often it is tried.

        What is ordinary is measured again beside each trial, and counts for that one only: the machine may be
        slower at one time than at another, and a long request is seldom left undisturbed.
        """
        faults: list[str] = []
        for _ in range(_AGAIN):
            exchange = self.again([*failure.before, failure.sent], failure.seed)
            faults = too_dear(exchange, calibrate(self._meter))
            if not faults:
                break
        return faults

    def again(self, requests: Sequence[Sent], seed: int) -> Exchange:
        """Send the same again to a new world; what came of the last one."""

        async def main(clock: Clock) -> Exchange:
            async with World(clock, seed, self._meter) as world:
                await self._begin(seed, world)
                for sent in requests[:-1]:
                    await world.send(sent.pieces, sent.answers)
                    await world.tidy()
                return await world.send(requests[-1].pieces, requests[-1].answers)

        return run_virtual(main)


__all__ = ["Cost", "Requests", "Runner", "metered_loop", "published"]
