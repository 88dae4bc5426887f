"""Fragments of 8x8 matrices: how the lanes of a warp hold what a MatrixLoad brings and a MatrixStore takes."""

from __future__ import annotations

from functools import lru_cache

from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import same
from tinygpu.layouts.step import Axis, E, Step

# PTX ISA, ldmatrix and stmatrix: a matrix is eight rows of 16 bytes; one fills a 32-bit register of each lane.
MATRIX_ROW_BYTES = 16
WORD_BITS = 32
# (lane, value) -> row 0 and column 1 of 16-bit elements, and the number m of the matrix; .x4, of which .x1 and .x2 are
# the first values. Transposed, rows and columns change places.
HELD = Layout.parse("((4,8),(2,4)):((2@1,1@0),(1@1,1@m))")
# (lane, nothing) -> row and matrix whose address the lane gives.
ADDRESSED = Layout.parse("((8,4),1):((1@0,1@m),0)")
TRANSPOSED: dict[Axis, Axis] = {0: 1, 1: 0, "m": "m"}


def matrix(transposed: bool = False) -> Layout:
    """(lane, element of its register) -> row and column of one 8x8 matrix of 16-bit elements in memory."""
    held = Layout.of(HELD[0].steps, HELD[1].steps[:1])
    return held.project(TRANSPOSED) if transposed else held


@lru_cache(maxsize=256)  # every structure of a machine asks of the same few
def holds_every_element_once(fragment: Layout) -> bool:
    """Whether a fragment of numbers has each element of its two extents in one value of one lane."""
    places = {tuple(map(int, place)) for place in fragment.coordinates((0, 1))}
    return len(places) == fragment.size == fragment.along(0).cosize * fragment.along(1).cosize


def is_fragment(partition: Partition, per_register: int) -> bool:
    """Whether lanes and the elements of a register stand as in `HELD`, or as there with the axes exchanged."""
    lanes, first = Layout.of(partition.threads.steps[:2])[0], Layout.of(partition.values.steps[:1])[0]
    (quad, _), (rows, down) = HELD[0].steps
    held = Layout.of([(quad, per_register * E(1)), (rows, down)], [(per_register, E(1))])
    return any(
        lanes == fragment[0] and (per_register == 1 or first == fragment[1])
        for fragment in (held, held.project(TRANSPOSED))
    )


def runs_across(partition: Partition, contiguous: int | None) -> bool:
    """Whether a register's elements run across the contiguous axis of what they are in memory."""
    _, across = partition.threads.steps[0]
    return not isinstance(across, Step) or contiguous is None or same(across.along(contiguous), 0)
