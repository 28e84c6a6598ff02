"""Trees of tensors: choosing, writing in place, taking rows."""

import pytest
import torch

from minerva.utils.tree import Tree, copy_, select, take


def tree(value: float) -> Tree:
    return {"a": torch.full((3,), value), "b": {"c": torch.full((2, 2), value), "d": {"e": torch.tensor(value)}}}


def leaves(of: Tree) -> list[torch.Tensor]:
    return [leaf for value in of.values() for leaf in (leaves(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize(("condition", "expected"), [(True, 1), (False, 2)])
def test_select_takes_one_tree_whole(condition: bool, expected: int) -> None:
    chosen = select(torch.tensor(condition), tree(1), tree(2))
    assert len(leaves(chosen)) == 3
    assert all((leaf == expected).all() for leaf in leaves(chosen))


def test_select_lets_nothing_of_the_other_tree_through() -> None:
    chosen = select(torch.tensor(True), tree(1), tree(float("nan")))
    assert all((leaf == 1).all() for leaf in leaves(chosen))


def test_select_chooses_for_each_of_stacked_trees() -> None:
    stacked = {"a": torch.tensor([1.0, 2.0])}
    chosen = torch.func.vmap(select)(torch.tensor([True, False]), stacked, {"a": -stacked["a"]})
    assert chosen["a"].tolist() == [1, -2]


def test_copy_writes_where_others_look() -> None:
    target, source = tree(1), tree(5)
    held = leaves(target)
    copy_(target, source)
    assert all((leaf == 5).all() for leaf in held)
    source["b"]["c"].zero_()
    assert (target["b"]["c"] == 5).all(), "the target must not share memory with the source"


def test_copy_leaves_alone_what_the_source_does_not_have() -> None:
    target = tree(1)
    copy_(target, {"b": {"c": torch.zeros(2, 2)}})
    assert target["b"]["c"].sum() == 0
    assert target["a"].sum() == 3


def test_take_gives_the_same_rows_of_every_tensor() -> None:
    batch = {"numbers": torch.arange(10), "squares": torch.arange(10)[:, None] ** 2}
    rows = take(batch, torch.tensor([7, 0, 7]))
    assert rows["numbers"].tolist() == [7, 0, 7]
    assert rows["squares"].tolist() == [[49], [0], [49]]
    rows["numbers"].zero_()
    assert batch["numbers"].tolist() == list(range(10))
