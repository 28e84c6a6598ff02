"""Build what is released, and check it: wheels and source archives of both packages.

python tools/release/build_release.py [--out dist]

A wheel holds the files of its package that git tracks, all of them and nothing else. Names, versions, requirements and
the long description are checked (the last by twine), and PROVENANCE.json says which commit they were built from, with
the digest of every file.
"""

import argparse
import email.message
import email.parser
import hashlib
import json
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = {"minerva": REPOSITORY, "mathdoc": REPOSITORY / "packages" / "mathdoc"}
REQUIRED = ("Version", "Summary", "License-Expression", "Requires-Python", "Requires-Dist", "Description-Content-Type")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and check what is released.")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist")
    out = parser.parse_args().out
    old = [*out.glob("*.whl"), *out.glob("*.tar.gz")]
    for file in old:
        file.unlink()
    problems = [problem for name, home in PACKAGES.items() for problem in released(name, home, out)]
    files = sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])
    checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    if checked.returncode:
        problems.append("twine refuses the metadata: see above.")
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    (out / "PROVENANCE.json").write_text(json.dumps(provenance(files), indent=1) + "\n")
    for file in files:
        print(f"{file.name}  {file.stat().st_size / 1e6:.2f} MB")


def released(name: str, home: Path, out: Path) -> list[str]:
    """Build a package; return what is wrong with its wheel."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(home)]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode:
        return [f"{name} cannot be built: {done.stdout}{done.stderr}"]
    (wheel,) = out.glob(f"{name}-*.whl")
    tracked = subprocess.run(["git", "ls-files", name], cwd=home, capture_output=True, text=True, check=True)
    return wheel_problems(wheel, tracked.stdout.split())


def wheel_problems(wheel: Path, tracked: list[str]) -> list[str]:
    """What a wheel lacks of the tracked files, what it holds besides, and what its metadata lacks."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(about).decode())
    inside = {name for name in names if ".dist-info/" not in name}
    problems = [f"{wheel.name} lacks {name}" for name in sorted(set(tracked) - inside)]
    problems += [f"{wheel.name} holds {name}, which git does not track" for name in sorted(inside - set(tracked))]
    if not any(name.endswith("licenses/LICENSE") for name in names):
        problems.append(f"{wheel.name} lacks its licence")
    return problems + [f"{wheel.name}: {problem}" for problem in metadata_problems(metadata, wheel)]


def metadata_problems(metadata: email.message.Message, wheel: Path) -> list[str]:
    problems = [f"the metadata lack {field}" for field in REQUIRED if not metadata[field]]
    if f"-{metadata['Version']}-" not in wheel.name:
        problems.append(f"its name does not say version {metadata['Version']}")
    if len(str(metadata.get_payload())) < 500:
        problems.append("the long description is missing")
    return problems


def provenance(files: list[Path]) -> dict[str, object]:
    """Where the files come from: the commit, the Python that built them, and a digest of each."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    commit = subprocess.run(described, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return {"commit": commit, "python": platform.python_version(), "sha256": digests}


if __name__ == "__main__":
    main()
