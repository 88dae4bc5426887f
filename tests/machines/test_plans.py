"""Plans: the space is that of the steps, a search finds the best, kernels are right, and a wrong one is named."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plans_of_kernels import ColumnSums, SoftmaxInPasses, SoftmaxOfOwnWidth, SplitMatmul
from two_passes import RowSums

import tinygpu as tg
from tinygpu.api.choosing import objective_of
from tinygpu.api.planned import PlanFinalist
from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Plan, Step, Workspace, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification import whole
from tinygpu.ptx.verification.derived_whole import derive_whole
from tinygpu.ptx.verification.in_order import run_stage
from tinygpu.ptx.verification.inputs import drawn
from tinygpu.ptx.verification.step_judge import StepJudge
from tinygpu.ptx.verification.trial import reference_answers, rounding_of
from tinygpu.ptx.verification.values import SMALL
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.search.minimize import minimize
from tinygpu.search.plan_time import PlanTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.spaces.plan_space import PlanSpace, build_plan_space

PLANS: dict[type[Plan], tuple[dict[str, int], ...]] = {
    RowSums: ({"m": 3, "n": 2049}, {"m": 1, "n": 1}, {"m": 7, "n": 127}, {"m": 2, "n": 8193}),
    SplitMatmul: ({"m": 17, "n": 33, "k": 65}, {"m": 1, "n": 1, "k": 1}, {"m": 5, "n": 70, "k": 131}),
    SoftmaxInPasses: ({"m": 3, "n": 129}, {"m": 1, "n": 1}, {"m": 5, "n": 257}),
    SoftmaxOfOwnWidth: ({"m": 3, "n": 129}, {"m": 5, "n": 65}),
    ColumnSums: ({"m": 65, "n": 37}, {"m": 1, "n": 1}, {"m": 257, "n": 13}),
}
CASES = [(plan, dims) for plan, listed in PLANS.items() for dims in listed]
CACHE = SolverCache()


@functools.cache
def space_of(plan: type[Plan], dims: tuple[tuple[str, int], ...], gpu: str = "a100") -> PlanSpace:
    return build_plan_space(plan, plan.problem(**dict(dims)), device(gpu))


def kernels_of(space: PlanSpace, point: Any) -> Kernels:
    made = [build(c.space.program(c.point), c.space.problem, c.point, CACHE).kernel for c in space.candidates(point)]
    return Kernels.of_plan(space.machine, space.problem, point, tuple(made))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("plan", "dims"), CASES)
def test_candidates_of_plans_are_right_at_odd_sizes(plan: type[Plan], dims: dict[str, int]) -> None:
    space = space_of(plan, tuple(dims.items()))
    for point in space.sample(2, seed=sum(dims.values())):
        found = verify_kernels(kernels_of(space, point), orders=("late",))
        assert found.passed, f"{point}\n{found}"


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["a100", "rtx-4090", "h100", "rtx-5090"])
@pytest.mark.parametrize("plan", PLANS)
def test_plans_pass_their_check_on_every_device(plan: type[Plan], gpu: str) -> None:
    from tinygpu.testing import run_check

    report = run_check(plan, devices=(gpu,), seed=7)
    assert report.ok, str(report)


@pytest.mark.parametrize("plan", PLANS)
def test_the_space_has_the_points_whose_steps_are_in_theirs(plan: type[Plan]) -> None:
    """By listing: what is left of the product is what every machine of a step takes, whatever shares a parameter."""
    space = space_of(plan, tuple(PLANS[plan][0].items()))
    rng = np.random.default_rng(1)
    seen = {True: 0, False: 0}
    for _ in range(60):
        part = space.space.parts[int(rng.integers(len(space.space.parts)))]
        point = {name: values[int(rng.integers(len(values)))] for name, values in part.domains().items()}
        own = [c.point in c.space.space for c in space.candidates(point)]
        if point in space:
            # dominance that is dropped for shared parameters leaves more, and never less
            reasons = [v.constraint for c in space.candidates(point) for v in c.space.space.explain(c.point)]
            assert all(c is not None and c.kind == "dominance" for c in reasons)
        elif all(own):
            named = [v.constraint.name for v in space.space.explain(point) if v.constraint is not None]
            assert named, "a point that all steps take is out for a reason of the plan's own"
            assert not any(name.startswith(tuple(f"{s.name}: " for s in space.steps)) for name in named)
        seen[point in space] += 1
    assert min(seen.values()), seen


class Copied(Machine):
    """y = x, in tiles whose size no vector decides: wider vectors are never worse"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    vector = Param(1, 2, 4)
    ld, st, neg = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Mul("f32")

    def program(self, p: Any) -> None:
        who = blocked((1, 128), threads=32, vector=self.vector, across=32)
        with p.grid((self.m, 1), (self.n, 128)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(1, 128)), who)
            p.store(self.st, self.y.tile(i, j, shape=(1, 128)), p.apply(self.neg, x, 1.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class Copies(Plan):
    """Two copies with one vector"""

    m, n, k = Dim(), Dim(), Dim()
    x, z, y, w = Input("f32", m, n), Input("f32", m, k), Output("f32", m, n), Output("f32", m, k)
    vector = Param(1, 2, 4)
    one = Step(Copied, x=x, y=y, vector=vector)
    two = Step(Copied, x=z, y=w, vector=vector)

    @staticmethod
    def reference(x: Any, z: Any) -> Any:
        return {"y": x, "w": z}


def test_what_is_shared_is_not_removed_for_the_sake_of_one_step() -> None:
    """A wider vector would be better for one step, and the other cannot have it: the narrow one is all there is."""
    space = build_plan_space(Copies, Copies.problem(m=2, n=128, k=127), device("a100"))
    assert list(space) == [{"vector": 1}]
    alone = build_space(Copied, Copied.problem(m=2, n=128), device("a100"))
    assert [point["vector"] for point in alone] == [4], "by itself the machine has its widest vector alone"
    assert verify_kernels(kernels_of(space, {"vector": 1}), orders=("late",)).passed


class Pairs(Machine):
    """y[i] = x[i] + x[i + 1]"""

    n, k = Dim(), Dim(follows=lambda n: n - 1)
    x, y = Input("f32", n), Output("f32", k)
    warps = Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (32 * self.warps,)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.k, shape[0])) as (i,), p.role("all", warps=self.warps):
            first = p.load(self.ld, self.x.tile(i, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.add, first, p.load(
                self.ld, self.x.tile(i + 1, shape=shape), who)))

    @staticmethod
    def reference(x: Any) -> Any:
        return x[:-1] + x[1:]


class Binomial(Plan):
    """y[i] = x[i] + 2 x[i + 1] + x[i + 2]"""

    n, k, j = Dim(), Dim(follows=lambda n: n - 1), Dim(follows=lambda k: k - 1)
    x, y = Input("f32", n), Output("f32", j)
    pairs = Workspace("f32", k)
    one = Step(Pairs, x=x, y=pairs)
    two = Step(Pairs, x=pairs, y=y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x[:-2] + 2 * x[1:-1] + x[2:]


def test_sizes_that_follow_from_others_follow_in_plans() -> None:
    """Also on the small problem: what a step leaves is as long as the next one wants it."""
    assert dict(Binomial.problem(n=1000).dims) == {"n": 1000, "k": 999, "j": 998}
    for n in (3, 65, 100_001):
        space = build_plan_space(Binomial, Binomial.problem(n=n), device("a100"))
        (point,) = space.sample(1, seed=n)
        found = verify_kernels(kernels_of(space, point), orders=("late",))
        assert found.passed, str(found)
        assert found.problem.dim["n"] <= 512


@pytest.mark.end_to_end
def test_a_factored_search_finds_what_an_exhaustive_one_finds() -> None:
    """The least sum of the steps' times, without listing their combinations; and a proof."""
    for plan, dims in ((RowSums, {"m": 4, "n": 3001}), (ColumnSums, {"m": 300, "n": 64})):
        space = space_of(plan, tuple(dims.items()), "h100")
        objective = PlanTime(space)
        every = minimize(space.space, objective)
        factored = minimize(space.space, objective, strategy="factored")
        assert every.ended == "every point"
        assert factored.ended == "proof"
        assert len(factored.history) < len(every.history)
        assert factored.value == pytest.approx(every.value, rel=1e-9)


@pytest.mark.end_to_end
def test_strategies_walk_the_space_of_a_plan() -> None:
    space = space_of(RowSums, (("m", 4), ("n", 3000)))
    for strategy in ("random", "evolutionary", "annealing", "local"):
        found = minimize(space.space, PlanTime(space), strategy=strategy, evaluations=12)
        assert found.best in space


def test_the_time_of_a_plan_is_that_of_its_kernels() -> None:
    """One by one, each with its launch; what lies in L2 makes a step faster, and nothing slower."""
    space = space_of(RowSums, (("m", 64), ("n", 100_000)))
    objective = PlanTime(space)
    for point in space.sample(5, seed=2):
        whole = objective.prediction(point)
        alone = [objective_of(c.space).prediction(c.point) for c in space.candidates(point)]
        assert whole.seconds == pytest.approx(float(objective.score_columns(_columns(point))[0]))
        assert whole.seconds <= sum(float(p.seconds) for p in alone) * (1 + 1e-12)
        assert whole.launch_s == pytest.approx(sum(float(p.launch_s) for p in alone))
        first, second = whole.steps.values()
        assert float(first.seconds) == pytest.approx(float(alone[0].seconds))
        # 64 rows of some hundred parts are less than L2: none of them comes from DRAM
        assert float(second.busy_s["dram"]) < float(alone[1].busy_s["dram"])
        assert whole.roofline_s <= whole.seconds


@pytest.mark.parametrize("plan", PLANS)
def test_rooflines_of_many_points_are_those_of_their_predictions(plan: type[Plan]) -> None:
    space = space_of(plan, tuple(PLANS[plan][0].items()))
    objective = PlanTime(space)
    points = space.sample(20, seed=3)
    assert objective.rooflines(points).tolist() == pytest.approx(
        [objective.prediction(p).roofline_s for p in points], rel=1e-14
    )


def _columns(point: Any) -> dict[str, Any]:
    return {name: np.array([value]) for name, value in point.items()}


# -- wrong kernels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "right", "wrong"), [(0, "add.rn.f32", "sub.rn.f32"), (1, "add.rn.f32", "max.f32")])
def test_the_step_whose_kernel_is_wrong_is_named(step: int, right: str, wrong: str) -> None:
    space = space_of(RowSums, (("m", 3), ("n", 2049)))
    (point,) = space.sample(1, seed=4)
    kernels = kernels_of(space, point)
    stages = list(kernels.stages)
    bad = replace(stages[step].kernel, ptx=stages[step].kernel.ptx.replace(right, wrong))
    assert bad.ptx != stages[step].kernel.ptx
    stages[step] = replace(stages[step], kernel=bad)
    found = verify_kernels(replace(kernels, stages=tuple(stages)), orders=("late",))
    names = [stage.name for stage in kernels.stages]
    wrongly = {c.where for c in found.checks if not c.passed}
    assert f"all steps, in step {names[step]}" in wrongly
    assert not any(f"step {name}" in where for where in wrongly for name in names if name != names[step])


def test_a_step_is_judged_by_what_it_read_this_time() -> None:
    """What a judge keeps is what is worked out anew, of the same bytes and of others."""
    space = space_of(SoftmaxInPasses, (("m", 3), ("n", 129)))
    (point,) = space.sample(1, seed=4)
    kernels = derive_whole(kernels_of(space, point))
    stage = kernels.stages[-1]
    machine, problem = stage.machine, stage.problem
    shapes = {o.name: o.shape for o in problem.operands}
    arrays, scalars = drawn(machine, problem, "random", 0, shapes, SMALL)
    (name, *_) = arrays
    other = arrays | {name: np.nextafter(arrays[name], np.float32(0))}
    judge = StepJudge(stage)
    found = [judge.answers(given, scalars) for given in (arrays, dict(arrays), other, arrays)]
    assert found[1] is found[0]
    for answers, given in zip(found, (arrays, arrays, other, arrays), strict=True):
        anew = reference_answers(machine, problem, given, scalars, rounding_of(machine, problem), shapes, kernels.point)
        for output, answer in anew.items():
            np.testing.assert_array_equal(answers[output].value, answer.value)
            np.testing.assert_array_equal(answers[output].low, answer.low)
    assert any(np.any(found[2][output].value != found[0][output].value) for output in found[0])


def test_an_order_in_which_alone_a_kernel_is_wrong_shows_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and answers are shared by the orders of the whole; what kernels leave is not."""
    space = space_of(RowSums, (("m", 3), ("n", 2049)))
    (point,) = space.sample(1, seed=4)
    kernels = kernels_of(space, point)
    bad = replace(kernels.stages[0].kernel, ptx=kernels.stages[0].kernel.ptx.replace("add.rn.f32", "sub.rn.f32"))
    wrong = replace(kernels.stages[0], kernel=bad)

    def run(stage: Any, code: Any, memory: Any, scalars: Any, order: Any, seed: int) -> Any:
        text = bad.ptx if order == "early" and stage.name == wrong.name else stage.kernel.ptx
        return run_stage(stage, text, memory, scalars, order, seed)

    monkeypatch.setattr(whole, "run_stage", run)
    found = whole.verify_kernels(kernels, orders=("late", "early"))
    assert {c.order for c in found.checks if not c.passed} == {"early"}


def test_wrong_wiring_is_no_steps_fault() -> None:
    """Every kernel does what its machine says, and the whole is not what the plan says."""

    class Halved(RowSums):
        @staticmethod
        def reference(x: Any) -> Any:
            return x.sum(axis=1) / 2

    space = build_plan_space(Halved, Halved.problem(m=3, n=300), device("a100"))
    (point,) = space.sample(1)
    found = verify_kernels(kernels_of(space, point), orders=("late",))
    assert {c.where for c in found.checks if not c.passed} == {"all steps in their order, each of which is right"}


def test_what_a_step_leaves_unwritten_is_seen_by_the_next() -> None:
    """A grid that is too small: nobody wrote what the second kernel reads, whatever lies there."""
    space = space_of(RowSums, (("m", 3), ("n", 2049)))
    (point,) = space.restrict({"chunk": 128}).sample(1, seed=1)
    kernels = kernels_of(space, point)
    first, second = kernels.stages
    (dim, extent), other = first.kernel.tiles
    short = replace(first.kernel, tiles=((dim, extent), (other[0], 2 * other[1])))
    found = verify_kernels(replace(kernels, stages=(replace(first, kernel=short), second)), orders=("late",))
    faults = [c for c in found.checks if c.where == "all steps, in step total"]
    assert faults, found
    assert all("never initialised" in c.fault for c in faults), str(found)


# -- the doors -------------------------------------------------------------------------------------------------------


@functools.cache
def emitted() -> PlanFinalist:
    made = tg.emit(tg.space(RowSums, m=4, n=3000, device="a100"), {"chunk": 512})
    assert isinstance(made, PlanFinalist)
    return made


@pytest.mark.end_to_end
def test_a_plan_goes_through_the_doors_of_machines() -> None:
    made = emitted()
    assert made.point["chunk"] == 512
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (4, 3000)).astype(np.float32)
    assert (tg.run(made, x) == x.sum(axis=1)).all()
    assert (tg.emulate(made, x) == x.sum(axis=1)).all()
    assert tg.verify(made).passed
    space = made.space
    assert not tg.explain(space, made.point)
    out = tg.explain(space, {**made.point, "parts.steps": 4, "parts.lanes": 32, "parts.vector": 4, "chunk": 128})
    assert any(sentence.startswith("parts: whole rounds (PartialSums): ") for sentence in out.sentences)
    told = tg.predict(space, made.point)
    assert math.isclose(told.seconds, made.prediction.seconds)
    assert "step parts" in str(told)
    assert "step total" in str(told)
    for shown in (space, made, told):
        assert "total" in shown._repr_html_()


@pytest.mark.end_to_end
def test_the_launch_description_says_order_tensors_and_workspaces() -> None:
    made = emitted()
    launch = made.kernels.launch_json()
    assert [(k["step"], k["ptx"], k["tensors"]) for k in launch["kernels"]] == [
        ("parts", "1-parts.ptx", {"x": "x", "y": "partial"}),
        ("total", "2-total.ptx", {"x": "partial", "y": "y"}),
    ]
    assert launch["workspaces"] == [
        {"name": "partial", "dtype": "f32", "shape": [4, 6], "bytes": 96, "zeroed": False}
    ]
    assert list(made.kernels.texts()) == ["1-parts.ptx", "2-total.ptx"]


@pytest.mark.end_to_end
def test_a_plan_is_tuned_and_reported() -> None:
    tuned = tg.tune(RowSums, m=4, n=100_000, device="h100")
    assert tuned.verification.passed
    assert isinstance(tuned.winner, PlanFinalist)
    assert "RowSums" in tuned.page()


@pytest.mark.end_to_end
def test_split_matmul_is_tuned_with_its_options() -> None:
    tuned = tg.tune(SplitMatmul, m=33, n=65, k=1000, device="a100", options={"activation": "relu"})
    assert tuned.verification.passed
