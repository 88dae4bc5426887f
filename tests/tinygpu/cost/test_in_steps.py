"""Steps of a role's work, and slots that go around: against hand-made schedules and against the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.counting import count
from tinygpu.cost.demand import Demand, Phase, Work
from tinygpu.cost.in_steps import Steps
from tinygpu.cost.predictor import predict
from tinygpu.cost.rates import Rates
from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Tracer, blocked, exp2
from tinygpu.machines.attention_blackwell import AttentionBlackwell
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import MachineSpace, build_space

B200 = device("b200")


class Normed(Machine):
    """y = exp2(x - max(x)) / sum of these, and x again: two reductions in a row"""

    m = Dim()
    x, y, z = Input("f32", m, 64), Output("f32", m, 64), Output("f32", m, 64)
    ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, larger, add = isa.arithmetic("f32"), isa.Max("f32"), isa.Add("f32")
    exact = False

    def program(self, p: Tracer) -> None:
        who = blocked((4, 64), threads=128, across=32)
        with p.grid((self.m, 4)) as (i,), p.role("all", warps=4):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(4, 64)), who)
            top = p.reduce(self.larger, x, axis=1, by=self.shuffle)
            twice = top * 2.0
            e = exp2(x - twice)
            total = p.reduce(self.add, e, axis=1, by=self.shuffle) + twice
            p.store(self.st, self.y.tile(i, 0, shape=(4, 64)), e / total)
            p.store(self.st, self.z.tile(i, 0, shape=(4, 64)), x + 1.0)

    @staticmethod
    def reference(x: Any) -> Any:
        top = 2 * x.max(axis=1, keepdims=True)
        e = np.exp2(x - top)
        return e / (e.sum(axis=1, keepdims=True) + top), x + 1


def test_what_is_made_of_a_reduction_for_every_element_is_a_step_behind_it() -> None:
    space = build_space(Normed, Normed.problem(m=8), device("a100"))
    steps, found = Steps(), {}
    for s in walk(space.traces[0].program.body):
        if s.instructions or isinstance(s, n.Reduce):
            name = str(getattr(s, "instruction", "reduce"))
            found.setdefault(name, []).append(steps.step(s))
    assert found["reduce"] == [0, 1]
    assert found["mul.rn.f32"] == [0]  # of few values: no step of its own
    assert found["sub.rn.f32"] == found["ex2.approx.ftz.f32"] == [1]
    assert found["add.rn.f32"] == [1, 0]  # of sums, beside the exponentials; of x, which waits for nothing
    assert found["div.rn.f32"] == [2]


@cache
def attention(causal: bool) -> MachineSpace:
    sizes = {"b": 4, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128}
    return build_space(AttentionBlackwell, AttentionBlackwell.problem(**sizes, options={"causal": causal}), B200)


def demand_of(space: MachineSpace, point: dict[str, Any]) -> Demand:
    index = space.structure_index(point)
    axes = {a: int(point[a]) for a in space.traces[index].axes}
    return space.counts(index).demand({**space.environment, **axes}, space.device)


def units(work: Work) -> np.ndarray:
    return np.array([float(np.asarray(x)) for x in (work.sfu_ops, work.fma_flops)])


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_work_on_lanes_of_a_round(seed: int) -> None:
    (point,) = attention(False).space.sample(1, np.random.default_rng(seed))
    demand = demand_of(attention(False), dict(point))
    apart = point["corrects"] == "a role"  # which has the slots of all tiles by turns
    assert len(demand.rows) == point["groups"] + apart
    # scores of each tile go around by themselves where they are multiplied first, beside the sums of all of them
    scores = point["groups"] if point["issued"] == "scores first" else 0
    assert int(demand.circulating) == (1 + scores if apart else point["groups"])
    assert int(demand.scored_ahead) == (point["issued"] == "scores first")
    together = sum(units(step.work) for row in demand.rows for step in row)
    assert together == pytest.approx(units(demand.iteration.work))


def test_sums_that_are_taken_behind_the_loop_do_not_go_around() -> None:
    space = build_space(MatmulBlackwell, MatmulBlackwell.problem(m=4096, n=4096, k=4096), B200)
    for point in space.space.sample(8, np.random.default_rng(0)):
        demand = demand_of(space, dict(point))
        assert not np.asarray(demand.circulating).any()
        assert demand.rows == ()


SLOT = Work(sfu_ops=1 << 14, warp_instructions=100), Work(alu_ops=1 << 14, fma_flops=1 << 14)


def around(slots: int, products: int = 1 << 23) -> Demand:
    """Rounds of so many slots, each of which products and steps of warps have by turns."""
    work = Work(tensor_flops=products * slots) + slots * (SLOT[0] + SLOT[1])
    return Demand(
        ctas=148, threads_per_cta=128, registers_per_thread=128, smem_bytes_per_cta=200_000, iterations=1000,
        iteration=Phase(work), persistent=1, circulating=slots, rows=(tuple(map(Phase, SLOT)),) * slots,
        tensor_path="tcgen05", useful_tensor_flops=0, multiplying_warps=4,
    )  # fmt: skip


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_a_round_takes_as_long_as_a_slot_goes_around_or_as_the_busiest_unit_needs(slots: int) -> None:
    rates = Rates.of(B200, around(slots))
    one = [rates.unit_s(w) for w in (Work(tensor_flops=1 << 23), *SLOT)]
    alone = sum(max(float(s) for s in unit.values()) for unit in one)
    busiest = slots * max(sum(float(unit[key]) for unit in one) for key in one[0])
    found = predict(B200, around(slots))
    wanted = 1000 * max(alone, busiest)
    assert float(found.seconds - found.launch_s - found.power_s) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("products", [1 << 22, 1 << 23, 1 << 27])
def test_where_the_next_scores_are_made_meanwhile_warps_wait_for_no_product(slots: int, products: int) -> None:
    rates = Rates.of(B200, around(slots, products))
    one = [rates.unit_s(w) for w in (Work(tensor_flops=products), *SLOT)]
    lanes = sum(max(float(s) for s in unit.values()) for unit in one[1:])
    busiest = slots * max(sum(float(unit[key]) for unit in one) for key in one[0])
    found = predict(B200, replace(around(slots, products), scored_ahead=1))
    wanted = 1000 * max(lanes, busiest)
    assert float(found.seconds - found.launch_s - found.power_s) == pytest.approx(wanted, rel=1e-6)


def test_the_time_of_lanes_is_that_of_their_steps() -> None:
    """In steps that follow one another the same work takes longer than at once."""
    demand = around(1)
    at_once = replace(demand, rows=((Phase(SLOT[0] + SLOT[1]),),))
    assert float(predict(B200, demand).seconds) > float(predict(B200, at_once).seconds)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.end_to_end
def test_the_closed_form_of_attention_in_tensor_memory_is_near_the_simulation(causal: bool) -> None:
    """Mean absolute difference of 24 random candidates; it was 30 % while warps that multiply took the turns.

    Where one role corrects the sums of two tiles, the closed form takes these to go in step, which is too slow.
    """
    space = attention(causal)
    simulator, off = Simulator(space), []
    for point in space.space.sample(24, np.random.default_rng(0)):
        found = simulator.simulate(point)
        off.append(found.sm_s / float(found.prediction.seconds - found.prediction.launch_s - found.prediction.power_s))
    assert np.abs(np.array(off) - 1).mean() < 0.15
    assert 0.75 < min(off) <= max(off) < 1.6


def test_counts_of_a_program_without_tensor_memory_have_no_rows() -> None:
    space = build_space(Normed, Normed.problem(m=8), device("a100"))
    assert not any(name.startswith("row.") for name in count(space.traces[0].program).names)
