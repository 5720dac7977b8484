"""A headless Chromium that tests drive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypeVar

import pytest
from dashboard_world import PATIENCE, World
from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

T = TypeVar("T")

#: Raised for elements that a new version of the page replaces.
_REPLACED = (NoSuchElementException, StaleElementReferenceException)


def programs() -> tuple[str, str]:
    """Chromium and its driver; skips the test where they are not installed."""
    browser = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    driver = shutil.which(os.environ.get("CHROMEDRIVER", "chromedriver"))
    if browser is None or driver is None:
        pytest.skip("Chromium is not installed: put chromium and chromedriver on PATH, or name them in "
                    "CHROMIUM and CHROMEDRIVER")  # fmt: skip
    return browser, driver


class Browser:
    """One browser; pages are those of a world."""

    def __init__(self, world: World) -> None:
        browser, driver = programs()
        options = Options()
        options.binary_location = browser
        for argument in (
            "--headless=new",
            "--hide-scrollbars",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1280,900",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.world = world
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(PATIENCE)

    def close(self) -> None:
        self.driver.quit()

    def open(self, path: str) -> None:
        self.driver.get(self.world.url + path)

    def sign_in(self, token: str) -> None:
        """Open a link that signs in."""
        self.world.allow_sign_in()
        self.driver.delete_all_cookies()
        self.driver.get("about:blank")
        self.driver.get(self.world.dashboard.sessions.sign_in_link(self.world.url, token))
        self.wait(lambda: self.path == "/")

    @property
    def path(self) -> str:
        return str(self.driver.execute_script("return location.pathname"))

    @property
    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "main").text

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, text: str) -> None:
        """Follow the link, or press the button, with this text."""
        self.click_on(f"//*[self::a or self::button][normalize-space(.)={text!r}]", By.XPATH)

    def click_on(self, selector: str, by: str = By.CSS_SELECTOR) -> None:
        """Click the first element that a selector finds."""

        def clicked() -> bool:
            self.driver.find_element(by, selector).click()
            return True

        self.wait(clicked)

    def wait(self, probe: Callable[[], T]) -> T:
        """What a probe returns once it is true. Elements may be replaced while it looks."""

        def until(_driver: Any) -> Any:
            return probe()

        waiting: WebDriverWait[Any] = WebDriverWait(self.driver, PATIENCE, 0.05, _REPLACED)
        try:
            found: T = waiting.until(until)
        except TimeoutException:
            raise AssertionError(f"{self.driver.current_url}: {self.driver.page_source[:5000]}") from None
        return found

    def wait_for(self, text: str) -> None:
        self.wait(lambda: text in self.text)

    def problems(self) -> list[str]:
        """What browsers report: blocked scripts, failed requests."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def violations(self, **options: Any) -> list[str]:
        """The accessibility rules of axe that the page breaks (WCAG 2 A and AA), and where."""
        self.driver.execute_script((files("axe_core_python") / "axe.min.js").read_text())
        chosen = {
            "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
            "resultTypes": ["violations"],
            **options,
        }
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, arguments[0])"
            ".then(found => done(found.violations), error => done([String(error)]))",
            chosen,
        )
        return [
            f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            if isinstance(one, dict)
            else one
            for one in found
        ]

    def emulate(self, *, scheme: str = "light", width: int = 1280) -> None:
        """Prefer light or dark, and have a viewport of a width."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
