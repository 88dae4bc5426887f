"""The network's gradients, training with checkpoints, and the files that come of it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from table_space import TableSpace

from tinygpu.search.rl.forest import Forest, Lesson
from tinygpu.search.rl.network import (
    Adam,
    Array,
    Shape,
    expected,
    expected_gradient,
    initial,
    log_softmax,
    scores,
    scores_gradient,
)
from tinygpu.search.rl.policy import INPUTS, Policy, leaf_log_chances
from tinygpu.search.rl.ppo import Settings, _follow, _imitate, improve
from tinygpu.search.rl.situation import Situation, situate
from tinygpu.search.rl.train import train

SMALL = Settings(lessons=4, episodes=16, epochs=2, batch=64, rate=1e-2, shown=2)


def lesson(seed: int = 0, count: int = 40) -> Lesson:
    """Points whose figures decide the reward."""
    rng = np.random.default_rng(seed)
    axes = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
    points = [dict(zip(("bm", "bn", "stages"), axes[i], strict=True)) for i in rng.permutation(64)[:count]]
    made = situate(TableSpace(points), points)
    rewards = -np.abs(np.array([p["bm"] - 2 + p["bn"] / 4 for p in (made.tree.point(i) for i in range(count))])) / 4
    figures = made.figures.copy()
    figures[:, 0] = rewards
    edges = made.edges.copy()
    edges[:, 0] = made.tree.summaries(figures)[:, 0]
    situation = Situation(made.tree, True, figures, edges, made.nodes)
    return Lesson(f"made up {seed}", situation, rewards.astype(np.float32))


def test_gradients_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    weights = {k: w.astype(np.float64) for k, w in initial(Shape(5, 4, 7, 6), rng).items()}
    edges, nodes = rng.standard_normal((9, 5)), rng.standard_normal((3, 4))
    first, owner = np.array([0, 2, 6]), np.repeat([0, 1, 2], [2, 4, 3])
    wanted, hoped = rng.standard_normal(9), rng.standard_normal(3)

    def loss() -> float:
        logs = log_softmax(scores(weights, edges, nodes, owner).scores, first, owner)
        return float((logs * wanted).sum() + (expected(weights, nodes)[0] * hoped).sum())

    scored = scores(weights, edges, nodes, owner)
    chances = np.exp(log_softmax(scored.scores, first, owner))
    slope = wanted - chances * np.add.reduceat(wanted, first)[owner]
    found = scores_gradient(weights, scored, slope)
    found |= expected_gradient(weights, nodes, expected(weights, nodes)[1], hoped)
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        for place in rng.permutation(weight.size)[:6]:
            before = weight.flat[place]
            sides = []
            for step in (1e-6, -1e-6):
                weight.flat[place] = before + step
                sides.append(loss())
            weight.flat[place] = before
            assert np.isclose(found[name].flat[place], (sides[0] - sides[1]) / 2e-6, rtol=1e-4, atol=1e-6), name


class Noted:
    """In Adam's place: keeps the gradients that a step follows."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.given: list[tuple[dict[str, Array], float, float]] = []

    def step(self, gradients: Mapping[str, Array], rate: float, decay: float = 0.0) -> None:
        self.given.append((dict(gradients), rate, decay))


def slopes(loss: Callable[[], float], weight: Array, places: Sequence[int], step: float = 1e-5) -> list[float]:
    """A loss's slopes by some entries of a weight, by finite differences."""
    found = []
    for place in places:
        before = weight.flat[place]
        sides = []
        for moved in (step, -step):
            weight.flat[place] = before + moved
            sides.append(loss())
        weight.flat[place] = before
        found.append((sides[0] - sides[1]) / (2 * step))
    return found


def test_a_step_follows_the_clipped_gain_the_entropy_and_the_error_of_what_was_expected() -> None:
    """PPO's loss as its paper writes it, choice by choice; a gain is followed down where it is a loss, too."""
    rng = np.random.default_rng(11)
    forest = Forest([lesson(seed) for seed in range(2)])
    weights = {k: w.astype(np.float64) for k, w in initial(INPUTS, rng).items()}
    for name in ("score", "value out"):
        weights[name] += 0.3 * rng.standard_normal(weights[name].shape)
    played = forest.play(weights, np.repeat([0, 1], 8), rng)
    for weight in weights.values():  # the weights have moved since: some ratios are beyond the clip
        weight += 0.15 * rng.standard_normal(weight.shape)
    gains = rng.standard_normal(len(played.nodes)).astype(np.float32)
    rows = rng.permutation(len(played.nodes))[:20]
    settings, fade = Settings(clip=0.2, entropy=0.3, value=0.7, rate=0.01, decay=0.4), 0.6
    clipped: set[tuple[bool, bool]] = set()

    def loss() -> float:
        total = 0.0
        for row in rows.tolist():
            choices = forest.choices(played.nodes[[row]])
            edges, nodes = forest.described(choices)
            values = scores(weights, edges, nodes, choices.owner).scores
            chances = np.exp(values - values.max()) / np.exp(values - values.max()).sum()
            ratio = chances[played.picked[row]] / np.exp(float(played.log_chances[row]))
            gain, bounded = float(gains[row]), min(max(ratio, 1 - settings.clip), 1 + settings.clip)
            clipped.add((gain > 0, bool(ratio * gain > bounded * gain)))
            total -= min(ratio * gain, bounded * gain)
            total -= settings.entropy * fade * float(-(chances * np.log(chances)).sum())
            hope = float(expected(weights, nodes)[0][0])
            total += settings.value * (hope - float(played.rewards[row])) ** 2
        return total / len(rows)

    noted = Noted(weights)
    entropy = _follow(forest, noted, settings, played, gains, rows, fade)
    ((gradients, rate, decay),) = noted.given
    assert (rate, decay) == (0.01 * fade, 0.4)
    assert gradients.keys() == weights.keys()
    for name, weight in weights.items():
        places = rng.permutation(weight.size)[:5].tolist()
        wanted, closer = (np.array(slopes(loss, weight, places, step)) for step in (1e-5, 1e-6))
        smooth = np.isclose(wanted, closer, rtol=1e-3, atol=1e-5)  # not where a unit or a ratio turns within the step
        assert smooth.sum() >= len(places) - 1, name
        assert np.allclose(gradients[name].flat[places][smooth], wanted[smooth], rtol=2e-3, atol=2e-5), name
    assert clipped == {(True, False), (True, True), (False, False), (False, True)}
    rest = replace(settings, entropy=0.0, value=0.0)
    assert entropy == _follow(forest, noted, rest, played, gains, rows, fade) > 0


def test_what_is_shown_is_made_likelier() -> None:
    rng = np.random.default_rng(6)
    forest = Forest([lesson(seed) for seed in range(2)])
    weights = {k: w.astype(np.float64) for k, w in initial(INPUTS, rng).items()}
    weights["score"] += 0.3 * rng.standard_normal(weights["score"].shape)
    nodes, picked = forest.demonstrate(np.array([0, 1, 1]), 0.02, rng)
    settings = Settings(blur=0.0, show=0.8, rate=0.01, decay=0.4)

    def loss() -> float:
        choices = forest.choices(nodes)
        edges, described = forest.described(choices)
        logs = log_softmax(scores(weights, edges, described, choices.owner).scores, choices.first, choices.owner)
        return -settings.show * float(logs[choices.first + picked].mean())

    noted = Noted(weights)
    _imitate(forest, noted, settings, nodes, picked, 0.5, rng)
    ((gradients, rate, decay),) = noted.given
    assert (rate, decay) == (0.005, 0.4)
    for name, gradient in gradients.items():
        places = rng.permutation(gradient.size)[:5].tolist()
        assert np.allclose(gradient.flat[places], slopes(loss, weights[name], places), rtol=2e-3, atol=2e-5), name


def test_adam_goes_down_whatever_the_sign_and_weights_decay() -> None:
    """The first step is the rate itself, against the gradient; a long gradient is cut to the bound."""
    for gradient in (3.0, -3.0, 1e-3, -1e-3):
        weights = {"w": np.array([2.0, -2.0], np.float32)}
        adam = Adam(weights)
        adam.step({"w": np.array([gradient, 0.0])}, 0.1)
        assert np.allclose(weights["w"], [2.0 - 0.1 * np.sign(gradient), -2.0], atol=1e-5)
    weights = {"w": np.array([2.0, -2.0], np.float32)}
    Adam(weights).step({"w": np.zeros(2)}, 0.1, decay=0.5)
    assert np.allclose(weights["w"], [1.9, -1.9])
    weights = {"w": np.zeros(1, np.float32)}
    adam = Adam(weights)
    for gradient in (1.0, 1.0, -1.0):
        adam.step({"w": np.array([gradient])}, 0.1)
    # Kingma and Ba's moments with decays 0.9 and 0.999, corrected for their start
    moments = [(1.0, 1.0), (1.0, 1.0), ((0.9 * 0.19 - 0.1) / (1 - 0.9**3), 1.0)]
    assert np.allclose(weights["w"], -0.1 * sum(m / np.sqrt(v) for m, v in moments), atol=1e-4)


def test_where_nothing_is_known_every_leaf_is_as_likely() -> None:
    policy = Policy(initial(INPUTS, np.random.default_rng(0)), {})
    for seed, count in enumerate((2, 7, 40)):
        tree = lesson(seed, count).situation.tree
        blank = lesson(seed, count).situation
        unknown = Situation(tree, False, blank.figures, blank.edges, blank.nodes)
        chances = np.exp(leaf_log_chances(tree, policy.scores(unknown)))
        assert np.allclose(chances, 1 / tree.leaves, rtol=1e-5)


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@pytest.mark.parametrize("settings", [SMALL, replace(SMALL, show=0.0)], ids=["played and shown", "played"])
def test_training_finds_the_best_points_of_lessons_it_never_saw(settings: Settings) -> None:
    forest = Forest([lesson(seed) for seed in range(6)])
    policy = train(forest, seed=3, steps=25, settings=settings)
    rng = np.random.default_rng(0)
    fresh = Forest([lesson(seed) for seed in range(10, 14)])
    before = fresh.play(train(fresh, seed=3, steps=1).weights, np.arange(4).repeat(30), rng).final.mean()
    after = fresh.play(policy.weights, np.arange(4).repeat(30), rng).final.mean()
    assert before < -0.2
    assert after > -0.08


def test_paths_lead_to_their_leaves_and_good_points_are_shown() -> None:
    lessons = [lesson(0), lesson(1, 25)]
    forest = Forest(lessons)
    for number, one in enumerate(lessons):
        for leaf in range(one.situation.tree.leaves):
            at = np.array([forest.leaves[number] + leaf])
            nodes, picked = forest.paths(np.array([number]), at)
            edges = forest.first[nodes] + picked - forest.first[forest.roots[number]]
            assert edges.tolist() == one.situation.tree.path(leaf)
    nodes, picked = forest.demonstrate(np.zeros(50, dtype=np.int64), 1e-3, np.random.default_rng(0))
    ends = forest.first[nodes] + picked
    leaves = forest.leaf[ends[forest.below[ends] < 0]]
    assert len(leaves) == 50
    assert np.all(forest.rewards[leaves] >= lessons[0].rewards.max() - 0.02)


@pytest.mark.end_to_end
def test_episodes_are_as_likely_as_the_policy_says() -> None:
    one = lesson(2, 12)
    forest = Forest([one])
    weights = train(forest, seed=0, steps=3, settings=SMALL).weights
    policy = Policy(weights, {})
    chances = np.exp(leaf_log_chances(one.situation.tree, policy.scores(one.situation)))
    played = forest.play(weights, np.zeros(20_000, dtype=np.int64), np.random.default_rng(0))
    for reward in np.unique(one.rewards):
        expectation = chances[one.rewards == reward].sum()
        assert abs(np.mean(played.final == reward) - expectation) < 0.02


def test_the_same_seed_gives_the_same_weights_and_a_cut_run_goes_on(tmp_path: Path) -> None:
    forest = Forest([lesson(seed) for seed in range(3)])
    whole = train(forest, seed=5, steps=3, settings=SMALL)
    again = train(forest, seed=5, steps=3, settings=SMALL)
    other = train(forest, seed=6, steps=1, settings=SMALL)
    path = tmp_path / "checkpoint.npz"

    class Cut(Exception):
        pass

    def cut(training: object) -> None:
        if training.step == 2:  # type: ignore[attr-defined]
            raise Cut

    with pytest.raises(Cut):
        train(forest, seed=5, steps=3, settings=SMALL, checkpoint=path, on_step=cut)
    seen = []
    resumed = train(forest, seed=5, steps=3, settings=SMALL, checkpoint=path, on_step=lambda t: seen.append(t))
    assert [t.step for t in seen] == [3]
    assert seen[0].resumed == 2
    for name, weight in whole.weights.items():
        assert np.array_equal(weight, again.weights[name])
        assert np.array_equal(weight, resumed.weights[name])
    assert not np.array_equal(whole.weights["edge"], other.weights["edge"])
    assert resumed.provenance["steps"] == 3
    with pytest.raises(ValueError) as refused:
        train(forest, seed=7, steps=9, settings=SMALL, checkpoint=path)
    assert str(refused.value) == (
        f"{path}: this checkpoint belongs to another training: its seed is 5, not 7; give another file, or delete it"
    )


def test_time_ends_a_training() -> None:
    forest = Forest([lesson()])
    ticks = iter(range(100))
    policy = train(forest, seconds=6, settings=SMALL, clock=lambda: float(next(ticks)))
    assert 1 <= policy.provenance["steps"] <= 6


def test_a_policy_saves_and_loads(tmp_path: Path) -> None:
    policy = train(Forest([lesson()]), steps=1, settings=SMALL, facts={"held out devices": ["L4"]})
    policy.save(tmp_path / "policy.npz")
    loaded = Policy.load(tmp_path / "policy.npz")
    assert loaded.provenance == json.loads(json.dumps(policy.provenance))
    assert loaded.provenance["held out devices"] == ["L4"]
    assert all(np.array_equal(weight, loaded.weights[name]) for name, weight in policy.weights.items())
    assert [path.name for path in tmp_path.iterdir()] == ["policy.npz"]


def test_other_files_are_no_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    sentence = f"{path} is no file of the kind 'tinygpu policy 1'"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError) as refused:
        Policy.load(path)
    assert str(refused.value) == f"{path} is no zip file, or damaged: File is not a zip file"
    with path.open("wb") as file:
        np.savez(file, edge=np.zeros(3))
    with pytest.raises(ValueError) as refused:
        Policy.load(path)
    assert str(refused.value) == sentence
    Policy({"edge": np.zeros((2, 2), dtype=np.float32)}, {}).save(path)
    with pytest.raises(ValueError) as refused:
        Policy.load(path)
    assert str(refused.value).startswith(f"{path}: the weights do not fit ")


def test_training_refuses_what_it_cannot_do() -> None:
    forest = Forest([lesson()])
    with pytest.raises(ValueError) as refused:
        train(forest)
    assert str(refused.value) == "training needs a budget: steps=... or seconds=..."
    with pytest.raises(ValueError) as refused:
        train(forest, steps=0)
    assert str(refused.value) == "training needs at least 1 step and more than 0 seconds, not 0 steps"
    single = [{"bm": 1}]
    with pytest.raises(ValueError) as refused:
        Forest([Lesson("one point", situate(TableSpace(single), single), np.zeros(1, dtype=np.float32))])
    assert str(refused.value) == ("there is nothing to learn: no lesson has a choice; give spaces with several points")
    with pytest.raises(ValueError) as refused:
        replace(lesson(), rewards=np.zeros(3, dtype=np.float32))
    assert str(refused.value) == "[made up 0] (3,) rewards for 40 leaves; each leaf has one"
    with pytest.raises(ValueError) as refused:
        replace(lesson(), rewards=np.ones(40, dtype=np.float32))
    assert str(refused.value) == "[made up 0] rewards are finite and at most 0, which is the best known"


def test_a_step_reports_what_was_played() -> None:
    forest = Forest([lesson(seed) for seed in range(2)])
    adam = Adam(train(forest, steps=1, settings=SMALL).weights)  # type: ignore[arg-type]
    learned = improve(forest, adam, SMALL, 1, np.random.default_rng(0))
    assert -1 <= learned.reward <= 0
    assert learned.entropy > 0
    assert learned.explained <= 1
