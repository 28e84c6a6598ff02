"""Settings of all tests."""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import needs
import pytest
import torch

torch.set_num_threads(1)
# one kernel at a time: a pool of compiling processes, each of which imports torch, takes longer than what tests compile
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
# the kernels of a model take a minute to compile, and are kept between runs of the tests
os.environ.setdefault("WARP_CACHE_PATH", str(Path(__file__).parents[1] / ".cache" / "warp"))
# as in an activated environment: the program then names its commands without a path
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="session", autouse=True)
def same_precision_on_every_processor() -> Iterator[None]:
    """MPO's default takes bfloat16 on some processors, and then equal results differ in more than rounding."""
    from minerva.trainers.mpo import evaluate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "multiplies_bfloat16", lambda device: False)
        yield


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """One finished run of PPO for all tests (a `tiny_runs.FinishedRun`); they leave it as it is."""
    from tiny_runs import make_finished_run  # the command line takes seconds to import, and few tests need it

    return make_finished_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture(scope="session")
def in_blocks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """Undisturbed runs with blocks (an `actor_runs.InBlocks`), made once for all tests that compare with them."""
    from actor_runs import BLOCKS, ENV, config_of, train

    from minerva.lab.cluster.actors import local_collector

    @functools.cache
    def run(algo: str) -> tuple[Any, Path]:
        folder = tmp_path_factory.mktemp("in_blocks")
        return train(algo, local_collector(algo, config_of(algo), ENV, BLOCKS), folder), folder

    return run


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Networks and data made in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="module")
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


LONGEST = (
    "faults/test_faults.py::test_every_promise_is_kept[kills",
    "faults/test_faults.py::test_every_promise_is_kept[hostile",
    "lab/benchmark/test_benchmark_runs.py",
    "loop/test_remote.py",
    "loop/test_data_parallel.py",
    "faults/test_exact_resume.py",
    "loop/test_population.py",
    "compute/test_compiled.py",
    "docs/test_guides.py",
    "docs/test_site_in_a_browser.py",
    "trainers/test_lqr.py::test_mpo",
    "trainers/test_lqr.py",
    "trainers/mpo/test_mpo_learning.py",
    "lab/cluster/test_ray_tune.py",
    "lab/cluster/test_ray_asha.py",
    "lab/cluster/",
)
"""How the names of the longest tests begin. Each of these groups is begun first, so that no worker is left alone with
one of them in the end, and stays with one worker, which makes what its tests share once."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what compiles where nothing can, and give each worker its share of the longest tests first."""
    for item in items:
        if item.get_closest_marker("compiles"):
            item.add_marker(needs.cxx_compiler)
    root, groups = Path(__file__).parent, {path: list[pytest.Item]() for path in LONGEST}
    rest = []
    for item in items:
        name = item.nodeid.removeprefix(f"{root.name}/")
        path = next((path for path in LONGEST if name.startswith(path)), None)
        (rest if path is None else groups[path]).append(item)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # each takes a part of the list, from its start
    first = list(groups.values())
    ends = [round(len(rest) * worker / workers) for worker in range(workers + 1)]
    items[:] = [
        item
        for worker in range(workers)
        for group in [*first[worker::workers], rest[ends[worker] : ends[worker + 1]]]
        for item in group
    ]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a skipped test is a failure: what it needs has to be installed there."""
    outcome = yield
    _fail_if_skipped_in_ci(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """So is a skipped file."""
    outcome = yield
    _fail_if_skipped_in_ci(outcome.get_result())


def _fail_if_skipped_in_ci(report: Any) -> None:
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
