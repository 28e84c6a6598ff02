"""Collecting: every row of every environment is kept exactly once, as it was."""

from typing import Any

import numpy as np
import pytest
import torch
from collecting import collect, make_rollout
from probe_envs import Counter, Ending, Listener, Makes, keep_what_is_learned, rows
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.data.rollout import RolloutWriter
from minerva.envs.engine import Episode
from minerva.envs.engines.registry import make_engine
from minerva.loop.stacking import Stack
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.trainer import PPOTrainer

CPU = torch.device("cpu")
SCRIPTS = {
    "terminated": [[Ending(3, True, False)]],
    "truncated": [[Ending(3, False, True)]],
    "both at once": [[Ending(3, True, True)]],
    "none ends": [[Ending(1_000, True, False)]],
    "every row ends": [[Ending(1, True, False)], [Ending(1, False, True)]],
    "end with the rollout": [[Ending(5, False, True)], [Ending(5, True, False)]],
    "at different times": [
        [Ending(4, True, False)],
        [Ending(2, False, True), Ending(6, True, False)],
        [Ending(1, False, True), Ending(7, True, True)],
    ],
}
STEPS = 5


class Reciting(PPOAgent):
    """Answers every observation with an action that depends on it alone, often outside [-1, 1]."""

    @staticmethod
    def answer(obs: Tensor) -> Tensor:
        environment, episode, step = obs.unbind(-1)
        return (environment - episode + step / 8).unsqueeze(-1)

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> dict[str, Tensor]:
        actions = self.answer(obs)
        return {"actions_raw": actions, "actions_executed": self.execute(actions)}


def collected(counters: Makes[Counter], num_envs: int, rollouts: int) -> tuple[dict[str, Tensor], list[Episode]]:
    """Rollouts one after another into the same storage, joined along time."""
    envs = make_engine(counters, num_envs)
    envs.reset(list(range(num_envs)))
    storage = make_rollout(STEPS, num_envs, envs.observation.size, envs.action.size)
    stack = Stack([Reciting(envs.observation.size, envs.action.size)], "off", 0)
    parts: list[dict[str, Tensor]] = []
    episodes: list[Episode] = []
    for _ in range(rollouts):
        episodes += collect(envs, stack, [storage])
        parts.append({name: rows.clone() for name, rows in storage.tensors().items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, episodes


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_rollout_is_the_rows_of_the_script_and_nothing_else(script: list[list[Ending]]) -> None:
    counters = Makes(lambda number: Counter(number, script[number]))
    rollout, _ = collected(counters, len(script), rollouts=4)
    for number, endings in enumerate(script):
        written = rows(number, endings, 4 * STEPS)
        np.testing.assert_array_equal(rollout["obs"][:, number], [row.obs for row in written])
        np.testing.assert_array_equal(rollout["next_obs"][:, number], [row.next_obs for row in written])
        np.testing.assert_array_equal(rollout["rewards"][:, number], [row.reward for row in written])
        np.testing.assert_array_equal(rollout["terminated"][:, number], [row.terminated for row in written])
        np.testing.assert_array_equal(rollout["ended"][:, number], [row.terminated or row.truncated for row in written])
        assert counters.made[number].steps_taken == 4 * STEPS, "no step was taken beside the rows"


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_episodes_are_told_in_the_rollout_in_which_they_end(script: list[list[Ending]]) -> None:
    _, episodes = collected(Makes(lambda number: Counter(number, script[number])), len(script), rollouts=4)
    for number, endings in enumerate(script):
        rewards: list[float] = []
        expected = []
        for row in rows(number, endings, 4 * STEPS):
            rewards.append(row.reward)
            if row.terminated or row.truncated:
                expected.append(Episode(number, sum(rewards), len(rewards)))
                rewards = []
        assert [episode for episode in episodes if episode.env == number] == expected


def test_each_action_stands_beside_the_observation_it_answered() -> None:
    script = SCRIPTS["at different times"]
    rollout, _ = collected(Makes(lambda number: Counter(number, script[number])), len(script), rollouts=4)
    assert torch.equal(rollout["actions_raw"], Reciting.answer(rollout["obs"]))
    assert rollout["actions_raw"].abs().max() > 1, "kept as sampled"


def test_the_environment_hears_what_is_executed_not_what_is_kept() -> None:
    class Wild(PPOAgent):
        def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> dict[str, Tensor]:
            actions = torch.full((len(obs), 1), 3.0)
            return {"actions_raw": actions, "actions_executed": actions / 4}

    listeners = Makes(lambda number: Listener())
    envs = make_engine(listeners, 1)
    envs.reset([0])
    storage = make_rollout(STEPS, 1, 1, 1)
    collect(envs, Stack([Wild(1, 1)], "off", 0), [storage])
    assert torch.equal(storage.tensors()["actions_raw"], torch.full((STEPS, 1, 1), 3.0))
    np.testing.assert_array_equal(listeners.made[0].heard, np.full((STEPS, 1), 0.75))


@pytest.mark.parametrize(("num_envs", "total_steps", "updates"), [(1, 40, 5), (3, 100, 4)])
def test_a_run_trains_on_every_environment_step_once(
    tmp_path: Any, num_envs: int, total_steps: int, updates: int
) -> None:
    """What a run counts as steps, what it learns from and what the environments did are the same rows."""
    endings = [Ending(3, True, False), Ending(1, False, True), Ending(2, True, True)]
    counters = Makes(lambda number: Counter(number, endings))
    trainer = PPOTrainer(counters, rollout_steps=8, num_envs=num_envs, minibatch_size=8, update_epochs=2)
    seen = keep_what_is_learned(trainer.agent, "obs")
    result = trainer.train(total_steps, tmp_path, quiet=True)
    steps = 8 * updates
    assert len(seen) == updates
    assert result.step == steps * num_envs
    assert [counter.steps_taken for counter in counters.made[:num_envs]] == [steps] * num_envs
    for number, obs in enumerate(torch.cat(seen).unbind(1)):
        np.testing.assert_array_equal(obs, [row.obs for row in rows(number, endings, steps)])


@pytest.mark.parametrize("filled", [0, 1, 2])
def test_a_rollout_that_was_begun_goes_on_with_its_noise_wherever_it_was_stopped(filled: int) -> None:
    """Also before its first step: the generator has moved on by then."""
    source = torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(*shape, 2, generator=source)

    begun, loaded = (make_rollout(3, 1, 4, 2) for _ in range(2))
    begun.begin(draw)
    flag = torch.zeros(1, dtype=torch.bool)
    row = {"obs": torch.ones(1, 4), "next_obs": torch.ones(1, 4), "actions_raw": torch.ones(1, 2)}
    row |= {"rewards": torch.ones(1), "terminated": flag, "truncated": flag}
    writer = RolloutWriter([begun], begun.state)
    for _ in range(filled):
        writer.add(row)
    loaded.load_state_dict(begun.state_dict())
    loaded.begin(draw)
    assert loaded.filled == filled
    assert torch.equal(loaded.noise, begun.noise)
    for _ in range(3 - filled):
        writer.add(row)
    assert begun.state_dict()["noise"] is None, "a full rollout's noise is used up"
    before = begun.noise
    begun.begin(draw)
    assert not torch.equal(before, begun.noise)
