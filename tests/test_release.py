"""What is released holds what it should: the wheels of both packages, and a wheel that was tampered with."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from build_release import REPOSITORY, wheel_problems

METADATA = (
    """Metadata-Version: 2.4
Name: thing
Version: 1.0
Summary: A thing.
License-Expression: MIT
Requires-Python: >=3.11
Requires-Dist: numpy
Description-Content-Type: text/markdown

"""
    + "What it is. " * 60
)


def wheel(folder: Path, version: str = "1.0", metadata: str = METADATA, **files: str) -> Path:
    path = folder / f"thing-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"thing-{version}.dist-info/METADATA", metadata)
        archive.writestr(f"thing-{version}.dist-info/licenses/LICENSE", "MIT")
        for name, text in files.items():
            archive.writestr(f"thing/{name}.py", text)
    return path


def test_a_wheel_has_what_git_tracks_and_says_what_it_is(tmp_path: Path) -> None:
    tracked = ["thing/a.py", "thing/b.py"]
    assert wheel_problems(wheel(tmp_path, a="", b=""), tracked) == []
    assert wheel_problems(wheel(tmp_path, a="", secret="key"), tracked) == [
        "thing-1.0-py3-none-any.whl lacks thing/b.py",
        "thing-1.0-py3-none-any.whl holds thing/secret.py, which git does not track",
    ]
    bare = METADATA.split("\n\n")[0].replace("Requires-Python: >=3.11\n", "") + "\n\nNothing."
    said = " ".join(wheel_problems(wheel(tmp_path, "2.0", bare, a="", b=""), tracked))
    for words in ("lack Requires-Python", "does not say version 1.0", "long description is missing"):
        assert words in said


@pytest.mark.slow
def test_one_command_builds_and_checks_both_packages(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "tools" / "release" / "build_release.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted(path.name for path in tmp_path.iterdir())
    assert [name.partition("-")[0] for name in built] == ["PROVENANCE.json", "mathdoc", "mathdoc", "minerva", "minerva"]
    assert json.loads((tmp_path / "PROVENANCE.json").read_text())["sha256"].keys() == set(built[1:])
    with zipfile.ZipFile(next(tmp_path.glob("minerva-*.whl"))) as archive:
        assert "minerva/presets/ppo.toml" in archive.namelist()
        assert "minerva/lab/analysis/assets/report.js" in archive.namelist()
