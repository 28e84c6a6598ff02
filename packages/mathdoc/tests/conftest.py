"""Settings of mathdoc's own tests, which need nothing but the package and its extra `test`."""

import os
from typing import Any

import pytest


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
