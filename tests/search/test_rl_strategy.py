"""The strategy "rl", the lessons it learned from, and the environment that they make."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import Recording, TableSpace, least, problems

from tinygpu.devices import device
from tinygpu.search import STRATEGIES, Evaluation, minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.rl.forest import Lesson
from tinygpu.search.rl.lesson import WORST_REWARD, columns_of, imagine, lesson_of, optimum
from tinygpu.search.rl.policy import SHIPPED, shipped_policy
from tinygpu.search.rl.situation import observe, situate
from tinygpu.search.rl.strategy import ZERO_SHOT, Table, View, first_proposals
from tinygpu.spaces.build import MachineSpace, build_space


@pytest.fixture(scope="module")
def space() -> MachineSpace:
    from tinygpu.machines.elementwise import BiasRelu

    return build_space(BiasRelu, BiasRelu.problem(m=1000, n=4096), device("L40S"))


@given(problems(), st.integers(0, 3), st.integers(1, 4))
@settings(max_examples=40)
def test_every_point_is_proposed_once_and_the_optimum_found(
    problem: tuple[TableSpace, dict[tuple[object, ...], Evaluation]], seed: int, batch: int
) -> None:
    table_space, table = problem
    asked = Recording(table_space, table)
    result = minimize(table_space, asked, strategy="rl", evaluations=table_space.size, seed=seed, batch=batch)
    assert sorted(asked.asked) == sorted(table_space.keys)
    assert result.value == least(table)


@given(problems(), st.integers(0, 3))
@settings(max_examples=15)
def test_a_longer_run_begins_with_the_shorter_one(
    problem: tuple[TableSpace, dict[tuple[object, ...], Evaluation]], seed: int
) -> None:
    table_space, table = problem
    short, long = Recording(table_space, table), Recording(table_space, table)
    minimize(table_space, short, strategy="rl", evaluations=max(table_space.size // 2, 1), seed=seed)
    minimize(table_space, long, strategy="rl", evaluations=table_space.size, seed=seed)
    assert long.asked[: len(short.asked)] == short.asked


def test_the_table_moves_towards_what_was_good() -> None:
    points = [{"bm": a, "bn": b} for a in range(8) for b in range(8)]
    table_space = TableSpace(points)
    view = View(shipped_policy(), situate(table_space, points))
    table = Table()
    assert np.allclose(np.exp(view.log_chances(table)), 1 / 64)  # nothing is known: all points are as likely
    from tinygpu.search.evaluation import Trial

    rng = np.random.default_rng(0)
    tried = [Trial(points[i], Evaluation(float(points[i]["bm"]))) for i in rng.permutation(64)[:24]]
    for _ in range(10):
        table.learn(view, tried)
    chances = np.exp(view.log_chances(table))
    mean = sum(chance * view.tree.point(leaf)["bm"] for leaf, chance in enumerate(chances))
    assert mean < 2.5  # 3.5 before


def test_the_policy_that_ships_says_where_it_comes_from() -> None:
    policy = shipped_policy()
    assert SHIPPED.stat().st_size < 500_000
    held_out = set(policy.provenance["devices held out"])
    assert len(held_out) >= 5
    assert {"seed", "steps", "settings", "curriculum", "lessons", "machines"} <= policy.provenance.keys()
    # triples were drawn from other devices only
    assert not [name for name in policy.provenance["names"] if any(f"on {d}" in name for d in held_out)]


@pytest.mark.end_to_end
def test_the_first_proposals_are_near_the_optimum_on_a_device_that_was_held_out() -> None:
    from tinygpu.machines.matmul_simt import MatmulSimt

    assert "L40S" in shipped_policy().provenance["devices held out"]
    spaces = [build_space(MatmulSimt, MatmulSimt.problem(m=m, n=n, k=k), device("L40S"))
              for m, n, k in ((1024, 1024, 1024), (2000, 512, 768))]  # fmt: skip
    for one in spaces:
        objective = PredictedTime(one)
        result = minimize(one.space, objective, strategy="rl", evaluations=ZERO_SHOT)
        assert result.value is not None
        assert result.value <= 1.05 * optimum(one, objective)


@pytest.mark.end_to_end
def test_rewards_are_logarithms_of_the_best_time_over_each(space: MachineSpace) -> None:
    taught = lesson_of(space, np.random.default_rng(0), 100)
    tree = taught.situation.tree
    objective = PredictedTime(space)
    seconds = objective.score_columns(columns_of([tree.point(leaf) for leaf in range(tree.leaves)]))
    every = [objective([point])[0].cost for point in space.space.points()]
    assert np.isclose(optimum(space, objective), min(every))
    np.testing.assert_allclose(taught.rewards, np.maximum(np.log(min(every) / seconds), WORST_REWARD), atol=1e-6)
    assert tree.leaves <= 100 < space.space.size
    assert taught.situation.known
    assert np.isfinite(taught.situation.edges).all()
    assert np.isfinite(taught.situation.nodes).all()


def test_an_imagined_device_has_the_limits_of_the_real_one_and_shares_its_points(space: MachineSpace) -> None:
    rng = np.random.default_rng(0)
    other = imagine(space.device, "imagined", rng)
    assert other.constants() == space.device.constants()
    assert other.dram_bytes_per_s != space.device.dram_bytes_per_s
    moved = space.on(other)
    point = space.space.sample(1, rng)[0]
    assert PredictedTime(moved)([point])[0].cost != PredictedTime(space)([point])[0].cost
    with pytest.raises(ValueError) as refused:
        space.on(device("a100"))
    assert str(refused.value) == (
        f"[{space.space.name}] A100-SXM4-80GB has another max_smem_per_block_optin than L40S; build its space"
    )


def test_a_space_knows_its_machine_and_the_policy_sees_it(space: MachineSpace) -> None:
    assert space.space.origin is space
    situation = observe(space.space, np.random.default_rng(0))
    assert situation.known
    assert situation.tree.leaves == space.space.size
    first = first_proposals(shipped_policy(), situation)
    assert len(first) == ZERO_SHOT
    assert all(point in space.space for point in first)
    assert len({tuple(sorted(point.items())) for point in first}) == ZERO_SHOT


def test_rl_is_a_strategy() -> None:
    assert "rl" in STRATEGIES


# --- the environment ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(space: MachineSpace) -> list[Lesson]:
    pytest.importorskip("gymnasium", reason="the extra rl (gymnasium) is not installed")
    return [lesson_of(space, np.random.default_rng(seed), 60 + 100 * seed) for seed in range(2)]


def test_the_environment_passes_the_checks_of_gymnasium(taught: list[Lesson]) -> None:
    from gymnasium.utils.env_checker import check_env

    from tinygpu.search.rl.gymnasium_env import CandidateEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(CandidateEnv(taught, render_mode="ansi"), skip_render_check=True)


def test_an_episode_ends_at_a_candidate_with_its_reward(taught: list[Lesson]) -> None:
    from tinygpu.search.rl.gymnasium_env import ILLEGAL_REWARD, CandidateEnv

    env = CandidateEnv(taught, render_mode="ansi")
    rng = np.random.default_rng(0)
    for seed in range(12):
        observation, info = env.reset(seed=seed, options={"lesson": seed % 2})
        partial: dict[str, object] = {}
        reward, ended = 0.0, False
        while not ended:
            assert reward == 0
            assert observation["mask"].tolist() == info["action_mask"].tolist()
            assert observation["mask"].sum() == len(info["values"])
            action = int(rng.choice(np.flatnonzero(env.action_masks())))
            partial[info["parameter"]] = info["values"][action]
            observation, reward, ended, _, info = env.step(np.int64(action))
        point, situation = info["point"], taught[seed % 2].situation
        assert partial.items() <= point.items()
        leaf = next(i for i in range(situation.tree.leaves) if situation.tree.point(i) == point)
        assert reward == taught[seed % 2].rewards[leaf]
        assert str(point) in str(env.render())
    _, info = env.reset(options={"lesson": 0})
    illegal = int(env.action_space.n) - 1
    if not info["action_mask"][illegal]:
        _, reward, ended, _, info = env.step(np.int64(illegal))
        assert (reward, ended, info["legal"]) == (ILLEGAL_REWARD, True, False)
        with pytest.raises(ValueError) as refused:
            env.step(np.int64(0))
        assert str(refused.value) == "the episode is over; call reset() before the next step"
    with pytest.raises(ValueError) as refused:
        env.reset(options={"lesson": 9})
    assert str(refused.value) == "there is no lesson 9; lessons go from 0 to 1"


def test_an_environment_without_a_choice_is_refused() -> None:
    pytest.importorskip("gymnasium", reason="the extra rl (gymnasium) is not installed")
    from tinygpu.search.rl.gymnasium_env import CandidateEnv

    with pytest.raises(ValueError) as refused:
        CandidateEnv([])
    assert str(refused.value) == "there is nothing to choose: no lesson has a choice; give spaces with several points"
