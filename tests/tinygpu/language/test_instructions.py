"""What instructions bring: devices that have them, vectors and their neighbours, fragments over tiles of warps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from asynchronous_machines import TmaLoad, Wgmma
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate
from tinygpu.language import Elementwise, Instruction, Layout, Partition, blocked
from tinygpu.language.instruction import since, tiled
from tinygpu.language.memories import MEMORIES, memory
from tinygpu.language.parameters import Choice, Param
from tinygpu.language.partition import expr
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.layouts.step import Step
from tinygpu.ptx import isa

few = st.sampled_from([1, 2, 3, 4])
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


def spelled(number: int, mode: Layout, rank: int) -> tuple[int, ...]:
    out = [0] * rank
    for size, stride in mode.steps:
        number, digit = divmod(number, int(size))
        for axis, count in stride.terms if isinstance(stride, Step) else ():
            out[int(axis)] += digit * int(count)
    return tuple(out)


def held(who: Partition) -> list[list[tuple[int, ...]]]:
    """Per thread, the coordinates of its values in order."""
    rank = len(who.shape)
    values = [spelled(v, who.values, rank) for v in range(int(who.value_count))]
    threads = [spelled(t, who.threads, rank) for t in range(int(who.thread_count))]
    return [[tuple(map(sum, zip(t, v, strict=True))) for v in values] for t in threads]


@dataclass(frozen=True, eq=False)
class Spelled(Elementwise):
    """One whose text is given."""

    said: str = ""
    result: ClassVar[str] = "f32"

    def text(self) -> str:
        return self.said


def test_an_elementwise_instruction_is_called_by_its_opcode() -> None:
    assert Spelled("add.f32 {d}, {a}, {b};").label == "add.f32"
    assert str(Spelled("add.f32 {d}, {a}, {b};")) == "add.f32"
    assert Spelled("{ .reg .f32 t; }").label == Spelled("").label == Spelled("{d} = {a}").label == "spelled"
    assert Spelled().types() == ((), "f32")
    assert (Spelled().flops, Elementwise().text()) == (1, "")


def test_what_completes_later_is_asynchronous() -> None:
    assert [i.asynchronous for i in (isa.CpAsync(4), TmaLoad(), isa.LdGlobal(1), isa.Add("f32"))] == [
        True,
        True,
        False,
        False,
    ]


def test_data_passes_l1_by_where_an_instruction_says_so() -> None:
    passing = {type(i).__name__: i.past_l1_bytes for i in (isa.LdGlobal(1), isa.StGlobal(1), isa.CpAsync(4))}
    assert passing == {"LdGlobal": 0, "StGlobal": 0, "CpAsync": 16}


@pytest.mark.parametrize(
    ("target", "only", "sentence"),
    [
        (80, (), "kernels are written for sm_80 and later"),
        (70, (), "kernels are written for sm_80 and later"),
        (81, (), "it exists from sm_81 on"),
        (90, (90,), "it exists on sm_90 only"),
        (100, (100, 103), "it exists on sm_100 or sm_103 only"),
        (100, (100, 103, 110), "it exists on sm_100, sm_103 or sm_110 only"),
    ],
)
def test_an_instruction_exists_where_it_says(target: int, only: tuple[int, ...], sentence: str) -> None:
    assert since("it", target, only) == sentence
    made = type("It", (Instruction,), {"target": target, "only": only})()
    for cc in (75, 80, 81, 89, 90, 100, 103, 110, 120):
        assert evaluate(made.target_rule().condition, {"device.cc": cc}) == (cc in only if only else cc >= target)


@pytest.mark.parametrize("kind", ["f32", "f16", "s8", "e2m1"])
@pytest.mark.parametrize("major", ["row", "col"])
def test_a_vector_has_a_width_that_there_is_and_is_aligned(kind: Any, major: Any) -> None:
    """By the bytes of a vector: of both memories, of tensors with one dim and two."""
    bits = dtype(kind).bits
    for vector, rank in itertools.product((1, 2, 3, 4, 8, 16, 32), (1, 2)):
        tensor = Tensor("x", dtype(kind), ("m", "n")[:rank], "in", major if rank == 2 else "row")
        tile = gmem_tile(tensor, (0,) * rank, (4, 64)[-rank:])
        who = blocked((4, 64)[-rank:], threads=1, vector=vector)
        rules = {r.name.split(" of ")[0].split(" along ")[0]: r for r in isa.LdGlobal(vector).legality(tile, who)}
        width = vector * bits // 8 if vector * bits % 8 == 0 else 0  # in whole bytes
        assert bool(rules["ld.global width"].condition.sympy) == (width in (1, 2, 4, 8, 16))
        if width:
            for align, ld in itertools.product((1, 2, 4, 8, 16), (64, 65, 66, 68, 72, 96)):
                known = {"x.align": align, "x.ld": ld}
                aligned = align % width == 0 and (rank == 1 or ld * bits % (8 * width) == 0)
                assert evaluate(rules["ld.global alignment"].condition, known) == aligned
        contiguous = 1 if rank == 2 and major == "row" else 0
        neighbours = vector == 1 or contiguous == rank - 1
        assert bool(rules["ld.global vector"].condition.sympy) == neighbours
        assert {(r.kind, r.source) for r in rules.values()} == {("legality", "ld.global")}


@settings(max_examples=60)
@given(few, few, few, few, st.sampled_from([0, 1]), st.sampled_from([0, 1, None]))
def test_what_a_thread_moves_at_once_are_neighbours(
    vector: int, moved: int, across: int, tall: int, axis: int, contiguous: int | None
) -> None:
    """Where the rule holds, every vector runs along memory; where vectors do, and are as long as said, it holds."""
    shape = (vector * across * 2, tall * 12) if axis == 0 else (tall * 12, vector * across * 2)
    who = blocked(shape, threads=across * tall, vector=vector, axis=axis, across=across)
    axes = (0, 1) if contiguous == 1 else (1, 0) if contiguous == 0 else (None, 0)
    tensor = Tensor("x", dtype("f32"), ("m", "n"), "in")
    tile = Tile("x", memory("GMEM"), dtype("f32"), who.shape, (expr(0), expr(0)), axes, tensor)
    assert tile.contiguous == contiguous
    (rule,) = [r for r in isa.LdGlobal(moved).legality(tile, who) if "vector along" in r.name]
    runs = contiguous is not None and all(
        b[contiguous] == a[contiguous] + 1 and b[1 - contiguous] == a[1 - contiguous]
        for values in held(who)
        for first in range(0, len(values), moved)
        for a, b in itertools.pairwise(values[first : first + moved])
    )
    holds = bool(rule.condition.sympy)
    assert not holds or moved == 1 or runs
    if axis == contiguous:
        assert holds == (vector % moved == 0)
    nobody = Partition(who.shape, Layout.of([], []))
    (rule,) = [r for r in isa.LdGlobal(moved).legality(tile, nobody) if "vector along" in r.name]
    assert bool(rule.condition.sympy) == (moved == 1)


@settings(max_examples=15)
@given(st.sampled_from([isa.MmaSync(), Wgmma(16)]), pairs, pairs, st.sampled_from([0, 0, 1]))
@example(isa.MmaSync(), (2, 3), (2, 1), 0)
@example(Wgmma(16), (1, 2), (1, 2), 1)
def test_warps_hold_every_element_of_their_tiles(
    instruction: Any, warps: tuple[int, int], repeats: tuple[int, int], extra: int
) -> None:
    """Of c each element once; of a, whose rows are those of c, once for every warp along n, and of b the other way."""
    kind, (wm, wn), (rm, rn) = dtype("f16"), warps, repeats
    m, n, k = instruction.shape(kind, kind)
    size = (m * wm * rm + extra, n * wn * rn + extra)
    t = tiled(instruction, kind, kind, size, warps)
    assert (t.m, t.n, t.k) == (m, n, k)
    label, fits = instruction.label, extra == 0
    for partition in (t.a, t.b, t.c):
        assert {c.name: bool(c.condition.sympy) for c in partition.conditions} == {
            f"{label} rows": fits, f"{label} columns": fits,
        }  # fmt: skip
        assert partition.made_for is not None
        assert int(partition.made_for) == (128 if instruction.scope == "warpgroup" else 32) * wm * wn
    assert [tuple(map(int, p.shape)) for p in (t.a, t.b, t.c)] == [(size[0], k), (k, size[1]), size]
    if extra:
        return
    c = held(t.c)
    assert sorted(itertools.chain(*c)) == sorted(itertools.product(range(size[0]), range(size[1])))
    if instruction.scope == "warp":
        a, b = held(t.a), held(t.b)
        assert sorted(itertools.chain(*a)) == sorted([*itertools.product(range(size[0]), range(k))] * wn)
        assert sorted(itertools.chain(*b)) == sorted([*itertools.product(range(k), range(size[1]))] * wm)
        for first in range(0, len(c), 32):  # a warp multiplies rows of a and columns of b into what it holds of c
            mine = [
                {at[axis] for lane in of[first : first + 32] for at in lane}
                for of, axis in ((c, 0), (c, 1), (a, 0), (b, 1))
            ]
            assert mine[:2] == mine[2:]


def test_memories_and_options_are_found_by_their_names() -> None:
    assert [memory(m.name) for m in MEMORIES] == list(MEMORIES)
    with pytest.raises(ValueError) as refused:
        memory("disk")
    assert str(refused.value) == "unknown memory 'disk'; known: GMEM, L2, L1, SMEM, TMEM, RMEM"
    facts = {m.name: (m.scope, m.capacity, m.granule_bytes, m.banks, m.axes) for m in MEMORIES}
    assert facts == {
        "GMEM": ("grid", "", 32, 0, ("byte",)),
        "L2": ("grid", "l2_bytes", 32, 0, ("byte",)),
        "L1": ("cta", "l1_bytes", 32, 0, ("byte",)),
        "SMEM": ("cta", "max_smem_per_block_optin", 4, 32, ("byte",)),
        "TMEM": ("cta", "tmem_bytes_per_sm", 4, 0, ("lane", "column")),
        "RMEM": ("thread", "max_registers_per_thread", 4, 0, ("byte",)),
    }
    choice = Choice("straight", 3, isa.LdGlobal(1))
    choice.bind_name("how")
    assert [choice.option(label) for label in choice.labels] == list(choice.options)
    with pytest.raises(ValueError) as refused:
        choice.option("bent")
    assert str(refused.value) == "how has no option 'bent'; it has straight, 3, ld.global"
    with pytest.raises(AttributeError) as missing:
        Param(1, 2).width  # noqa: B018
    assert str(missing.value) == "a Param has no 'width'"
