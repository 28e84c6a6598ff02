"""The documentation as a reader meets it, in Debian's chromium."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import needs
import pytest

pytestmark = [
    pytest.mark.slow,  # the site is built for them
    needs.browser,
]

Browser = Callable[..., Any]

SOURCE = "source/trainers.ppo.losses/"
MATH = "math/trainers.ppo.losses/"
FORMULAS = (Path(__file__).parents[2] / "minerva" / "trainers" / "ppo" / "losses.py").read_text().count("# LaTeX: ")


def pages(folder: Path) -> list[str]:
    return sorted(path.parent.relative_to(folder).as_posix() + "/" for path in folder.rglob("index.html"))


@pytest.fixture(scope="module")
def wide(open_browser: Browser) -> Any:
    return open_browser(width=1600)


def faults(site: str, some: list[str], driver: Any) -> list[str]:
    """Errors in the console and hosts asked other than the site's own, while pages load."""
    driver.get_log("performance"), driver.get_log("browser")
    for page in some:
        driver.get(site + page.removeprefix("./"))
    errors = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    for entry in driver.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        if event["method"] == "Network.requestWillBeSent":
            address = urlparse(event["params"]["request"]["url"])
            if address.scheme.startswith("http") and address.netloc != urlparse(site).netloc:
                errors.append(address.netloc)
    return errors


def test_pages_of_each_kind_load_without_an_error_or_a_request_to_another_host(
    site: str, site_folder: Path, wide: Any
) -> None:
    by_kind: dict[str, list[str]] = {}
    for page in pages(site_folder):
        by_kind.setdefault(page.partition("/")[0], []).append(page)
    assert {"algorithms", "guides", "math", "reference", "source"} <= by_kind.keys()
    some = [page for found in by_kind.values() for page in found[:: 1 + len(found) // 6]]
    assert faults(site, some, wide) == []


STYLE_ADDRESS = re.compile(r"(?:url\(|@import\s+)([^);\s]+)")


def loaded_files(site_folder: Path) -> Iterator[tuple[Path, str]]:
    """Each file of the site with each address that a browser loads for it, or that a script in it names."""
    for path in site_folder.rglob("*.html"):
        text = path.read_text()
        tags = re.findall(r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*>", text)
        asked = [tag for tag in tags if not re.search(r'rel="(?:canonical|prev|next)"', tag)]
        addresses = re.findall(r'\b(?:src|href|data)="?([^\s">]+)', " ".join(asked))
        scripts = " ".join(re.findall(r"<script\b[^>]*>([^<]+)", text))
        foreign = re.findall(r"\bhttps?://[^\s\"'`<]+", scripts)
        yield from ((path, address) for address in {*addresses, *foreign, *STYLE_ADDRESS.findall(text)})
    for path in site_folder.rglob("*.css"):
        yield from ((path, address) for address in STYLE_ADDRESS.findall(path.read_text()))


def test_every_page_loads_from_the_site_alone(site_folder: Path) -> None:
    assert len(pages(site_folder)) > 200
    found = {(path, address.strip("\"'")) for path, address in loaded_files(site_folder)}
    assert len(found) > 1000
    missing = [
        f"{path.relative_to(site_folder)}: {address}"
        for path, address in found
        if not address.startswith(("data:", "#"))
        and not re.fullmatch(r"fonts/[\w-]+\.(?:woff|ttf)", address)  # for browsers that do not read woff2
        and not ((site_folder if address.startswith("/") else path.parent) / address.lstrip("/")).is_file()
    ]
    assert missing == []


def test_every_link_within_the_site_leads_somewhere(site_folder: Path) -> None:
    missing = []
    for page in site_folder.rglob("index.html"):
        text = page.read_text()
        for address in set(re.findall(r'href="([^"#:]+)(?:#[^"]*)?"', text)):
            target = (page.parent / address).resolve()
            if not (target.is_file() or (target / "index.html").is_file()):
                missing.append(f"{page.relative_to(site_folder)}: {address}")
    assert missing == []


def test_every_anchor_of_a_formula_is_there(site_folder: Path) -> None:
    formulas = json.loads((site_folder / "formulas.json").read_text())
    assert len(formulas) > 100
    for formula in formulas:
        module, _, anchor = formula["id"].partition("#")
        for kind in ("math", "source"):
            assert f'id="{anchor}"' in (site_folder / kind / module / "index.html").read_text()


def test_each_formula_is_visible(site: str, wide: Any) -> None:
    wide.get(site + SOURCE)
    sizes = wide.execute_script(
        "return [...document.querySelectorAll('.rendered .katex-html')].map(e => e.getBoundingClientRect())"
        ".map(r => [r.width, r.height])"
    )
    assert len(sizes) == FORMULAS
    assert all(width > 40 and height > 10 for width, height in sizes)
    loaded = wide.execute_script("return [...document.fonts].filter(f => f.status == 'loaded').map(f => f.family)")
    assert {"KaTeX_Main", "KaTeX_Math"} <= set(loaded)


@pytest.mark.parametrize("page", [SOURCE, MATH, "algorithms/ppo/"])
def test_a_symbol_lights_its_variable_and_the_other_way_round(site: str, wide: Any, page: str) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    wide.get(site + page)
    figure = "#f-clipped-surrogate-l-t-1"
    symbols = wide.find_elements(By.CSS_SELECTOR, f"{figure} .katex-html [data-sym]")
    ratio = next(element for element in symbols if element.text.startswith("ρ"))
    variable = next(
        element
        for element in wide.find_elements(By.CSS_SELECTOR, "code .sym")
        if element.text == "ratio" and element.get_attribute("data-sym") == ratio.get_attribute("data-sym")
    )
    for hovered, other in ((ratio, variable), (variable, ratio)):
        wide.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", hovered)
        ActionChains(wide).move_to_element(hovered).perform()
        assert "lit" in (other.get_attribute("class") or "").split()
        tip = wide.find_element(By.CSS_SELECTOR, ".mathdoc-tip")
        assert tip.is_displayed()
        assert "probability ratio" in tip.text
        assert "ratio" in tip.text


def test_the_keyboard_reaches_the_symbols_of_a_formula(site: str, wide: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    wide.get(site + SOURCE)
    rendered = wide.find_element(By.CSS_SELECTOR, "#f-clipped-surrogate-l-t-1 .rendered")
    rendered.send_keys(Keys.ARROW_RIGHT)
    told = []
    for _ in range(3):
        tip = wide.find_element(By.CSS_SELECTOR, ".mathdoc-tip")
        assert tip.is_displayed()
        assert tip.get_attribute("role") == "status"
        told.append(tip.text)
        assert wide.find_elements(By.CSS_SELECTOR, "#f-clipped-surrogate-l-t-1 .katex-html .lit")
        rendered.send_keys(Keys.ARROW_RIGHT)
    assert len(set(told)) == 3
    assert any("probability ratio" in text for text in told)
    rendered.send_keys(Keys.ESCAPE)
    assert not wide.find_element(By.CSS_SELECTOR, ".mathdoc-tip").is_displayed()
    assert not wide.find_elements(By.CSS_SELECTOR, ".lit")


def test_formulas_have_names_and_the_search_index_is_small(site_folder: Path) -> None:
    headings = re.findall(r"<h3[^>]*>(.*?)</h3>", (site_folder / MATH / "index.html").read_text())
    assert len(headings) == FORMULAS
    assert not any("Line" in heading for heading in headings)
    index = site_folder / "search.json"
    assert index.stat().st_size < 1_000_000
    titles = [item["title"] for item in json.loads(index.read_text())["items"]]
    assert not [title for title in titles if title.startswith("Line ")]


def test_a_permalink_scrolls_to_its_formula(site: str, wide: Any) -> None:
    wide.get(site)
    wide.get(site + SOURCE + "#f-approximate-kl-widehat-d-kl")
    top = wide.execute_script(
        "return document.getElementById('f-approximate-kl-widehat-d-kl').getBoundingClientRect().top"
    )
    assert 0 <= top < 900  # the page ends soon after it
    assert wide.execute_script("return window.scrollY") > 200


def test_code_and_formula_are_side_by_side_on_a_wide_screen_and_stacked_on_a_phone(
    site: str, wide: Any, open_browser: Browser
) -> None:
    places = (
        "const p = document.querySelector('.pair'); const box = e => e.getBoundingClientRect();"
        "const f = box(p.querySelector('.formula')), c = box(p.querySelector('pre'));"
        "return [f.left, f.top, c.right, c.top, f.bottom]"
    )
    wide.get(site + SOURCE)
    left, _, code_right, code_top, bottom = wide.execute_script(places)
    assert left >= code_right - 1
    assert code_top < bottom
    phone = open_browser(width=400, height=800)
    phone.get(site + SOURCE)
    left, _, code_right, code_top, bottom = phone.execute_script(places)
    assert code_top >= bottom - 1


def test_headings_of_the_reference_are_as_written(site: str, wide: Any) -> None:
    from selenium.webdriver.common.by import By

    wide.get(site + "reference/minerva/")
    shown = [heading.text.rstrip("¶") for heading in wide.find_elements(By.CSS_SELECTOR, "h3, h5")]
    assert {"train", "Policy", "load_policy", "__init__", "on_update"} <= set(shown)


def test_the_tables_of_results_are_not_cut_and_their_numbers_stay_on_one_line(site: str, wide: Any) -> None:
    wide.get(site + "results/")
    cut = (
        "return [...document.querySelectorAll('.md-typeset__table')].filter(t => t.scrollWidth > t.clientWidth).length"
    )
    broken = """return [...document.querySelectorAll('td[style*=right]')].filter(cell => {
        const text = document.createRange(); text.selectNodeContents(cell);
        return new Set([...text.getClientRects()].map(line => Math.round(line.top))).size > 1
    }).length"""
    assert wide.execute_script(cut) == 0
    assert wide.execute_script(broken) == 0
    for page, beside in (("results/", False), ("guides/own-network/", True)):
        wide.get(site + page)
        shown = "return document.querySelector('.md-sidebar--primary').clientWidth > 0"
        assert wide.execute_script(shown) is beside, "a page without neighbours has their column, too"


@pytest.mark.parametrize(
    "page", ["", SOURCE, MATH, "algorithms/mpo/", "hyperparameters/vmpo/", "notation/", "reference/", "results/"]
)
def test_a_phone_scrolls_no_page_sideways(site: str, open_browser: Browser, page: str, phone_driver: Any) -> None:
    phone_driver.get(site + page)
    assert phone_driver.execute_script("return document.documentElement.scrollWidth") <= 400


@pytest.fixture(scope="module")
def phone_driver(open_browser: Browser) -> Any:
    return open_browser(width=400, height=800)


def test_dark_mode_follows_the_system_and_stays_readable(site: str, open_browser: Browser) -> None:
    dark = open_browser(dark=True)
    dark.get(site + SOURCE)
    colours = "const s = getComputedStyle(document.querySelector(%r)); return [s.color, s.backgroundColor]"
    text, background = dark.execute_script(colours % "body")
    assert brightness(background) < 60 < brightness(text)
    symbol, _ = dark.execute_script(colours % ".formula .katex-html .mord")
    assert brightness(symbol) > 150
    badge, _ = dark.execute_script(colours % ".badge.verified")
    assert brightness(badge) > 120


def brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in re.findall(r"[\d.]+", colour)[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue


def test_without_javascript_everything_is_there(site: str, open_browser: Browser) -> None:
    from selenium.webdriver.common.by import By

    plain = open_browser(scripts=False)
    plain.get(site + SOURCE)
    shown = [f for f in plain.find_elements(By.CSS_SELECTOR, ".rendered .katex-html") if f.is_displayed()]
    assert len(shown) == FORMULAS
    assert "def clipped_surrogate" in plain.find_element(By.CSS_SELECTOR, ".annotated").text
    assert not any(button.is_displayed() for button in plain.find_elements(By.CSS_SELECTOR, ".copy"))
    symbol = plain.find_element(By.CSS_SELECTOR, ".formula .katex-html [data-sym]")
    assert "log of the probability ratio" in symbol.get_attribute("title")
    plain.find_element(By.CSS_SELECTOR, ".formula summary").click()
    assert "ratio_log" in plain.find_element(By.CSS_SELECTOR, ".formula details table").text


def test_a_screen_reader_gets_mathml(site_folder: Path) -> None:
    text = (site_folder / SOURCE / "index.html").read_text()
    assert text.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') == FORMULAS
    assert text.count('class="katex-html" aria-hidden="true"') >= FORMULAS
    tex = r"\mathcal{L}_t^{(1)} = -\hat{A}_t \rho_t"
    assert f'<annotation encoding="application/x-tex">{tex}</annotation>' in text


def test_copy_latex_copies_the_formula(site: str, wide: Any) -> None:
    from selenium.webdriver.common.by import By

    wide.get(site + SOURCE)
    wide.execute_script(
        "window.copied = null; Object.defineProperty(navigator, 'clipboard', {value: {writeText:"
        " text => { window.copied = text; return Promise.resolve(); }}, configurable: true});"
    )
    button = wide.find_element(By.CSS_SELECTOR, "#f-log-ratio-ell-t .copy")
    wide.execute_script("arguments[0].click()", button)
    wanted = r"\ell_t = \log\pi_\theta(a_t|s_t) - \log\pi_{old}(a_t|s_t)"
    assert wide.execute_script("return window.copied") == wanted


@pytest.mark.parametrize(
    ("typed", "page"), [("gae_lambda", "formulas.returns"), ("varepsilon_0", "Notation"), ("clip_ratio", "losses")]
)
def test_search_finds_a_symbol_and_a_variable(site: str, wide: Any, typed: str, page: str) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    shown = "const host = document.activeElement; return host.shadowRoot ? host.shadowRoot.textContent : ''"
    wide.get(site)
    wide.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    WebDriverWait(wide, 20).until(lambda driver: driver.execute_script(shown.replace("textContent", "activeElement")))
    ActionChains(wide).send_keys(typed).perform()
    assert WebDriverWait(wide, 20).until(lambda driver: page in driver.execute_script(shown))
