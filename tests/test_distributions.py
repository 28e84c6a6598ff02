"""Distributions against torch.distributions: samples, log-probabilities, entropies, KLs that add up to the whole."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import AffineTransform, TanhTransform

from minerva.distributions import Categorical, Distribution, Gaussian, Mixed, Params, SquashedGaussian, distribution_of

B, D = 7, 3
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


COUNTS = (5, 2, 3)


def logits(seed: int) -> Params:
    return {"logits": normal(B, sum(COUNTS), seed=seed)}


def torchs_choices(params: Params) -> list[TorchCategorical]:
    return [TorchCategorical(logits=part) for part in params["logits"].split(COUNTS, -1)]


def test_the_probabilities_of_all_combinations_of_choices_are_those_of_torch_and_add_up_to_one() -> None:
    policy, params = Categorical(COUNTS), logits(0)
    combinations = torch.cartesian_prod(*(torch.arange(n) for n in COUNTS))
    repeated = {"logits": params["logits"].expand(len(combinations), -1, -1)}
    log_probs = policy.log_prob(repeated, combinations[:, None].expand(-1, B, -1))
    each = [one.log_prob(chosen) for one, chosen in zip(torchs_choices(params), combinations.T[..., None], strict=True)]
    torch.testing.assert_close(log_probs, each[0] + each[1] + each[2])
    torch.testing.assert_close(log_probs.exp().sum(0), torch.ones(B).double())
    torch.testing.assert_close(policy.entropy(params), -(log_probs.exp() * log_probs).sum(0))
    best = combinations[log_probs.argmax(0)]
    assert torch.equal(policy.mode(params), best)


def test_the_kl_of_choices_is_the_sum_of_torchs_and_the_only_trust_region() -> None:
    policy, old, new = Categorical(COUNTS), logits(0), logits(1)
    kls = policy.kls(old, new)
    assert {region: kl.shape for region, kl in kls.items()} == {"choice": (B, policy.trust_regions["choice"])}
    pairs = zip(torchs_choices(old), torchs_choices(new), strict=True)
    torch.testing.assert_close(kls["choice"][:, 0], torch.stack([kl_divergence(*pair) for pair in pairs]).sum(0))
    assert policy.decoupled(old, new) == {"choice": new}


def test_choices_come_as_often_as_their_probabilities_say() -> None:
    policy, params = Categorical(COUNTS), {"logits": normal(sum(COUNTS), seed=0)}
    noise = policy.draw_noise((40_000,), torch.Generator().manual_seed(0), torch.float64)
    drawn = policy.sample(params, noise)
    assert drawn.shape == (40_000, 3)
    assert drawn.dtype == torch.int64
    for column, wanted in zip(drawn.T, torchs_choices(params), strict=True):
        found = torch.bincount(column, minlength=len(wanted.probs)) / len(column)
        torch.testing.assert_close(found, wanted.probs, rtol=0, atol=0.012, check_dtype=False)


def mixed_params(seed: int) -> Params:
    return {**gaussian_params(seed), **logits(seed)}


@pytest.mark.parametrize("gaussian", [Gaussian(LOW, HIGH), SquashedGaussian(LOW, HIGH)], ids=["clipped", "squashed"])
def test_numbers_and_choices_at_once_are_independent(gaussian: Gaussian) -> None:
    choices = Categorical(COUNTS)
    both, params, old = distribution_of(gaussian, COUNTS), mixed_params(0), mixed_params(1)
    assert isinstance(both, Mixed)
    assert both.params(*params.values()) == params
    noise = both.draw_noise((B,), torch.Generator().manual_seed(0), torch.float64)
    raw = both.sample(params, noise)
    numbers, chosen = raw[:, :D], raw[:, D:]
    assert torch.equal(numbers, gaussian.sample(params, noise[:, :D]))
    assert torch.equal(chosen, choices.sample(params, noise[:, D:]).double())
    torch.testing.assert_close(
        both.log_prob(params, raw), gaussian.log_prob(params, numbers) + choices.log_prob(params, chosen)
    )
    torch.testing.assert_close(both.entropy(params), gaussian.entropy(params) + choices.entropy(params))
    assert torch.equal(both.executed(raw), torch.cat((gaussian.executed(numbers), chosen), -1))
    torch.testing.assert_close(both.recovered(both.executed(both.mode(params)))[:, D:], both.mode(params)[:, D:])
    kls, decoupled = both.kls(old, params), both.decoupled(old, params)
    assert list(kls) == list(decoupled) == list(both.trust_regions) == ["mean", "std", "choice"]
    for region, part in decoupled.items():
        whole = {name: kl.sum(-1) for name, kl in both.kls(old, part).items()}
        torch.testing.assert_close(whole.pop(region), kls[region].sum(-1))
        assert all(torch.equal(kl, torch.zeros(B).double()) for kl in whole.values())


def test_a_distribution_has_no_part_for_actions_that_are_not_there() -> None:
    assert type(distribution_of(SquashedGaussian(LOW, HIGH), ())) is SquashedGaussian
    assert type(distribution_of(Gaussian(LOW[:0], HIGH[:0]), [2])) is Categorical


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
    [(Gaussian(LOW, HIGH), ("mean", "log_std")), (Categorical(COUNTS), ("logits",))],
    ids=["gaussian", "categorical"],
)
def test_a_networks_outputs_are_named_in_their_order(policy: Distribution, outputs: tuple[str, ...]) -> None:
    parts = [torch.full((2,), float(n)) for n in range(len(outputs))]
    assert dict(zip(outputs, parts, strict=True)).keys() == policy.params(*parts).keys()
    assert [part[0].item() for part in policy.params(*parts).values()] == list(range(len(outputs)))
