"""Random streams: reproducible, apart from each other, and without a trace in the global generator."""

import itertools

import pytest
import torch

from minerva.compute.seeding import generator, restore_generator, seeded, stream_seed

CPU = torch.device("cpu")


def test_a_streams_seed_never_changes() -> None:
    """Recorded: were it to change, no published run could be repeated."""
    assert stream_seed(0, "networks") == 2947341395870981618
    assert stream_seed(1, "agent") == 4850628367261299089


def test_seeds_and_streams_are_all_apart() -> None:
    pairs = list(itertools.product(range(200), ("networks", "agent", "envs", "network", "replay")))
    assert len({stream_seed(seed, stream) for seed, stream in pairs}) == len(pairs)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63])
def test_seeds_fit_torchs_generators(seed: int) -> None:
    assert 0 <= stream_seed(seed, "agent") < 2**63
    generator(seed, "agent", CPU)


def test_generators_of_one_seed_draw_the_same_and_of_two_do_not() -> None:
    first, again, other_seed, other_stream = (
        torch.rand(8, generator=generator(seed, stream, CPU))
        for seed, stream in ((3, "agent"), (3, "agent"), (4, "agent"), (3, "envs"))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other_seed)
    assert not torch.equal(first, other_stream)


def test_the_block_draws_from_its_stream_and_leaves_the_global_generator_untouched() -> None:
    before = torch.get_rng_state()
    with seeded(0, "networks"):
        inside = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    with seeded(0, "networks"):
        assert torch.equal(torch.rand(4), inside)


def draw_and_fail() -> None:
    with seeded(0, "networks"):
        torch.rand(1)
        raise KeyError


def test_the_global_generator_is_restored_after_an_error_too() -> None:
    before = torch.get_rng_state()
    with pytest.raises(KeyError):
        draw_and_fail()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_block_does_not_touch_the_generators_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not put back at the end, so they must not be seeded at the start."""
    touched: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", touched.append)
    with seeded(0, "networks"):
        torch.rand(1)
    assert not touched


def test_a_private_generator_does_not_advance_the_global_one() -> None:
    before = torch.get_rng_state()
    torch.rand(4, generator=generator(0, "agent", CPU))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_draws_on_from_its_state() -> None:
    one, other = (generator(0, "noise", CPU) for _ in range(2))
    torch.rand(7, generator=one)
    restore_generator(other, one.get_state())
    assert torch.equal(torch.rand(5, generator=one), torch.rand(5, generator=other))


def test_the_state_of_another_devices_generator_seeds_what_is_drawn() -> None:
    def drawn(state: torch.Tensor) -> list[float]:
        drawing = generator(0, "noise", CPU)
        torch.rand(7, generator=drawing)
        restore_generator(drawing, state)
        numbers: list[float] = torch.rand(5, generator=drawing).tolist()
        return numbers

    states = [torch.tensor([*range(15), last], dtype=torch.uint8) for last in (15, 16)]
    fresh = torch.rand(5, generator=generator(0, "noise", CPU)).tolist()
    assert drawn(states[0]) == drawn(states[0])
    assert len({tuple(numbers) for numbers in (drawn(states[0]), drawn(states[1]), fresh)}) == 3


@pytest.mark.parametrize("state", [torch.zeros(15, dtype=torch.uint8), torch.zeros(16), torch.zeros(4, 4).byte()])
def test_what_is_no_generators_state_is_refused(state: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="16, 5056"):
        restore_generator(generator(0, "noise", CPU), state)
