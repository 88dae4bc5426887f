"""Rules that the emulator judges, over whole domains: broken if and only if a kernel that ignores them faults."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate, symbol
from tinygpu.language import Layout, Partition
from tinygpu.language.instruction import Instruction, Transfer
from tinygpu.ptx import isa
from tinygpu.ptx.cards import refused_by_emulator
from tinygpu.ptx.cards.evidence.memory import spelling
from tinygpu.ptx.cards.specimen import WRONG_VALUES, Field, Specimen, gmem_operand, held_partition, smem_operand
from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, emulate

KIND = dtype("f32")
PITCHES = list(range(4, 68, 4))


def rule_of(instruction: Transfer, word: str, gmem: bool) -> Constraint:
    side = gmem_operand(KIND) if gmem else smem_operand(KIND)
    return next(r for r in instruction.legality(side, held_partition()) if f" {word} " in r.name)


def load(width_bytes: int) -> str:
    return spelling("ld.shared", 32, width_bytes // 4, "%r9")


def store(width_bytes: int) -> str:
    return spelling("st.shared", 32, width_bytes // 4, "%r9")


def copy(width_bytes: int) -> str:
    cache = isa.CpAsync.cache(width_bytes)
    return f"cp.async.{cache}.shared.global [%r9], [%x], {width_bytes};\ncp.async.wait_all;"


def in_rows_of(pitch_bytes: int, statement: str) -> Specimen:
    """Every thread touches a row of its own; the rows hold zeros."""
    clear = [f"st.shared.b32 [%r9+{4 * i}], %r8;" for i in range(4)] if statement.startswith("ld") else []
    registers = [f"mov.b32 %r{i}, 0;" for i in range(4)] if statement.startswith("st") else []
    lines = [
        f"mad.lo.u32 %r9, %t, {max(pitch_bytes, 16)}, %s;" if clear else "",
        "mov.b32 %r8, 0;",
        *clear,
        "bar.sync 0;",
    ]
    lines += [f"mad.lo.u32 %r9, %t, {pitch_bytes}, %s;", *registers, statement, "st.global.b32 [%out], %r8;"]
    body = "\n".join(line for line in lines if line)
    fields = (Field("x", "f32", 4), Field("out", "f32", 1, "out"))
    return Specimen("rows", body, fields, lambda x: np.zeros((2, 1)), threads=2, smem_bytes=256)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("instruction", "text"), [(isa.LdShared(symbol("vector")), load), (isa.StShared(symbol("vector")), store),
                              (isa.CpAsync(symbol("vector")), copy)], ids=["ld.shared", "st.shared", "cp.async"],
)  # fmt: skip
@pytest.mark.parametrize("width_bytes", [4, 8, 16])
def test_rows_of_smem_are_aligned_if_and_only_if_no_access_faults(
    instruction: Transfer, text: Callable[[int], str], width_bytes: int
) -> None:
    rule = rule_of(instruction, "alignment", gmem=False)
    verdicts = set()
    for pitch in PITCHES:
        legal = bool(evaluate(rule.condition, {"columns": pitch // 4, "pad": 0, "vector": width_bytes // 4}))
        said = refused_by_emulator(in_rows_of(pitch, text(width_bytes)))
        assert (said == "") == legal, (pitch, said)
        assert legal or f"it must be a multiple of {width_bytes}" in said
        verdicts.add(legal)
    assert verdicts == ({True} if width_bytes == 4 else {True, False})


@pytest.mark.parametrize(
    ("instruction", "statement"),
    [
        (isa.LdMatrix(), "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r9];"),
        (isa.StMatrix(), "mov.b32 %r0, 0;\nstmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r0};"),
    ],
    ids=["ldmatrix", "stmatrix"],
)
def test_rows_of_matrices_are_aligned_if_and_only_if_it_does_not_fault(
    instruction: isa.LdMatrix | isa.StMatrix, statement: str
) -> None:
    side = smem_operand(KIND)
    fragment = Partition(side.shape, Layout.parse("((4,8),1):((1@1,1@0),0)"))
    rule = next(r for r in instruction.legality(side, fragment) if "row alignment" in r.name)
    for pitch in PITCHES:
        lines = [
            "mov.b32 %r8, 0;",
            "mad.lo.u32 %r9, %t, 16, %s;",
            "st.shared.v4.b32 [%r9], {%r8, %r8, %r8, %r8};",
            "bar.sync 0;",
            "and.b32 %r1, %t, 7;",
            f"mad.lo.u32 %r9, %r1, {pitch}, %s;",
            statement,
            "st.global.b32 [%out], %r0;",
        ]
        fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
        made = Specimen(
            "rows", "\n".join(lines), fields, lambda x: 0 * x, instruction.target, instruction.isa, smem_bytes=512
        )
        legal = bool(evaluate(rule.condition, {"columns": pitch // 4, "pad": 0}))
        assert (refused_by_emulator(made) == "") == legal, pitch


GMEM: list[tuple[Instruction, str]] = [
    (isa.LdGlobal(symbol("vector")), "ld.global"),
    (isa.LdGlobalReadOnly(symbol("vector")), "ld.global.nc"),
    (isa.StGlobal(symbol("vector")), "st.global"),
    (isa.CpAsync(symbol("vector")), "cp.async"),
]


@pytest.mark.parametrize(("instruction", "opcode"), GMEM, ids=[opcode for _, opcode in GMEM])
@settings(max_examples=60)
@given(align=st.sampled_from([4, 8, 16, 32]), ld=st.integers(4, 24), vector=st.sampled_from([1, 2, 4]))
def test_pointer_and_rows_are_aligned_if_and_only_if_no_access_faults(
    instruction: Transfer, opcode: str, align: int, ld: int, vector: int
) -> None:
    """Two threads touch the beginnings of two rows of a matrix whose pointer has that alignment and no better one."""
    rule = rule_of(instruction, "alignment", gmem=True)
    legal = bool(evaluate(rule.condition, {"x.align": align, "x.ld": ld, "vector": vector}))
    statement = spelling(opcode, 32, vector, "%d0")
    if opcode == "cp.async":
        statement = f"cp.async.{isa.CpAsync.cache(4 * vector)}.shared.global [%r8], [%d0], {4 * vector};"
    ptx = f""".version 7.0
.target sm_80
.address_size 64
.visible .entry rows(.param .u64 x, .param .u32 ld)
{{
  .reg .b32 %r<10>;
  .reg .b64 %d<2>;
  .shared .align 16 .b8 smem[32];
  mov.b32 %r0, 0;
  mov.b32 %r1, 0;
  mov.b32 %r2, 0;
  mov.b32 %r3, 0;
  mov.u32 %r8, %tid.x;
  ld.param.u64 %d0, [x];
  ld.param.u32 %r9, [ld];
  mul.lo.u32 %r9, %r9, 4;
  mad.wide.u32 %d0, %r8, %r9, %d0;
  shl.b32 %r8, %r8, 4;
  mov.u32 %r9, smem;
  add.u32 %r8, %r8, %r9;
  {statement}
  ret;
}}
"""
    memory = DeviceBuffer(np.zeros(64, dtype=np.float32), offset=align)
    try:
        emulate(ptx, grid=1, block=2, args=[memory, np.uint32(ld)])
        said = ""
    except EmulationFault as fault:
        said = fault.kind
    assert said == ("" if legal else "misaligned")


@pytest.mark.parametrize("held", range(1, 9))
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_vectors_are_neighbours_if_and_only_if_moving_them_at_once_gives_the_values_of_the_partition(
    held: int, vector: int
) -> None:
    """Each thread holds four runs of `held` neighbours; a kernel moves vectors from where their first values lie."""
    rule = rule_of(isa.LdGlobal(symbol("vector")), "vector", gmem=True)
    legal = bool(evaluate(rule.condition, {"held": held, "vector": vector}))
    threads, runs = 4, 4
    place = [[r * threads * held + t * held + i for r in range(runs) for i in range(held)] for t in range(threads)]
    # The fields of a specimen give every thread runs * held elements of its own; the matrix lies across them.
    lines = [f"mul.lo.u32 %r9, %t, {4 * held}; mul.wide.u32 %d0, %t, {4 * runs * held};", "sub.s64 %d1, %x, %d0;"]
    lines += ["cvt.u64.u32 %d2, %r9;", "add.s64 %d1, %d1, %d2;"]
    for first in range(0, runs * held, vector):
        lines.append(spelling("ld.global", 32, vector, f"%d1+{4 * place[0][first]}"))
        lines += [f"st.global.b32 [%out+{4 * (first + i)}], %r{i};" for i in range(vector)]
    fields = (Field("x", "f32", runs * held), Field("out", "f32", runs * held, "out"))
    made = Specimen("runs", "\n".join(lines), fields, lambda x: x.reshape(-1)[np.array(place)], threads=threads)
    said = refused_by_emulator(made)
    assert (said == "") == legal, said
    if not legal:
        assert said == WRONG_VALUES or "misaligned" in said or "outside" in said, said
