"""A user's own networks: trained, stacked, resumed, loaded, exported; and never imported because a file names them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import torch
import yaml
from needs import all_but_first_slow
from seeing import Seeing
from test_observations import CASES, QUIET, ROLLOUT, SMALL, learned

from minerva.api import evaluate, train, train_seeds
from minerva.cli.main import main
from minerva.compute.compiled import MIN_CALLS_TO_COMPILE
from minerva.compute.tree import leaves
from minerva.errors import CheckpointError, ConfigError
from minerva.lab.export.card import Score, model_card
from minerva.lab.export.graph import exported
from minerva.loop.stacking import Stack
from minerva.policy import load_policy
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.registry import agent_class, config_class
from minerva.trainers.vmpo.agent import VMPOAgent


@pytest.mark.parametrize(("algo", "env"), all_but_first_slow(case for case in CASES if case != ("mpo", Seeing)))
def test_an_own_encoder_is_trained_stacked_resumed_loaded_and_exported(algo: str, env: Any, tmp_path: Path) -> None:
    how: dict[str, Any] = {**SMALL[algo], "total_steps": 64, "own_networks": {"encoder": own_networks.Glance}}
    train(algo, env, run_dir=tmp_path / "whole", settings=QUIET, **how)
    stop = {**QUIET, "callbacks": [lambda step, metrics, trainer: True]}
    train(algo, env, run_dir=tmp_path / "parts", settings=stop, **how)
    train(algo, env, run_dir=tmp_path / "parts", settings=QUIET, **how)
    for whole, parts in zip(learned(tmp_path / "whole"), learned(tmp_path / "parts"), strict=True):
        assert torch.equal(whole, parts)
    train_seeds(algo, env, [0, 1], run_dir=tmp_path / "both", settings=QUIET, **{**how, "total_steps": 32})
    config = yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())
    assert config["own_networks"] == {"encoder": "own_networks:Glance"}
    with pytest.raises(
        CheckpointError, match=r"encoder 'own_networks:Glance', which is not part.*--own-networks encoder="
    ):
        load_policy(tmp_path / "whole")
    policy = load_policy(tmp_path / "whole", "last", own_networks={"encoder": own_networks.Glance})
    module = next(part for part in policy.agent.policy_function.module.modules() if type(part) is own_networks.Glance)
    before = type(policy.agent).from_config(
        policy.observation, policy.action, policy.agent.config, own_networks={"encoder": own_networks.Glance}
    )
    untrained = next(part for part in before.policy_function.module.modules() if type(part) is own_networks.Glance)
    assert not torch.equal(module.columns.weight, untrained.columns.weight), "its weights have learned"
    assert exported(policy).difference < 1e-5


BODIES = {"policy": own_networks.Skip, "critic": own_networks.Skip}
REPLAY = {"num_envs": 2, "update_after": 16, "batch_size": 8, "updates_per_step": 0.5}
LAYERS = {"policy_layer_sizes": (8, 4), "critic_layer_sizes": (8, 4)}
ALL: dict[str, dict[str, Any]] = {
    "ppo": {**ROLLOUT, **LAYERS, "minibatch_size": 16, "update_epochs": 2},
    "vmpo": {**ROLLOUT, "policy_layer_sizes": (8, 4), "value_layer_sizes": (8, 4), "minibatch_size": 16, "m_steps": 2},
    "mpo": {**REPLAY, **LAYERS},
    "sac": {**REPLAY, **LAYERS},
}


def skips(agent: Any) -> list[own_networks.Skip]:
    """The user's modules in an agent's networks, but not in their targets, which follow later."""
    modules = [getattr(agent, name) for name in ("network", "policy", "q") if hasattr(agent, name)]
    return [part for module in modules for part in module.modules() if type(part) is own_networks.Skip]


@pytest.mark.parametrize("algo", all_but_first_slow(ALL))
def test_own_layers_of_policy_and_critic_are_trained_stacked_loaded_and_exported(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {**ALL[algo], "total_steps": 64, "own_networks": BODIES, "settings": QUIET}
    train(algo, "Pendulum-v1", seed=1, run_dir=tmp_path / "alone", **how)
    train_seeds(algo, "Pendulum-v1", [0, 1], run_dir=tmp_path / "both", **how)
    for both, alone in zip(learned(tmp_path / "both" / "seed1"), learned(tmp_path / "alone"), strict=True):
        torch.testing.assert_close(both, alone, rtol=1e-3, atol=1e-4)
    with pytest.raises(CheckpointError, match=r"policy 'own_networks:Skip', which is not.*--own-networks policy=modu"):
        load_policy(tmp_path / "alone", "last")
    with pytest.raises(CheckpointError, match=r"critic 'own_networks:Skip', which is not.*--own-networks critic=modu"):
        load_policy(tmp_path / "alone", "last", own_networks={"policy": own_networks.Skip})
    policy = load_policy(tmp_path / "alone", "last", own_networks=BODIES)
    before = type(policy.agent).from_config(3, 1, policy.agent.config, seed=1, own_networks=BODIES)
    trained, untrained = skips(policy.agent), skips(before)
    inputs = {3} if algo in ("ppo", "vmpo") else {3, 4}  # and an action
    assert {layers.around.in_features for layers in trained} == inputs
    for now, then in zip(trained, untrained, strict=True):
        assert not torch.equal(now.around.weight, then.around.weight), "its weights have learned"
    assert exported(policy).difference < 1e-6
    card = model_card(policy.about, f"{algo}_last.safetensors", Score([1.0], "episodes"), 0.0, None)
    monkeypatch.chdir(tmp_path / "alone" / "checkpoints")
    program: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("action =")[0], program)
    np.testing.assert_array_equal(program["policy"].act(np.ones(3)), policy.act(np.ones(3)))


@pytest.mark.parametrize("algo", all_but_first_slow(ALL))
def test_own_layers_are_captured_and_learn_what_they_do_uncompiled(
    algo: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As torch.compile captures them, run without the code generator, which takes half a minute."""
    capture, captured = torch.compile, []

    def compile_(function: Any, **options: Any) -> Any:
        captured.append(function)
        return capture(function, **options, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", compile_)
    settings = {**ALL[algo], "critics": 1, "critic_steps": 1} if algo == "mpo" else ALL[algo]
    config = config_class(algo).from_dict(settings)
    plain, fast = (agent_class(algo).from_config(3, 2, config, own_networks=BODIES) for _ in range(2))
    stack, draw = Stack([fast], "auto", MIN_CALLS_TO_COMPILE), torch.Generator().manual_seed(0)
    lead = (8, 4) if algo in ("ppo", "vmpo") else (1, 16)
    sizes = {"obs": 3, "next_obs": 3, "actions_raw": 2, "actions_executed": 2}
    rows = {name: torch.rand((*lead, size), generator=draw) for name, size in sizes.items()}
    flags = {"terminated": torch.zeros(lead), "ended": torch.zeros(lead)}
    for _ in range(2):
        data = {**rows, **flags, "rewards": torch.randn(lead, generator=draw)}
        stack.learn(data, stack.hyper())
        plain.learn(data)
    assert captured
    assert "not usable" not in caplog.text
    for found, expected in zip(leaves(fast.state), leaves(plain.state), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algo", ALL)
def test_the_activation_of_all_hidden_layers_can_be_chosen(algo: str) -> None:
    for more in ({"encoder": "plain"}, {"encoder": "residual"}) if algo in ("mpo", "sac") else ({},):
        layers = {
            **ALL[algo],
            "policy_layer_sizes": (8, 8),
            f"{'value' if algo == 'vmpo' else 'critic'}_layer_sizes": (8,),
        }
        usual, chosen = (
            agent_class(algo).from_config(3, 2, config_class(algo).from_dict({**layers, **more, "activation": name}))
            for name in ("default", "silu")
        )
        kinds = [type(part) for part in chosen.policy_function.module.modules()]
        assert kinds.count(torch.nn.SiLU) >= 2
        assert not {torch.nn.Tanh, torch.nn.ReLU, torch.nn.ELU} & set(kinds)
        assert torch.equal(usual.flat.vector, chosen.flat.vector), "with the same first weights"
        obs = torch.ones(1, 3)
        assert not torch.equal(usual.policy_function.module(obs)[0], chosen.policy_function.module(obs)[0])


def test_an_own_critic_beside_a_shared_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="with shared_encoder the critic has no layers"):
        VMPOAgent(3, 2, shared_encoder=True, own_networks=BODIES)


def test_a_file_that_names_an_encoder_imports_nothing_and_a_person_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "myncoder.py").write_text("from own_networks import swish as make\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    short = ["--total-steps", "64", "--num-envs", "2", "--rollout-steps", "16", "--minibatch-size", "16"]
    quick = ["--update-epochs", "1", "--eval-episodes", "1", "--eval-every", "64", "--compile", "off"]
    assert main(["train", "ppo", "--own-networks", "encoder=myncoder:make", "--run-dir", "run", *short, *quick]) == 0
    shown = capsys.readouterr().out
    assert "--own-networks encoder=myncoder:make" in " ".join(shown.split()), "the next command names it too"
    exec(shown.split(' -c "')[1].split('"\n')[0])
    assert "Policy(ppo on Pendulum-v1" in capsys.readouterr().out
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["own_networks"] == {"encoder": "own_networks:swish"}
    for command in (["evaluate", "run"], ["train", "ppo", "--resume", "run"], ["train", "ppo", "--config", "run"]):
        del sys.modules["own_networks"]
        assert main(command) != 0
        assert "if you trust it" in " ".join(capsys.readouterr().err.split())
        assert "own_networks" not in sys.modules
        sys.modules["own_networks"] = own_networks
    assert main(["evaluate", "run", "--own-networks", "encoder=myncoder:make", "--episodes", "1"]) == 0
    assert len(evaluate("run", own_networks={"encoder": own_networks.swish}, episodes=1).returns) == 1
    with pytest.raises(CheckpointError, match="does not fit its own config"):
        load_policy("run", own_networks={"encoder": lambda observation: torch.nn.Linear(3, 5)})


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (
            {"encoder": own_networks.scalar},
            r"gave \(2,\) for a batch of 2 observations: it must give \[batch, features\]",
        ),
        ({"encoder": own_networks.noisy}, "encoder's 1 is a Dropout.*use LayerNorm"),
        ({"encoder": own_networks.forgotten}, "returned a int: it must return a torch.nn.Module"),
        ({"policy": own_networks.narrow}, r"layers of the policy gave \(2, 3\).*must give \[batch, 64\], the last of"),
        ({"critic": lambda inputs, widths: torch.nn.Dropout()}, "critic's module is a Dropout"),
        (
            {"policy": lambda inputs: torch.nn.Identity()},
            r"given 3 inputs and the widths \(64, 64\),.* raised TypeError",
        ),
        ({"critic": lambda inputs, widths: torch.nn.Linear(7, 64)}, "critic's factory.* RuntimeError: mat1 and mat2"),
        ({"encoder": lambda: torch.nn.Identity()}, "encoder's factory, given the spec.* raised TypeError"),
        ({"actor": own_networks.Skip}, "names 'actor': give factories for encoder, policy, critic"),
        (own_networks.Skip, "give a mapping such as"),
    ],
)
def test_networks_that_cannot_be_some_are_refused(own: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PPOAgent(3, 2, own_networks=own)


def test_a_network_that_no_run_could_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a class or a function of a module"):
        train(
            "ppo",
            "Pendulum-v1",
            own_networks={"encoder": lambda observation: torch.nn.Linear(3, 5)},
            run_dir=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_the_networks_that_the_guide_shows_are_some() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "own-network.md").read_text()
    written: dict[str, Any] = {}
    for block in guide.split("```python\n")[1:]:
        if block.startswith("# my"):
            exec(block.split("```")[0], written)
    own = {"policy": written["Skip"], "critic": written["Skip"], "encoder": written["Encoder"]}
    agent = PPOAgent(3, 2, own_networks=own)
    assert agent.network.obs_encoder.size == 64
    assert agent.act(np.zeros((4, 3))).shape == (4, 2)


def test_the_features_are_those_of_the_own_module_on_normalised_numbers() -> None:
    agent = PPOAgent(3, 2, own_networks={"encoder": own_networks.swish})
    agent.network.obs_normalizer.update_stats(5 + 2 * torch.randn(50, 3))
    obs = 5 + 2 * np.random.default_rng(0).normal(size=(4, 3))
    normalized = agent.network.obs_normalizer(torch.as_tensor(obs, dtype=torch.float32))
    features = agent.network.obs_encoder.own.module(normalized)
    torch.testing.assert_close(
        agent.network.get_value(torch.as_tensor(obs).float()), agent.network.critic(features)[:, 0]
    )
