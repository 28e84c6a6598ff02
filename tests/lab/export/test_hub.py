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

import hf_xet
import numpy as np
import pytest
from PIL import Image
from tiny_runs import FinishedRun

import minerva
from minerva.cli.main import main
from minerva.errors import CheckpointError, ConfigError, RunError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as the client asks for: repositories, commits with their files, downloads."""

    files: ClassVar[dict[str, dict[str, bytes]]]
    """Contents by repository and name; of a large file in the newer storage, the SHA-256 that a commit names."""
    large: ClassVar[dict[str, bytes]]
    """Contents of large files, sent as Git does, by their SHA-256."""
    store: ClassVar[Path]
    """Folder in the place of the newer storage, to which the client writes by itself, and from which it reads."""
    addresses: ClassVar[dict[bytes, tuple[str, int]]]
    """Address in that storage, and size, by SHA-256."""
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
            wanted = [{"path": file["path"], "uploadMode": mode_of(file)} for file in json.loads(body)["files"]]
            return self.answer(200, {"files": [{**file, "shouldIgnore": False} for file in wanted]})
        if self.path.endswith(".git/info/lfs/objects/batch"):
            return self.answer(
                200, {"transfer": "basic", "objects": list(map(self.uploads, json.loads(body)["objects"]))}
            )
        if self.path.startswith("/verify/"):
            sent = self.large.get(self.path.rpartition("/")[2], b"")
            return self.answer(200 if len(sent) == json.loads(body)["size"] else 422, {"error": "another size"})
        if self.path.endswith("/commit/main"):
            lines = [json.loads(line) for line in body.splitlines()]
            added = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
            kept = {name: base64.b64decode(text) for name, text in added.items()}
            refers = {line["value"]["path"]: line["value"]["oid"] for line in lines if line["key"] == "lfsFile"}
            kept |= {name: self.large.get(oid, oid.encode()) for name, oid in refers.items()}
            self.files[f"{parts[3]}/{parts[4]}"] |= kept
            return self.answer(
                200,
                {
                    "commitUrl": f"{os.environ['HF_ENDPOINT']}/{parts[3]}/{parts[4]}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "hookOutput": "",
                },
            )
        return self.answer(200, {})  # the card is checked

    def uploads(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """How a large file is sent; nothing for one that is here already."""
        here = {"upload": f"/large/{wanted['oid']}", "verify": f"/verify/{wanted['oid']}"}
        actions = {name: {"href": os.environ["HF_ENDPOINT"] + path} for name, path in here.items()}
        return wanted if wanted["oid"] in self.large else {**wanted, "actions": actions}

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(f"PUT {self.path}")
        self.large[hashlib.sha256(content).hexdigest()] = content
        return self.answer(200 if self.path.endswith(hashlib.sha256(content).hexdigest()) else 400)

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        parts = self.path.strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.files:
            return self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        found = self.files[name]
        if parts[-2].startswith("xet-"):
            where = {"casUrl": f"local://{self.store}", "accessToken": "a", "exp": 9_999_999_999}
            cas, token, end = map(str, where.values())
            return self.answer(200, where, X_Xet_Cas_Url=cas, X_Xet_Access_Token=token, X_Xet_Token_Expiration=end)
        if "tree" in parts:
            listed = [{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in found.items()]
            return self.answer(200, listed)
        if parts[0] == "api":
            return self.answer(200, {"id": name, "sha": COMMIT, "siblings": [{"rfilename": path} for path in found]})
        data = found[parts[-1]]
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        if data in self.addresses:
            route = f"{os.environ['HF_ENDPOINT']}/api/models/{name}/xet-read-token/main"
            address, size = self.addresses[data]
            stored = {"X_Xet_Hash": address, "X_Xet_Refresh_Route": route, "X_Linked_Size": str(size)}
            return self.answer(200, data, ETag=etag, X_Repo_Commit=COMMIT, **stored)
        return self.answer(200, data, ETag=etag, X_Repo_Commit=COMMIT, Accept_Ranges="bytes")

    do_HEAD = do_GET  # noqa: N815  the base class calls it so


def mode_of(file: dict[str, Any]) -> str:
    """Models, pictures and what is large go another way, as on the hub."""
    return "lfs" if file["path"].endswith((".onnx", ".safetensors", ".gif")) or file["size"] > 10**7 else "regular"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    Hub.files, Hub.asked, Hub.large, Hub.store, Hub.addresses = {}, [], {}, tmp_path / "store", {}
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


@pytest.mark.parametrize("storage", ["of Git", "newer"])
def test_a_pushed_policy_acts_like_the_run_it_came_from(
    storage: str,
    hub: type[Hub],
    finished_run: FinishedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Large files go to one of two storages: as Git sends them, or to that of the client's own protocol."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", storage == "of Git")
    run = shutil.copytree(finished_run.folder, tmp_path / "run")
    frames = [Image.new("RGB", (64, 48), (shade, 0, 0)) for shade in (0, 90, 180)]
    frames[0].save(run / "videos" / "best.gif", save_all=True, append_images=frames[1:], loop=0)
    assert main(f"push {run} someone/pendulum --private --episodes 2".split()) == 0
    assert 'load: minerva.load_policy("someone/pendulum")' in capsys.readouterr().out
    kept = hub.files["someone/pendulum"]
    large = {"policy.onnx", "ppo_best.safetensors", "replay.gif"}
    assert kept.keys() == {"README.md", "config.yaml", "run_policy.py"} | large
    card = kept["README.md"].decode()
    assert card.startswith("---\nlibrary_name: minerva\n")
    assert "![an episode](replay.gif)" in card
    assert hub.asked.count("private someone/pendulum") == 1
    sums = {name: hashlib.sha256((run / "export" / name).read_bytes()).hexdigest() for name in large}
    if storage == "of Git":
        assert all(kept[name] == (run / "export" / name).read_bytes() for name in large)
        verified = {path.removeprefix("POST /verify/") for path in hub.asked if path.startswith("POST /verify/")}
        assert verified == set(sums.values()) == hub.large.keys()
    else:
        assert all(kept[name] == sum_.encode() for name, sum_ in sums.items())
        where = hf_xet.hash_files([str(run / "export" / name) for name in sums])
        hub.addresses |= {
            sum_.encode(): (found.hash, found.file_size) for sum_, found in zip(sums.values(), where, strict=True)
        }

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
