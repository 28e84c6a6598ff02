"""A run's folder: its layout, its config.yaml, and checks of what it contains."""

import importlib.metadata
import os
import platform
import re
import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

import minerva
from minerva.config import check_plain
from minerva.errors import RunError
from minerva.runs import files
from minerva.runs.origin import INIT_FROM

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "dm-control", "shimmy", "envpool", "mujoco-warp", "warp-lang")
PROVENANCE = ("versions", "commit", "started")
STARTED = "%Y-%m-%dT%H:%M:%S%z"
"""How the time of a run's start is written."""
"""Keys of config.yaml that record how a run was made."""
NOT_COMPARED = (*PROVENANCE, "device", "derived", "history", f"{INIT_FROM}.checkpoint")
"""Keys that are ignored when two configs are compared; of the weights that a run began with, their place is."""
ONE_VALUE = ("env_kwargs",)
"""Keys whose mapping is compared as one value: an argument that is None is not an argument that is absent."""

CONVERSION_ERRORS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What PyYAML raises for a value that is not of the type its tag names, such as `!!timestamp never`."""
LARGEST_CONFIG = 1_000_000
"""Characters; a real config has a few thousand."""


SUFFIX, OLD_SUFFIX = ".safetensors", ".pt"
"""How the names of checkpoints end. They are safetensors files, and until version 0.1 were called as torch's are."""


class RunFolder:
    """Paths inside one run's folder. Constructing it writes nothing; a run keeps the names that it began with."""

    def __init__(self, path: Path, algo: str) -> None:
        self.path, self.algo = path, algo
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.evaluations = path / "eval" / "evaluations.jsonl"
        self.curve = path / "learning_curve.png"
        self.tensorboard = path / "tensorboard"
        begun = any((path / "checkpoints" / f"{algo}_{name}{OLD_SUFFIX}").exists() for name in ("last", "previous"))
        self.suffix = OLD_SUFFIX if begun else SUFFIX
        self.last, self.previous, self.best = (
            path / "checkpoints" / f"{algo}_{name}{self.suffix}" for name in ("last", "previous", "best")
        )

    def existing_config(self) -> dict[str, Any] | None:
        """Return the config of the run in this folder, or None if the folder is empty or new.

        Raise RunError if the folder is a file, holds other files, or holds links or devices.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file: give an empty or new folder.")
        if not self.config.exists():
            if self.path.exists() and any(not path.name.endswith(".tmp") for path in self.path.iterdir()):
                raise RunError(f"{self.path} contains other files and no run: give an empty or new folder.")
            return None
        for path in self.path.rglob("*"):
            refuse_foreign(path)
        return read_config(self.config)

    def make(self) -> None:
        """Create the folder itself."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self.unwritable(error) from None

    def create(self, config: dict[str, Any]) -> None:
        """Write config.yaml, then create the folders inside."""
        try:
            write_atomically(self.config, _dumped({**config, **provenance()}))
            for folder in (self.last.parent, self.evaluations.parent, self.path / "videos"):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise self.unwritable(error) from None

    def rewrite(self, config: dict[str, Any]) -> None:
        """Replace config.yaml, keeping how the run was made."""
        try:
            write_atomically(self.config, _dumped(config))
        except OSError as error:
            raise self.unwritable(error) from None

    def unwritable(self, error: OSError) -> RunError:
        """Return the error to raise if something in the folder cannot be written."""
        return RunError(f"{self.path} cannot be written to: {error.strerror}. Give another --out-dir, or fix that.")


def refuse_foreign(path: Path) -> None:
    """Raise RunError if something in a run's folder is a link, or neither a file nor a folder."""
    if path.is_symlink():
        raise RunError(f"{path} is a link: a run's folder may contain regular files only. Put the file itself there.")
    if not (path.is_file() or path.is_dir()):
        raise RunError(f"{path} is a pipe, a socket or a device: a run's folder may contain files only. Remove it.")


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's text atomically: a reader, or a kill at any moment, finds the old text or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        files.write(temporary, text.encode())
        files.replace(temporary, path)
        files.sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def new_folder_name(algo: str, env: str, seed: int) -> str:
    """Return `<algo>_<env>_seed<seed>_<time>-<random>`, safe as a file name and another at each call."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", env).strip("-")
    return f"{algo}_{name}_seed{seed}_{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


class _PlainLoader(yaml.SafeLoader):
    """Safe loader that rejects aliases: a few lines of them expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it uses aliases, which Minerva's configs never do")
        return super().compose_node(parent, index)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dumped(config: dict[str, Any]) -> str:
    return yaml.dump(config, Dumper=_PlainDumper, sort_keys=False)


def read_config(path: Path) -> dict[str, Any]:
    """Read a config.yaml. Raise RunError if it is not one."""
    try:
        if not path.is_file():
            raise OSError("it is not a regular file")
        with open(path) as file:
            text = file.read(LARGEST_CONFIG + 1)
        if len(text) > LARGEST_CONFIG:
            raise yaml.YAMLError(f"it is longer than {LARGEST_CONFIG} characters")
        config = yaml.load(text, _PlainLoader)
        check_plain(config)
    except (OSError, yaml.YAMLError, *CONVERSION_ERRORS) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunError(f"{path} cannot be read as YAML ({reason}): give a config.yaml that Minerva wrote.") from None
    if not isinstance(config, dict):
        raise RunError(f"{path} is not the config of a run: give a config.yaml that Minerva wrote.")
    return config


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the differences between two configs as `name: old -> new`, ignoring the keys `NOT_COMPARED`."""
    old, new = _flat(old), _flat(new)
    names = sorted(name for name in old.keys() | new.keys() if not {name, name.split(".")[0]} & {*NOT_COMPARED})
    return [f"{name}: {old.get(name)} -> {new.get(name)}" for name in names if old.get(name) != new.get(name)]


def find_checkpoint(path: Path, which: str = "best") -> Path:
    """Return the checkpoint file at `path`: the file itself, or the best (or last) one of the run in that folder."""
    if which not in ("best", "last"):
        raise RunError(f"There is no {which} checkpoint: ask for best or last.")
    if path.is_file():
        return path
    patterns = [f"*_{name}{suffix}" for name in (which, "last") for suffix in (SUFFIX, OLD_SUFFIX)]
    found = [file for pattern in patterns for file in sorted((path / "checkpoints").glob(pattern))]
    if not found:
        runs = sorted(path.glob("*/checkpoints"), key=lambda folder: folder.stat().st_mtime)
        inside = f" It contains runs; the latest is {runs[-1].parent}." if runs else ""
        raise RunError(f"{path} contains no run with a checkpoint: give a run's folder or a checkpoint file.{inside}")
    for place in (path / "checkpoints", found[0]):
        refuse_foreign(place)
    return found[0]


def provenance() -> dict[str, Any]:
    """Return the versions, commit and current time that config.yaml records."""
    import torch

    versions = {"python": platform.python_version(), "minerva": minerva.__version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "versions": versions
        | {"torch_threads": torch.get_num_threads(), "instructions": _instructions(), "gpu": _gpu()},
        "commit": _commit(),
        "started": time.strftime(STARTED),
    }


def _instructions() -> str:
    """Return the CPU instruction set that PyTorch uses: others sum in another order."""
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _gpu() -> str:
    """Return the name of the GPU that this process uses, or "none"."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_initialized() else "none"


def _commit() -> str | None:
    """Return the commit of the git checkout that Minerva runs from, or None if it is installed otherwise."""
    checkout = Path(minerva.__file__).parents[1]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict) and name not in ONE_VALUE:
            flat |= {f"{name}.{inner}": deep for inner, deep in value.items()}
        else:
            flat[name] = value
    return flat
