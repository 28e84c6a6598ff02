"""Settings of all tests."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
# as in an activated environment: the program then names its commands without a path
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """One finished run of PPO for all tests (a `tiny_runs.FinishedRun`); they leave it as it is."""
    from tiny_runs import make_finished_run  # the command line takes seconds to import, and few tests need it

    return make_finished_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Networks and data made in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="session")
def open_browser() -> Iterator[Callable[..., Any]]:
    """`open_browser(width=1600, dark=False, scripts=True)`: a headless chromium that logs all it does."""
    from selenium import webdriver

    opened = []

    def browser(width: int = 1600, height: int = 1000, dark: bool = False, scripts: bool = True) -> Any:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "chromium"
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking", "hide-scrollbars"):
            options.add_argument(f"--{flag}")
        options.add_argument(f"--window-size={width},{height}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        if not scripts:
            options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        opened.append(driver)
        return driver

    yield browser
    for driver in opened:
        driver.quit()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a skipped test is a failure: what it needs has to be installed there."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
