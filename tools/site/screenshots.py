"""The pictures of the front page: checked formulas of the built site, and a report. `make pictures` runs this file.

python tools/site/screenshots.py
"""

import base64
import functools
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By

REPOSITORY = Path(__file__).parents[2]
SOURCE, FROM_TO = "source/trainers.ppo.losses/", ("def clipped_surrogate", "return loss")
"""A page of the site, and texts in the first and the last line that are shown of it."""
WIDTH, MARGIN = 760, 2
ASSETS = REPOSITORY / "docs" / "assets"
SCALE = 2
"""Pixels of a picture per pixel of a page: sharp on screens of today."""


def main() -> None:
    """Take both pictures; the site must be built."""
    driver = _browser(1200, 800)
    try:
        _formula(driver, REPOSITORY / "build" / "site", ASSETS / "formula.png")
        _report(driver, REPOSITORY / "benchmarks" / "results" / "ppo", ASSETS / "report.png")
    finally:
        driver.quit()


def _browser(width: int, height: int) -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    screen = {"width": width, "height": height, "deviceScaleFactor": SCALE, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    return driver


def _formula(driver: Any, site: Path, path: Path) -> None:
    """Photograph a function of the annotated source: each formula above the line that computes it."""
    if not (site / "index.html").is_file():
        sys.exit("The site is not built: run `minerva docs build`.")
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        driver.get(f"http://127.0.0.1:{server.server_port}/{SOURCE}")
        lines = driver.find_elements(By.CSS_SELECTOR, ".line")
        first, last = (next(line for line in lines if text in line.text) for text in FROM_TO)
        begin, end = first.rect, last.rect
        area = {"x": begin["x"] - MARGIN, "y": begin["y"] - MARGIN, "width": WIDTH, "scale": 1}
        area["height"] = end["y"] + end["height"] - begin["y"] + 2 * MARGIN
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": area, "captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))
        server.shutdown()


def _report(driver: Any, results: Path, path: Path) -> None:
    """Photograph the top of a report of committed results."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        subprocess.run([sys.executable, "-m", "minerva", "report", str(results), "--out", str(page)], check=True)
        driver.get(page.as_uri())
        path.write_bytes(driver.get_screenshot_as_png())


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing for each request."""


if __name__ == "__main__":
    main()
