"""Environments in blocks: what is collected does not depend on where a block is, nor on whether it was replaced."""

import json
from pathlib import Path
from typing import Any

import pytest
from actor_runs import BLOCKS, ENV, SETTINGS, STEPS, InBlocks, config_of, learned, same, train
from collecting import rows_of
from needs import all_but_first_slow
from torch.testing import assert_close

from minerva.errors import ConfigError
from minerva.lab.cluster.actors import local_collector, make_worker
from minerva.loop.remote import ROUND, LocalWorker, RemoteCollector


class Mortal(LocalWorker):
    """A worker that loses its block before the given call, and gets a new one."""

    def __init__(self, algo: str, dies_at: int) -> None:
        self.made_of = (algo, config_of(algo), ENV, SETTINGS[algo]["num_envs"] // BLOCKS, "gymnasium")
        super().__init__(make_worker(*self.made_of))
        self.left = dies_at

    def result(self, begun: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.block = make_worker(*self.made_of)
        return super().result(begun)


@pytest.mark.parametrize("algo", all_but_first_slow(["ppo", "vmpo"]))
def test_on_policy_runs_in_blocks_are_those_of_one_process(algo: str, in_blocks: InBlocks, tmp_path: Path) -> None:
    train(algo, "gymnasium", tmp_path)
    assert_close(learned(in_blocks(algo)[1]), learned(tmp_path), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("algo", ["ppo", "mpo", pytest.param("vmpo", marks=pytest.mark.slow)])
def test_a_worker_that_is_replaced_leaves_no_trace(algo: str, in_blocks: InBlocks, tmp_path: Path) -> None:
    workers = [Mortal(algo, dies_at=4), Mortal(algo, dies_at=0)]
    train(algo, RemoteCollector(workers, SETTINGS[algo]["num_envs"]), tmp_path)
    assert same(learned(tmp_path), learned(in_blocks(algo)[1]))


@pytest.mark.parametrize("algo", ["ppo", "mpo", pytest.param("vmpo", marks=pytest.mark.slow)])
def test_a_run_with_blocks_goes_on_bit_for_bit(algo: str, in_blocks: InBlocks, tmp_path: Path) -> None:
    blocks = [local_collector(algo, config_of(algo), ENV, BLOCKS) for _ in range(2)]
    train(algo, blocks[0], tmp_path, lambda step, metrics, trainer: step >= 200)
    assert not same(learned(tmp_path), learned(in_blocks(algo)[1]))
    train(algo, blocks[1], tmp_path)
    assert same(learned(tmp_path), learned(in_blocks(algo)[1]))


def test_staleness_is_reported_and_never_more_than_the_updates_of_a_round(in_blocks: InBlocks) -> None:
    _, folder = in_blocks("mpo")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    stale = [row["actors/staleness"] for row in rows if "actors/staleness" in row]
    bound = ROUND * SETTINGS["mpo"]["num_envs"] * SETTINGS["mpo"]["updates_per_step"]
    assert 0 < max(stale) <= bound
    assert rows[-1]["step"] == STEPS["mpo"]


def test_the_replay_holds_the_density_that_the_worker_acted_with(in_blocks: InBlocks) -> None:
    trainer, _ = in_blocks("mpo")
    rows = trainer.replay.by_field({"float32": rows_of(trainer.replay)[:20].flatten(0, 1)})
    assert rows["behaviour_logp"].abs().min() > 0
    assert (rows["actions_executed"].abs() <= 1).all()


def test_blocks_are_equal_and_cannot_be_stepped_by_hand() -> None:
    with pytest.raises(ConfigError, match="multiple of actors"):
        local_collector("ppo", config_of("ppo"), ENV, 3)
    assert not hasattr(local_collector("ppo", config_of("ppo"), ENV, BLOCKS).envs, "step")
