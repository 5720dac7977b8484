"""The dashboard as users meet it, in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_browser import Browser
from dashboard_world import READ_ALL, READ_TEAM, World, job, own, submit
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from pykueue.api.budgets import BUDGETS
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import EVENTS, JOBS

#: Pages without parameters of the path.
LISTS = (
    "/",
    "/workloads",
    "/cluster-queues",
    "/local-queues",
    "/cohorts",
    "/resource-flavors",
    "/nodes",
    "/preemptions",
    "/budgets",
    "/reservations",
    "/trends",
)
DETAILS = (
    "/cluster-queues/team-a",
    "/local-queues/team-a/main",
    "/cohorts/company",
    "/resource-flavors/default",
    "/objects/node/node-0",
)


@pytest.fixture(scope="module")
def browser(world: World) -> Iterator[Browser]:
    found = Browser(world)
    yield found
    found.close()


@pytest.fixture(scope="module")
def pending(world: World, browser: Browser) -> str:
    """The page of a workload that is pending."""
    browser.sign_in(world.admin_token)  # the dashboard follows the cluster from then on
    submit(world, job("described", cpu="9"))
    return f"/workloads/team-a/{world.workload_of('team-a', 'described')}"


def row_state(browser: Browser, name: str) -> str:
    """The state of a job in the list of Workloads; empty if it is not listed."""
    for row in browser.driver.find_elements(By.CSS_SELECTOR, "tbody tr"):
        if row.find_element(By.CSS_SELECTOR, "th a").text == name:
            return row.find_element(By.CSS_SELECTOR, ".state").text
    return ""


def test_a_job_goes_from_pending_to_running_without_a_reload(world: World, browser: Browser) -> None:
    submit(world, job("first", cpu="4"))
    browser.sign_in(world.admin_token)
    browser.open("/workloads")
    browser.wait(lambda: row_state(browser, "first") == "Running")
    browser.driver.execute_script("window.sameDocument = true")
    submit(world, job("second", cpu="1"))
    browser.wait(lambda: row_state(browser, "second") == "Pending")
    world.call(world.admin.delete(JOBS, "first", "team-a", propagation="Background"))
    browser.wait(lambda: row_state(browser, "second") == "Running")
    assert browser.driver.execute_script("return window.sameDocument") is True
    assert browser.problems() == []


def test_why_a_job_is_pending_is_two_clicks_from_the_start_page(world: World, browser: Browser) -> None:
    submit(world, job("too-large", cpu="9"))
    world.workload_of("team-a", "too-large")
    browser.sign_in(world.admin_token)
    browser.wait_for("Never fits")
    browser.click("team-a/too-large")
    browser.wait_for("Why it is pending")
    assert "maximum capacity" in browser.text
    browser.open("/")
    browser.click_on('.tiles a[href="/workloads?state=Pending"]')
    browser.click("too-large")
    browser.wait_for("Why it is pending")
    browser.open("/")
    browser.find("#find").send_keys("too-la", Keys.ENTER)
    browser.wait(lambda: browser.path == "/workloads")
    browser.click("too-large")
    browser.wait_for("Why it is pending")


def test_a_queue_is_stopped_and_resumed(world: World, browser: Browser) -> None:
    browser.sign_in(world.admin_token)
    browser.open("/cluster-queues/team-b")
    browser.wait_for("Active")
    browser.click("Stop")
    browser.driver.switch_to.alert.accept()
    browser.wait_for("Stopped: Hold")
    browser.click("Resume")
    browser.wait(lambda: browser.find(".summary .state").text == "Active")


def test_signing_out_leads_to_the_sign_in_page(world: World, browser: Browser) -> None:
    browser.sign_in(world.admin_token)
    browser.click("Sign out")
    browser.wait(lambda: browser.path == "/sign-in")
    browser.open("/workloads")
    assert browser.path == "/sign-in"


def test_users_with_different_rights_see_different_things(world: World, browser: Browser) -> None:
    submit(world, job("of-team-b", "team-b", cpu="9"), job("of-team-a", "team-a", cpu="9"))
    world.workload_of("team-b", "of-team-b")
    world.workload_of("team-a", "of-team-a")
    for team, other in (("team-a", "team-b"), ("team-b", "team-a")):
        browser.sign_in(world.token(f"member-of-{team}", **{team: READ_TEAM}))
        browser.open("/workloads")
        browser.wait_for(f"of-{team}")
        assert f"of-{other}" not in browser.driver.page_source


def test_a_page_that_is_open_ends_with_the_token(world: World, browser: Browser) -> None:
    browser.sign_in(world.token("leaver", everywhere=READ_ALL))
    browser.open("/workloads")
    browser.wait(lambda: browser.find("#live").get_attribute("data-state") == "live")
    world.delete_account("leaver")
    world.clock.shift += 31
    submit(world, job("a-change", cpu="9"))
    browser.wait(lambda: browser.path == "/sign-in")
    browser.wait_for("Your session has ended")


def test_markup_in_messages_is_not_run(world: World, browser: Browser) -> None:
    submit(world, job("marked-up", cpu="9"))
    name = world.workload_of("team-a", "marked-up")
    script = "<img src=x onerror='window.ran = true'><script>window.ran = true</script>"
    event = {
        "metadata": {"name": "marked-up", "namespace": "team-a"},
        "involvedObject": {"kind": "Workload", "namespace": "team-a", "name": name},
        "type": "Normal",
        "reason": script,
        "message": script,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    browser.sign_in(world.admin_token)
    browser.open(f"/workloads/team-a/{name}")
    browser.wait_for("Why it is pending")
    world.call(world.admin.create(EVENTS, event))
    browser.wait_for(script)
    assert browser.driver.execute_script("return window.ran") is None
    assert browser.driver.find_elements(By.CSS_SELECTOR, "main script, main img") == []


def test_focus_and_open_details_stay_when_a_page_changes(world: World, browser: Browser) -> None:
    submit(world, job("watched", cpu="9"))
    name = world.workload_of("team-a", "watched")
    browser.sign_in(world.admin_token)
    browser.open(f"/workloads/team-a/{name}")
    browser.click_on("#yaml ~ details summary")
    event = {
        "metadata": {"name": "a-change-on-the-page", "namespace": "team-a"},
        "involvedObject": {"kind": "Workload", "namespace": "team-a", "name": name},
        "type": "Normal",
        "reason": "Noticed",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    world.call(world.admin.create(EVENTS, event))
    browser.wait_for("Noticed")
    assert browser.find("#yaml ~ details").get_attribute("open") is not None
    assert browser.driver.switch_to.active_element.tag_name == "summary"


def test_the_keyboard_reaches_the_content_first(world: World, browser: Browser) -> None:
    browser.sign_in(world.admin_token)
    browser.open("/workloads")
    browser.find("body").send_keys(Keys.TAB)
    assert browser.driver.switch_to.active_element.text == "Skip to content"
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.wait(lambda: browser.driver.switch_to.active_element.tag_name == "main")


def test_a_chosen_theme_stays(world: World, browser: Browser) -> None:
    browser.sign_in(world.admin_token)
    browser.emulate(scheme="light")
    light = browser.find("body").value_of_css_property("background-color")
    browser.find('#theme option[value="dark"]').click()
    browser.wait(lambda: browser.find("html").get_attribute("data-theme") == "dark")
    browser.open("/workloads")
    assert browser.find("body").value_of_css_property("background-color") != light
    browser.find('#theme option[value="auto"]').click()
    browser.wait(lambda: browser.find("html").get_attribute("data-theme") is None)


def test_every_page_passes_the_accessibility_rules(world: World, browser: Browser, pending: str) -> None:
    rules = {"selector": {"namespace": "team-a"}, "resources": [{"name": "cpu", "hours": "100"}]}
    flavors = [{"name": "default", "resources": [{"name": "cpu", "quantity": 1}]}]
    window = {"start": "2040-01-01T00:00:00Z", "duration": "1h"}
    world.create(BUDGETS, own("Budget", "lab", rules))
    world.create(
        RESERVATIONS, own("Reservation", "course", {"clusterQueue": "team-a", "flavors": flavors, **window})
    )
    submit(world, job("small", cpu="100m"))
    details = (pending, f"/workloads/team-a/{world.workload_of('team-a', 'small')}")
    browser.emulate()
    browser.open("/sign-in")
    assert browser.violations() == []
    browser.sign_in(world.admin_token)
    for path, text in (("/budgets", "of 100.00 h"), ("/reservations", "Upcoming")):
        browser.open(path)
        browser.wait_for(text)
    for path in (*LISTS, *DETAILS, *details):
        browser.open(path)
        assert browser.violations() == [], path
    assert browser.problems() == []


def test_contrast_holds_in_the_dark(world: World, browser: Browser, pending: str) -> None:
    browser.sign_in(world.admin_token)
    browser.emulate(scheme="dark")
    for path in (*LISTS, "/cluster-queues/team-a", pending):
        browser.open(path)
        assert browser.violations(runOnly=["color-contrast"]) == [], path
    browser.emulate()


def test_pages_fit_the_width_of_a_phone(world: World, browser: Browser, pending: str) -> None:
    browser.sign_in(world.admin_token)
    browser.emulate(width=390)
    for path in (*LISTS, "/cluster-queues/team-a", pending):
        browser.open(path)
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= 390, path
    browser.emulate()


def test_pages_load_nothing_from_other_hosts(world: World, browser: Browser) -> None:
    browser.sign_in(world.admin_token)
    for path in ("/", "/cohorts"):
        browser.open(path)
        loaded = browser.driver.execute_script(
            "return performance.getEntriesByType('resource').map(one => one.name)"
        )
        assert loaded
        assert all(one.startswith(f"{world.url}/") for one in loaded), loaded
