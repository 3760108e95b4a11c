"""A real Chromium without a window. Without one, or without selenium, these tests are skipped and say so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The driver of one browser for all tests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    binary = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    browser.set_script_timeout(20)
    yield browser
    browser.quit()


class Tab:
    """A page in the browser, with what the tests ask of it."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.folder = driver, folder

    def open(self, page: str, *, width: int = 1200, height: int = 900, scheme: str = "light") -> Tab:
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.complaints()
        path = self.folder / "page.html"
        path.write_text(page, "utf-8")
        self.driver.get(path.as_uri())
        return self

    def command(self, name: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, values)

    def run(self, script: str, *values: Any) -> Any:
        """What a function body returns in the page."""
        return self.driver.execute_script(script, *values)

    def complaints(self) -> list[str]:
        """What the console got since it was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def text(self, selector: str) -> str:
        """What a reader sees there."""
        return str(self.driver.find_element("css selector", selector).text)


@pytest.fixture
def tab(chromium: Any, tmp_path: Path) -> Tab:
    return Tab(chromium, tmp_path)
