"""Distributions against torch.distributions: samples, log-probabilities, entropies, KLs that add up to the whole."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import AffineTransform, TanhTransform

from minerva.distributions import Categorical, Distribution, Gaussian, Params, SquashedGaussian

B, D, C = 7, 3, 5
LOW, HIGH = torch.tensor([-0.5, -1.0, -2.0]).double(), torch.tensor([0.7, 1.5, 1.0]).double()


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian_params(seed: int) -> Params:
    return {"mean": normal(B, D, seed=seed), "log_std": 0.4 * normal(B, D, seed=seed + 100)}


def torchs(params: Params) -> Independent:
    return Independent(Normal(params["mean"], params["log_std"].exp()), 1)


def test_a_gaussians_log_density_and_entropy_are_those_of_torch() -> None:
    policy, params, raw = Gaussian(LOW, HIGH), gaussian_params(0), normal(4, B, D, seed=3)
    torch.testing.assert_close(policy.log_prob(params, raw), torchs(params).log_prob(raw))
    torch.testing.assert_close(policy.entropy(params), torchs(params).entropy())


def test_a_squashed_gaussians_log_density_is_that_of_the_executed_action() -> None:
    policy, params, raw = SquashedGaussian(LOW, HIGH), gaussian_params(0), normal(B, D, seed=3)
    to_bounds = AffineTransform((LOW + HIGH) / 2, (HIGH - LOW) / 2, event_dim=1)
    expected = TransformedDistribution(torchs(params), [TanhTransform(), to_bounds])
    torch.testing.assert_close(policy.log_prob(params, raw), expected.log_prob(policy.executed(raw)))
    torch.testing.assert_close(policy.recovered(policy.executed(raw)), raw)


def test_a_gaussians_kls_are_those_of_its_decoupled_parameters() -> None:
    policy, old, new = Gaussian(LOW, HIGH), gaussian_params(0), gaussian_params(1)
    kls, decoupled = policy.kls(old, new), policy.decoupled(old, new)
    assert list(kls) == list(decoupled) == list(policy.trust_regions)
    for region, params in decoupled.items():
        assert kls[region].shape == (B, policy.trust_regions[region])
        torch.testing.assert_close(kls[region].sum(-1), kl_divergence(torchs(old), torchs(params)))


def test_a_categoricals_log_probability_entropy_and_kl_are_those_of_torch() -> None:
    policy, old, new = Categorical(C), {"logits": normal(B, C, seed=0)}, {"logits": normal(B, C, seed=1)}
    expected, before = TorchCategorical(logits=new["logits"]), TorchCategorical(logits=old["logits"])
    for choice in range(C):
        taken = torch.full((B,), choice)
        torch.testing.assert_close(policy.log_prob(new, taken), expected.log_prob(taken))
    torch.testing.assert_close(policy.entropy(new), expected.entropy())
    assert {region: kl.shape for region, kl in policy.kls(old, new).items()} == {"policy": (B, 1)}
    torch.testing.assert_close(policy.kls(old, new)["policy"].squeeze(-1), kl_divergence(before, expected))
    assert torch.equal(policy.mode(new), new["logits"].argmax(-1))
    assert policy.decoupled(old, new) == {"policy": new}


def test_choices_come_as_often_as_their_probabilities_say() -> None:
    policy, params = Categorical(C), {"logits": normal(C, seed=0)}
    noise = policy.draw_noise((40_000,), torch.Generator().manual_seed(0), torch.float64)
    drawn = policy.sample(params, noise)
    found = torch.bincount(drawn, minlength=C) / len(drawn)
    torch.testing.assert_close(found, torch.softmax(params["logits"], -1), rtol=0, atol=0.012, check_dtype=False)


@pytest.mark.parametrize("policy", [Gaussian(LOW, HIGH), SquashedGaussian(LOW, HIGH)])
def test_gaussian_samples_are_executed_within_the_bounds(policy: Distribution) -> None:
    params = gaussian_params(0)
    noise = policy.draw_noise((200, B), torch.Generator().manual_seed(0), torch.float64)
    raw = policy.sample(params, noise)
    torch.testing.assert_close(raw, params["mean"] + params["log_std"].exp() * noise)
    executed = policy.executed(raw)
    assert ((executed >= LOW) & (executed <= HIGH)).all()
    assert torch.equal(policy.mode(params), params["mean"])


@pytest.mark.parametrize(
    ("policy", "outputs"),
    [(Gaussian(LOW, HIGH), ("mean", "log_std")), (Categorical(C), ("logits",))],
    ids=["gaussian", "categorical"],
)
def test_a_networks_outputs_are_named_in_their_order(policy: Distribution, outputs: tuple[str, ...]) -> None:
    parts = [torch.full((2,), float(n)) for n in range(len(outputs))]
    assert dict(zip(outputs, parts, strict=True)).keys() == policy.params(*parts).keys()
    assert [part[0].item() for part in policy.params(*parts).values()] == list(range(len(outputs)))
