"""Instructions that do not exist are refused when they are made, with what exists."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language import E, Layout, Partition
from tinygpu.layouts.step import Step
from tinygpu.ptx import isa
from tinygpu.ptx.cards.specimen import compute_capability, gmem_operand, smem_operand
from tinygpu.ptx.isa.cvt import CONVERSIONS


def test_an_operation_names_the_types_that_it_exists_for() -> None:
    with pytest.raises(ValueError, match=r"^Div exists for f32, f64, not for 'f16'$"):
        isa.Div("f16")
    with pytest.raises(ValueError, match=r"^And exists for u32, s32, pred, not for 'f32'$"):
        isa.And()
    with pytest.raises(ValueError, match=r"^Where compares with one of == != < <= > >=, not with '=>'$"):
        isa.Where("f32", "=>")
    with pytest.raises(ValueError, match=r"^Compare compares with one of == != < <= > >=, not with '=>'$"):
        isa.Compare("f32", "=>")
    with pytest.raises(ValueError, match=r"^Select exists for f32, f64, f16, bf16, s32, u32, not for 'pred'$"):
        isa.Select("pred")


def test_a_conversion_names_the_pairs_that_exist() -> None:
    pairs = ", ".join(f"{a} to {b}" for a, b in CONVERSIONS)
    with pytest.raises(ValueError, match=f"^there is no conversion from e4m3 to s8; there are {pairs}$"):
        isa.Cvt("e4m3", "s8")


@pytest.mark.parametrize(
    ("instruction", "label"),
    [
        (isa.Add("bf16"), "add.bf16"),
        (isa.Add("f32"), "add.rn.f32"),
        (isa.Cvt("f32", "f16"), "cvt.rn.f16.f32"),
        (isa.Cvt("f32", "e4m3"), "cvt.e4m3.f32"),
        (isa.Where("f32", "!="), "setp.neu.f32"),
        (isa.Where("s32", "!="), "setp.ne.s32"),
        (isa.Compare("f32", "!="), "setp.neu.f32"),
        (isa.Select("bf16"), "selp.b16"),
        (isa.LdMatrix(), "ldmatrix"),
        (isa.MmaSync(short=True), "mma.sync.short"),
        (isa.ShflBfly(), "shfl.sync"),
        (isa.ShflIdx(), "shfl.sync.idx"),
        (isa.ShflUp(), "shfl.sync.up"),
        (isa.Redux(), "redux.sync"),
        (isa.BarSync(), "bar.sync"),
    ],
)
def test_labels_are_short_and_in_the_words_of_ptx(instruction: isa.Add, label: str) -> None:
    assert instruction.label == str(instruction) == label


@pytest.mark.parametrize(
    ("instruction", "target", "version"),
    [
        (isa.Tanh("f32"), 80, (7, 0)),
        (isa.Tanh("bf16"), 90, (7, 8)),
        (isa.Floor("bf16"), 90, (7, 8)),
        (isa.Cvt("bf16", "f32"), 80, (7, 1)),
        (isa.Cvt("f32", "e5m2"), 89, (8, 1)),
        (isa.Where("bf16"), 90, (7, 8)),
    ],
)
def test_a_younger_kind_has_its_own_target_version_and_rule(
    instruction: isa.Tanh, target: int, version: tuple[int, int]
) -> None:
    assert (instruction.target, instruction.isa) == (target, version)
    rule = instruction.target_rule()
    known = f"{instruction.label} exists from sm_{target} on"
    assert rule.sentence == (known if target > 80 else "kernels are written for sm_80 and later")
    assert rule.condition.same(symbol("device.cc") >= target)
    assert type(instruction).target == 80


def test_a_barrier_has_an_id_below_sixteen_and_whole_warps() -> None:
    assert isa.BarSync.exists(15, 96)
    assert not isa.BarSync.exists(16, 96)
    assert not isa.BarSync.exists(0, 48)


@pytest.mark.parametrize("contiguous", [0, 1])
@pytest.mark.parametrize("kind", ["f16", "s8", "tf32"])
def test_ldmatrix_transposes_only_sixteen_bit_elements(kind: str, contiguous: int) -> None:
    side = smem_operand(dtype(kind), contiguous=contiguous)
    per = 32 // dtype(kind).bits
    held = Layout.of([(4, per * E(1)), (8, E(0))], [(per, E(1))] if per > 1 else [])
    rules = {r.name: r for r in isa.LdMatrix().legality(side, Partition(side.shape, held))}
    allowed = kind == "f16" or contiguous == 1
    assert rules["ldmatrix transpose of stage"].condition.same(True) == allowed
    assert rules["ldmatrix fragment of stage"].condition.same(True)


Digit = tuple[int, int | Step]
FOUR, EIGHT, PAIR = (4, 2 * E(1)), (8, E(0)), (2, E(1))


def digits(sizes: list[int], steps: list[int | Step]) -> st.SearchStrategy[Digit]:
    return st.tuples(st.sampled_from(sizes), st.sampled_from(steps))


@settings(max_examples=200)
@example(lanes=(FOUR, EIGHT), values=(PAIR,))
@example(lanes=((4, 2 * E(0)), EIGHT), values=((2, E(0)),))
@example(lanes=(FOUR, EIGHT), values=((2, E(0)),))
@example(lanes=(FOUR, EIGHT), values=())
@given(
    lanes=st.tuples(*[digits([2, 4, 8], [0, E(0), E(1), 2 * E(0), 2 * E(1)])] * 2),
    values=st.lists(digits([1, 2], [E(0), E(1), 2 * E(0), 2 * E(1)]), max_size=1),
)
def test_a_partition_is_a_fragment_if_and_only_if_its_lanes_hold_an_8x8_matrix(
    lanes: tuple[Digit, ...], values: Sequence[Digit]
) -> None:
    """One matrix of 16-bit elements, plain or with its axes exchanged, by enumeration of lanes and elements."""
    partition = Partition((expr(8), expr(8)), Layout.of(lanes, values))
    side = smem_operand(dtype("f16"))
    rule = next(r for r in isa.LdMatrix().legality(side, partition) if "fragment" in r.name)
    held = spread_coordinates(partition)
    wanted = [[(lane // 4, 2 * (lane % 4) + e) for e in range(2)] for lane in range(32)]
    exchanged = [[(column, row) for row, column in pair] for pair in wanted]
    assert rule.condition.same(True) == (held in (wanted, exchanged))


def spread_coordinates(partition: Partition) -> list[list[tuple[int, int]]]:
    """Per thread and value, the (row, column) that a partition gives it."""

    def parts(mode: Layout) -> list[tuple[int, int]]:
        out = [(0, 0)]
        for size, stride in mode.steps:
            down, across = (int(stride.along(axis)) if isinstance(stride, Step) else 0 for axis in (0, 1))
            moved = [(down * i, across * i) for i in range(int(size))]
            out = [(r + dr, c + dc) for dr, dc in moved for r, c in out]
        return out

    return [[(r + dr, c + dc) for dr, dc in parts(partition.values)] for r, c in parts(partition.threads)]


def test_ldmatrix_reads_a_buffer() -> None:
    with pytest.raises(ValueError, match=r"^ldmatrix moves matrices of a buffer in SMEM, and x is none$"):
        isa.LdMatrix().legality(gmem_operand(dtype("f16")), Partition((), Layout.of([], [])))


def test_a_target_is_written_sm_and_a_number() -> None:
    assert compute_capability("sm_100a") == 100
    with pytest.raises(ValueError, match=r"^a target is written like 'sm_80' or 'sm_90a', not 'volta'$"):
        compute_capability("volta")
