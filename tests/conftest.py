"""Settings of all tests."""

import os
import sys
from pathlib import Path

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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a skipped test is a failure: what it needs has to be installed there."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
