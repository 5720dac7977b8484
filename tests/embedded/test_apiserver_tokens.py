"""Tokens, what they are bound to and for whom, impersonation, and the files that keys are kept in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from apiserver_harness import Api, pod, with_server
from test_apiserver_http import Web, over_tls

from pykueue.clock import Clock
from pykueue.embedded.apiserver.auth.authentication import ISSUER, Authenticator, _encode
from pykueue.embedded.apiserver.auth.certificates import KeyFileError
from pykueue.embedded.apiserver.registry.call import User
from pykueue.embedded.apiserver.server import Server

Object = dict[str, Any]

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/robot"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
KEY, ADMIN = b"k" * 32, "a-token-of-the-administrator"

Story = Callable[[Api, Authenticator], Awaitable[None]]


def with_tokens(story: Story) -> None:
    """A server in virtual time that signs tokens, with the ServiceAccount `robot`."""

    async def told(api: Api) -> None:
        admin = {ADMIN: User("root", ("system:masters",))}
        authenticator = Authenticator(api.server.core, KEY, admin)
        api.server.pipeline.use_authenticator(authenticator)
        await api.create(ACCOUNT.rpartition("/")[0], {"metadata": {"name": "robot"}})
        await story(api, authenticator)

    with_server(told)


async def token(api: Api, **spec: Any) -> str:
    answer = await api.create(f"{ACCOUNT}/token", {"spec": spec})
    return str(answer["status"]["token"])


async def review(api: Api, token: str, *audiences: str) -> Object:
    spec: Object = {"token": token}
    if audiences:
        spec["audiences"] = list(audiences)
    status: Object = (await api.create(REVIEWS, {"spec": spec}))["status"]
    return status


def bound(kind: str, name: str, **more: str) -> Object:
    return {"kind": kind, "apiVersion": "v1", "name": name, **more}


class TestAudiences:
    def test_a_token_for_others_is_not_one_for_this_server(self) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            assert authenticator.by_token(await token(api)) is not None
            vault = await token(api, audiences=["vault"])
            assert authenticator.by_token(vault) is None
            assert authenticator.by_token(await token(api, audiences=["vault", ISSUER])) is not None

        with_tokens(story)

    def test_a_review_answers_with_the_audiences_that_are_common(self) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            both = await token(api, audiences=["vault", "x"])
            status = await review(api, both, "y", "vault")
            assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
            assert status["user"]["username"] == "system:serviceaccount:default:robot"
            assert (await review(api, both))["authenticated"] is False
            assert (await review(api, both, "y"))["authenticated"] is False
            assert (await review(api, ADMIN))["audiences"] == [ISSUER]
            assert (await review(api, ADMIN, "vault"))["authenticated"] is False
            assert (await api.refused(review(api, ""))).code == 400

        with_tokens(story)


class TestValidity:
    def test_a_token_ends(self) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            short = await token(api, expirationSeconds=600)
            await api.pause(599)
            assert authenticator.by_token(short) is not None
            await api.pause(1)
            assert authenticator.by_token(short) is None

        with_tokens(story)

    def test_one_from_later_than_now_or_of_another_issuer_is_refused(self) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            claims = authenticator._signed_claims(await token(api))
            assert claims is not None

            def signed(head: Object | None = None, **changed: Any) -> str:
                parts = ({"alg": "HS256"} if head is None else head, {**claims, **changed})
                body = ".".join(_encode(orjson.dumps(part)) for part in parts)
                return f"{body}.{_encode(authenticator._sign(body))}"

            assert authenticator.by_token(signed()) is not None
            assert authenticator.by_token(signed(nbf=claims["nbf"] + 30)) is not None
            for wrong in (
                signed(nbf=claims["nbf"] + 3600),
                signed(iat=claims["iat"] + 3600),
                signed(iss="https://elsewhere"),
                signed(aud=ISSUER),
                signed(exp="never"),
                signed({"alg": "none"}),
                signed({}),
                signed()[:-2],
                "a.b.c",
                "",
            ):
                assert authenticator.by_token(wrong) is None

        with_tokens(story)

    def test_a_token_ends_with_its_account(self) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            mine = await token(api)
            await api.delete(ACCOUNT)
            await api.create(ACCOUNT.rpartition("/")[0], {"metadata": {"name": "robot"}})
            assert authenticator.by_token(mine) is None

        with_tokens(story)

    def test_a_connection_that_used_a_token_learns_that_it_ended(self, tmp_path: Path) -> None:
        async def story(client: Web) -> None:
            accounts = ACCOUNT.rpartition("/")[0]
            await client.ask("POST", accounts, {"metadata": {"name": "robot"}})
            sent = {"spec": {"boundObjectRef": bound("Secret", "s")}}
            secrets = "/api/v1/namespaces/default/secrets"
            await client.ask("POST", secrets, {"metadata": {"name": "s"}})
            _, _, answer = await client.ask("POST", f"{ACCOUNT}/token", sent)
            headers = {"Authorization": f"Bearer {answer['status']['token']}"}

            async def code() -> int:
                return (await client.ask("GET", "/api", headers=headers))[0]

            # A write to what the token names makes it be looked at again, and is no reason to refuse it.
            assert [await code(), await code()] == [200, 200]
            await client.ask("PUT", f"{secrets}/s", {"metadata": {"name": "s", "labels": {"a": "b"}}})
            assert [await code(), await code()] == [200, 200]
            await client.ask("DELETE", f"{secrets}/s")
            await client.ask("POST", secrets, {"metadata": {"name": "s"}})
            assert [await code(), await code()] == [401, 401]

        over_tls(tmp_path, story)

    @pytest.mark.parametrize("kind", ["Pod", "Secret", "Node"])
    def test_a_token_ends_with_what_it_is_bound_to(self, kind: str) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            where = "/api/v1/nodes" if kind == "Node" else f"/api/v1/namespaces/default/{kind.lower()}s"
            body = pod("x", serviceAccountName="robot") if kind == "Pod" else {"metadata": {"name": "x"}}
            made = await api.create(where, body)
            uid = made["metadata"]["uid"]
            mine = await token(api, boundObjectRef=bound(kind, "x"))
            user = authenticator.by_token(mine)
            assert user is not None
            if kind != "Secret":
                assert user.extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] == [uid]
            await api.delete(f"{where}/x", {"gracePeriodSeconds": 0})
            assert authenticator.by_token(mine) is None
            await api.create(where, body)
            assert authenticator.by_token(mine) is None, "another of the same name"

        with_tokens(story)


class TestRequests:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            ({"spec": {"expirationSeconds": "long"}}, 422),
            ({"spec": {"expirationSeconds": 599}}, 422),
            ({"spec": {"expirationSeconds": 1 << 33}}, 422),
            ({"spec": {"audiences": "vault"}}, 422),
            ({"spec": {"audiences": [1]}}, 422),
            ({"spec": {"boundObjectRef": ["x"]}}, 422),
            ({"spec": "x"}, 422),
            ({"metadata": {"name": "other"}}, 422),
            ({"metadata": {"uid": "other"}}, 409),
            ([], 400),
            ({"kind": "Pod"}, 400),
            ({"spec": {"boundObjectRef": bound("Pod", "none")}}, 404),
            ({"spec": {"boundObjectRef": bound("ConfigMap", "none")}}, 400),
            ({"spec": {"boundObjectRef": bound("Pod", "of-default")}}, 400),
            ({"spec": {"boundObjectRef": bound("Secret", "s", uid="other")}}, 409),
            ({"spec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None}}, 201),
            (None, 201),
        ],
    )
    def test_odd_ones_are_refused(self, body: Any, code: int) -> None:
        async def story(api: Api, authenticator: Authenticator) -> None:
            await api.create("/api/v1/namespaces/default/pods", pod("of-default"))
            await api.create("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
            asked = api.create(f"{ACCOUNT}/token", body)
            if code == 201:
                assert (await asked)["spec"]["expirationSeconds"] == 3600
            else:
                assert (await api.refused(asked)).code == code

        with_tokens(story)

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("pods/p/eviction", {"metadata": []}),
            ("pods/p/eviction", {"deleteOptions": "x"}),
            ("pods/p/binding", {"target": {"name": 3}}),
            ("pods/p/binding", {"target": {"name": "n"}, "metadata": "x"}),
        ],
    )
    def test_odd_types_of_other_subresources_are_refused(self, path: str, body: Object) -> None:
        async def story(api: Api) -> None:
            await api.create("/api/v1/namespaces/default/pods", pod("p"))
            assert (await api.refused(api.create(f"/api/v1/namespaces/default/{path}", body))).code == 422

        with_server(story)

    def test_odd_types_in_a_scale_are_refused(self) -> None:
        async def story(api: Api) -> None:
            labels = {"a": "b"}
            template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            deployments = "/apis/apps/v1/namespaces/default/deployments"
            await api.create(deployments, {"metadata": {"name": "d"}, "spec": spec})
            for change in ({"spec": "x"}, {"spec": {"replicas": "2"}}, {"metadata": 1}):
                assert (await api.refused(api.patch(f"{deployments}/d/scale", change))).code == 422
                assert (await api.refused(api.replace(f"{deployments}/d/scale", change))).code == 422

        with_server(story)


class TestReviewsOfAccess:
    def test_exactly_one_of_resource_and_path_is_asked_for(self) -> None:
        async def story(api: Api) -> None:
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            resource, url = {"resourceAttributes": {}}, {"nonResourceAttributes": {}}
            for spec in ({}, {**resource, **url}):
                assert (await api.refused(api.create(path, {"spec": spec}))).code == 422
            joe = Api(api.server, api.clock, "joe", ())
            assert (await joe.create(path, {"spec": url}))["status"]["allowed"] is False
            rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
            assert (await joe.refused(joe.create(rules, {"spec": {}}))).code == 400

        with_server(story)


class TestImpersonation:
    def test_whom_it_makes_of_a_user(self, tmp_path: Path) -> None:
        async def story(client: Web) -> None:
            async def who(**headers: str) -> tuple[int, Any]:
                sent = {key.replace("_", "-"): value for key, value in headers.items()}
                path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
                code, _, answer = await client.ask("POST", path, {}, sent)
                return code, answer["status"]["userInfo"] if code == 201 else answer["message"]

            robot = "system:serviceaccount:default:robot"
            groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
            assert await who(Impersonate_User=robot) == (201, {"username": robot, "groups": groups})
            odd = "system:serviceaccount:default:Not_One"
            assert await who(Impersonate_User=odd) == (
                201,
                {"username": odd, "groups": ["system:authenticated"]},
            )
            code, refusal = await who(Impersonate_User="system:anonymous")
            assert (code, "system:anonymous" in refusal) == (403, True), "it may not create reviews"
            code, info = await who(Impersonate_User="joe", Impersonate_Uid="7", Impersonate_Extra_A="b")
            assert (code, info["uid"], info["extra"]) == (201, "7", {"a": ["b"]})
            for alone in ({"Impersonate_Group": "g"}, {"Impersonate_Uid": "7"}, {"Impersonate_Extra_A": "b"}):
                assert (await who(**alone))[0] == 400

        over_tls(tmp_path, story)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("admin.token", b""),
            ("admin.token", b" \n"),
            ("admin.token", b"short"),
            ("admin.token", b"two words in one file"),
            ("admin.token", "größer als sechzehn".encode()),
            ("service-account.key", b""),
            ("service-account.key", b"ab"),
            ("service-account.key", b"k" * 31),
        ],
    )
    def test_weak_ones_are_refused_at_the_start(self, tmp_path: Path, name: str, content: bytes) -> None:
        async def main() -> None:
            server = Server(None, Clock(), random.Random(1))
            await server.start()
            (tmp_path / name).write_bytes(content)
            try:
                with pytest.raises(KeyFileError, match=f"{name} has .* accepted: "):
                    await server.serve(directory=tmp_path)
            finally:
                await server.stop()

        asyncio.run(main())

    def test_an_empty_token_never_authenticates(self) -> None:
        async def story(api: Api) -> None:
            with pytest.raises(ValueError, match="empty"):
                Authenticator(api.server.core, KEY, {"": User("root")})
            with pytest.raises(ValueError, match="at least 32"):
                Authenticator(api.server.core, b"k", {})

        with_server(story)
