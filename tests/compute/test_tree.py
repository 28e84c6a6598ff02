"""Trees of tensors: choosing, writing in place, walking, stacking, taking rows."""

import pytest
import torch

from minerva.compute.tree import Tree, copy_, detached, leaves, mapped, select, stacked, take


def tree(value: float) -> Tree:
    return {"a": torch.full((3,), value), "b": {"c": torch.full((2, 2), value), "d": {"e": torch.tensor(value)}}}


@pytest.mark.parametrize(("condition", "expected"), [(True, 1), (False, 2)])
def test_select_takes_one_tree_whole(condition: bool, expected: int) -> None:
    chosen = select(torch.tensor(condition), tree(1), tree(2))
    assert len(leaves(chosen)) == 3
    assert all((leaf == expected).all() for leaf in leaves(chosen))


def test_select_lets_nothing_of_the_other_tree_through() -> None:
    chosen = select(torch.tensor(True), tree(1), tree(float("nan")))
    assert all((leaf == 1).all() for leaf in leaves(chosen))


def test_select_chooses_for_each_of_stacked_trees() -> None:
    both = {"a": torch.tensor([1.0, 2.0])}
    chosen = torch.func.vmap(select)(torch.tensor([True, False]), both, {"a": -both["a"]})
    assert chosen["a"].tolist() == [1, -2]


def test_select_with_a_condition_for_each_agent_chooses_along_the_leading_axis() -> None:
    """The numbers of tensors' axes differ; the other tree's values, which are no numbers, never get through."""
    condition = torch.tensor([True, False, True])
    chosen = select(condition, stacked([tree(n) for n in range(3)]), stacked([tree(-10.0 - n) for n in range(3)]))
    for leaf in leaves(chosen):
        assert [single.unique().tolist() for single in leaf] == [[0], [-11], [2]]
    sick = select(condition, stacked([tree(1), tree(torch.nan), tree(1)]), stacked([tree(torch.nan), tree(1), tree(1)]))
    assert all((leaf == 1).all() for leaf in leaves(sick))


def test_select_for_each_agent_is_select_of_each_agent() -> None:
    source = torch.Generator().manual_seed(0)
    first, second = (
        {"a": torch.randn(3, 3, generator=source), "b": {"c": torch.randn(3, 3, 2, generator=source)}} for _ in range(2)
    )
    condition = torch.tensor([False, True, False])
    chosen = select(condition, first, second)
    for n in range(3):
        alone = select(condition[n], mapped(lambda t, n=n: t[n], first), mapped(lambda t, n=n: t[n], second))
        assert all(map(torch.equal, leaves(mapped(lambda t, n=n: t[n], chosen)), leaves(alone)))


# --- walking and stacking ---------------------------------------------------------------------------------------


def test_leaves_are_the_tensors_themselves_in_the_order_of_their_keys() -> None:
    a, c, e = torch.zeros(3), torch.ones(2), torch.tensor(2.0)
    found = leaves({"z": a, "b": {"c": c, "d": {"e": e}}, "none": {}})
    assert [id(leaf) for leaf in found] == [id(a), id(c), id(e)]
    assert leaves(a)[0] is a
    assert [id(leaf) for leaf in leaves(({"x": e}, c, [a, {}]))] == [id(e), id(c), id(a)]
    assert leaves({}) == []


def test_mapped_calls_with_what_stands_in_the_same_place() -> None:
    difference = mapped(lambda one, other: one - other, tree(5), tree(3))
    assert difference.keys() == {"a", "b"}
    assert difference["b"]["d"].keys() == {"e"}
    assert all((leaf == 2).all() for leaf in leaves(difference))
    assert [leaf.shape for leaf in leaves(difference)] == [leaf.shape for leaf in leaves(tree(0))]


def test_mapped_finds_places_by_their_names() -> None:
    one, other = {"a": torch.tensor(1.0), "b": torch.tensor(2.0)}, {"b": torch.tensor(20.0), "a": torch.tensor(10.0)}
    assert {name: value.item() for name, value in mapped(torch.add, one, other).items()} == {"a": 11, "b": 22}


def test_mapped_takes_tensors_and_sequences_of_trees_too() -> None:
    assert mapped(torch.neg, torch.tensor(3.0)).item() == -3
    pair = mapped(torch.neg, (tree(1), torch.tensor(2.0)))
    assert isinstance(pair, tuple)
    assert all((leaf == -1).all() for leaf in leaves(pair[0]))
    assert pair[1].item() == -2
    assert mapped(torch.neg, {}) == {}
    with pytest.raises(ValueError, match="zip"):
        mapped(torch.add, (tree(1), tree(1)), (tree(1),))


def test_stacked_holds_each_tree_at_its_own_place() -> None:
    parts = [tree(n) for n in range(4)]
    whole = stacked(parts)
    assert [leaf.shape for leaf in leaves(whole)] == [(4, 3), (4, 2, 2), (4,)]
    for n, part in enumerate(parts):
        assert all(map(torch.equal, leaves(mapped(lambda leaf, n=n: leaf[n], whole)), leaves(part)))
    parts[0]["a"].fill_(99)
    assert (whole["a"][0] == 0).all(), "the stack has memory of its own"
    assert stacked([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1, 2]
    assert stacked([{}, {}]) == {}


def test_detached_keeps_the_tensors_and_drops_their_graph() -> None:
    leaf = torch.ones(2, requires_grad=True)
    found = detached({"a": {"b": 2 * leaf}})["a"]["b"]
    assert not found.requires_grad
    assert found.tolist() == [2, 2]


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
