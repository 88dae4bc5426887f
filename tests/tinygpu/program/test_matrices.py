"""Filled-in partitions against their digits; the rows of ldmatrix against what the PTX manual hands to each lane."""

from __future__ import annotations

import itertools

from digits import digit, fragment, fragments, held, loose_partitions, spelled, value_count
from hypothesis import example, given, settings

from tinygpu.language import Layout, Partition
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
    plan = matrix_addresses(partition, per_register, transposed)
    rows = plan.addresses.coordinates()  # (threads, instructions, axes)
    assert all(size > 1 for size, _ in plan.addresses.threads.along(0).leaves)
    _, stride = partition.threads.steps[1 if transposed else 0]
    assert isinstance(stride, Step)
    ((across, _),) = stride.terms
    matrices = value_count(partition) // per_register
    assert sorted(plan.registers.reshape(-1).tolist()) == list(range(matrices))
    assert plan.registers.shape == (matrices // plan.count, plan.count)
    assert rows.shape[:2] == (int(partition.thread_count), matrices // plan.count)
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
    counts = {n: matrix_addresses(modes(n), 2, False).count for n in (1, 2, 3, 4, 6, 8, 12)}
    assert counts == {1: 1, 2: 2, 3: 1, 4: 4, 6: 2, 8: 4, 12: 4}
    # digits of 6 and 2 hold 12 matrices, of which 2 x 2 come at a time; of 3 and 4 come the four
    assert matrix_addresses(modes(6, 2), 2, False).count == 4
    assert matrix_addresses(modes(3, 4), 2, False).count == 4
