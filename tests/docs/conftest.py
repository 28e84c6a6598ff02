"""The built site, served, and a browser to read it with."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: the tests' own output is enough."""


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of what it is made of."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("minerva", "mathdoc", "docs", "benchmarks/results"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root / name)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "minerva", "docs", "build"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "build" / "site"


@pytest.fixture(scope="session")
def site(site_folder: Path) -> Iterator[str]:
    """Its address."""
    handler = functools.partial(_Quiet, directory=str(site_folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


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
