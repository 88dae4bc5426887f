"""The tree of choices against the points that it was grown from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import TableSpace, problems

from tinygpu.search.rl.network import log_softmax
from tinygpu.search.rl.policy import leaf_log_chances
from tinygpu.search.rl.situation import EDGE_WIDTH, NODE_WIDTH, situate
from tinygpu.search.rl.tree import Tree, grow


def walk(tree: Tree, leaf: int) -> list[tuple[str, object, set[object]]]:
    """The choices on the way to a leaf: parameter, value taken, values offered."""
    out = []
    for edge in tree.path(leaf):
        node = int(tree.owner()[edge])
        name = tree.names[tree.depth[node]]
        edges = range(int(tree.first[node]), int(tree.first[node] + tree.count[node]))
        codes = tree.edge_codes()
        values = tree.values[tree.depth[node]]
        out.append((name, values[codes[edge]], {values[codes[e]] for e in edges}))
    return out


@given(problems())
@settings(max_examples=60)
def test_every_point_is_a_leaf_and_every_choice_offers_what_the_space_calls_legal(problem: tuple[TableSpace, object]):
    space, _ = problem
    tree, kept = grow(space.listed, space.names)
    assert [tree.point(leaf) for leaf in range(tree.leaves)] == [space.listed[i] for i in kept]
    assert sorted(map(space.key, (tree.point(leaf) for leaf in range(tree.leaves)))) == sorted(space.keys)
    for leaf in range(tree.leaves):
        partial: dict[str, object] = {}
        point = tree.point(leaf)
        taken = walk(tree, leaf)
        for name in tree.names:
            without = {n for n in tree.names[: tree.names.index(name)] if n not in point}
            fitting = [
                p for p in space.listed
                if all(p.get(n) == v for n, v in partial.items()) and not without & p.keys()
            ]  # fmt: skip
            offered = {p.get(name) for p in fitting}
            if len(offered) > 1:
                assert taken.pop(0) == (name, point.get(name), offered)
                if not without and None not in offered:
                    assert set(space.legal_values(partial, name)) == offered
            if name in point:
                partial[name] = point[name]
        assert taken == []


@given(problems(), st.integers(0, 5))
@settings(max_examples=40)
def test_summaries_are_those_of_the_points_below(problem: tuple[TableSpace, object], seed: int) -> None:
    space, _ = problem
    tree, _ = grow(space.listed, space.names)
    figures = np.random.default_rng(seed).standard_normal((tree.leaves, 3)).astype(np.float32)
    if not tree.nodes:
        return
    found = tree.summaries(figures)
    for edge in range(tree.edges):
        below = figures[tree.low[edge] : tree.high[edge]]
        np.testing.assert_allclose(found[edge], [*below.mean(0), *below.min(0), *below.max(0)], rtol=1e-5, atol=1e-6)


@given(problems(), st.integers(0, 5))
@settings(max_examples=40)
def test_the_chance_of_a_leaf_is_the_product_of_its_choices(problem: tuple[TableSpace, object], seed: int) -> None:
    space, _ = problem
    tree, _ = grow(space.listed, space.names)
    scores = np.random.default_rng(seed).standard_normal(tree.edges).astype(np.float32)
    found = leaf_log_chances(tree, scores)
    assert np.isclose(np.exp(found).sum(), 1)
    logs = log_softmax(scores, tree.first, tree.owner()) if tree.nodes else scores
    for leaf in range(tree.leaves):
        assert np.isclose(found[leaf], logs[tree.path(leaf)].sum(), atol=1e-5)


def test_equal_points_share_a_leaf_and_nothing_known_is_all_zeros() -> None:
    points = [{"bm": 64, "load": "direct"}, {"bm": 32, "load": "staged"}, {"bm": 64, "load": "direct"}]
    tree, kept = grow(points, ("bm", "load"))
    assert (tree.leaves, kept.tolist(), tree.nodes) == (2, [1, 0], 1)
    situation = situate(TableSpace(points[:2]), points)
    assert not situation.known
    assert not situation.figures.any()
    assert situation.edges.shape == (2, EDGE_WIDTH)
    assert situation.nodes.shape == (1, NODE_WIDTH)


def test_a_single_point_leaves_nothing_to_choose() -> None:
    tree, _ = grow([{"bm": 64}], ("bm",))
    assert (tree.leaves, tree.nodes, tree.edges, tree.path(0)) == (1, 0, 0, [])
    assert leaf_log_chances(tree, np.zeros(0, dtype=np.float32)).tolist() == [0.0]
