"""Whatever a file holds that somebody sent: it is read, or refused in one line, and nothing else happens.

The corpus is what Minerva wrote, and inputs that were once answered otherwise. `MINERVA_FUZZ_SECONDS` and
`MINERVA_FUZZ_SEED` try longer and other inputs.
"""

import json
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from fuzzing import Mutate, Reader, fuzz
from mutation import mutated_bytes, mutated_values, toml
from safetensors.torch import load, save

from minerva.cli.train import parsed_train
from minerva.errors import MinervaError
from minerva.lab.analysis.comparison import compare
from minerva.lab.analysis.peers import parse_published
from minerva.lab.analysis.records import read_records
from minerva.lab.analysis.report import page
from minerva.lab.benchmark.files import progress
from minerva.lab.benchmark.grid import read_grid
from minerva.policy import load_policy
from minerva.presets import preset_for
from minerva.runs.checkpoint import _digest, load_checkpoint
from minerva.runs.metrics import evaluation_means, read_rows

CORPUS = Path(__file__).parent / "corpus"


# --- how inputs are made ------------------------------------------------------------------------------------------


def mutates_values(parse: Callable[[bytes], Any], write: Callable[[Any], str]) -> Mutate:
    """Mutations of the values in a text, or of its bytes where it has become none."""

    def mutate(content: bytes, source: random.Random) -> bytes:
        try:
            return write(mutated_values(parse(content), source)).encode(errors="surrogatepass")
        except Exception:  # parsers raise what they like
            return mutated_bytes(content, [content], source)

    return mutate


def mutates_bytes(reader: str) -> Mutate:
    others = [path.read_bytes() for path in sorted((CORPUS / reader).iterdir())]
    return lambda content, source: mutated_bytes(content, others, source)


def mutate_checkpoint(content: bytes, source: random.Random) -> bytes:
    """A checkpoint with other values or tensors and the digest of them: what only the checks behind it refuse."""
    try:
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        tree, tensors = json.loads(metadata["minerva"]), load(content)
    except Exception:  # it is none anymore
        return mutated_bytes(content, [content], source)
    if source.random() < 0.7:
        tree = mutated_values(tree, source)
    if source.random() < 0.4 and tensors:
        name = source.choice(sorted(tensors))
        tensors[name] = _odd_tensor(tensors[name], source)
    text = json.dumps(tree)
    return save(tensors, {"minerva": text, "sha256": _digest(text, tensors)})


def _odd_tensor(tensor: torch.Tensor, source: random.Random) -> torch.Tensor:
    odd = [
        tensor.flatten()[:0],
        tensor[None].contiguous(),
        tensor.flatten(),
        tensor.to(torch.float64),
        tensor.to(torch.uint8),
    ]
    odd += [torch.full(tensor.shape, value) for value in (float("nan"), float("inf"), 1e30)]
    return source.choice([*odd, torch.zeros(0), torch.ones(7, 3), torch.ones(3, dtype=torch.bool)]).contiguous()


def _json_rows(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.decode().splitlines()]


def _as_rows(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- what reads them ----------------------------------------------------------------------------------------------


def report(folder: Path) -> None:
    """As `minerva report` does, but for writing the page."""
    unread: list[Any] = []
    page(compare(read_records([folder], unread)), "report", "report", unread)


def use_policy(file: Path) -> None:
    """Act with the policy of a checkpoint, and show it."""
    policy = load_policy(file)
    repr(policy)
    action = policy.act(np.zeros(policy.observation.shape, np.float32))
    low, high = policy.action.bounds
    assert ((action >= low) & (action <= high)).all()


def peers(folder: Path) -> None:
    for figure in parse_published((folder / "peers.toml").read_text(errors="replace")).figures:
        assert figure.text
        assert figure.seeds_text


TOML = mutates_values(lambda content: tomllib.loads(content.decode()), toml)
READERS = {
    reader.name: reader
    for reader in (
        Reader(
            "config",
            "config.yaml",
            [report, lambda folder: parsed_train("ppo", ["--config", str(folder / "config.yaml")])],
            [mutates_values(yaml.safe_load, yaml.safe_dump), mutates_bytes("config")],
        ),
        Reader(
            "checkpoint",
            "checkpoints/ppo_last.safetensors",
            [
                lambda folder: load_checkpoint(folder / "checkpoints" / "ppo_last.safetensors"),
                lambda folder: use_policy(folder / "checkpoints" / "ppo_last.safetensors"),
                report,
            ],
            [mutate_checkpoint, mutate_checkpoint, mutate_checkpoint, mutates_bytes("checkpoint")],
        ),
        Reader(
            "metrics",
            "metrics.jsonl",
            [
                report,
                lambda folder: progress(folder / "metrics.jsonl"),
                lambda folder: read_rows(folder / "metrics.jsonl"),
            ],
            [mutates_values(_json_rows, _as_rows), mutates_bytes("metrics")],
        ),
        Reader(
            "evaluations",
            "eval/evaluations.jsonl",
            [report, lambda folder: evaluation_means(folder / "eval" / "evaluations.jsonl")],
            [mutates_values(_json_rows, _as_rows), mutates_bytes("evaluations")],
        ),
        Reader(
            "result",
            "result.json",
            [lambda folder: report(folder / "result.json")],
            [mutates_values(json.loads, json.dumps), mutates_bytes("result")],
        ),
        Reader(
            "grid", "grid.toml", [lambda folder: read_grid(folder / "grid.toml").rows()], [TOML, mutates_bytes("grid")]
        ),
        Reader(
            "preset",
            "preset.toml",
            [
                lambda folder: parsed_train("ppo", ["--env", "Pendulum-v1", "--preset", str(folder / "preset.toml")]),
                lambda folder: preset_for("ppo", "Pendulum-v1", str(folder / "preset.toml")),
            ],
            [TOML, mutates_bytes("preset")],
        ),
        Reader("peers", "peers.toml", [peers], [TOML, mutates_bytes("peers")]),
    )
}


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run's folder, made of the first file of each corpus."""
    for name in ("config", "metrics", "evaluations", "checkpoint"):
        file = tmp_path / READERS[name].path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(min((CORPUS / name).iterdir()).read_bytes())
    return tmp_path


@pytest.mark.parametrize("name", READERS)
def test_every_input_is_read_or_refused(name: str, run_folder: Path) -> None:
    corpus = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert fuzz(READERS[name], corpus, run_folder) > len(corpus)


@pytest.mark.parametrize("name", READERS)
def test_the_first_of_each_corpus_is_read(name: str, run_folder: Path) -> None:
    (run_folder / READERS[name].path).write_bytes(min((CORPUS / name).iterdir()).read_bytes())
    refusals = []
    for read in READERS[name].reads:
        try:
            read(run_folder)
        except MinervaError as error:
            refusals.append(str(error))
    assert refusals == []
