"""`minerva docs` runs the tools of a checkout, and says so where there is none."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import make_site
import pytest

from minerva.cli import docs
from minerva.cli.main import main

REPOSITORY = Path(__file__).parents[2]


def test_outside_a_checkout_one_sentence_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(docs, "__file__", str(tmp_path / "site-packages" / "minerva" / "cli" / "docs.py"))
    assert main(["docs", "check"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("error: The documentation is built from a git checkout")
    assert "`python -m mathdoc check PACKAGE`" in said


def test_the_checkout_around_the_current_directory_goes_before_that_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert docs._checkout() == REPOSITORY
    monkeypatch.chdir(REPOSITORY / "docs")
    assert docs._checkout() == REPOSITORY
    (tmp_path / "docs").mkdir()
    (tmp_path / docs.TOOL).parent.mkdir(parents=True)
    (tmp_path / docs.TOOL).touch()
    monkeypatch.chdir(tmp_path / "docs")
    assert docs._checkout() == tmp_path


def test_what_the_documentation_needs_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for action, absent in (("check", "mathdoc"), ("build", "zensical")):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, absent, None)
            assert make_site.main([action]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert said.startswith(f"error: The documentation needs {absent}, which is not installed: pip install")
        assert "packages/mathdoc[site]" in said


def test_a_failure_of_the_tool_is_one_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(REPOSITORY / "tools" / "site", tmp_path / "tools" / "site")
    (tmp_path / "benchmarks" / "grids").mkdir(parents=True)
    (tmp_path / "benchmarks" / "grids" / "wrong.toml").write_text("# A grid\nunknown = 1\n")
    monkeypatch.chdir(tmp_path)
    assert main(["docs", "results"]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ")
    assert "unknown" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_ends_with_its_command(number: signal.Signals, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "tools" / "site", tmp_path / "tools" / "site")
    (tmp_path / "build" / "site").mkdir(parents=True)
    (tmp_path / "build" / "site" / "index.html").write_text("the site")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "minerva", "docs", "serve", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address == f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(address, timeout=300) as page:
        assert page.read() == b"the site"
    process.send_signal(number)
    _, error = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert "Traceback" not in error
    time.sleep(0.1)
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", port)) != 0
