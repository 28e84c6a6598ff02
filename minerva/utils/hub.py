"""Policies on the Hugging Face Hub: an export folder is uploaded, and one checkpoint file is downloaded."""

import importlib
import os
import re
from pathlib import Path
from typing import Any

from minerva.errors import ConfigError, RunError, pip_install

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CHECKPOINT = re.compile(r"[a-z0-9]+_(best|last)\.safetensors")
"""What is downloaded of a repository: a checkpoint at its top, whose reading executes nothing."""


def is_repository(path: str) -> bool:
    """Return whether a text names a repository, `user/name`, and nothing on this disk, not even its first part."""
    return bool(REPOSITORY.fullmatch(path)) and not os.path.lexists(path) and not os.path.lexists(path.split("/")[0])


def check_repository(repository: str) -> None:
    """Raise ConfigError if nothing can be pushed: the name is not one, or the client is not installed."""
    if not REPOSITORY.fullmatch(repository):
        raise ConfigError(f"{repository} is no repository of a hub: give user/name.")
    _api(repository)


def upload(folder: Path, repository: str, private: bool) -> str:
    """Upload the files of a folder to a repository, which is made if there is none; return its address."""
    api = _api(repository)
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Policy trained with Minerva")
    except Exception as error:  # of the client, the network or the hub
        raise RunError(f"{folder} could not be pushed to {repository}: {_reason(error)}") from error
    return str(address)


def download(repository: str, which: str) -> Path:
    """Download the best (or last) checkpoint of a repository; return its file. Nothing else is fetched."""
    api = _api(repository)
    try:
        names = [name for name in api.list_repo_files(repository) if CHECKPOINT.fullmatch(name)]
        found = [name for kind in (which, "last", "best") for name in names if f"_{kind}." in name]
        if not found:
            raise RunError(f"{repository} holds no checkpoint of Minerva: push a run with `minerva push`.")
        return Path(api.hf_hub_download(repository, found[0]))
    except RunError:
        raise
    except Exception as error:  # as above
        raise RunError(
            f"{repository} is not on this disk, and could not be loaded from the hub: {_reason(error)}"
        ) from error


def _api(repository: str) -> Any:
    try:
        return importlib.import_module("huggingface_hub").HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    except ImportError:
        raise ConfigError(
            f"{repository} is not on this disk; if it is a repository of the Hugging Face Hub, install its client: "
            f"{pip_install('hub')}."
        ) from None


def _reason(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
