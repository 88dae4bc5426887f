"""Relayouts in kernels: every element arrives, in as many shuffles as the plan has rounds, whatever the partitions."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, E, Input, LaneRead, Layout, Machine, Output, Partition, Route
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.relayout import plan_of
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

KINDS = ("f32", "f16", "s8", "u8", "bf16", "s32", "f64")


def partition(rng: random.Random, shape: tuple[int, int], threads: int) -> Partition:
    """A random partition: prime factors of the extents are dealt to threads and values in any order."""
    factors = [
        (prime, axis)
        for axis, extent in enumerate(shape)
        for prime in (2, 3, 5)
        for power in range(1, 10)
        if extent % prime**power == 0
    ]
    rng.shuffle(factors)
    below, count = [1, 1], 1
    mine: list[tuple[int, Step | int]] = []
    values: list[tuple[int, Step]] = []
    for size, axis in factors:
        digit = (size, below[axis] * E(axis))
        below[axis] *= size
        if threads % (count * size) == 0 and rng.random() < 0.8:
            mine.append(digit)
            count *= size
        else:
            values.append(digit)
    if count < threads:
        mine.insert(rng.randrange(len(mine) + 1), (threads // count, 0))
    rng.shuffle(values)
    return Partition(shape, Layout.of(mine, values))


def moved(kind: str, shape: tuple[int, int], threads: int, chain: list[Partition], ways: list[Any]) -> type[Machine]:
    """y = x, which goes from holders to holders on the way."""

    class Moved(Machine):
        """y = x"""

        m, k = Dim(), Dim()
        x, y = Input(kind, m, k), Output(kind, m, k)
        ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflIdx()
        memory = Route(isa.LdShared(1), isa.StShared(1))

        def program(self, p: Any) -> None:
            with p.grid((self.m, shape[0]), (self.k, shape[1])) as (i, j), p.role("all", warps=threads // 32):
                value = p.load(self.ld, self.x.tile(i, j, shape=shape), chain[0])
                for who, way in zip(chain[1:], ways, strict=True):
                    value = p.relayout(value, who, {"shuffle": self.shuffle, "memory": self.memory, "": None}[way])
                p.store(self.st, self.y.tile(i, j, shape=shape), value)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Moved


def carried_out(machine: type[Machine], **dims: int) -> tuple[Any, Any]:
    """The kernel of the only candidate, which is right, and its program."""
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1)
    program = space.program(point)
    kernel = build(program, problem, point, SolverCache()).kernel
    report = verify(kernel, machine, problem, orders=("late",))
    assert report.passed, str(report)
    return kernel, program


def shuffles(ptx: str) -> int:
    return len(re.findall(r"^\s*shfl\.", ptx, re.MULTILINE))


def within_warps(rng: random.Random, shape: tuple[int, int], threads: int, count: int) -> list[Partition]:
    """Partitions of a tile whose warps hold the same: of a warp's part, and the warps along one axis."""
    axis = rng.randrange(2)
    warps = threads // 32
    part = tuple(extent // warps if a == axis else extent for a, extent in enumerate(shape))
    out = []
    for _ in range(count):
        one = partition(rng, (part[0], part[1]), 32)
        lanes = [*one.threads.steps, (warps, part[axis] * E(axis))]
        out.append(Partition(shape, Layout.of(lanes, one.values.steps)))
    return out


@pytest.mark.end_to_end
@pytest.mark.parametrize(("seed", "count"), [(0, 4), pytest.param(1, 150, marks=pytest.mark.slow)])
def test_random_holders_get_every_value_in_the_rounds_of_the_plan(seed: int, count: int) -> None:
    rng = random.Random(seed)
    kinds: Counter[str] = Counter()
    for case in range(count):
        shape = rng.choice([(16, 16), (32, 8), (8, 24), (96, 2), (12, 16), (20, 16)])
        threads = rng.choice([32, 64])
        chain = within_warps(rng, shape, threads, 4)
        kind = KINDS[case % len(KINDS)]
        machine = moved(kind, shape, threads, chain, ["shuffle"] * 3)
        kernel, program = carried_out(machine, m=shape[0] + 3, k=shape[1] * 2)
        plans = [plan_of(s) for s in walk(program.body) if isinstance(s, n.Relayout)]
        assert len(plans) == 3
        assert shuffles(kernel.ptx) == sum(plan.shuffles for plan in plans)
        assert len(re.findall(r"^\s*prmt\.", kernel.ptx, re.MULTILINE)) == sum(plan.permutes for plan in plans)
        kinds.update(plan.kind for plan in plans)
    assert kinds["shuffles"] > count


@pytest.mark.parametrize(("seed", "count"), [(0, 3), pytest.param(1, 80, marks=pytest.mark.slow)])
def test_random_holders_in_other_warps_get_every_value_through_shared_memory(seed: int, count: int) -> None:
    rng = random.Random(seed)
    for case in range(count):
        shape = rng.choice([(16, 16), (32, 8), (8, 24), (96, 2), (12, 16), (20, 16)])
        threads = rng.choice([32, 64, 96, 128])
        chain = [partition(rng, shape, threads) for _ in range(3)]
        machine = moved(KINDS[case % len(KINDS)], shape, threads, chain, ["memory"] * 2)
        kernel, _ = carried_out(machine, m=shape[0] + 3, k=shape[1] * 2)
        assert shuffles(kernel.ptx) == 0
        assert kernel.ptx.count("bar.sync") >= 2


SAME = Partition((32, 8), Layout.parse("((8,4),(4,2)):((1@0,2@1),(8@0,1@1))"))
OTHER_REGISTERS = Partition((32, 8), Layout.parse("((8,4),(2,4)):((1@0,2@1),(1@1,8@0))"))
OTHER_LANES = Partition((32, 8), Layout.parse("((4,8),(2,4)):((2@1,1@0),(1@1,8@0))"))


def in_place(who: Partition, way: str, result: bool) -> type[Machine]:
    """y = x and z = 2 x: a value and its relayout, one of which is doubled in its place."""

    class InPlace(Machine):
        """y = x, z = 2 x"""

        m, k = Dim(), Dim()
        x, y, z = Input("f32", m, k), Output("f32", m, k), Output("f32", m, k)
        ld, st, add, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.ShflIdx()

        def program(self, p: Any) -> None:
            with p.grid((self.m, 32), (self.k, 8)) as (i, j), p.role("all", warps=1):
                value = p.load(self.ld, self.x.tile(i, j, shape=(32, 8)), SAME)
                other = p.relayout(value, who, self.shuffle if way else None)
                kept, doubled = (value, other) if result else (other, value)
                p.apply(self.add, doubled, doubled, into=doubled)
                p.store(self.st, self.y.tile(i, j, shape=(32, 8)), kept)
                p.store(self.st, self.z.tile(i, j, shape=(32, 8)), doubled)

        @staticmethod
        def reference(x: Any) -> Any:
            return {"y": x, "z": x + x}

    return InPlace


@pytest.mark.parametrize("result", [False, True])
@pytest.mark.parametrize(("who", "way"), [(SAME, ""), (OTHER_REGISTERS, ""), (OTHER_LANES, "shuffle")])
def test_a_value_and_its_relayout_may_be_written_apart(who: Partition, way: str, result: bool) -> None:
    carried_out(in_place(who, way, result), m=40, k=8)


def test_what_stays_in_its_registers_is_no_instruction() -> None:
    lines = {}
    for who in (SAME, OTHER_REGISTERS):
        kernel, program = carried_out(moved("f32", (32, 8), 32, [SAME, who], [""]), m=40, k=8)
        (plan,) = [plan_of(s) for s in walk(program.body) if isinstance(s, n.Relayout)]
        lines[plan.kind] = [line.split()[0] for line in kernel.ptx.splitlines() if line.strip().endswith(";")]
    plain, _ = carried_out(moved("f32", (32, 8), 32, [SAME], []), m=40, k=8)
    without = [line.split()[0] for line in plain.ptx.splitlines() if line.strip().endswith(";")]
    assert Counter(lines["nothing"]) == Counter(without)
    assert sum(Counter(lines["registers"]).values()) == len(without)


@pytest.mark.parametrize("way", ["shuffle", "memory"])
def test_a_tile_of_fewer_threads_than_a_warp_goes_to_other_lanes(way: str) -> None:
    chain = [Partition((4, 16), Layout.parse(t)) for t in ("((4,4),4):((1@0,4@1),1@1)", "((4,4),4):((4@1,1@0),1@1)")]
    kernel, _ = carried_out(moved("f32", (4, 16), 32, chain, [way]), m=10, k=40)
    assert (shuffles(kernel.ptx) > 0) == (way == "shuffle")


@dataclass(frozen=True, eq=False)
class OwnRead(LaneRead):
    """shfl.sync of a user's own, which is told apart by a comment."""

    @property
    def label(self) -> str:
        return "own"

    def statement(self, result: str, value: str, mask: int) -> str:
        return f"shfl.sync.bfly.b32 {result}, {value}, {mask}, 31, -1; // own"

    def read(self, result: str, value: str, lane: str) -> str:
        return f"shfl.sync.idx.b32 {result}, {value}, {lane}, 31, -1; // own"


def test_lanes_are_read_by_an_instruction_of_the_users_own() -> None:
    rng = random.Random(5)
    chain = within_warps(rng, (16, 16), 32, 3)
    machine = moved("f16", (16, 16), 32, chain, ["shuffle"] * 2)
    own = type("Moved", (machine,), {"shuffle": OwnRead()})
    (mine, _), (theirs, _) = (carried_out(m, m=20, k=32) for m in (own, machine))
    plain = [line.split("//")[0].rstrip() for line in mine.ptx.splitlines()]
    assert plain == [line.split("//")[0].rstrip() for line in theirs.ptx.splitlines()]
    assert mine.ptx.count("// own") == shuffles(theirs.ptx) > 0


def test_a_lane_read_that_does_not_say_how_is_refused() -> None:
    class Silent(LaneRead):
        label = "silent"

    chain = [SAME, OTHER_LANES]
    with pytest.raises(DeclarationError) as error:
        type("Moved", (moved("f32", (32, 8), 32, chain, ["shuffle"]),), {"shuffle": Silent()})
    owed = "does not state statement() and read(), as a LaneRead does"
    assert str(error.value) == f"Moved.program: shuffle (silent) {owed}"
