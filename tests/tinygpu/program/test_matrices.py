"""Filled-in partitions against their digits; the rows of ldmatrix against what the PTX manual hands to each lane."""

from __future__ import annotations

import itertools
from typing import Any

from digits import digit, fragment, fragments, held, loose_partitions, spelled, value_count
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.language import Layout, Partition
from tinygpu.language.matrix_fragments import HELD, TRANSPOSED, Matrices, matrices
from tinygpu.language.partition import expr
from tinygpu.layouts.step import Step
from tinygpu.program.matrices import matrix_addresses


@settings(max_examples=60)
@given(loose_partitions())
def test_a_partition_holds_what_its_digits_spell(partition: Partition) -> None:
    threads, values = range(int(partition.thread_count)), range(int(partition.value_count))
    for who in (partition, partition.coalesced):
        assert (who.threads.size, who.values.size) == (len(threads), len(values))
        assert who.coordinates().tolist() == [[[*held(partition, t, v)] for v in values] for t in threads]
        assert who.thread_coordinates().tolist() == [[*spelled(t, partition.threads, 2)] for t in threads]
        assert who.value_coordinates().tolist() == [[*spelled(v, partition.values, 2)] for v in values]


@settings(max_examples=60)
@given(loose_partitions())
def test_digits_of_a_coalesced_partition_are_as_few_as_can_be(partition: Partition) -> None:
    """None has one value alone, and none goes on where the one before it ends."""
    for mode in partition.coalesced.layout:
        assert all(size != 1 for size, _ in mode.steps) or mode == Layout(1, 0)
        for (size, stride), (_, onwards) in itertools.pairwise(mode.steps):
            before = stride * int(size) if isinstance(stride, Step) else 0
            assert before != onwards


def held_of(partition: Partition, per_register: int, transposed: bool) -> Matrices:
    """How a fragment holds 8x8 matrices, in memory along whose rows its registers run, or across."""
    _, step = partition.threads.steps[0]
    assert isinstance(step, Step)
    ((axis, _),) = step.terms
    form, contiguous = (HELD.project(TRANSPOSED), 1 - int(axis)) if transposed else (HELD, int(axis))
    found = matrices(form, 16, 32 // per_register, contiguous)
    assert found is not None
    return found


@settings(max_examples=60)
@given(fragments())
@example(fragment(1, False, 1, [(4, 0), (2, 1)]))
@example(fragment(2, True, 0, [(2, 1), (6, 0)], [(2, 1), (3, None)]))
@example(fragment(4, False, 1, [(3, 0)], [(2, 0)]))
def test_ldmatrix_hands_every_register_the_elements_that_its_fragment_wants(
    matrices_of: tuple[Partition, int, bool],
) -> None:
    """PTX ISA, ldmatrix: lanes 8j to 8j + 7 give the rows of matrix j; lane l receives 32 bits of row l / 4.

    Transposed, it receives the elements of column l / 4 instead, from rows 2 (l % 4) and 2 (l % 4) + 1.
    """
    partition, per_register, transposed = matrices_of
    plan = matrix_addresses(partition, held_of(partition, per_register, transposed))
    rows = plan.addresses.coordinates()  # (threads, instructions, axes)
    assert all(size > 1 for size, _ in plan.addresses.threads.along(0).leaves)
    _, stride = partition.threads.steps[1 if transposed else 0]
    assert isinstance(stride, Step)
    ((across, _),) = stride.terms
    matrices_held = value_count(partition) // per_register
    assert sorted(plan.registers.reshape(-1).tolist()) == list(range(matrices_held))
    assert plan.registers.shape == (matrices_held // plan.count, plan.count)
    assert rows.shape[:2] == (int(partition.thread_count), matrices_held // plan.count)
    for thread in range(int(partition.thread_count)):
        warp, lane = thread // 32 * 32, thread % 32
        for instruction, received in enumerate(plan.registers):
            for slot, register in enumerate(received):
                for e in range(per_register):
                    row = 2 * (lane % 4) + e if transposed else lane // 4
                    column = lane // 4 if transposed else lane % 4 * per_register + e
                    element = list(rows[warp + 8 * slot + row, instruction])
                    element[int(across)] += column
                    assert tuple(element) == held(partition, thread, int(register) * per_register + e)


def modes(*extents: int) -> Partition:
    strides = [8, 16, 64]
    values = [digit(extent, 0, stride) for extent, stride in zip(extents, strides, strict=False)]
    return Partition((expr(256), expr(8)), Layout.of([digit(4, 1, 2), digit(8, 0)], [digit(2, 1), *values]))


def test_ldmatrix_takes_as_many_matrices_at_a_time_as_divide_the_fragment() -> None:
    counts = {n: matrix_addresses(modes(n), held_of(modes(n), 2, False)).count for n in (1, 2, 3, 4, 6, 8, 12)}
    assert counts == {1: 1, 2: 2, 3: 1, 4: 4, 6: 2, 8: 4, 12: 4}
    # digits of 6 and 2 hold 12 matrices, of which 2 x 2 come at a time; of 3 and 4 come the four
    assert matrix_addresses(modes(6, 2), held_of(modes(6, 2), 2, False)).count == 4
    assert matrix_addresses(modes(3, 4), held_of(modes(3, 4), 2, False)).count == 4


# --- forms other than 8x8 matrices of 16-bit elements -------------------------------------------------------------

# PTX ISA: ldmatrix.m16n16.trans.b8, stmatrix.m16n8.trans.b8; and one that no GPU has, of two registers of pairs.
FORMS = (
    ("((4,8),(4,2,2)):((4@0,1@1),(1@0,8@1,1@m))", 8, (1, 2)),
    ("((4,8),(2,2,4)):((2@0,1@1),(1@0,8@1,1@m))", 8, (1, 2, 4)),
    ("((4,8),(2,2)):((2@1,1@0),(1@1,8@0))", 16, (1, 2)),
)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(FORMS), st.sampled_from([0, 1]))
def test_own_forms_hand_every_register_the_elements_that_its_fragment_wants(
    data: st.DataObject, form: tuple[str, int, tuple[int, ...]], contiguous: int
) -> None:
    """By the definition of a form: lane l of its picture receives the elements of the rows that lanes point at."""
    picture, bits, counts = Layout.parse(form[0]), form[1], form[2]
    found = matrices(picture, bits, bits, contiguous)
    assert found is not None
    row = 1 - contiguous
    size = {row: found.rows, contiguous: 128 // bits}
    # the digits of a register, and behind them, in any order, those inside a matrix, which may go on, and of matrices
    inside = [(int(n) * data.draw(st.sampled_from([1, 1, 2, 3])), step) for n, step in found.inside]
    for (n, step), (wanted, _) in zip(inside, found.inside, strict=True):
        assert isinstance(step, Step)
        ((axis, _),) = step.terms
        size[int(axis)] *= n // int(wanted)
    more = []
    for _ in range(data.draw(st.integers(0, 2))):
        n, axis = data.draw(st.sampled_from([2, 3, 4])), data.draw(st.sampled_from([0, 1]))
        more.append(digit(n, axis, size[axis]))
        size[axis] *= n
    warps = [digit(2, data.draw(st.sampled_from([0, 1])), 0)] * data.draw(st.integers(0, 1))
    listed = data.draw(st.permutations([*inside, *more]))
    partition = Partition(
        (expr(size[0]), expr(size[1])), Layout.of([*found.lanes, *warps], [*found.register, *listed])
    )
    assert found.held_by(partition).same(True)
    plan = matrix_addresses(partition, found, counts)
    per = 32 // bits
    registers = value_count(partition) // per
    assert sorted(plan.registers.reshape(-1).tolist()) == list(range(registers))
    assert plan.count == max(c for c in counts if registers // found.registers % c == 0)
    rows = plan.addresses.coordinates()
    one = picture.project({0: 0, 1: 1})
    lanes = found.registers * per
    received = one.coordinates((0, 1)).reshape(-1, 32, 2)[:lanes]  # (element, lane, row and column)
    for thread in range(int(partition.thread_count)):
        warp, lane = thread // 32 * 32, thread % 32
        for instruction, taken in enumerate(plan.registers):
            for slot, register in enumerate(taken):
                which, inner = divmod(slot, found.registers)
                for e in range(per):
                    down, along = map(int, received[inner * per + e, lane])
                    element = list(rows[warp + found.rows * which + down, instruction])
                    element[contiguous] += along
                    assert tuple(element) == held(partition, thread, int(register) * per + e)


def test_a_fragment_that_does_not_hold_whole_matrices_is_no_form() -> None:
    form = matrices(Layout.parse(FORMS[0][0]), 8, 8, 1)
    assert form is not None

    def holds(*values: tuple[int, Any]) -> bool:
        lanes = [digit(4, 0, 4), digit(8, 1)]
        made = Partition((expr(64), expr(64)), Layout.of(lanes, [digit(4, 0), *values]))
        return form.held_by(made).same(True)

    assert holds(digit(2, 1, 8))
    assert holds(digit(2, 0, 16), digit(6, 1, 8))
    assert not holds()
    assert not holds(digit(3, 1, 8))
    assert not holds(digit(2, 0, 16))
    assert matrices(Layout.parse(FORMS[0][0]), 8, 16, 1) is None  # what is exchanged has one width
