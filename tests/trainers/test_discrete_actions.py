"""Discrete actions with PPO and V-MPO: learned, stored as integers, stacked, saved, evaluated, exported and drawn."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from needs import all_but_first_slow
from torch import Tensor

import minerva
from minerva.compute.numpy_function import HostFunction
from minerva.compute.tree import leaves
from minerva.lab.export.graph import exported
from minerva.loop.agent import Agent
from minerva.loop.stacking import Stack
from minerva.policy import load_policy
from minerva.spec import ActionSpec
from minerva.trainers.registry import agent_class, config_class, trainer_class

OBS, STEPS, ENVS = 3, 16, 4
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,), "minibatch_size": 32},
    "vmpo": {"policy_layer_sizes": (8,), "value_layer_sizes": (8,), "minibatch_size": 32},
}
BOTH = pytest.mark.parametrize("algo", SMALL)
SPECS = pytest.mark.parametrize(
    "action", [ActionSpec.discrete(4, start=2), ActionSpec.multi_discrete([2, 4, 3])], ids=lambda spec: spec.kind
)
STRUCTURE = spaces.Dict(
    {"push": spaces.Box(-2.0, 2.0, (1,)), "gear": spaces.Discrete(3), "lamp": spaces.MultiBinary(2)}
)


class Structured(gym.Env[Any, Any]):
    """Pays for the gear that is the number of the larger observation, and for a small push; one step an episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = STRUCTURE

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = self.np_random.normal(size=2).astype(np.float32)
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in STRUCTURE
        reward = float(action["gear"] == self.seen.argmax()) - 0.1 * abs(float(action["push"][0]))
        return self.seen, reward, True, False, {}


def make_agent(algo: str, action: ActionSpec, seed: int = 0, **settings: Any) -> Any:
    sizes = {**SMALL[algo], "num_envs": ENVS, "rollout_steps": STEPS}
    return agent_class(algo).from_config(OBS, action, config_class(algo).from_dict({**sizes, **settings}), seed=seed)


def bandit(agent: Agent, action: ActionSpec, seed: int) -> dict[str, Tensor]:
    """Episodes of one step: each choice pays 1 if it is the number of the largest of its observations, modulo C."""
    source = torch.Generator().manual_seed(seed)
    obs = torch.randn(STEPS, ENVS, OBS, generator=source)
    actions = agent.acted(agent.state, obs, agent.draw_actions((STEPS, ENVS)))["actions_raw"]
    best = obs.argmax(-1, keepdim=True) % torch.tensor(action.counts)
    ones = torch.ones(STEPS, ENVS)
    rewards = (actions == best).float().mean(-1)
    return {
        "obs": obs,
        "next_obs": obs,
        "actions_raw": actions,
        "rewards": rewards,
        "terminated": ones,
        "ended": ones,
    }


@BOTH
@SPECS
def test_the_better_choice_becomes_the_likelier(algo: str, action: ActionSpec) -> None:
    agent = make_agent(algo, action, policy_lr=3e-3)
    first, last = [], []
    for update in range(40):
        data = bandit(agent, action, update)
        agent.learn(data)
        (first if update < 5 else last).append(data["rewards"].mean().item())
    chance = np.mean([1 / count for count in action.counts])
    assert np.mean(first) < chance + 0.2
    assert np.mean(last[-5:]) > 0.85


@BOTH
@SPECS
def test_stacked_agents_act_and_learn_as_each_does_alone(algo: str, action: ActionSpec) -> None:
    alone, together = ([make_agent(algo, action, seed) for seed in (1, 2)] for _ in range(2))
    rollouts = [bandit(make_agent(algo, action, 9), action, seed) for seed in (1, 2)]
    for agent, data in zip(alone, rollouts, strict=True):
        agent.learn(data)
    stack = Stack(together, "off", 1)
    stack.learn({name: torch.stack([data[name] for data in rollouts]) for name in rollouts[0]}, stack.hyper())
    for agent, other in zip(alone, together, strict=True):
        for mine, others in zip(leaves(agent.state), leaves(other.state), strict=True):
            torch.testing.assert_close(mine, others, rtol=1e-4, atol=1e-5)
    obs, noise = torch.randn(2 * ENVS, OBS), torch.stack([agent.draw_actions((ENVS,)) for agent in together])
    acted = stack.act(obs, noise)["actions_executed"]
    assert acted.dtype == torch.int64
    for n, agent in enumerate(together):
        rows = slice(n * ENVS, (n + 1) * ENVS)
        assert torch.equal(acted[rows], agent.acted(agent.state, obs[rows], noise[n])["actions_executed"])


@BOTH
def test_numpy_chooses_as_torch_does(algo: str) -> None:
    agent = make_agent(algo, ActionSpec.discrete(5))
    obs, noise = 3 * torch.randn(200, OBS), agent.draw_actions((200,))
    found = HostFunction(agent.acted, agent.state, obs, noise)(obs.numpy(), noise.numpy())
    assert found["actions_executed"].dtype == np.int64
    assert torch.equal(torch.from_numpy(found["actions_raw"]), agent.acted(agent.state, obs, noise)["actions_raw"])
    assert len(np.unique(found["actions_raw"])) == 5


@pytest.fixture(scope="module", params=list(SMALL))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("discrete") / request.param
    settings = {"eval_every": 256, "eval_episodes": 2, "quiet": True, "compile": "off"}
    trainer = trainer_class(request.param)(
        "CartPole-v1", 3, engine="gymnasium", num_envs=4, rollout_steps=32, **SMALL[request.param]
    )
    assert trainer.rollout.state["actions_raw"].dtype == torch.int64
    assert trainer.rollout.state["actions_raw"].shape == (32, 4, 1)
    trainer.train(256, folder, **settings)
    return folder


@pytest.mark.parametrize("algo", all_but_first_slow(SMALL))
def test_a_structure_of_numbers_and_choices_is_trained_evaluated_and_exported(algo: str, tmp_path: Path) -> None:
    trainer = trainer_class(algo)(Structured, 3, num_envs=8, rollout_steps=16, policy_lr=3e-3, **SMALL[algo])
    assert trainer.rollout.state["actions_raw"].shape == (16, 8, 4)
    assert trainer.rollout.state["actions_raw"].dtype == torch.float32
    trainer.train(128 * 40, tmp_path / "run", eval_every=10**6, eval_episodes=50, quiet=True, compile="off")
    assert minerva.evaluate(tmp_path / "run", episodes=50, env=Structured, which="last").mean > 0.8
    policy, obs = load_policy(tmp_path / "run"), np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    assert policy.act(obs[0]) in STRUCTURE
    batch = policy.act(obs)
    session = onnxruntime.InferenceSession(exported(policy).content, providers=["CPUExecutionProvider"])
    (vectors,) = session.run(["actions"], {"observations": obs})
    columns = batch["push"], batch["gear"][:, None], batch["lamp"]
    np.testing.assert_allclose(vectors, np.concatenate(columns, 1), atol=1e-5)


def test_an_evaluation_is_what_the_loaded_policy_does_in_gymnasium(run: Path) -> None:
    policy, env = load_policy(run), gym.make("CartPole-v1")
    returns = []
    for episode in range(2):
        obs, over, total = env.reset(seed=policy.about["seed"] + 10_000 + episode)[0], False, 0.0
        while not over:
            action = policy.act(obs)
            assert type(action) is np.int64
            obs, reward, terminated, truncated, _ = env.step(action)
            over, total = terminated or truncated, total + float(reward)
        returns.append(total)
    assert minerva.evaluate(run, episodes=2).returns == returns


def test_a_batch_is_acted_on_row_by_row_and_the_likeliest_choice_is_the_deterministic_one(run: Path) -> None:
    policy, obs = load_policy(run), 2 * np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    batch = policy.act(obs)
    assert (batch.shape, batch.dtype) == ((50,), np.int64)
    assert batch.tolist() == [policy.act(row) for row in obs]
    agent = policy.agent
    normalizer = agent.state["normalizer"]
    logits = agent.policy_function.params(agent.flat.vector, torch.from_numpy(obs), normalizer)["logits"]
    assert np.array_equal(batch, logits.argmax(-1).numpy())


def test_the_exported_graph_chooses_as_the_policy_does(run: Path) -> None:
    policy, obs = load_policy(run), np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(exported(policy).content, providers=["CPUExecutionProvider"])
    (actions,) = session.run(["actions"], {"observations": obs})
    assert actions.dtype == np.int64
    np.testing.assert_array_equal(actions, policy.act(obs))
    about = session.get_modelmeta().custom_metadata_map
    assert (about["action_low"], about["action_high"]) == ("[0.0]", "[1.0]")


def test_a_video_is_drawn(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    from minerva.lab.analysis.video import VideoSettings, record

    video = record(run, settings=VideoSettings(format="gif", seconds=0.2), out=tmp_path / "a.gif")
    assert video.path.stat().st_size > 0
    assert video.lengths == [10]


def test_a_policy_for_two_choices_does_not_fit_a_task_with_three(run: Path) -> None:
    with pytest.raises(minerva.errors.CheckpointError, match="other observations or actions"):
        minerva.evaluate(run, episodes=1, env="MountainCar-v0")
    assert not ActionSpec.discrete(2).fits(ActionSpec.discrete(3))
    assert not ActionSpec.discrete(2).fits(ActionSpec.continuous([-1.0], [1.0]))
    assert ActionSpec.continuous([-1.0], [1.0]).fits(ActionSpec.continuous([-2.0], [2.0]))
