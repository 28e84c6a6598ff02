"""Masks of the possible choices, from `info["action_mask"]`: no other choice is ever made, by whatever acts."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical as TorchCategorical

import minerva
from minerva.distributions import Categorical
from minerva.envs.engines.registry import make_engine
from minerva.errors import CheckpointError, EnvStepError
from minerva.networks.masks import masked
from minerva.policy import load_policy
from minerva.spec import ActionSpec
from minerva.trainers.registry import trainer_class

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,), "rollout_steps": 16, "minibatch_size": 32},
    "vmpo": {"policy_layer_sizes": (8,), "value_layer_sizes": (8,), "rollout_steps": 16, "minibatch_size": 32},
    "mpo": {
        "policy_layer_sizes": (8,),
        "critic_layer_sizes": (8,),
        "batch_size": 32,
        "replay_size": 4_000,
        "update_after": 500,
        "updates_per_step": 0.1,
        "q_lr": 1e-2,
        "target_networks_update_period": 10,
    },
}


class Guarded(gym.Env[Any, Any]):
    """Two of four choices are possible, others at every step, and the larger pays; an impossible one is an error."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.mask[action]:
            raise ValueError(f"{action} is not possible")
        reward = float(action == np.flatnonzero(self.mask).max())
        self.steps += 1
        obs, info = self._shown()
        return obs, reward, False, self.steps == 8, info

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        self.mask = np.zeros(4, np.int8)
        self.mask[self.np_random.choice(4, 2, replace=False)] = 1
        return self.np_random.normal(size=2).astype(np.float32), {"action_mask": self.mask}


def test_a_mask_leaves_the_distribution_of_the_possible_choices() -> None:
    logits = torch.randn(6, 5, dtype=torch.float64)
    mask = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    possible = TorchCategorical(logits=logits[:, mask > 0])
    policy, params = Categorical([5]), {"logits": masked(logits, mask)}
    chosen = torch.tensor([0, 2, 3])
    for n, choice in enumerate(chosen):
        found = policy.log_prob(params, choice.expand(6, 1))
        torch.testing.assert_close(found, possible.log_prob(torch.tensor(n)))
    torch.testing.assert_close(policy.entropy(params), possible.entropy())
    old = {"logits": masked(torch.zeros_like(logits), mask)}
    expected = torch.distributions.kl_divergence(TorchCategorical(logits=torch.zeros(6, 3).double()), possible)
    torch.testing.assert_close(policy.kls(old, params)["choice"][:, 0], expected)


@pytest.mark.parametrize("algo", SMALL)
def test_training_evaluating_and_loading_make_possible_choices_alone(algo: str, tmp_path: Path) -> None:
    trainer = trainer_class(algo)(Guarded, 3, num_envs=8, policy_lr=1e-2, **SMALL[algo])
    assert (trainer.envs.observation.size, trainer.envs.action.mask_size) == (6, 4)
    assert trainer.agent.state["normalizer"]["mean"].shape == (2,)
    trainer.train(128 * 20, tmp_path / "run", eval_every=10**6, eval_episodes=4, quiet=True, compile="off")
    policy = load_policy(tmp_path / "run", "last")
    obs = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    mask = np.tile([0, 1, 1, 0], (40, 1))
    assert set(policy.act(obs, action_mask=mask)) <= {1, 2}
    assert policy.act(obs[0], action_mask=mask[0]) in (1, 2)
    assert set(policy.act(obs, deterministic=False, action_mask=mask)) <= {1, 2}
    assert np.mean(policy.act(obs)) > 2, "without a mask the best of all is chosen"
    with pytest.raises(CheckpointError, match="its action_mask has 3 entries, and its actions have 4 choices"):
        policy.act(obs, action_mask=mask[:, :3])


def test_gymnasiums_own_task_with_masks_steps_random_possible_choices() -> None:
    envs = make_engine("Taxi-v4", 3, "gymnasium")
    obs, draw = envs.reset([0, 1, 2]), np.random.default_rng(0)
    assert envs.action == ActionSpec("discrete", counts=(6,), starts=(0,), dtype="int64", masked=True)
    for _ in range(30):
        actions = envs.action.random(obs.numpy(), draw)
        assert (np.take_along_axis(obs.numpy()[:, -6:], actions, 1) == 1).all()
        envs.step(torch.from_numpy(actions))
        obs = envs.obs


class Several(gym.Env[Any, Any]):
    """Choices in a structure, with the masks that it is given."""

    observation_space = spaces.Box(-1, 1, (1,))

    def __init__(self, action_space: spaces.Space[Any], mask: Any) -> None:
        self.action_space, self.mask = action_space, mask

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {"action_mask": self.mask}


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (spaces.MultiDiscrete([2, 3]), (np.array([0, 1], np.int8), np.array([1, 1, 0], np.int8))),
        (
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (1,)), c=spaces.Discrete(3)),
            {"c": [True, True, False], "a": [0, 1]},
        ),
    ],
)
def test_masks_of_several_choices_are_joined_in_the_order_of_the_choices(space: Any, mask: Any) -> None:
    envs = make_engine(lambda: Several(space, mask), 1)
    assert envs.reset([0]).tolist() == [[0, 0, 1, 1, 1, 0]]
    columns = envs.action.random(envs.obs.numpy(), np.random.default_rng(0))[0, -2:]
    assert columns[0] == 1
    assert columns[1] in (0, 1)


@pytest.mark.parametrize(
    ("space", "mask", "words"),
    [
        (spaces.Discrete(3), np.ones(2), "has 2 entries, and its actions have 3 choices"),
        (spaces.Discrete(3), np.int8(1), "has 1 entries, and its actions have 3 choices"),
        (spaces.Discrete(3), np.zeros(3), "forbids every choice"),
        (spaces.MultiDiscrete([2, 3]), (np.zeros(2), np.ones(3)), "forbids every choice"),
        (spaces.Discrete(3), [1, 0, np.nan], "holds something else than 0 and 1"),
        (spaces.Discrete(3), ["a", "b", "c"], "holds something else than 0 and 1"),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": [1, 1]}, "does not have the structure of the actions"),
    ],
)
def test_a_mask_that_is_none_is_refused(space: Any, mask: Any, words: str) -> None:
    envs = make_engine(lambda: Several(space, mask), 1)
    with pytest.raises(EnvStepError, match=f"its action_mask {words}"):
        envs.reset([0])


class Hand(gym.Env[Any, Any]):
    """Holds cards of two kinds, some of which may be played; after the fourth step none is left."""

    observation_space = spaces.Box(0, 9, (2,), np.int64)
    action_space = spaces.Dict(card=spaces.MultiDiscrete([2, 3], start=[1, 0]), push=spaces.Box(-1, 1, (1,)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        first, second = self.possible
        assert first[action["card"][0] - 1]
        assert second[action["card"][1]]
        self.steps += 1
        obs, info = self._shown()
        return obs, 1.0, self.steps == 4, False, info

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        left = 1 if self.steps < 4 else 0
        self.possible = tuple(left * np.eye(n, dtype=np.int8)[self.np_random.integers(n)] for n in (2, 3))
        return np.array([self.steps, 7]), {"action_mask": {"card": self.possible}}


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_a_vector_environments_masks_are_those_of_its_environments(mode: gym.vector.AutoresetMode) -> None:
    vector = gym.vector.SyncVectorEnv([Hand] * 2, autoreset_mode=mode)
    envs, draw = make_engine(vector, 2), np.random.default_rng(0)
    envs.reset([0, 1])
    for _ in range(9):
        possible = [np.concatenate(env.unwrapped.possible) for env in vector.envs]
        np.testing.assert_array_equal(envs.obs[:, 2:], possible)
        step = envs.step(torch.from_numpy(envs.action.random(envs.obs.numpy(), draw)))
        ended = step.terminated.numpy()
        assert (step.next_obs[:, 2:].sum(-1).numpy() == np.where(ended, 0, 2)).all(), (
            "an episode's last mask is its own"
        )


def test_a_policy_takes_a_mask_as_the_environment_gives_it(tmp_path: Path) -> None:
    small: dict[str, Any] = {"num_envs": 2, "rollout_steps": 8, "minibatch_size": 16}
    settings = {"quiet": True, "compile": "off", "eval_episodes": 2}
    minerva.train("ppo", Hand, total_steps=16, run_dir=tmp_path, settings=settings, **small)
    policy, env = load_policy(tmp_path), Hand()
    obs, info = env.reset(seed=0)
    env.step(policy.act(obs, action_mask=info["action_mask"]))
    flat = np.concatenate(info["action_mask"]["card"])
    several = {"card": [np.stack([part] * 3) for part in info["action_mask"]["card"]]}
    for mask in (np.stack([flat] * 3), several):
        actions = policy.act(np.stack([obs] * 3), action_mask=mask)["card"]
        np.testing.assert_array_equal(actions, [policy.act(obs, action_mask=flat)["card"]] * 3)
    with pytest.raises(CheckpointError, match="its action_mask forbids every choice"):
        policy.act(obs, action_mask=0 * flat)
    with pytest.raises(CheckpointError, match=r"its action_mask has the shape \(5,\), and not \(3, 5\)"):
        policy.act(np.stack([obs] * 3), action_mask=flat)
