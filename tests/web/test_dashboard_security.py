"""Signing in and out, and requests that are refused whatever the rights of the user."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from dashboard_world import World

from pykueue.web.dashboard.security.limits import RateLimit
from pykueue.web.dashboard.security.sessions import expiry
from pykueue.web.dashboard.server import local_path


def test_a_link_signs_in_once_and_holds_no_token(world: World) -> None:
    link = world.dashboard.sessions.sign_in_link(world.url, world.admin_token)
    path, _, code = link.removeprefix(world.url).partition("#")
    assert path == "/sign-in"
    assert world.admin_token not in link
    answer = world.visitor().post("/sign-in", {"code": code})
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert world.admin_token not in cookie
    again = world.visitor().post("/sign-in", {"code": code})
    assert again.status == 401
    assert "Set-Cookie" not in again.headers


def test_a_link_is_too_old_after_a_minute(world: World) -> None:
    link = world.dashboard.sessions.sign_in_link(world.url, world.admin_token)
    world.clock.shift += 61
    assert world.visitor().post("/sign-in", {"code": link.partition("#")[2]}).status == 401


def test_commands_get_codes_for_bearer_tokens(world: World) -> None:
    answer = world.visitor().post("/sign-in/codes", Authorization=f"Bearer {world.admin_token}")
    assert answer.status == 201
    code = json.loads(answer.text)["code"]
    assert world.visitor().post("/sign-in", {"code": code}).status == 303
    assert world.visitor().post("/sign-in/codes").status == 401


def test_a_wrong_token_does_not_sign_in(world: World) -> None:
    world.clock.shift += 60  # the limit of attempts
    for token in ("", "wrong", "x" * 20_000):
        answer = world.visitor().post("/sign-in", {"token": token})
        assert answer.status == 401
        assert "Set-Cookie" not in answer.headers


def test_signing_out_ends_the_session(world: World) -> None:
    world.clock.shift += 60
    visitor = world.visitor().sign_in(world.admin_token)
    stolen = {"Cookie": "; ".join(f"{one.key}={one.value}" for one in visitor.cookies)}
    assert world.visitor().get("/", **stolen).status == 200
    page = visitor.get("/")
    assert visitor.post("/sign-out", {"csrf": "wrong"}).status == 403
    assert visitor.post("/sign-out", {"csrf": page.csrf}).headers["Location"] == "/sign-in"
    assert world.visitor().get("/", **stolen).status == 303


def test_a_session_ends_with_time(world: World) -> None:
    world.clock.shift += 60
    visitor = world.visitor().sign_in(world.admin_token)
    world.clock.shift += 3601
    assert visitor.get("/").headers["Location"].startswith("/sign-in?next=")


def test_a_session_ends_when_its_token_expires(world: World) -> None:
    world.clock.shift += 60
    visitor = world.visitor().sign_in(world.token("short-lived"))
    for _ in range(2):  # tokens last an hour, and so does a session that is not used
        assert visitor.get("/").status == 403
        world.clock.shift += 1800
    assert visitor.get("/").status == 303


def test_requests_under_another_host_name_are_refused(world: World) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        assert world.visitor().get("/sign-in", Host=host).status == 421
    assert world.visitor().get("/sign-in", Host="localhost:8180").status == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}],
)
def test_writes_from_other_sites_are_refused(world: World, headers: dict[str, str]) -> None:
    world.clock.shift += 60
    visitor = world.visitor().sign_in(world.admin_token)
    form = {"csrf": visitor.get("/").csrf, "kind": "clusterqueue", "name": "team-a"}
    assert visitor.post("/actions/stop", form, **headers).status == 403
    assert visitor.post("/actions/stop", {**form, "csrf": ""}).status == 403
    assert world.visitor().post("/sign-in", {"token": world.admin_token}, **headers).status == 403


def test_every_answer_forbids_frames_inline_scripts_and_other_hosts(world: World) -> None:
    world.clock.shift += 60
    visitor = world.visitor().sign_in(world.admin_token)
    for path in ("/", "/workloads", "/sign-in", "/nowhere", "/static/dashboard.js", "/auth/status"):
        headers = visitor.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        if not path.startswith("/static"):
            assert headers["Cache-Control"] == "no-store"


def test_attempts_to_sign_in_are_limited(world: World) -> None:
    world.clock.shift += 600
    answers = [world.visitor().post("/sign-in", {"token": "wrong"}).status for _ in range(12)]
    assert answers[:10] == [401] * 10
    assert 429 in answers


def test_a_rate_limit_recovers_and_is_of_each_client() -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    limit = RateLimit(clock, rate=1.0, burst=2.0)  # type: ignore[arg-type]
    assert [limit.take("one") for _ in range(3)] == [True, True, False]
    assert limit.take("two")
    clock.now = 1.0
    assert [limit.take("one") for _ in range(2)] == [True, False]


def test_clients_that_are_not_signed_in_get_nothing(world: World) -> None:
    visitor = world.visitor()
    assert visitor.get("/workloads?q=x").headers["Location"] == "/sign-in?next=/workloads?q%3Dx"
    for path in ("/stream?path=/", "/api/workload/x?namespace=y"):
        assert visitor.get(path, Accept="application/json").status == 401
    assert visitor.post("/actions/stop").status == 401
    assert json.loads(visitor.get("/auth/status").text)["authenticated"] is False


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/workloads?q=x", "/workloads?q=x"),
        ("https://evil.example", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_to_pages_of_the_dashboard_only(target: str, path: str) -> None:
    assert local_path(target) == path


def test_the_expiry_of_a_token_is_read_where_it_says_so() -> None:
    claims = base64.urlsafe_b64encode(b'{"exp": 12}').decode().rstrip("=")
    assert expiry(f"a.{claims}.c") == 12.0
    for other in ("", "static", "a.b.c", f"a.{claims}", "a.e30.c", "a.W10.c"):
        assert expiry(other) is None


def test_a_page_before_the_first_list_says_so_and_asks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = world.visitor().sign_in(world.admin_token)
    world.eventually(lambda: visitor.get("/").status == 200)
    monkeypatch.setattr(world.dashboard.board, "ready", asyncio.Event())
    page = visitor.get("/")
    assert (page.status, page.headers["Refresh"]) == (503, "1")
    assert "The objects of the cluster are being listed" in page.text
    monkeypatch.undo()
    assert visitor.get("/").status == 200
