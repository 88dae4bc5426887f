"""Who holds what: fragments of mma.sync and the plan of ldmatrix against the formulas of the PTX ISA, lane by lane."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.language import Partition
from tinygpu.language.instruction import Fragment, tiled
from tinygpu.language.matrix_fragments import HELD, TRANSPOSED, Matrices, matrices
from tinygpu.layouts import E, Layout
from tinygpu.layouts.step import Step
from tinygpu.program.matrices import matrix_addresses
from tinygpu.ptx import isa
from tinygpu.ptx.cards.evidence.mma import gather, scatter
from tinygpu.ptx.isa.mma import SHAPES, Shape, holders

Formula = Callable[[int, int, int], tuple[int, int]]  # g, t, i -> coordinate

# PTX ISA, matrix fragments of mma.m16n8k*: lane = 4 g + t, element i counted from the low bits of the first register.
A: dict[str, tuple[int, Formula]] = {
    "m16n8k16 16": (8, lambda g, t, i: (g + 8 * ((i >> 1) & 1), 2 * t + (i & 1) + 8 * (i >> 2))),
    "m16n8k8 16": (4, lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1))),
    "m16n8k8 32": (4, lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1))),
    "m16n8k4 32": (2, lambda g, t, i: (g + 8 * i, t)),
    "m16n8k32 8": (16, lambda g, t, i: (g + 8 * ((i >> 2) & 1), 4 * t + (i & 3) + 16 * (i >> 3))),
    "m16n8k16 8": (8, lambda g, t, i: (g + 8 * (i >> 2), 4 * t + (i & 3))),
}
B: dict[str, tuple[int, Formula]] = {
    "m16n8k16 16": (4, lambda g, t, i: (2 * t + (i & 1) + 8 * (i >> 1), g)),
    "m16n8k8 16": (2, lambda g, t, i: (2 * t + i, g)),
    "m16n8k8 32": (2, lambda g, t, i: (t + 4 * i, g)),
    "m16n8k4 32": (1, lambda g, t, i: (t, g)),
    "m16n8k32 8": (8, lambda g, t, i: (4 * t + (i & 3) + 16 * (i >> 2), g)),
    "m16n8k16 8": (4, lambda g, t, i: (4 * t + i, g)),
}
C: tuple[int, Formula] = (4, lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1)))

PAIRS = [(s, a, b) for s in SHAPES for a, b in itertools.product(s.types, s.types)]
PAIR_NAMES = [f"{s.text} {a} {b}" for s, a, b in PAIRS]


def by_formula(count: int, formula: Formula) -> list[list[tuple[int, int]]]:
    return [[formula(lane >> 2, lane & 3, i) for i in range(count)] for lane in range(32)]


def by_layout(fragment: Fragment) -> list[list[tuple[int, int]]]:
    """The same from the layout of an instruction."""
    assert fragment is not None
    lanes, values = fragment.modes
    return [[fragment.coordinate(lane, i, axes=(0, 1)) for i in range(values.size)] for lane in range(lanes.size)]


def instruction_of(shape: Shape) -> isa.MmaSync:
    longest = next(s for s in SHAPES if s.types == shape.types)
    return isa.MmaSync(short=shape is not longest)


@pytest.mark.parametrize(("shape", "a", "b"), PAIRS, ids=PAIR_NAMES)
def test_fragments_of_mma_equal_the_formulas_lane_by_lane(shape: Shape, a: str, b: str) -> None:
    instruction = instruction_of(shape)
    assert instruction.variant(dtype(a), dtype(b)) is shape
    found = [by_layout(f) for f in instruction.fragments(dtype(a), dtype(b))]
    key = f"{shape.text} {shape.bits}"
    assert found == [by_formula(*A[key]), by_formula(*B[key]), by_formula(*C)]


@pytest.mark.parametrize("shape", SHAPES, ids=[f"{s.text} {s.types[0]}" for s in SHAPES])
def test_every_element_has_exactly_one_holder_and_gather_inverts_scatter(shape: Shape) -> None:
    extents = ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    bits = (shape.bits, shape.bits, 32)
    for (rows, columns), fragment, wide, count in zip(extents, shape.fragments, bits, shape.registers, strict=True):
        held = holders(fragment)
        assert sorted(held) == sorted(itertools.product(range(rows), range(columns)))
        assert len(set(held.values())) == rows * columns == 32 * count * 32 // wide
        matrix = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
        assert np.array_equal(scatter(gather(matrix, fragment), fragment), matrix)


def test_a_shape_refuses_extents_that_do_not_multiply_out() -> None:
    with pytest.raises(ValueError, match=r"^m16n8k12: a row of A is 16 or 32 bytes, not 24, and there are 16 of them$"):
        Shape(16, 8, 12, ("f16",), "f32", 80, (7, 0))
    with pytest.raises(ValueError, match=r"^m8n8k16: a row of A is 16 or 32 bytes, not 32, and there are 16 of them$"):
        Shape(8, 8, 16, ("f16",), "f32", 80, (7, 0))


def test_a_fragment_that_gives_a_coordinate_two_holders_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^lane 1, value 0 and \(0, 0\) both hold \(0, 0\)$"):
        holders(Layout.parse("((4,8),()):((0,1@1),())"))


def test_types_that_mma_does_not_multiply_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^mma\.sync does not multiply f16 by bf16$"):
        isa.MmaSync().variant(dtype("f16"), dtype("bf16"))


# -- ldmatrix ------------------------------------------------------------------------------------------------------


def held_of(partition: Partition, per_register: int, transposed: bool) -> Matrices:
    """How a fragment holds 8x8 matrices, in memory along whose rows its registers run, or across."""
    _, step = partition.threads.steps[0]
    assert isinstance(step, Step)
    ((axis, _),) = step.terms
    form, contiguous = (HELD.project(TRANSPOSED), 1 - int(axis)) if transposed else (HELD, int(axis))
    found = matrices(form, 16, 32 // per_register, contiguous)
    assert found is not None
    return found


def lane_rows(plan_addresses: Partition) -> list[tuple[int, int]]:
    """Where each lane of the first warp points in the first instruction."""
    return [(int(r), int(c)) for r, c in plan_addresses.thread_coordinates()[:32]]


def test_the_plan_for_a_with_k_contiguous_is_row_l_mod_16_and_column_8_by_l_over_16() -> None:
    made = tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (16, 8), (1, 1))
    plan = matrix_addresses(made.a, held_of(made.a, 2, False))
    assert plan.count == 4
    assert lane_rows(plan.addresses) == [(lane & 15, 8 * (lane >> 4)) for lane in range(32)]
    assert plan.registers.tolist() == [[0, 1, 2, 3]]


def test_the_plan_for_b_with_k_contiguous_loads_two_n_tiles_at_once() -> None:
    made = tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (16, 16), (1, 1))
    plan = matrix_addresses(made.b, held_of(made.b, 2, False))
    assert plan.count == 4
    want = [(8 * ((lane >> 3) & 1), (lane & 7) + 8 * (lane >> 4)) for lane in range(32)]
    assert lane_rows(plan.addresses) == want
    assert plan.registers.tolist() == [[0, 1, 2, 3]]


def test_the_plan_for_b_with_n_contiguous_is_transposed() -> None:
    made = tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (16, 16), (1, 1))
    plan = matrix_addresses(made.b, held_of(made.b, 2, True))
    assert plan.count == 4
    want = [((lane & 7) + 8 * ((lane >> 3) & 1), 8 * (lane >> 4)) for lane in range(32)]
    assert lane_rows(plan.addresses) == want


def test_the_plan_for_a_with_m_contiguous_is_transposed() -> None:
    made = tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (16, 8), (1, 1))
    plan = matrix_addresses(made.a, held_of(made.a, 2, True))
    want = [((8 * ((lane >> 3) & 1)), (lane & 7) + 8 * (lane >> 4)) for lane in range(32)]
    assert plan.count == 4
    assert lane_rows(plan.addresses) == want


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["f16", "bf16", "tf32", "s8", "u8", "e4m3"]),
    short=st.booleans(),
    operand=st.sampled_from("ab"),
    contiguous=st.sampled_from([0, 1]),
    repeats=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    warps=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
)
def test_ldmatrix_by_plan_gives_every_lane_what_its_partition_says(
    kind: str, short: bool, operand: str, contiguous: int, repeats: tuple[int, int], warps: tuple[int, int]
) -> None:
    """Runs the plan by the definition of ldmatrix, on coordinates instead of data."""
    instruction = isa.MmaSync(short)
    wide = dtype(kind)
    per = 32 // wide.bits
    m, n = 16 * repeats[0] * warps[0], 8 * repeats[1] * warps[1]
    made = tiled(instruction, wide, wide, (m, n), warps)
    partition = made.a if operand == "a" else made.b
    transposed = partition.threads.steps[0][1] != per * E(contiguous)
    if transposed and wide.bits != 16:
        return  # the rule on transposes refuses it
    plan = matrix_addresses(partition, held_of(partition, per, transposed))
    rows = plan.addresses.thread_coordinates()  # (threads, 2): where each lane points, first instruction
    steps = plan.addresses.value_coordinates()  # (instructions, 2)
    want = partition.coordinates()  # (threads, values, 2)
    along = np.eye(2, dtype=np.int64)[contiguous]
    got = np.full_like(want, -1)
    assert plan.count in (1, 2, 4)
    assert len(steps) == len(plan.registers)
    for thread in range(want.shape[0]):
        warp, lane = thread // 32 * 32, thread % 32
        for instruction_number, listed in enumerate(plan.registers):
            for place, register in enumerate(listed):
                for e in range(per):
                    row = 2 * (lane & 3) + e if transposed else lane >> 2
                    column = lane >> 2 if transposed else per * (lane & 3) + e
                    pointed = rows[warp + 8 * place + row] + steps[instruction_number]
                    got[thread, int(register) * per + e] = pointed + column * along
    assert np.array_equal(got, want)
