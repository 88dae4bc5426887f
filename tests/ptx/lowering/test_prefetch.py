"""Rounds whose first step is loaded a round ahead: right for all types, where things stand, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.live_registers import live_registers
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.program import nodes as n
from tinygpu.program.prefetched import steps
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case, examine

KINDS = ("f16", "bf16", "tf32", "e4m3", "s8")
DEVICE = {"e4m3": "rtx4090"}


def posed(seed: int) -> Any:
    kind = KINDS[seed % len(KINDS)]
    rng = np.random.default_rng(seed)
    sizes = {name: int(rng.integers(1, 300)) for name in "mnk"}
    return MatmulAmpere.problem(**sizes, dtypes={"a": kind}, majors={"a": "row" if seed % 2 else "col"})


def chosen(prefetch: int) -> tuple[Any, Any, Any]:
    """(problem, program, point) of five rounds of two steps."""
    problem = MatmulAmpere.problem(m=40, n=50, k=136)
    space = build_space(MatmulAmpere, problem, device("a100"))
    values = {
        "copy_a": "cp.async", "copy_b": "cp.async", "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "bm": 32,
        "store": "direct", "bn": 32, "bk": 32, "warps_m": 1, "warps_n": 1, "raster": 1, "stages": 3,
        "prefetch": prefetch,
    }  # fmt: skip
    (point,) = space.space.restrict(values).sample(1, np.random.default_rng(0))
    return problem, space.program(point), point


@cache
def small(prefetch: int = 1) -> tuple[Any, Any, Kernel]:
    problem, program, point = chosen(prefetch)
    return problem, program, build(program, problem, point, SolverCache()).kernel


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.sampled(20)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int) -> None:
    problem = posed(seed)
    space = build_space(MatmulAmpere, problem, device(DEVICE.get(KINDS[seed % len(KINDS)], "a100")))
    (point,) = space.space.restrict({"prefetch": 1}).sample(1, np.random.default_rng(seed))
    found = verify(build(space.program(point), problem, point, SolverCache()).kernel, MatmulAmpere, problem)
    assert found.passed, f"{problem} {point}\n{found}"


def loop(kernel: Kernel) -> list[str]:
    """The instructions of the loop that multiplies, without what computes addresses."""
    lines = [line.strip() for line in kernel.ptx.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("$loop"))
    end = next(i for i in range(start, len(lines)) if lines[i].endswith(f"bra {lines[start][:-1]};"))
    return [line for line in lines[start:end] if re.match(r"(@%p\d+ )?(bar|ldmatrix|mma|cp\.async\.wait)", line)]


def test_the_barrier_stands_behind_the_last_steps_loads_and_before_its_products() -> None:
    words = [re.sub(r"(@)?%?p?\d*\s*(\w+).*", r"\1\2", line) for line in loop(small()[2])]
    order = " ".join(word for i, word in enumerate(words) if i == 0 or words[i - 1] != word)
    assert order == "mma ldmatrix cp bar @ldmatrix mma"
    plain = [re.sub(r"\W*(\w+).*", r"\1", line) for line in loop(small(prefetch=0)[2])]
    assert plain[:2] == ["cp", "bar"]


def test_the_fragments_of_a_step_live_beside_those_of_the_next_round() -> None:
    """As many registers more as the next round's first step and what the last step no longer loads as it goes."""
    _, program, _ = small()
    (ring,) = (s for s in walk(program.body) if isinstance(s, n.Pipelined))
    of_step = sum(int(tile.partition.value_count) // 2 for tile in steps(ring).tiles if tile.partition is not None)
    extra = int(live_registers(program.body)) - int(live_registers(small(prefetch=0)[1].body))
    assert (of_step, extra) == (16, 16 + 16 - 16)


@pytest.mark.parametrize(
    ("what", "by", "told"),
    [
        (r"bar\.sync 0;\n(?=[^$]*@%p\d+ ldmatrix)", "", "bar"),
        (r"cp\.async\.wait_group 1;(?=[^$]*@%p\d+ ldmatrix)", "cp.async.wait_group 2;", "group"),
    ],
)
def test_a_loop_without_its_meeting_is_wrong(what: str, by: str, told: str) -> None:
    problem, _, kernel = small()
    place = list(re.finditer(what, kernel.ptx))[-1]
    broken = replace(kernel, ptx=kernel.ptx[: place.start()] + by + kernel.ptx[place.end() :])
    assert not verify(broken, MatmulAmpere, problem).passed, told


def test_a_probed_kernel_has_what_was_loaded_ahead_in_the_round_that_takes_it() -> None:
    problem, _, point = chosen(1)
    found = examine("meanings", Case(MatmulAmpere, problem, device("a100"), point))
    assert found.looked
    assert not found.fault


def test_what_cannot_be_loaded_ahead_is_no_point_and_is_not_written() -> None:
    problem = MatmulAmpere.problem(m=40, n=50, k=136)
    space = build_space(MatmulAmpere, problem, device("a100"))
    for values in ({"bk": 16, "prefetch": 1}, {"stages": 1, "prefetch": 1}):
        assert space.space.restrict(values).size == 0
    (point,) = space.space.restrict({"bk": 16, "stages": 3}).sample(1, np.random.default_rng(0))
    sentence = (
        "1 of the 1 steps of ring, which has 3 stages, are to be loaded ahead; of two steps or more one can be, in two "
        "stages or more"
    )
    with pytest.raises(LoweringError, match=f"^{re.escape(sentence)}$"):
        build(space.program({**point, "prefetch": 1}), problem, {**point, "prefetch": 1}, SolverCache())


def ringed(way: str) -> type[Machine]:
    """Sums of tiles, whose consumer is written in one of several ways."""

    class Ringed(Machine):
        """y = the sums of tiles of x"""

        m, k = Dim(), Dim()
        x, y = Input("f32", m, k), Output("f32", m, 32)
        ahead, stages = Param(0, 1), Param(1, 2, 3)
        cp, tma, ld, st, add = isa.CpAsync(1), isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

        def program(self, p: Any) -> None:
            shape, who = (8, 64), blocked((8, 32), threads=32, across=32)
            whole = blocked(shape, threads=32, across=32)
            apart = way == "roles"
            last = p.role("other", warps=1, first=1) if apart else p.role("all", warps=1)
            with (
                p.grid((self.m, 8)) as (i,),
                p.pipeline("ring", self.stages, x=p.smem("f32", shape, swizzle=128 if apart else None)) as ring,
            ):
                with p.role("all", warps=1), p.loop(self.k, step=64) as kk, ring.produce() as s:
                    p.copy(self.tma if apart else self.cp, self.x.tile(i, kk, shape=shape), s.x, *[whole] * (not apart))
                with last:
                    total = p.full(who, "f32")
                    with p.loop(self.k, step=64), ring.consume(self.ahead) as s:
                        if way == "no steps":
                            self.added(p, total, s.x, 0, who)
                        else:
                            with p.unroll(64, step=32) as j:
                                if way == "computes":
                                    p.apply(self.add, total, total, into=total)
                                self.added(p, total, s.x, j, who)
                                if way == "loads again":
                                    self.added(p, total, s.x, j, who)
                    p.store(self.st, self.y.tile(i, 0, shape=(8, 32)), total)

        def added(self, p: Any, total: Any, x: Any, j: Any, who: Any) -> None:
            p.apply(self.add, total, p.load(self.ld, x.window((0, j), (8, 32)), who), into=total)

        @staticmethod
        def reference(x: Any) -> Any:
            wide = np.pad(x, [(0, 0), (0, -x.shape[1] % 64)])
            return wide.reshape(len(x), -1, 32).sum(axis=1)

    return Ringed


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("no steps", "its block is to be one loop of p.unroll, of whose first step loads go ahead"),
        ("computes", "the steps of its loop do not begin with loads from the slot to registers"),
        ("loads again", "behind the loads with which they begin, the steps of its loop touch the slot"),
        (
            "roles",
            "another role fills it, or no loop does so ahead; loads go ahead where one role fills and consumes it",
        ),
    ],
)
def test_a_program_in_which_nothing_can_go_ahead_says_why(way: str, why: str) -> None:
    with pytest.raises(DeclarationError) as said:
        build_space(ringed(way), ringed(way).problem(m=9, k=200), device("h100"))
    assert str(said.value) == f"Ringed.program: 'ring' is consumed with prefetch: {why}"


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("k", [1, 64, 200, 500])
def test_a_users_own_loads_go_ahead(stages: int, k: int) -> None:
    """Of threads, one element each; with fewer rounds than there are stages, too."""
    machine = ringed("")
    problem = machine.problem(m=9, k=k)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.restrict({"ahead": 1, "stages": stages}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late", "early"))
    assert found.passed, str(found)
    assert len(re.findall(r"@%p\d+ ld\.shared", kernel.ptx)) == 8
