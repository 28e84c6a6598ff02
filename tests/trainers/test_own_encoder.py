"""A user's own encoder: trained, stacked, resumed, loaded and exported; and never imported because a file names it."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import torch
import yaml
from seeing import Seeing
from test_observations import CASES, QUIET, SMALL, learned

from minerva.api import evaluate, train, train_seeds
from minerva.cli.main import main
from minerva.errors import CheckpointError, ConfigError
from minerva.lab.export.graph import exported
from minerva.policy import load_policy
from minerva.trainers.ppo.agent import PPOAgent


@pytest.mark.parametrize(("algo", "env"), [case for case in CASES if case != ("mpo", Seeing)])
def test_an_own_encoder_is_trained_stacked_resumed_loaded_and_exported(algo: str, env: Any, tmp_path: Path) -> None:
    how: dict[str, Any] = {**SMALL[algo], "total_steps": 64, "own_encoder": own_networks.Glance}
    train(algo, env, run_dir=tmp_path / "whole", settings=QUIET, **how)
    stop = {**QUIET, "callbacks": [lambda step, metrics, trainer: True]}
    train(algo, env, run_dir=tmp_path / "parts", settings=stop, **how)
    train(algo, env, run_dir=tmp_path / "parts", settings=QUIET, **how)
    for whole, parts in zip(learned(tmp_path / "whole"), learned(tmp_path / "parts"), strict=True):
        assert torch.equal(whole, parts)
    train_seeds(algo, env, [0, 1], run_dir=tmp_path / "both", settings=QUIET, **{**how, "total_steps": 32})
    config = yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())
    assert config["own_encoder"] == "own_networks:Glance"
    with pytest.raises(CheckpointError, match=r"encoder 'own_networks:Glance', which is not part.*--own-encoder"):
        load_policy(tmp_path / "whole")
    policy = load_policy(tmp_path / "whole", "last", own_encoder=own_networks.Glance)
    module = next(part for part in policy.agent.policy_function.module.modules() if type(part) is own_networks.Glance)
    before = type(policy.agent).from_config(
        policy.observation, policy.action, policy.agent.config, own_encoder=own_networks.Glance
    )
    untrained = next(part for part in before.policy_function.module.modules() if type(part) is own_networks.Glance)
    assert not torch.equal(module.columns.weight, untrained.columns.weight), "its weights have learned"
    assert exported(policy).difference < 1e-5


def test_a_file_that_names_an_encoder_imports_nothing_and_a_person_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "myncoder.py").write_text("from own_networks import swish as make\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    short = ["--total-steps", "64", "--num-envs", "2", "--rollout-steps", "16", "--minibatch-size", "16"]
    quick = ["--update-epochs", "1", "--eval-episodes", "1", "--eval-every", "64", "--compile", "off"]
    assert main(["train", "ppo", "--own-encoder", "myncoder:make", "--run-dir", "run", *short, *quick]) == 0
    assert "--own-encoder myncoder:make" in " ".join(capsys.readouterr().out.split()), "the next command names it too"
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["own_encoder"] == "own_networks:swish"
    for command in (["evaluate", "run"], ["train", "ppo", "--resume", "run"], ["train", "ppo", "--config", "run"]):
        del sys.modules["own_networks"]
        assert main(command) != 0
        assert "if you trust it" in " ".join(capsys.readouterr().err.split())
        assert "own_networks" not in sys.modules
        sys.modules["own_networks"] = own_networks
    assert main(["evaluate", "run", "--own-encoder", "myncoder:make", "--episodes", "1"]) == 0
    assert len(evaluate("run", own_encoder=own_networks.swish, episodes=1).returns) == 1
    with pytest.raises(CheckpointError, match="does not fit its own config"):
        load_policy("run", own_encoder=lambda observation: torch.nn.Linear(3, 5))


@pytest.mark.parametrize(
    ("own_encoder", "reason"),
    [
        (own_networks.scalar, r"gave \(2,\) for a batch of 2 observations: it must give \[batch, features\]"),
        (own_networks.noisy, "encoder's 1 is a Dropout.*use LayerNorm"),
        (own_networks.forgotten, "returned a int: it must return a torch.nn.Module"),
    ],
)
def test_an_encoder_that_cannot_be_one_is_refused(own_encoder: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PPOAgent(3, 2, own_encoder=own_encoder)


def test_an_encoder_that_no_run_could_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a class or a function of a module"):
        train("ppo", "Pendulum-v1", own_encoder=lambda observation: torch.nn.Linear(3, 5), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_encoder_that_the_guide_shows_is_one() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "own-network.md").read_text()
    written: dict[str, Any] = {}
    exec(guide.split("```python\n")[1].split("```")[0], written)
    agent = PPOAgent(3, 2, own_encoder=written["Encoder"])
    assert agent.network.obs_encoder.size == 64
    assert agent.act(np.zeros((4, 3))).shape == (4, 2)


def test_the_features_are_those_of_the_own_module_on_normalised_numbers() -> None:
    agent = PPOAgent(3, 2, own_encoder=own_networks.swish)
    agent.network.obs_normalizer.update_stats(5 + 2 * torch.randn(50, 3))
    obs = 5 + 2 * np.random.default_rng(0).normal(size=(4, 3))
    normalized = agent.network.obs_normalizer(torch.as_tensor(obs, dtype=torch.float32))
    features = agent.network.obs_encoder.own.module(normalized)
    torch.testing.assert_close(
        agent.network.get_value(torch.as_tensor(obs).float()), agent.network.critic(features)[:, 0]
    )
