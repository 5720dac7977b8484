"""What users with different rights see and may do, over HTTP."""

from __future__ import annotations

import html

import pytest
from dashboard_world import EVERYTHING, READ_ALL, READ_TEAM, World, first, job, own, submit

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION, HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION
from pykueue.api.meta import parse_time
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    CLUSTER_ROLE_BINDINGS,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    SERVICE_ACCOUNTS,
    WORKLOADS,
)
from pykueue.kube.transport import MERGE_PATCH, Request
from pykueue.manager.install.dashboard import RULES
from pykueue.questions.budgets import Use
from pykueue.questions.cluster_state import KINDS
from pykueue.web.dashboard.pages.budgets import burn_down
from pykueue.web.dashboard.state.board import BESIDE
from queue_manifests import cluster_queue, flavor, local_queue


@pytest.fixture(scope="module", autouse=True)
def _jobs(world: World) -> None:
    submit(
        world,
        job("shown", "team-a"),
        job("too-large", "team-a", cpu="9"),
        job("secret-project", "team-b", cpu="3"),
        job("secret-giant", "team-b", cpu="9"),
    )


def test_everything_that_decisions_depend_on_is_read(world: World) -> None:
    world.visitor().sign_in(world.admin_token).get("/")
    assert world.dashboard.board.unread == {}


def test_a_user_of_one_namespace_sees_its_workloads_only(world: World) -> None:
    visitor = world.visitor().sign_in(world.token("of-team-a", **{"team-a": READ_TEAM}))
    world.workload_of("team-b", "secret-project")
    world.workload_of("team-a", "shown")
    listed = visitor.get("/workloads").text
    assert "shown" in listed
    assert "secret" not in listed
    start = visitor.get("/").text
    assert "secret" not in start
    assert "Your LocalQueues" in start
    name = world.workload_of("team-b", "secret-project")
    denied = visitor.get(f"/workloads/team-b/{name}")
    assert denied.status == 403
    assert 'cannot get resource "workloads"' in html.unescape(denied.text)
    assert visitor.get(f"/api/workload/{name}?namespace=team-b").status == 403
    assert visitor.get("/cluster-queues").status == 403


def test_a_user_without_rights_sees_nothing_and_reads_why(world: World) -> None:
    visitor = world.visitor().sign_in(world.token("without-rights"))
    for path in ("/", "/workloads", "/local-queues", "/cluster-queues"):
        answer = visitor.get(path)
        assert answer.status == 403, path
        assert "team-a" not in answer.text
        assert "Not allowed" in answer.text


def test_names_in_queues_and_answers_are_omitted_where_the_user_may_not_list_them(world: World) -> None:
    kinds = ["clusterqueues", "cohorts", "resourceflavors"]
    queues = [{"apiGroups": ["kueue.x-k8s.io"], "resources": kinds, "verbs": ["get", "list", "watch"]}]
    visitor = world.visitor().sign_in(world.token("of-queues", everywhere=queues, **{"team-a": READ_TEAM}))
    world.workload_of("team-b", "secret-project")
    line = visitor.get("/cluster-queues/team-b").text
    assert "a workload that you may not list" in line
    assert "secret" not in line
    start = visitor.get("/").text
    assert "in namespaces whose workloads you may not list" in start
    assert "secret" not in start
    why = visitor.get(f"/workloads/team-a/{world.workload_of('team-a', 'too-large')}").text
    assert "Why it is pending" in why
    assert "secret" not in why


def test_a_reader_sees_everything_and_may_write_nothing(world: World) -> None:
    visitor = world.visitor().sign_in(world.token("reader", everywhere=READ_ALL))
    page = visitor.get("/cluster-queues/team-a")
    assert page.status == 200
    assert "/actions/stop" not in page.text
    form = {"csrf": page.csrf, "kind": "clusterqueue", "name": "team-a", "policy": "Hold"}
    refused = visitor.post("/actions/stop", form)
    assert refused.status == 403
    assert "clusterqueues" in refused.text
    found = world.call(world.admin.get(CLUSTER_QUEUES, "team-a"))
    assert found["spec"].get("stopPolicy", "None") == "None"


def test_writes_carry_the_token_of_the_user(world: World) -> None:
    visitor = world.visitor().sign_in(world.token("administrator", everywhere=EVERYTHING))
    name = world.workload_of("team-a", "too-large")
    page = visitor.get(f"/workloads/team-a/{name}")
    form = {"csrf": page.csrf, "kind": "workload", "namespace": "team-a", "name": name}
    assert visitor.post("/actions/stop", form).headers["Location"] == f"/workloads/team-a/{name}?done=stop"
    assert world.call(world.admin.get(WORKLOADS, name, "team-a"))["spec"]["active"] is False
    assert visitor.post("/actions/resume", form).status == 303
    assert visitor.post("/actions/priority", {**form, "priority": "7"}).status == 303
    found = world.call(world.admin.get(WORKLOADS, name, "team-a"))["spec"]
    assert (found["active"], found["priority"]) == (True, 7)
    for action, value in (("priority", "high"), ("priority", str(2**31)), ("delete", "1")):
        assert visitor.post(f"/actions/{action}", {**form, "priority": value}).status in (400, 404)


def test_the_dashboard_itself_may_only_read(world: World) -> None:
    """Neither its own rights nor those of a user who may not write suffice for a write."""
    assert {verb for rule in RULES for verb in rule.verbs} == {"get", "list", "watch"}
    read = {(rule.group, plural) for rule in RULES for plural in rule.resources}
    own = (BACKFILL_POLICIES, BUDGETS, BUDGET_LEDGERS, RESERVATIONS, PREEMPTION_POLICIES, *KINDS, *BESIDE)
    assert {(kind.group, kind.plural) for kind in own} == read
    assert not any("impersonate" in rule.verbs or "secrets" in rule.resources for rule in RULES)


def test_lost_work_is_shown_to_those_who_may_list_preemption_policies(world: World) -> None:
    total = {
        "preemptorClusterQueue": "team-a",
        "clusterQueue": "team-b",
        "count": 3,
        "lostResourceSeconds": {"cpu": 7200},
    }
    policy = {
        "apiVersion": PREEMPTION_POLICIES.api_version,
        "kind": PREEMPTION_POLICIES.kind,
        "metadata": {"name": "ledger"},
        "spec": {"cohort": "company"},
    }
    world.create(PREEMPTION_POLICIES, policy)
    status = {"status": {"totals": [total]}}
    path = PREEMPTION_POLICIES.path(None, "ledger", "status")
    world.call(world.admin.call(Request("PATCH", path, body=status, content_type=MERGE_PATCH)))
    reader = world.visitor().sign_in(world.admin_token)
    world.eventually(lambda: "2.00 hours of cpu" in reader.get("/preemptions").text)
    member = world.visitor().sign_in(world.token("sees-no-ledger", **{"team-a": READ_TEAM}))
    page = member.get("/preemptions")
    assert page.status == 200
    assert "Lost work" not in page.text


def test_a_stream_shows_changes_and_ends_when_its_token_does(world: World) -> None:
    visitor = world.visitor().sign_in(world.token("watcher", everywhere=READ_ALL))

    async def story() -> None:
        async with visitor.stream("/workloads") as events:
            await first(events, lambda name, data: name == "page")
            await world.admin.create(JOBS, job("appears-later", "team-a", cpu="9"))
            await first(events, lambda name, data: name == "page" and "appears-later" in data)
            await world.admin.delete(SERVICE_ACCOUNTS, "watcher", "default")
            world.clock.shift += 31  # verdicts hold for 30 seconds
            await world.admin.create(JOBS, job("appears-last", "team-a", cpu="9"))
            name, data = await first(events, lambda name, data: name != "page" or "appears-last" in data)
            assert (name, data) == ("end", '""')

    world.call(story())
    assert visitor.get("/workloads").status == 303


def test_rights_that_are_taken_away_end_a_stream(world: World) -> None:
    visitor = world.visitor().sign_in(world.token("former-reader", everywhere=READ_ALL))

    async def story() -> None:
        async with visitor.stream("/workloads") as events:
            await first(events, lambda name, data: name == "page")
            await world.admin.delete(CLUSTER_ROLE_BINDINGS, "former-reader")
            world.clock.shift += 31
            await world.admin.create(JOBS, job("after-the-fact", "team-a", cpu="9"))
            name, _ = await first(events, lambda name, data: name != "page" or "after-the-fact" in data)
            assert name == "denied"

    world.call(story())


def test_a_stream_needs_the_right_to_watch(world: World) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    visitor = world.visitor().sign_in(world.token("lister", everywhere=rules))
    assert visitor.get("/workloads").status == 200

    async def story() -> str:
        async with visitor.stream("/workloads") as events:
            return (await first(events, lambda name, data: True))[0]

    assert world.call(story()) == "denied"


def test_markup_in_names_and_messages_stays_text(world: World) -> None:
    script = "<script>alert(1)</script>"
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    submitted = job("plain-name", "team-a", cpu="9")
    submitted["metadata"]["labels"] = labels
    submitted["metadata"]["annotations"] = {"note": script}
    submit(world, submitted)
    name = world.workload_of("team-a", "plain-name")
    event = {
        "metadata": {"name": "evil", "namespace": "team-a"},
        "involvedObject": {"kind": "Workload", "namespace": "team-a", "name": name},
        "type": "Warning",
        "reason": script,
        "message": script,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    world.call(world.admin.create(EVENTS, event))
    # The end of a container's log, where its pod reports that.
    ended = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": script}}}
    pod = {
        "metadata": {
            "name": "failed",
            "namespace": "team-a",
            "annotations": {"kueue.x-k8s.io/workload": name},
        },
        "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "i"}]},
        "status": {"phase": "Failed", "containerStatuses": [ended]},
    }
    world.call(world.admin.create(PODS, pod))
    world.call(world.admin.patch(PODS, "failed", "team-a", {"status": pod["status"]}, subresource="status"))
    visitor = world.visitor().sign_in(world.admin_token)
    world.eventually(lambda: world.dashboard.board.events_of(("Workload", "team-a", name)) or None)
    world.eventually(lambda: f"Error: {html.escape(script)}" in visitor.get(f"/workloads/team-a/{name}").text)
    for path in (f"/workloads/team-a/{name}", "/workloads", "/", f"/workloads?q={script}"):
        page = visitor.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text, path
    assert html.escape(script) in visitor.get(f"/workloads/team-a/{name}").text
    assert "<script>alert" not in visitor.get(f"/workloads/team-a/{script}").text
    assert "<script>alert" not in visitor.get(f"/nowhere/{script}").text


def test_page_of_a_workload_on_several_flavors_names_the_pods_of_each(world: World) -> None:
    queue = cluster_queue("split", {"default": {"cpu": 2}, "other": {"cpu": 2}})
    queue["metadata"]["annotations"] = {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"}
    world.create(RESOURCE_FLAVORS, flavor("other"))
    world.create(CLUSTER_QUEUES, queue)
    world.create(LOCAL_QUEUES, local_queue("split", namespace="team-a"))
    made = job("split", pods=3, labels={"kueue.x-k8s.io/queue-name": "split"})
    request = '{"flavors": [{"name": "default"}, {"name": "other"}]}'
    made["spec"]["template"]["metadata"]["annotations"][HYBRID_ASSIGNMENT_ANNOTATION] = request
    submit(world, made)
    path = f"/workloads/team-a/{world.workload_of('team-a', 'split')}"
    visitor = world.visitor().sign_in(world.admin_token)
    world.eventually(lambda: "split over default (pods 0-1) and other (pod 2)" in visitor.get(path).text)


def test_start_is_shown_to_those_who_may_read_pending_workloads(world: World) -> None:
    path = f"/workloads/team-a/{world.workload_of('team-a', 'too-large')}"
    pending = {
        "apiGroups": ["visibility.kueue.x-k8s.io"],
        "resources": ["pendingworkloads"],
        "verbs": ["get"],
    }
    reader = world.visitor().sign_in(world.token("reader-of-starts", **{"team-a": [*READ_TEAM, pending]}))

    world.eventually(lambda: "from 20 simulated futures" in reader.get(path).text)
    other = world.visitor().sign_in(world.token("reader-without-starts", **{"team-a": READ_TEAM}))
    page = other.get(path)
    assert page.status == 200
    assert "simulated futures" not in page.text


def test_budgets_and_reservations_are_shown_to_those_who_may_list_them(world: World) -> None:
    resources = [{"name": "cpu", "hours": "100"}]
    lab = own("Budget", "lab", {"selector": {"namespace": "team-a"}, "resources": resources})
    flavors = [{"name": "default", "resources": [{"name": "cpu", "quantity": 2}]}]
    spec = {"clusterQueue": "team-a", "flavors": flavors, "start": "2040-01-01T00:00:00Z", "duration": "1h"}
    world.call(world.admin.create(BUDGETS, lab))
    world.call(world.admin.create(RESERVATIONS, own("Reservation", "course", spec)))
    visitor = world.visitor().sign_in(world.token("reader-of-budgets", everywhere=READ_ALL))
    world.eventually(lambda: "of 100.00 h" in visitor.get("/budgets").text or None)
    page = html.unescape(visitor.get("/budgets").text)
    assert "For namespace team-a." in page
    assert 'href="/objects/Budget/lab"' in page
    assert visitor.get("/objects/Budget/lab").status == 200
    listed = html.unescape(visitor.get("/reservations").text)
    assert "default: 2 cpu" in listed
    assert "2040-01-01T00:00:00Z for 1h" in listed
    assert "Upcoming" in listed
    other = world.visitor().sign_in(world.token("of-team-a-only", **{"team-a": READ_TEAM}))
    assert [other.get(path).status for path in ("/budgets", "/reservations")] == [403, 403]


def test_what_was_left_is_drawn_by_hour() -> None:
    by_hour = {"2026-01-01T00:00:00Z": 10.0, "2026-01-01T02:00:00Z": 20.0}
    use = Use(
        resource="cpu", limit=100.0, used=40.0, reserved=0.0, remaining=60.0, percent=40, by_hour=by_hour
    )
    chart = burn_down(use, "vision", parse_time("2026-01-01T03:00:00Z"))
    assert chart is not None
    # 90 before the first hour, 80 after it and until the third, 60 now; the scale ends at 100.
    assert 'points="0.0,10.0 200.0,20.0 400.0,20.0 600.0,40.0 600.0,40.0"' in chart
    assert 'aria-label="Hours of cpu that were left for vision over time, now 60.00 h"' in chart
