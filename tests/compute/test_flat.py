"""A module's parameters as one vector, and the vector as the module's parameters."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from minerva.compute.flat import FlatParameters


@pytest.fixture
def module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_the_vector_holds_every_parameter_once_in_the_modules_order(module: nn.Sequential) -> None:
    expected = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    assert torch.equal(FlatParameters(module).vector, expected)


def test_writing_the_vector_changes_the_module(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    flat.vector.copy_(torch.arange(len(flat.vector)))
    assert module[0].weight.flatten().tolist() == list(range(12))
    assert module[2].bias.tolist() == [24, 25]


def test_writing_the_module_changes_the_vector(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    module.load_state_dict({name: torch.full_like(value, 7) for name, value in module.state_dict().items()})
    assert (flat.vector == 7).all()


def test_parameters_can_still_be_trained_as_usual(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    before = flat.vector.clone()
    module(torch.ones(1, 3)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=1.0).step()
    slopes = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    torch.testing.assert_close(flat.vector, before - slopes)


def test_by_name_gives_the_modules_names_and_shapes_as_views(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    vector = torch.zeros_like(flat.vector)
    named = flat.by_name(vector)
    assert {name: part.shape for name, part in named.items()} == {
        name: parameter.shape for name, parameter in module.named_parameters()
    }
    named["2.bias"].fill_(1)
    assert vector.tolist() == [0] * 24 + [1, 1]


def test_functional_call_on_the_vector_is_the_modules_own_call(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(functional_call(module, flat.by_name(flat.vector), (inputs,)), module(inputs))


def test_the_vectors_gradient_is_the_parameters_gradients(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    leaf = flat.vector.clone().requires_grad_()
    (functional_call(module, flat.by_name(leaf), (inputs,)) ** 2).sum().backward()
    (module(inputs) ** 2).sum().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    torch.testing.assert_close(leaf.grad, expected)


@pytest.mark.parametrize(
    ("prefixes", "count"), [(("0.",), 16), (("2.",), 10), (("0.bias", "2.bias"), 6), (("missing",), 0), (("",), 26)]
)
def test_mark_is_true_at_the_named_parameters(module: nn.Sequential, prefixes: tuple[str, ...], count: int) -> None:
    flat = FlatParameters(module)
    marked = flat.mark(prefixes)
    assert marked.dtype == torch.bool
    assert marked.sum() == count
    for name, part in flat.by_name(marked).items():
        assert part.all() if name.startswith(prefixes) else not part.any()


def test_after_a_move_the_module_lives_in_the_other_vector(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    old, before = flat.vector, module(inputs)
    both = torch.stack((flat.vector, torch.zeros_like(flat.vector)))
    flat.move(both[0])
    assert torch.equal(module(inputs), before)
    assert flat.vector.data_ptr() == both.data_ptr()
    both[0].mul_(2)
    assert not torch.equal(module(inputs), before)
    assert torch.equal(functional_call(module, flat.by_name(flat.vector), (inputs,)), module(inputs))
    module.load_state_dict({name: torch.full_like(value, 7) for name, value in module.state_dict().items()})
    assert (both[0] == 7).all()
    assert (both[1] == 0).all(), "the neighbour in the stack is not touched"
    assert not (old == 7).any()


def test_replaced_parameters_are_adopted_into_the_vector_of_the_last_move(module: nn.Sequential) -> None:
    flat = FlatParameters(module)
    both = torch.stack((flat.vector, flat.vector))
    flat.move(both[1])
    parameters = list(module.parameters())
    module[0].weight.data = torch.full((4, 3), 5.0)
    flat.adopt()
    assert (both[1][:12] == 5).all()
    assert torch.equal(both[1][12:], both[0][12:])
    assert all(mine is then for mine, then in zip(module.parameters(), parameters, strict=True))
    assert module[0].weight.data_ptr() == both[1].data_ptr()
