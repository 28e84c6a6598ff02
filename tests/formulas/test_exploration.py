"""How widely actions vary before training."""

import math

import pytest

from minerva.config import OptimizerConfig
from minerva.errors import ConfigError
from minerva.formulas.exploration import first_log_std
from minerva.spec import ActionSpec
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig

AGENTS = {PPOAgent: PPOConfig, VMPOAgent: VMPOConfig}
OBS = 3


@pytest.mark.parametrize("actions", [3, 6, 8, 17, 56])
def test_all_actions_together_vary_by_a_length_of_one(actions: int) -> None:
    """The root mean square of the length of D independent numbers is sqrt(D) standard deviations."""
    assert math.exp(first_log_std(actions)) * math.sqrt(actions) == pytest.approx(1)


@pytest.mark.parametrize("actions", [1, 2])
def test_few_actions_vary_no_more_each(actions: int) -> None:
    assert first_log_std(actions) == -0.5


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("actions", [1, 6])
def test_an_agent_begins_with_it(kind: type[PPOAgent] | type[VMPOAgent], actions: int) -> None:
    assert spread_of(kind(OBS, actions, config=AGENTS[kind]())) == pytest.approx([first_log_std(actions)] * actions)


@pytest.mark.parametrize("kind", AGENTS)
def test_a_number_replaces_the_rule_and_its_line(kind: type[PPOAgent] | type[VMPOAgent]) -> None:
    config: OptimizerConfig = AGENTS[kind](initial_log_std=-1.5)
    assert spread_of(kind(OBS, 6, config=config)) == [-1.5] * 6
    assert "initial_log_std" not in config.derived(6)
    assert AGENTS[kind]().derived(6)["initial_log_std"].startswith("-0.896,")


def test_only_a_policy_that_can_take_its_spread_from_the_layers_takes_none() -> None:
    assert VMPOConfig(initial_log_std=None).initial_log_std is None
    with pytest.raises(ConfigError, match="initial_log_std is None: it must be a number"):
        PPOConfig.from_dict({"initial_log_std": None})


@pytest.mark.parametrize("config", AGENTS.values())
def test_thousands_of_worlds_begin_alike_however_many_actions(config: type[PPOConfig] | type[VMPOConfig]) -> None:
    assert "initial_log_std" not in config.from_dict(config.at_scale(2048)).derived(17)


@pytest.mark.parametrize("kind", AGENTS)
def test_choices_alone_have_no_spread(kind: type[PPOAgent] | type[VMPOAgent]) -> None:
    agent = kind(OBS, ActionSpec.discrete(4), config=AGENTS[kind]())
    assert spread_of(agent) == []
    assert "initial_log_std" not in agent.config.derived(0)


def spread_of(agent: PPOAgent | VMPOAgent) -> list[float]:
    """The log standard deviation that an agent begins with, from its parameters."""
    network = agent.network if isinstance(agent, PPOAgent) else agent.policy
    named = [values for name, values in network.named_parameters() if name.endswith("logstd")]
    return [number for values in named for number in values.flatten().tolist()]
