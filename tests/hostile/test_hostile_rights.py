"""The server's answers against a model of RBAC written plainly (`rights_model`), on random requests.

Every answer is compared: whether it is 403 or not, what a list or watch shows, what a review says, which
roles and bindings users may write, and as whom they may act. While requests are made, rights change.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from rights_model import RBAC, Ask, Binding, Policy, Role, Subject, User, allows
from rights_requests import (
    NAMES,
    NAMESPACES,
    RESOURCES,
    VERBS,
    Generator,
    Request,
    binding_object,
    body_of,
    role_object,
)

from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.auth.builtin_roles import builtin_roles
from pykueue.embedded.apiserver.auth.impersonation import Wanted, impersonated
from pykueue.embedded.apiserver.registry.call import User as ServerUser
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube import transport
from pykueue.kube.errors import ApiError

#: Requests compared, and seconds after which no other is made, where no number is given.
REQUESTS, SECONDS = 20_000, 60.0
#: Random roles and bindings kept at a time.
_ROLES, _BINDINGS = 24, 40

Object = dict[str, Any]


def published() -> Policy:
    """The policy of a new cluster."""
    policy = Policy()
    for obj in builtin_roles():
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if "roleRef" in obj:
            subjects = [
                Subject(s["kind"], s["name"], s.get("namespace", "")) for s in obj.get("subjects", ())
            ]
            policy.bindings[key] = Binding((obj["roleRef"]["kind"], obj["roleRef"]["name"]), subjects)
            continue
        selectors = obj.get("aggregationRule", {}).get("clusterRoleSelectors")
        chosen = [one["matchLabels"] for one in selectors] if selectors else None
        policy.roles[key] = Role(obj.get("rules") or [], meta.get("labels", {}), chosen)
    return policy


class World:
    """A server and the model of its policy, changed together."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.generator = Generator(self.rng)
        self.policy = published()
        self.counts: Counter[str] = Counter()
        self._admin = server.transport()

    async def fill(self) -> None:
        for namespace in NAMESPACES[1:]:
            await self.send(None, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for resource in RESOURCES:
            for namespace in NAMESPACES if resource.namespaced else ("",):
                for name in NAMES:
                    await self.send(None, "POST", resource.path(namespace), body_of(resource, name))
        for name in NAMES:  # among the requests' objects, without rules
            self.policy.roles["", name] = Role([])

    async def send(
        self, user: User | None, method: str, path: str, body: Any = None, content: str = "", **query: str
    ) -> Any:
        sender = self._admin if user is None else self.server.transport(user.name, user.groups)
        return await sender.call(transport.Request(method, path, query, body, content or transport.JSON))

    async def code(self, user: User, method: str, path: str, body: Any, content: str = "") -> int:
        """200 for what was carried out, or the error's code."""
        try:
            await self.send(user, method, path, body, content)
        except ApiError as error:
            return error.code
        return 200

    # -- policy

    def _random(self, table: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
        return [key for key in table if key[1].startswith("random-")]

    def _where(self, key: tuple[str, str], kind: str) -> str:
        namespace, name = key
        where = f"namespaces/{namespace}/{kind}s" if namespace else f"cluster{kind}s"
        return f"/apis/{RBAC}/v1/{where}" + (f"/{name}" if name else "")

    async def change(self) -> None:
        """The administrator adds, changes or removes a role or binding."""
        roles, bindings = self._random(self.policy.roles), self._random(self.policy.bindings)
        namespace = self.rng.choice(("", "", "", *NAMESPACES))
        choice = self.rng.randrange(6)
        if len(roles) < 12 or (choice == 0 and len(roles) < _ROLES):
            await self.write_role(None, (namespace, self.generator.new_name()))
        elif len(bindings) < 20 or (choice in (1, 5) and len(bindings) < _BINDINGS):
            await self.write_binding(None, (namespace, self.generator.new_name()))
        elif choice == 2:
            key = self.rng.choice(roles)
            await self.send(None, "DELETE", self._where(key, "role"))
            del self.policy.roles[key]
        elif choice == 3:
            key = self.rng.choice(bindings)
            await self.send(None, "DELETE", self._where(key, "rolebinding"))
            del self.policy.bindings[key]
        else:
            await self.write_role(None, self.rng.choice(roles))

    async def write_role(self, user: User | None, key: tuple[str, str]) -> None:
        """Create or replace a role, which a user may if the model says so."""
        namespace, name = key
        old = self.policy.roles.get(key)
        new = self.generator.role(cluster=not namespace)
        if old is not None and self.rng.random() < 0.2:
            new = replace(old)
        if old is not None and new.selectors is not None and not new.rules:
            new.rules = self.policy.rules(*key)  # as the server keeps them
        plural = "roles" if namespace else "clusterroles"
        verb, method = ("create", "POST") if old is None else ("update", "PUT")
        ask = Ask(verb, RBAC, plural, "", namespace, "" if old is None else name)
        path = self._where((namespace, "") if old is None else key, "role")
        body = role_object(namespace, name, new)
        if user is not None:
            may = self.policy.allowed(user, ask) and self.policy.may_give(user, ask, new, old)
            code = await self.code(user, method, path, body)
            assert code == (200 if may else 403), (code, user, ask, new, old)
            self.counts[f"role {code}"] += 1
            if not may:
                return
        else:
            await self.send(None, method, path, body)
        if new.selectors is not None:
            new.rules = []
        self.policy.roles[key] = new

    async def write_binding(self, user: User | None, key: tuple[str, str]) -> None:
        """Create a binding, or change its subjects, which a user may if the model says so."""
        namespace, name = key
        old = self.policy.bindings.get(key)
        new = self.generator.binding(self.policy, namespace)
        if old is not None:
            new = Binding(old.role, new.subjects)
        plural = "rolebindings" if namespace else "clusterrolebindings"
        verb, method = ("create", "POST") if old is None else ("update", "PUT")
        ask = Ask(verb, RBAC, plural, "", namespace, "" if old is None else name)
        path = self._where((namespace, "") if old is None else key, "rolebinding")
        body = binding_object(namespace, name, new)
        if user is not None:
            wanted = 403
            if self.policy.allowed(user, ask):
                wanted = self.policy.binding_code(user, namespace, new, old)
            code = await self.code(user, method, path, body)
            assert code == wanted, (code, wanted, user, ask, new, old)
            self.counts[f"binding {code}"] += 1
            if code != 200:
                return
        else:
            await self.send(None, method, path, body)
        self.policy.bindings[key] = new

    # -- requests

    async def step(self) -> None:
        """One request of some user, compared."""
        user = self.generator.user()
        if self.rng.random() < 0.1:
            user = self._act_as(user, self.generator.user())
        chance = self.rng.random()
        if chance < 0.08:
            ask = self.generator.path_request()
            try:
                self.server.pipeline.authorize_path(ServerUser(*user), ask.verb, ask.path or "")
                code = 200
            except ApiError as error:
                code = error.code
            self._compare(user, ask, self.policy.allowed(user, ask), code)
            await self._review(user, ask)
        elif chance < 0.16:
            known = self.rng.choice(self._random(self.policy.roles))
            full = len(self._random(self.policy.roles)) >= _ROLES
            fresh = (self.rng.choice(("", "", "", *NAMESPACES)), self.generator.new_name())
            await self.write_role(user, known if full or self.rng.random() < 0.5 else fresh)
        elif chance < 0.24:
            known = self.rng.choice(self._random(self.policy.bindings))
            full = len(self._random(self.policy.bindings)) >= _BINDINGS
            fresh = (self.rng.choice(("", *NAMESPACES)), self.generator.new_name())
            await self.write_binding(user, known if full or self.rng.random() < 0.5 else fresh)
        else:
            await self.compare_request(user, self.generator.request())

    def _act_as(self, user: User, other: User) -> User:
        wanted = other._replace(groups=other.groups[:-1])  # without system:authenticated, which is given
        may = self.policy.may_act_as(user, wanted)
        try:
            found = impersonated(
                self.server.pipeline.authorizer, ServerUser(*user), Wanted(wanted.name, wanted.groups, "", {})
            )
        except ApiError as error:
            self._compare(user, Ask("impersonate", name=wanted.name), may, error.code)
            return user
        self._compare(user, Ask("impersonate", name=wanted.name), may, 200)
        assert found.name == wanted.name
        assert set(wanted.groups) <= set(found.groups)
        return User(found.name, found.groups)

    async def compare_request(self, user: User, request: Request) -> None:
        ask = request.ask
        may = self.policy.allowed(user, ask) and (
            request.also is None or self.policy.allowed(user, request.also)
        )
        shown: list[Object] = []
        try:
            if ask.verb == "watch":
                shown = await self._watched(user, request)
            else:
                answer = await self.send(
                    user, request.method, request.path, request.body, request.content, **request.query
                )
                shown = answer.get("items", [])
            code = 200
        except ApiError as error:
            code = error.code
        assert code < 500, (code, request)
        self._compare(user, ask, may, code)
        for obj in shown:
            assert ask.name in ("", obj["metadata"]["name"]), (user, request, obj["metadata"])
            assert ask.namespace in ("", obj["metadata"].get("namespace")), (user, request, obj["metadata"])
        if self.rng.random() < 0.25:
            await self._review(user, ask)

    async def _watched(self, user: User, request: Request) -> list[Object]:
        sender = self.server.transport(user.name, user.groups)
        events = sender.watch(transport.Request("GET", request.path, request.query))
        try:
            async with asyncio.timeout(0.001):
                return [(await anext(events)).object for _ in range(3)]
        except TimeoutError:
            return []
        finally:
            await events.aclose()

    async def _review(self, user: User, ask: Ask) -> None:
        """The reviews say the same: of the one access, and of all of them in the namespace."""
        expected = self.policy.allowed(user, ask)
        reviews = "/apis/authorization.k8s.io/v1/selfsubject"
        if ask.path is not None:
            spec: Object = {"nonResourceAttributes": {"verb": ask.verb, "path": ask.path}}
        else:
            spec = {"resourceAttributes": {key: one for key, one in ask._asdict().items() if one}}
        answer = await self.send(user, "POST", f"{reviews}accessreviews", {"spec": spec})
        assert answer["status"]["allowed"] is expected, (user, ask)
        self.counts["review"] += 1
        namespace = ask.namespace or ("zzz" if ask.path is not None else "")
        if namespace:
            body = {"spec": {"namespace": namespace}}
            status = (await self.send(user, "POST", f"{reviews}rulesreviews", body))["status"]
            listed = [*status["resourceRules"], *status["nonResourceRules"]]
            assert any(allows(rule, ask) for rule in listed) is expected, (user, ask)

    def _compare(self, user: User, ask: Ask, may: bool, code: int) -> None:
        assert (code != 403) is may, (code, user, ask, self.policy.rules_of(user, ask.namespace))
        self.counts[f"{ask.verb} {'allowed' if may else 'refused'}"] += 1


def test_the_server_answers_as_the_model(pytestconfig: pytest.Config) -> None:
    given = pytestconfig.getoption("--hostile-rights", None)
    seed = pytestconfig.getoption("--hostile-seed", None) or 0

    async def main(clock: Clock) -> None:
        server = Server(MemoryStore(10_240), clock, random.Random(seed))
        await server.start()
        server.pipeline.use_authenticator(Authenticator(server.core, b"k" * 32))
        world = World(server, seed)
        await world.fill()
        for _ in range(60):
            await world.change()
        end, done = time.monotonic() + SECONDS, 0
        while done < (given or REQUESTS) and (given is not None or time.monotonic() < end):
            if done % 5 == 0:
                await world.change()
            try:
                await world.step()
            except AssertionError as error:
                error.add_note(f"request {done} of --hostile-seed {seed}")
                raise
            done += 1
        await server.stop()
        counts = world.counts
        told = ", ".join(f"{what}: {count}" for what, count in sorted(counts.items()))
        print(f"{done} requests from seed {seed}: {told}")
        for verb in (*VERBS, "impersonate"):
            assert counts[f"{verb} allowed"], verb
            assert counts[f"{verb} refused"], verb
        if done >= REQUESTS:
            for what in ("role 200", "role 403", "binding 200", "binding 403", "binding 404"):
                assert counts[what], what

    run_virtual(main)
