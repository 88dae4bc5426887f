"""Fragments of 8x8 matrices: how the lanes of a warp hold what a MatrixLoad brings and a MatrixStore takes."""

from __future__ import annotations

from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import same
from tinygpu.layouts.step import E, Step

# PTX ISA, ldmatrix and stmatrix: a matrix is eight rows of 16 bytes; one fills a 32-bit register of each lane.
MATRIX_ROW_BYTES = 16
WORD_BITS = 32


def is_fragment(partition: Partition, per_register: int) -> bool:
    """Whether lanes and the elements of a register stand as in an 8x8 matrix: four lanes along one axis, then eight."""
    lanes, first = Layout.of(partition.threads.steps[:2])[0], Layout.of(partition.values.steps[:1])[0]
    return any(
        lanes == Layout((4, 8), (per_register * E(axis), E(1 - axis)))
        and (per_register == 1 or first == Layout(per_register, E(axis)))
        for axis in (0, 1)
    )


def runs_across(partition: Partition, contiguous: int | None) -> bool:
    """Whether a register's elements run across the contiguous axis of what they are in memory."""
    _, across = partition.threads.steps[0]
    return not isinstance(across, Step) or contiguous is None or same(across.along(contiguous), 0)
