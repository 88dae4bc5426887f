"""Tiles that several CTAs share: divided loops, a fix-up through a workspace, and every mistake's sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, Route, blocked, register_blocked
from tinygpu.language.trace import trace
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import EmulationFault, emulate
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.runtime.launch import Launch
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.ptx.verification.verify import verify
from tinygpu.search.predicted import PredictedTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

A100 = device("a100")


class SharedRows(Machine):
    """y[i] = sum, z[i] = maximum of row i: CTAs that share some rows each take a part of the columns"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y, z = Output("f32", m), Output("f32", m)

    rows, across, parts = Param(4, 8), Param(8, 32), Param(1, 2, 3, 5)
    ld, st, shuffle, add, most = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.Add("f32"), isa.Max("f32")

    def program(self, p: Any) -> None:
        shape = (self.rows, self.across)
        who = blocked(shape, threads=self.rows * self.across, across=self.across)
        with (
            p.grid((self.m, self.rows), slices=self.parts) as (i,),
            p.role("all", warps=self.rows * self.across // 32),
        ):
            total, top = p.full(who, "f32"), p.full(who, "f32", -math.inf)
            with p.loop(self.n, step=self.across, divided=True) as j:
                window = self.x.tile(i, j, shape=shape)
                p.apply(self.add, total, p.load(self.ld, window, who), into=total)
                p.apply(self.most, top, p.load(self.ld, window, who, fill=-math.inf), into=top)
            for combine, value, out in ((self.add, total, self.y), (self.most, top, self.z)):
                with p.fix_up(combine, self.st, self.ld, p.reduce(combine, value, axis=1, by=self.shuffle)) as found:
                    p.store(self.st, out.column(i, self.rows), found)

    @staticmethod
    def reference(x: Any) -> Any:
        return {"y": x.sum(axis=1), "z": x.max(axis=1)}


class SharedMatmul(Machine):
    """c = a @ b through a ring that the same warps fill and drain: CTAs that share a tile each take a part of k"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f32", m, k), Input("f32", k, n)
    c = Output("f32", m, n)

    stages, parts, bk = Param(1, 2, 3), Param(1, 2, 3), Param(4, 8)
    copy = Route(isa.LdGlobal(1), isa.StShared(1))
    get, fma, st, add = isa.LdShared(1), isa.Fma("f32"), isa.StGlobal(1), isa.Add("f32")
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)

    def program(self, p: Any) -> None:
        a_shape, b_shape = (32, self.bk), (self.bk, 32)
        who_a, who_b = blocked(a_shape, threads=64, across=4), blocked(b_shape, threads=64, across=32)
        who = register_blocked((32, 32), threads=(8, 8), block=(2, 2))
        a_stage, b_stage = p.smem("f32", a_shape, pad=1), p.smem("f32", b_shape)
        with (
            p.grid((self.m, 32), (self.n, 32), raster=2, slices=self.parts) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.role("all", warps=2),
        ):
            with p.loop(self.k, step=self.bk, divided=True) as kk, ring.produce() as s:
                p.copy(self.copy, self.a.tile(i, kk, shape=a_shape), s.a, who_a)
                p.copy(self.copy, self.b.tile(kk, j, shape=b_shape), s.b, who_b)
            acc = p.full(who, "f32")
            with p.loop(self.k, step=self.bk, divided=True), ring.consume() as s, p.unroll(self.bk) as kt:
                x = p.load(self.get, s.a.window((0, kt), (32, 1)), who.along(0))
                y = p.load(self.get, s.b.window((kt, 0), (1, 32)), who.along(1))
                p.apply(self.fma, x, y, acc, into=acc)
            with p.fix_up(self.add, self.leave, self.take, acc) as total:
                p.store(self.st, self.c.tile(i, j, shape=(32, 32)), total)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


def made(machine: type[Machine], asked: dict[str, int], **point: int) -> tuple[Kernel, Any]:
    problem = machine.problem(**asked)
    space = build_space(machine, problem, A100)
    assert point in space.space, point
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


@pytest.mark.sampled(2)
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize(("rows", "across"), [(4, 8), (8, 32)])
def test_two_reductions_of_rows_that_ctas_share(parts: int, rows: int, across: int) -> None:
    kernel, problem = made(SharedRows, {"m": 21, "n": 333}, rows=rows, across=across, parts=parts)
    assert kernel.slices == parts
    assert len(kernel.workspaces) == (2 if parts > 1 else 0)
    assemble(kernel.ptx, "sm_80")
    found = verify(kernel, SharedRows, problem)
    assert found.passed, str(found)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_rings_that_fill_ahead_begin_with_the_part(parts: int, stages: int) -> None:
    """Rounds that parts do not divide, and a last round that is partly outside."""
    kernel, problem = made(SharedMatmul, {"m": 70, "n": 40, "k": 67}, stages=stages, parts=parts, bk=4)
    found = verify(kernel, SharedMatmul, problem, thorough=True)
    assert found.passed, str(found)


def test_the_result_does_not_depend_on_who_comes_when() -> None:
    """Random inputs, for which the order of addition shows in the last bits."""
    kernel, problem = made(SharedMatmul, {"m": 20, "n": 40, "k": 160}, stages=2, parts=3, bk=8)
    results = []
    for seed in range(3):
        operands, scalars = make_inputs(SharedMatmul, problem, "random", 0)
        ctas = np.random.default_rng(seed).permutation(kernel.grid(problem)[0])
        emulate(
            kernel.ptx,
            grid=kernel.grid(problem),
            block=kernel.threads,
            args=arguments(kernel, problem, operands, scalars),
            dynamic_smem=kernel.smem_bytes,
            seed=seed,
            order="random",
            ctas=[int(c) for c in ctas],
        )
        results.append(operands["c"].array.tobytes())
    assert len(set(results)) == 1


def test_a_second_launch_finds_the_counters_as_the_first_did() -> None:
    kernel, problem = made(SharedRows, {"m": 9, "n": 50}, rows=4, across=8, parts=3)
    spaces = workspaces(kernel, problem, kernel.grid(problem)[0])
    for seed in range(3):
        operands, scalars = make_inputs(SharedRows, problem, "integers", seed)
        emulate(
            kernel.ptx,
            grid=kernel.grid(problem),
            block=kernel.threads,
            args=arguments(kernel, problem, operands, scalars, spaces),
            dynamic_smem=kernel.smem_bytes,
        )
        want = SharedRows.reference(operands["x"].array)
        np.testing.assert_array_equal(operands["y"].array, want["y"])
        np.testing.assert_array_equal(operands["z"].array, want["z"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc"),  # nothing orders the values and the count
        ("atom.acq_rel.gpu.global.inc", "atom.acq_rel.cta.global.inc"),  # the CTAs do not see each other's count
    ],
)
def test_the_emulator_finds_a_fix_up_that_is_not_ordered(before: str, after: str) -> None:
    kernel, problem = made(SharedRows, {"m": 9, "n": 50}, rows=4, across=8, parts=3)
    assert before in kernel.ptx
    operands, scalars = make_inputs(SharedRows, problem, "integers", 0)
    with pytest.raises(EmulationFault, match=r"partials|counters"):
        emulate(
            kernel.ptx.replace(before, after),
            grid=kernel.grid(problem),
            block=kernel.threads,
            args=arguments(kernel, problem, operands, scalars),
            dynamic_smem=kernel.smem_bytes,
        )


def test_the_launch_says_which_workspaces_it_needs() -> None:
    kernel, problem = made(SharedMatmul, {"m": 70, "n": 40, "k": 67}, stages=2, parts=3, bk=4)
    tiles, values = 3 * 2, 32 * 32
    assert kernel.workspace_bytes(problem, 18) == {"partials": tiles * 3 * values * 4, "counters": tiles * 4}
    assert kernel.grid(problem) == (tiles * 3, 1, 1)
    described = kernel.launch_json(problem)
    assert described["slices"] == 3
    assert described["workspaces"] == [
        {"name": "partials", "bytes": 73728, "bytes_per_cta": 0, "zeroed": False},
        {"name": "counters", "bytes": 24, "bytes_per_cta": 0, "zeroed": True},
    ]
    assert Kernel.from_json(kernel.to_json()) == kernel
    launch = launch_of(kernel, problem)
    assert [(w.name, w.bytes, w.zeroed) for w in launch.workspaces] == [
        ("partials", 73728, False),
        ("counters", 24, True),
    ]
    assert [a.name for a in launch.arguments if a.kind == "address"] == ["a", "b", "c", "partials", "counters"]
    assert Launch.from_json(launch.to_json()) == launch


def test_programs_with_parts_print_and_come_back() -> None:
    traced = trace(SharedRows, SharedRows.problem(m=9, n=9), ())
    listing = str(traced.program)
    assert "; parts slices of each tile" in listing
    assert "in the last CTA of the tile:" in listing
    assert "rounds i" in listing
    assert str(load_program(save_program(traced.program))) == listing


def test_the_predictor_counts_what_is_fixed_up() -> None:
    """Where a few tiles have many rounds, sharing them is predicted to pay; where there is one round, to cost."""
    for k, better in ((8000, True), (8, False)):
        space = build_space(SharedMatmul, SharedMatmul.problem(m=32, n=32, k=k), A100)
        alone, shared = (PredictedTime(space)([{"stages": 2, "parts": n, "bk": 8}])[0].value for n in (1, 3))
        assert alone is not None
        assert shared is not None
        assert (shared < alone) is better


ADD = isa.Add("f32")


def broken(given: Callable[[Any, Any], None]) -> str:
    """The sentence with which a machine with this program is refused."""
    with pytest.raises(DeclarationError) as error:

        class Broken(Machine):
            """x"""

            m, n = Dim(), Dim()
            x = Input("f32", m, n)
            y = Output("f32", m, n)
            ld, nc, st, wide, add = isa.LdGlobal(1), isa.LdGlobalReadOnly(1), isa.StGlobal(1), isa.StGlobal(4), ADD
            program = given

            @staticmethod
            def reference(x: Any) -> Any:
                return x

    return str(error.value)


WHO = blocked((4, 8), threads=32, across=8)


def shared(inside: Callable[[Any, Any, Any, Any, Any], None], parts: int = 2) -> Callable[[Any, Any], None]:
    """A program of one role whose loop is divided; `inside` says what is done with what it made."""

    def program(self: Any, p: Any) -> None:
        with p.grid((self.m, 4), slices=parts) as (i,), p.role("all", warps=1):
            total = p.full(WHO, "f32")
            with p.loop(self.n, step=8, divided=True) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=total)
            inside(self, p, i, total, self.y.tile(i, 0, shape=(4, 8)))

    return program


def stored_by_all(self: Any, p: Any, i: Any, total: Any, out: Any) -> None:
    p.store(self.st, out, total)


def in_a_loop(self: Any, p: Any, i: Any, total: Any, out: Any) -> None:
    with p.loop(self.n), p.fix_up(self.add, self.st, self.ld, total) as t:
        p.store(self.st, out, t)


def twice(self: Any, p: Any, i: Any, total: Any, out: Any) -> None:
    with p.fix_up(self.add, self.st, self.ld, total) as t, p.fix_up(self.add, self.st, self.ld, t) as u:
        p.store(self.st, out, u)


def unequal(self: Any, p: Any, i: Any, total: Any, out: Any) -> None:
    with p.fix_up(self.add, self.wide, self.ld, total) as t:
        p.store(self.st, out, t)


def read_only(self: Any, p: Any, i: Any, total: Any, out: Any) -> None:
    with p.fix_up(self.add, self.st, self.nc, total) as t:
        p.store(self.st, out, t)


def divided_again(self: Any, p: Any, i: Any, total: Any, out: Any) -> None:
    with p.fix_up(self.add, self.st, self.ld, total) as t, p.loop(self.n, divided=True):
        p.store(self.st, out, t)


def without_a_loop(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), slices=2) as (i,), p.role("all", warps=1):
        x = p.load(self.ld, self.x.tile(i, 0, shape=(4, 8)), WHO)
        with p.fix_up(self.add, self.st, self.ld, x) as t:
            p.store(self.st, self.y.tile(i, 0, shape=(4, 8)), t)


def over_an_index(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), slices=2) as (i,), p.role("all", warps=1):
        total = p.full(WHO, "f32")
        with p.loop(i + 4, step=8, divided=True) as j:
            p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=total)
        with p.fix_up(self.add, self.st, self.ld, total) as t:
            p.store(self.st, self.y.tile(i, 0, shape=(4, 8)), t)


def handed_out(self: Any, p: Any) -> None:
    """The last CTA fills a buffer that another role drains in every CTA."""
    stage = p.smem("f32", (4, 8))
    with p.grid((self.m, 4), slices=2) as (i,), p.pipeline("ring", 1, t=stage) as ring:
        with p.role("one", warps=1):
            x = p.full(WHO, "f32")
            with p.loop(self.n, step=8, divided=True) as j:
                p.apply(self.add, x, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=x)
            with p.fix_up(self.add, self.st, self.ld, x) as t, ring.produce() as s:
                p.store(isa.StShared(1), s.t, t)
        with p.role("two", warps=1, first=1):
            with ring.consume() as s:
                y = p.load(isa.LdShared(1), s.t, WHO)
            with p.fix_up(self.add, self.st, self.ld, y) as t:
                p.store(self.st, self.y.tile(i, 0, shape=(4, 8)), t)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            shared(stored_by_all),
            "st writes y in each of the 2 CTAs that share a tile; combine what they have, and write that inside "
            "`with p.fix_up(...)`",
        ),
        (
            shared(in_a_loop),
            "p.fix_up stands inside a loop; each tile is fixed up once, where the loops are done",
        ),
        (
            shared(twice),
            "p.fix_up stands inside another p.fix_up; each tile is fixed up once, where the loops are done",
        ),
        (shared(unequal), "wide leaves 4 values at once, and ld takes 1"),
        (
            shared(read_only),
            "nc (ld.global.nc) reads through the read-only path what other CTAs write; use ld.global",
        ),
        (
            shared(divided_again),
            "a loop is divided where only the last CTA of a tile is left; divide it before p.fix_up",
        ),
        (without_a_loop, "2 CTAs share each tile, and they divide no loop; write p.loop(..., divided=True)"),
        (
            over_an_index,
            "a loop over 4*tile0 + 4 has other rounds in other tiles, and those that CTAs divide are the same in all; "
            "divide a loop over a dim",
        ),
        (
            handed_out,
            "pipeline 'ring' is used both inside and outside of p.fix_up, and only the last CTA of a tile carries out "
            "what is inside",
        ),
    ],
)
def test_mistakes_with_parts_are_told(program: Callable[[Any, Any], None], sentence: str) -> None:
    assert re.fullmatch(re.escape(f"Broken.program: {sentence}"), broken(program))


class SumOfSome(Machine):
    """y = the sum of the first 48 columns of x, in steps of 8, by CTAs that share each tile"""

    m, n, w = Dim(), Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, w)
    parts = Param(1, 2, 3, 4, 5, 6, 7)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), ADD

    def program(self, p: Any) -> None:
        with p.grid((self.m, 4), slices=self.parts) as (i,), p.role("all", warps=1):
            total = p.full(WHO, "f32")
            with p.loop(48, step=8, divided=True) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=total)
            with p.fix_up(self.add, self.st, self.ld, total) as t:
                p.store(self.st, self.y.tile(i, 0, shape=(4, 8)), t)

    @staticmethod
    def reference(x: Any) -> Any:
        return x[:, :48].reshape(len(x), 6, 8).sum(axis=1)


def test_parts_divide_a_loop_that_ends_before_the_tensor_does() -> None:
    """Rounds beyond its end would touch what is there: 100 columns, and 48 of them are summed."""
    problem = SumOfSome.problem(m=7, n=100, w=8)
    space = build_space(SumOfSome, problem, device("a100"))
    assert {p["parts"] for p in space.space} == {1, 2, 3, 6}
    (four,) = space.space.explain({"parts": 4})
    assert "the CTAs that share a tile divide the 6 rounds over 48 without rest" in four.sentence
    for point in space.space:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert verify(kernel, SumOfSome, problem, orders=("late",), random_inputs=False).passed
