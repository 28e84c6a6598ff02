"""Settings of all tests."""

import os

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """One finished run of PPO for all tests (a `tiny_runs.FinishedRun`); they leave it as it is."""
    from tiny_runs import make_finished_run  # the command line takes seconds to import, and few tests need it

    return make_finished_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a skipped test is a failure: what it needs has to be installed there."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
