"""PPO's actor-critic and the layers that MPO and V-MPO build on."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from minerva.errors import ConfigError
from minerva.networks.encoders import LayerNormMLP, SmallInitLinear, orthogonal_linear
from minerva.networks.policies import ActorCritic
from minerva.trainers.ppo.trainer import Agent

OBS, ACT = 5, 3


@pytest.fixture
def network() -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(OBS, ACT, (64, 32), (48,))


def observations(rows: int = 16) -> Tensor:
    return torch.randn(rows, OBS, generator=torch.Generator().manual_seed(1))


def linears(of: nn.Module) -> list[nn.Linear]:
    return [layer for layer in of.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize(("inputs", "outputs"), [(10, 4), (4, 10), (8, 8)])
@pytest.mark.parametrize("gain", [0.01, 1.0, math.sqrt(2)])
def test_orthogonal_weights_keep_lengths_up_to_the_gain(inputs: int, outputs: int, gain: float) -> None:
    layer = orthogonal_linear(inputs, outputs, gain)
    weight = layer.weight.detach().double()
    gram = weight @ weight.T if outputs <= inputs else weight.T @ weight
    torch.testing.assert_close(gram, gain**2 * torch.eye(min(inputs, outputs)).double(), rtol=0, atol=1e-6 * gain**2)
    assert not layer.bias.any()


def test_gains_are_those_of_the_specification(network: ActorCritic) -> None:
    """An orthogonal matrix of gain g has all its singular values equal to g."""
    expected = {"actor_mean": [math.sqrt(2), math.sqrt(2), 0.01], "critic": [math.sqrt(2), 1.0]}
    for part, gains in expected.items():
        layers = linears(getattr(network, part))
        assert len(layers) == len(gains)
        for layer, gain in zip(layers, gains, strict=True):
            singular = torch.linalg.svdvals(layer.weight.detach())
            torch.testing.assert_close(singular, torch.full_like(singular, gain), rtol=1e-5, atol=0)
            assert not layer.bias.any()


def test_hidden_layers_have_their_widths_and_tanh(network: ActorCritic) -> None:
    assert [(layer.in_features, layer.out_features) for layer in linears(network.actor_mean)] == [
        (OBS, 64),
        (64, 32),
        (32, ACT),
    ]
    assert [type(layer) for layer in network.actor_mean] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]
    assert [type(layer) for layer in network.critic] == [nn.Linear, nn.Tanh, nn.Linear]


def test_policy_and_value_share_no_parameter(network: ActorCritic) -> None:
    value_slopes = torch.autograd.grad(
        network.get_value(observations()).sum(), list(network.parameters()), allow_unused=True
    )
    used = {
        name for (name, _), slope in zip(network.named_parameters(), value_slopes, strict=True) if slope is not None
    }
    assert used == {name for name, _ in network.named_parameters() if name.startswith("critic.")}


def test_log_std_is_one_parameter_per_action_starting_at_zero(network: ActorCritic) -> None:
    assert isinstance(network.actor_logstd, nn.Parameter)
    assert network.actor_logstd.tolist() == [0] * ACT
    assert ActorCritic(OBS, ACT, (4,), (4,), initial_log_std=-1.5).actor_logstd.tolist() == [-1.5] * ACT


def test_the_trainers_module_offers_it_as_agent() -> None:
    assert Agent is ActorCritic
    for name in ("get_value", "get_deterministic_action", "get_action_and_value"):
        assert callable(getattr(Agent, name))


@pytest.mark.parametrize("name", ["policy_layer_sizes", "value_layer_sizes"])
@pytest.mark.parametrize("empty", [(), []])
def test_an_empty_layer_list_is_refused_by_its_own_name(name: str, empty: object) -> None:
    sizes = {"policy_layer_sizes": (8,), "value_layer_sizes": (8,), name: empty}
    other = ({"policy_layer_sizes", "value_layer_sizes"} - {name}).pop()
    with pytest.raises(ConfigError, match=name) as refusal:
        ActorCritic(OBS, ACT, **sizes)  # type: ignore[arg-type]
    assert other not in str(refusal.value)


def test_given_actions_get_the_log_probability_and_entropy_of_the_policys_gaussian(network: ActorCritic) -> None:
    network.actor_logstd.data = torch.tensor([-1.0, 0.0, 0.5])
    actions = torch.randn(16, ACT, generator=torch.Generator().manual_seed(2))
    same, log_prob, entropy, value = network.get_action_and_value(observations(), actions)
    policy = Independent(Normal(network.get_deterministic_action(observations()), network.actor_logstd.exp()), 1)
    assert same is actions
    torch.testing.assert_close(log_prob, policy.log_prob(actions))
    torch.testing.assert_close(entropy, policy.entropy())
    assert torch.equal(value, network.get_value(observations()))
    assert log_prob.shape == entropy.shape == value.shape == (16,)


def test_sampled_actions_have_the_policys_mean_and_spread(network: ActorCritic) -> None:
    network.actor_logstd.data = torch.tensor([-2.0, 0.0, 1.0])
    torch.manual_seed(3)
    same_observation = observations(1).expand(200_000, OBS)
    with torch.no_grad():
        actions, *_ = network.get_action_and_value(same_observation)
        mean = network.get_deterministic_action(observations(1))[0]
    spread = network.actor_logstd.detach().exp()
    assert ((actions.mean(0) - mean).abs() < 5 * spread / math.sqrt(len(actions))).all()
    torch.testing.assert_close(actions.std(0), spread, rtol=0.01, atol=0)


def test_forward_and_the_methods_have_no_side_effect(network: ActorCritic) -> None:
    network.obs_normalizer.update_stats(observations())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first = network(observations())
    for _ in range(3):
        network.get_value(observations(7) + 5)
        network.get_deterministic_action(observations(7) + 5)
        network.get_action_and_value(observations(7) + 5)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(torch.equal(now, then) for now, then in zip(network(observations()), first, strict=True))


def test_observations_are_normalised_before_either_network_sees_them(network: ActorCritic) -> None:
    network.obs_normalizer.update_stats(3 + 20 * observations(500))
    scaled = network.obs_normalizer(observations())
    assert torch.equal(network.get_deterministic_action(observations()), network.actor_mean(scaled))
    assert torch.equal(network.get_value(observations()), network.critic(scaled)[:, 0])
    mean, _, value = network(observations())
    assert torch.equal(mean, network.actor_mean(scaled))
    assert torch.equal(value, network.critic(scaled)[:, 0])


def test_the_normaliser_is_saved_with_the_weights(network: ActorCritic) -> None:
    network.obs_normalizer.update_stats(3 + 20 * observations(500))
    other = ActorCritic(OBS, ACT, (64, 32), (48,))
    other.load_state_dict(network.state_dict())
    assert torch.equal(other.get_value(observations()), network.get_value(observations()))


def test_one_observation_and_many_give_the_same(network: ActorCritic) -> None:
    rows = observations(6)
    batched = network.get_deterministic_action(rows.reshape(2, 3, OBS))
    single = torch.stack([network.get_deterministic_action(row) for row in rows])
    torch.testing.assert_close(batched.reshape(6, ACT), single)


def test_small_init_has_its_std_and_zero_bias() -> None:
    torch.manual_seed(0)
    layer = SmallInitLinear(200, 300, std=0.01)
    assert layer.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert abs(layer.weight.mean().item()) < 1e-4
    assert not layer.bias.any()


def test_layer_norm_mlp_is_layer_norm_tanh_first_and_elu_after() -> None:
    torch.manual_seed(0)
    torso = LayerNormMLP(OBS, (32, 16, 8))
    hidden = nn.functional.linear(observations(), torso[0].weight, torso[0].bias)
    centred = hidden - hidden.mean(-1, keepdim=True)
    hidden = torch.tanh(centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5))
    hidden = nn.functional.elu(nn.functional.linear(hidden, torso[3].weight, torso[3].bias))
    expected = nn.functional.linear(hidden, torso[5].weight, torso[5].bias)
    torch.testing.assert_close(torso(observations()), expected)


@pytest.mark.parametrize("sizes", [(8,), (8, 4)])
def test_layer_norm_mlp_activates_its_last_layer_only_if_asked(sizes: tuple[int, ...]) -> None:
    assert isinstance(LayerNormMLP(OBS, sizes, activate_final=True)[-1], (nn.Tanh, nn.ELU))
    assert isinstance(LayerNormMLP(OBS, sizes)[-1], nn.Tanh if len(sizes) == 1 else nn.Linear)


def test_an_empty_torso_is_refused() -> None:
    with pytest.raises(ConfigError, match="layer_sizes"):
        LayerNormMLP(OBS, ())
