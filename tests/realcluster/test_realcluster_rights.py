"""RBAC decisions of a real API server, the embedded one and the plain model of RBAC compared.

The same random rights and requests as in tests/hostile: resourceNames under every form of selector,
subresources, paths, escalation, binding, impersonation; and the built-in roles, rule by rule.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from realcluster_install import gather_roles
from realcluster_plane import Plane, assets, until
from rights_model import RBAC, Ask, Binding, Role, Subject, User
from rights_requests import NAMES, NAMESPACES, RESOURCES, binding_object, body_of, role_object
from test_hostile_rights import World

from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.auth.builtin_roles import builtin_roles
from pykueue.embedded.apiserver.registry.call import User as ServerUser
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

#: Requests, and roles and bindings users try to write.
REQUESTS, WRITES, IMPERSONATIONS = 600, 300, 60
_PLURALS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")


class Real:
    """Answers of the real API server by code alone."""

    def __init__(self, plane: Plane, certificate: tuple[Path, Path]) -> None:
        self._context = ssl.create_default_context(cafile=str(plane.authority.file))
        self._context.load_cert_chain(*map(str, certificate))
        self._port = plane.port

    def code(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Any = None,
        content: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> int:
        """200 for what was carried out, or the error's code. A watch is left as soon as it has begun."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=30)
        data = None if body is None else json.dumps(body).encode()
        connection.putrequest(method, f"{path}?{urlencode(query)}" if query else path)
        for field, value in (*headers, ("Content-Type", content), ("Content-Length", str(len(data or b"")))):
            connection.putheader(field, value)
        connection.endheaders(data)
        response = connection.getresponse()
        connection.close()
        return 200 if response.status < 300 else response.status


def as_user(user: User) -> tuple[tuple[str, str], ...]:
    return (("Impersonate-User", user.name), *(("Impersonate-Group", one) for one in user.groups))


def key_of(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class TestBuiltinRoles:
    def test_they_are_those_of_the_release(self, bare: Plane) -> None:
        release = bare.call("GET", "/version")["gitVersion"]
        if not release.startswith("v1.36."):
            pytest.skip(f"the built-in roles are those of 1.36, this is {release}")
        real: dict[tuple[str, str, str], Object] = {}
        for plural in _PLURALS:
            query = "labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults"
            answer = bare.call("GET", f"/apis/{RBAC}/v1/{plural}?{query}")
            for one in answer["items"]:
                real[key_of({**one, "kind": answer["kind"].removesuffix("List")})] = one
        ours = {key_of(one): one for one in builtin_roles()}
        assert sorted(real) == sorted(ours)
        for key, one in real.items():
            for field in ("rules", "aggregationRule", "roleRef", "subjects"):
                assert (one.get(field) or None) == (ours[key].get(field) or None), (key, field)
            for field in ("labels", "annotations"):
                assert one["metadata"][field] == ours[key]["metadata"][field], (key, field)


class Comparison:
    """One world in the embedded server, its policy and objects in the real one too."""

    def __init__(self, plane: Plane, world: World) -> None:
        self.plane, self.world = plane, world
        self.real = Real(plane, plane.admin)

    def fill(self) -> None:
        """Bring objects and policy to the real server, and wait until they are in force."""
        self._level_builtin_roles()
        for namespace in NAMESPACES[1:]:
            self._create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for resource in RESOURCES:
            for namespace in NAMESPACES if resource.namespaced else ("",):
                for name in NAMES:
                    self._create(resource.path(namespace), body_of(resource, name))
        policy = self.world.policy
        for (namespace, name), role in policy.roles.items():
            if name.startswith("random-"):
                self._create(self._path(namespace, "role"), role_object(namespace, name, role))
        gather_roles(self.plane)
        for (namespace, name), binding in policy.bindings.items():
            if name.startswith("random-"):
                self._create(self._path(namespace, "rolebinding"), binding_object(namespace, name, binding))
        everything = Role([{"verbs": ["get"], "apiGroups": ["last"], "resources": ["last"]}])
        for namespace, kind in (("b", "Role"), ("", "ClusterRole")):
            self._create(self._path(namespace, "role"), role_object(namespace, "last", everything))
            last = Binding((kind, "last"), [Subject("User", f"last-{kind}")])
            self._create(self._path(namespace, "rolebinding"), binding_object(namespace, "last", last))
        for kind in ("Role", "ClusterRole"):
            until(lambda kind=kind: self._in_force(f"last-{kind}"), "the policy is in force")

    def _level_builtin_roles(self) -> None:
        """Bring the built-in roles of another release to those of the embedded server."""
        if self.plane.call("GET", "/version")["gitVersion"].startswith("v1.36."):
            return
        for role in builtin_roles():
            kind, namespace, name = key_of(role)
            path = self._path(namespace, kind.removeprefix("Cluster").lower())
            known = {one["metadata"]["name"] for one in self.plane.call("GET", path)["items"]}
            if name in known:
                self.plane.call("PUT", f"{path}/{name}", role)
            else:
                self._create(path, role)

    def _in_force(self, user: str) -> bool:
        attributes = {"verb": "get", "group": "last", "resource": "last", "namespace": "b"}
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.plane.call("POST", path, review)["status"]["allowed"])

    def _path(self, namespace: str, kind: str) -> str:
        return f"/apis/{RBAC}/v1/" + (f"namespaces/{namespace}/{kind}s" if namespace else f"cluster{kind}s")

    def _create(self, path: str, body: Object) -> None:
        self.plane.call("POST", path, body)

    # -- what users do

    async def request(self) -> None:
        world = self.world
        user, request = world.generator.user(), world.generator.request()
        await world.compare_request(user, request)
        asks = [request.ask, *([request.also] if request.also else [])]
        may = all(world.policy.allowed(user, ask) for ask in asks)
        content = request.content if request.method == "PATCH" else "application/json"
        code = self.real.code(
            request.method, request.path, request.query, request.body, content, as_user(user)
        )
        assert (code != 403) is may, (code, user, request)

    async def path(self) -> None:
        world = self.world
        user, ask = world.generator.user(), world.generator.path_request()
        if ask.path == "/readyz":
            return  # open to everyone there
        may = world.policy.allowed(user, ask)
        code = self.real.code(ask.verb.upper(), str(ask.path), {}, headers=as_user(user))
        assert (code != 403) is may, (code, user, ask)
        try:
            world.server.pipeline.authorize_path(ServerUser(*user), ask.verb, str(ask.path))
            ours = True
        except ApiError:
            ours = False
        assert ours is may, (user, ask)

    async def write(self) -> None:
        """A user tries to create or replace a role or binding."""
        world, rng = self.world, self.world.rng
        policy, generator, user = world.policy, world.generator, world.generator.user()
        bindings = rng.random() < 0.5
        table: dict[tuple[str, str], Any] = policy.bindings if bindings else policy.roles
        known = [one for one in table if one[1].startswith("random-")]
        key = rng.choice(known) if rng.random() < 0.5 else (rng.choice(("", "", *NAMESPACES)), "random-new")
        namespace, name = key
        old = table.get(key)
        kind = "rolebinding" if bindings else "role"
        plural = f"{kind}s" if namespace else f"cluster{kind}s"
        verb, method = ("create", "POST") if old is None else ("update", "PUT")
        ask = Ask(verb, RBAC, plural, "", namespace, "" if old is None else name)
        code = 403
        if bindings:
            binding = generator.binding(policy, namespace, missing=0.2)
            if isinstance(old, Binding):
                binding = Binding(old.role, binding.subjects)
            if policy.allowed(user, ask):
                code = policy.binding_code(user, namespace, binding, old)
            body = binding_object(namespace, name, binding)
        else:
            role = generator.role(cluster=not namespace)
            if policy.allowed(user, ask) and policy.may_give(user, ask, role, old):
                code = 200
            body = role_object(namespace, name, role)
        path = self._path(namespace, kind) + ("" if old is None else f"/{name}")
        query = {"dryRun": "All"}
        assert self.real.code(method, path, query, body, headers=as_user(user)) == code, (user, ask, body)
        ours = 200
        try:
            await world.send(user, method, path, body, **query)
        except ApiError as error:
            ours = error.code
        assert ours == code, (user, ask, body)
        world.counts[f"{kind} {code}"] += 1

    def impersonation(self) -> None:
        """Users with separate certificates act as others."""
        world = self.world
        for _ in range(IMPERSONATIONS):
            user, other = world.generator.user(), world.generator.user()
            other = other._replace(groups=other.groups[:-1])
            may = world.policy.may_act_as(user, other)
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            body = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}}
            real = Real(self.plane, self.plane.authority.issue(user.name, user.groups[:-1]))
            code = real.code("POST", path, {}, body, headers=as_user(other))
            assert (code != 403) is may, (code, user, other)
            world.counts[f"impersonation {'allowed' if may else 'refused'}"] += 1


@pytest.mark.parametrize("seed", [1, 2])
def test_three_answer_alike(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    plane = Plane(assets(), tmp_path_factory.mktemp(f"rights-{seed}"))

    async def main(clock: Clock) -> None:
        server = Server(None, clock, random.Random(seed))
        await server.start()
        world = World(server, seed)
        await world.fill()
        for _ in range(80):
            await world.change()
        comparison = Comparison(plane, world)
        comparison.fill()
        for _ in range(REQUESTS):
            await comparison.request()
            if world.rng.random() < 0.1:
                await comparison.path()
        for _ in range(WRITES):
            await comparison.write()
        comparison.impersonation()
        print(", ".join(f"{what}: {count}" for what, count in sorted(world.counts.items())))
        await server.stop()

    try:
        plane.start()
        run_virtual(main)
    finally:
        plane.stop()
