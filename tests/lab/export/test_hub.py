"""A policy goes to a hub and comes back: the real client against a stand-in of the hub's API on this machine."""

import base64
import hashlib
import http.server
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tiny_runs import FinishedRun

import minerva
from minerva.cli.main import main
from minerva.errors import CheckpointError, ConfigError, RunError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as the client asks for: repositories, commits with their files, downloads."""

    files: ClassVar[dict[str, dict[str, bytes]]]
    asked: ClassVar[list[str]]

    def log_message(self, *_: Any) -> None:
        """Nothing: the tests' own output is enough."""

    def answer(self, code: int, content: Any = b"", **headers: str) -> None:
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(sent)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(f"POST {self.path}")
        parts = self.path.split("/")
        if self.path == "/api/repos/create":
            made = json.loads(body)
            name = f"{made['organization']}/{made['name']}" if made.get("organization") else made["name"]
            self.files.setdefault(name, {})
            private = made.get("private") or made.get("visibility") == "private"
            self.asked.append(f"{'private' if private else 'public'} {name}")
            return self.answer(200, {"url": f"{os.environ['HF_ENDPOINT']}/{name}", "name": name, "id": name})
        if self.path.endswith("/preupload/main"):
            wanted = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            return self.answer(200, {"files": wanted})
        if self.path.endswith("/commit/main"):
            lines = [json.loads(line) for line in body.splitlines()]
            added = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
            self.files[f"{parts[3]}/{parts[4]}"] |= {name: base64.b64decode(text) for name, text in added.items()}
            return self.answer(
                200,
                {
                    "commitUrl": f"{os.environ['HF_ENDPOINT']}/{parts[3]}/{parts[4]}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "hookOutput": "",
                },
            )
        return self.answer(200, {})  # the card is checked

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        parts = self.path.strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.files:
            return self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        found = self.files[name]
        if "tree" in parts:
            listed = [{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in found.items()]
            return self.answer(200, listed)
        if parts[0] == "api":
            return self.answer(200, {"id": name, "sha": COMMIT, "siblings": [{"rfilename": path} for path in found]})
        data = found[parts[-1]]
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        return self.answer(200, data, ETag=etag, X_Repo_Commit=COMMIT, Accept_Ranges="bytes")

    do_HEAD = do_GET  # noqa: N815  the base class calls it so


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    Hub.files, Hub.asked = {}, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", "for the stand-in")
        for name in ("HF_HUB_CACHE", "HF_XET_CACHE", "HF_ASSETS_CACHE"):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        yield Hub
        server.shutdown()


def test_a_pushed_policy_acts_like_the_run_it_came_from(
    hub: type[Hub], finished_run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished_run.folder, tmp_path / "run")
    command = f"push {tmp_path / 'run'} someone/pendulum --private --episodes 2 --no-video"
    assert main(command.split()) == 0
    assert 'load: minerva.load_policy("someone/pendulum")' in capsys.readouterr().out
    kept = hub.files["someone/pendulum"]
    assert kept.keys() == {"README.md", "config.yaml", "policy.onnx", "ppo_best.safetensors", "run_policy.py"}
    assert kept["README.md"].startswith(b"---\nlibrary_name: minerva\n")
    assert hub.asked.count("private someone/pendulum") == 1

    hub.asked.clear()
    policy = minerva.load_policy("someone/pendulum")
    obs = np.array([0.5, 0.1, -2.0])
    assert policy.act(obs) == pytest.approx(minerva.load_policy(finished_run.folder).act(obs), abs=0)
    fetched = {line.rpartition("/")[2] for line in hub.asked if "/resolve/" in line}
    assert fetched == {"ppo_best.safetensors"}, "a script or a config of somebody else stays where it is"


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ({"run_policy.py": b"raise SystemExit"}, RunError, "holds no checkpoint of Minerva"),
        ({"../ppo_best.safetensors": b"x", "a/ppo_best.safetensors": b"x"}, RunError, "holds no checkpoint"),
        ({"ppo_best.safetensors": b"no tensors"}, CheckpointError, "ppo_best.safetensors"),
        (None, RunError, "someone/else is not on this disk, and could not be loaded from the hub"),
    ],
)
def test_what_is_on_a_hub_is_read_like_any_file_of_others(
    files: dict[str, bytes] | None, error: type[Exception], words: str, hub: type[Hub]
) -> None:
    if files is not None:
        hub.files["someone/else"] = files
    with pytest.raises(error, match=words):
        minerva.load_policy("someone/else")


def test_a_path_is_never_taken_for_a_repository(hub: type[Hub], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for path in ("runs/mine", Path("someone/else"), "/someone/else", "a/b/c"):
        with pytest.raises(RunError, match="contains no run with a checkpoint"):
            minerva.load_policy(path)
    assert hub.asked == []


def test_without_the_client_or_a_name_nothing_is_exported(
    finished_run: FinishedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["push", str(finished_run.folder), "pendulum"]) == 2
    assert "pendulum is no repository of a hub: give user/name." in " ".join(capsys.readouterr().err.split())
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="install its client: pip install"):
        minerva.load_policy("someone/pendulum")
