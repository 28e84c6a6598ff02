"""The report as a reader meets it: opened from disk in Debian's chromium."""

import base64
import csv
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs
import pytest
from test_report import HOSTILE, make_hostile

from minerva.lab.analysis.comparison import Comparison, compare
from minerva.lab.analysis.records import read_records
from minerva.lab.analysis.report import page

pytestmark = needs.browser

Browser = Callable[..., Any]


@pytest.fixture(scope="module")
def comparison(grid: Path, results: Path) -> Comparison:
    return compare(read_records([grid, results]))


@pytest.fixture(scope="module")
def report(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its address on disk."""
    path = tmp_path_factory.mktemp("page") / "all.html"
    path.write_text(page(comparison, "All there is", "all"))
    return path.as_uri()


@pytest.fixture(scope="module")
def wide(open_browser: Browser) -> Any:
    return open_browser(width=1400)


@pytest.fixture
def driver(wide: Any, report: str) -> Any:
    wide.get(report)
    return wide


def chart(driver: Any, title: str) -> Any:
    """A chart's drawing, in view."""
    found = driver.execute_script(
        "return [...document.querySelectorAll('figure.chart')].find("
        "f => f.querySelector('strong').textContent == arguments[0]).querySelector('svg')",
        title,
    )
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
    return found


def test_the_page_asks_for_nothing_and_reports_no_error(wide: Any, report: str) -> None:
    wide.get_log("performance")
    wide.get_log("browser")
    wide.get(report)
    assert wide.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    sent = [json.loads(entry["message"])["message"] for entry in wide.get_log("performance")]
    asked = {each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {report}
    assert wide.get_log("browser") == []


def test_hovering_shows_the_values_of_every_entry(driver: Any, comparison: Comparison) -> None:
    from selenium.webdriver import ActionChains

    svg = chart(driver, "HalfCheetah-v5 at 1M")
    width = svg.rect["width"]
    ActionChains(driver).move_to_element_with_offset(svg, int(width / 2 * 0.94), 0).perform()
    tip = driver.find_element("id", "tip")
    assert tip.is_displayed()
    lines = tip.text.splitlines()
    assert lines[0] == "999,424 environment steps"
    (ppo,) = [cell for cell in comparison.cells if (cell.entry, cell.task.name) == ("PPO", "HalfCheetah-v5 at 1M")]
    ends = sorted(record.curve[-1].mean for record in ppo.records)
    assert f"{round(sum(ends[1:4]) / 3):,}" in tip.text  # of five seeds the middle three
    assert "PPO" in tip.text
    assert "V-MPO" in tip.text
    ActionChains(driver).move_to_element(driver.find_element("tag name", "h1")).perform()
    assert not tip.is_displayed()


def test_a_keyboard_moves_along_a_curve(driver: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    svg = chart(driver, "Pendulum-v1 at 15k")
    driver.execute_script("arguments[0].focus()", svg)
    tip = driver.find_element("id", "tip")
    svg.send_keys(Keys.HOME)
    assert tip.text.startswith("0 environment steps")
    svg.send_keys(Keys.ARROW_RIGHT)
    assert tip.text.startswith("750 environment steps")
    svg.send_keys(Keys.END)
    assert tip.text.startswith("15,000 environment steps")
    svg.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_switching_an_entry_off_hides_its_curves_and_rows(driver: Any, comparison: Comparison) -> None:
    place = comparison.entries.index("PPO")
    parts = driver.find_elements("css selector", f"[data-entry='{place}']")
    assert len(parts) > 5
    rows = [part for part in parts if part.tag_name == "tr"]
    assert any(row.is_displayed() for row in rows)
    box = driver.find_element("css selector", f"[data-switch='{place}']")
    box.send_keys(" ")  # by keyboard, as by mouse
    assert not any(part.is_displayed() for part in parts)
    box.send_keys(" ")
    assert any(row.is_displayed() for row in rows)


def test_what_is_left_uses_the_height_of_its_chart(driver: Any, comparison: Comparison) -> None:
    from selenium.webdriver.common.keys import Keys

    svg = chart(driver, "HalfCheetah-v5 at 500k")
    ticks = "return [...arguments[0].querySelectorAll('.y-ticks text')].map(t => t.textContent)"
    height = "return arguments[0].querySelector(`g[data-entry='${arguments[1]}'] .line`).getBoundingClientRect().height"
    flat = comparison.entries.index("V-MPO estimator-dae")
    before = driver.execute_script(ticks, svg), driver.execute_script(height, svg, flat)
    driver.find_element("css selector", "[data-all='off']").click()
    driver.find_element("css selector", f"[data-switch='{flat}']").click()
    after = driver.execute_script(ticks, svg), driver.execute_script(height, svg, flat)
    assert "4k" in before[0]
    assert "4k" not in after[0]
    assert after[1] > 3 * before[1]
    driver.execute_script("arguments[0].focus()", svg)
    svg.send_keys(Keys.END)  # a dot lies on the stretched line's end
    gap = (
        "const box = q => arguments[0].querySelector(q).getBoundingClientRect();"
        "const dot = box('.marks circle'), line = arguments[0].querySelector(`g[data-entry='${arguments[1]}'] .line`);"
        "const end = line.getPointAtLength(line.getTotalLength()).matrixTransform(line.getScreenCTM());"
        "return Math.hypot(dot.x + dot.width / 2 - end.x, dot.y + dot.height / 2 - end.y)"
    )
    assert driver.execute_script(gap, svg, flat) < 1
    driver.find_element("css selector", "[data-all='on']").click()
    assert driver.execute_script(ticks, svg) == before[0]
    assert driver.execute_script(height, svg, flat) == pytest.approx(before[1], abs=0.5)


def test_seeds_and_intervals_can_be_left_out(driver: Any) -> None:
    svg = chart(driver, "Hopper-v5 at 1M")
    for view, kind in (("seeds", ".seed"), ("bands", ".band")):
        shown = "return getComputedStyle(arguments[0].querySelector(arguments[1])).display"
        assert driver.execute_script(shown, svg, kind) != "none"
        driver.find_element("css selector", f"[data-view='{view}']").click()
        assert driver.execute_script(shown, svg, kind) == "none"


def downloaded(driver: Any, folder: Path, kind: str) -> str:
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    driver.execute_script(f"document.querySelector('[data-download={kind}]').click()")
    path = folder / f"all.{kind}"
    for _ in range(1200):
        if path.exists() and path.stat().st_size:
            break
        time.sleep(0.05)
    return path.read_text()


def test_downloads_hold_the_same_numbers(driver: Any, comparison: Comparison, tmp_path: Path) -> None:
    records = [(cell.entry, record) for cell in comparison.cells for record in cell.records]
    runs = json.loads(downloaded(driver, tmp_path, "json"))["runs"]
    assert [(run["entry"], run["seed"], run["returns"]) for run in runs] == [
        (entry, record.seed, record.returns) for entry, record in records
    ]
    rows = list(csv.DictReader(io.StringIO(downloaded(driver, tmp_path, "csv"))))
    for entry, record in records:
        mine = [
            row
            for row in rows
            if (row["entry"], row["env"], int(row["seed"]), int(row["budget"]))
            == (entry, record.env, record.seed, record.budget)
        ]
        assert [float(row["return"]) for row in mine if row["kind"] == "final"] == record.returns
        during = [(int(row["step"]), float(row["return"])) for row in mine if row["kind"] == "evaluation"]
        assert during == [(point.step, value) for point in record.curve for value in point.returns]


def test_a_phone_scrolls_nothing_sideways(report: str, open_browser: Browser) -> None:
    phone = open_browser(width=400, height=800)
    phone.get(report)
    assert phone.execute_script("return document.documentElement.scrollWidth") <= 400
    beyond = (
        "return [...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > 401"
        " && !e.closest('.matrix, details:not([open])')).length"
    )
    assert phone.execute_script(beyond) == 0


def test_paper_shows_everything_but_the_seeds_commands(driver: Any) -> None:
    driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert driver.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    screen = {"width": 688, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # A4 between its margins
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 688
        paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        printed = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
        assert len(re.findall(rb"/Type ?/Page\b", printed)) > 5
        seen = "return [...document.querySelectorAll('.sources {}')].filter(e => e.getClientRects().length).length"
        assert driver.execute_script(seen.format("tbody tr")) > 0 == driver.execute_script(seen.format("small"))
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        wide = {"width": 1400, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wide)
    # printing was over, and what had been folded is folded again
    assert driver.execute_script("return document.querySelectorAll('details:not([open])').length") > 0


def test_dark_mode_follows_the_system(report: str, open_browser: Browser) -> None:
    dark = open_browser(dark=True)
    dark.get(report)
    script = "const s = getComputedStyle(document.querySelector('figure.chart')); return [s.color, s.backgroundColor]"
    ink, card = (sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in dark.execute_script(script))
    assert card < 60
    assert ink > 180


def test_without_scripts_curves_and_tables_are_there(report: str, open_browser: Browser) -> None:
    plain = open_browser(scripts=False)
    plain.get(report)
    assert len(plain.find_elements("css selector", "figure.chart .line")) > 15
    assert "5,703 ± 805" in plain.find_element("id", "final").text
    assert not plain.find_element("css selector", ".legend").is_displayed()


def test_hostile_files_do_nothing(grid: Path, tmp_path: Path, wide: Any) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(page(compare(read_records([make_hostile(grid, tmp_path)])), "calm"))
    wide.get_log("browser")
    wide.get(path.as_uri())
    assert wide.title == "calm"
    assert wide.get_log("browser") == []  # nothing was even tried
    assert HOSTILE in wide.find_element("id", "final").text
    svg = wide.find_element("css selector", "figure.chart svg")
    wide.execute_script("arguments[0].focus()", svg)
    svg.send_keys("\ue010")  # End: the tip names the entries
    assert wide.find_element("id", "tip").is_displayed()
    assert wide.title == "calm"
