"""Fragments of matrices: how the lanes of a warp hold what a MatrixLoad brings and a MatrixStore takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tinygpu.expressions import Expr, all_of, expr
from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf, same
from tinygpu.layouts.step import Axis, E, Step

# PTX ISA, ldmatrix and stmatrix: matrices have rows of 16 bytes; one of eight fills a 32-bit register of each lane.
MATRIX_ROW_BYTES = 16
WORD_BITS = 32
WARP = 32
# (lane, value) -> row 0 and column 1 of 16-bit elements, and the number m of the matrix; .x4, of which .x1 and .x2 are
# the first values. Transposed, rows and columns change places.
HELD = Layout.parse("((4,8),(2,4)):((2@1,1@0),(1@1,1@m))")
# (lane, nothing) -> row and matrix whose address the lane gives.
ADDRESSED = Layout.parse("((8,4),1):((1@0,1@m),0)")
TRANSPOSED: dict[Axis, Axis] = {0: 1, 1: 0, "m": "m"}

Digit = tuple[Leaf, Leaf | Step]


@dataclass(frozen=True, slots=True)
class Matrices:
    """How an operand holds matrices, on the axes of its tile; sizes are numbers.

    lanes     digits of the lane
    register  digits of the elements of one register
    inside    digits of the registers of one matrix
    rows      of one matrix, each of which a lane points at
    row_axis  along which rows follow one another
    """

    lanes: tuple[Digit, ...]
    register: tuple[Digit, ...]
    inside: tuple[Digit, ...]
    rows: int
    row_axis: int

    @property
    def registers(self) -> int:
        """Of one matrix, in a lane."""
        return math.prod(int(size) for size, _ in self.inside)

    def held_by(self, partition: Partition) -> Expr:
        """Whether a partition holds whole matrices so: the first lanes, the first values, and the registers of each."""
        lanes, values = partition.threads.steps, partition.values.steps
        whole = [_alike(lanes[: len(self.lanes)], self.lanes), _alike(values[: len(self.register)], self.register)]
        left = list(values[len(self.register) :])
        for size, step in self.inside:
            found = next((i for i, (_, other) in enumerate(left) if other == step), None)
            if found is None:
                return all_of([False])
            whole.append(expr(left[found][0]) % int(size) == 0)
            left[found] = (left[found][0] // size, step * size)
        return all_of(whole)


def matrices(held: Layout, bits: int, element_bits: int, contiguous: int) -> Matrices | None:
    """A form of a MatrixMove on a tile of elements of `element_bits`, contiguous along one of its two axes.

    held  (lane, element) -> row 0, element 1 of the row, number m of the matrix; elements of `bits`

    None where elements are of another size and are no neighbours in a register: those can be moved as they are.
    """
    across: dict[Axis, Axis] = {0: 1 - contiguous, 1: contiguous}
    lanes, values = ([d for d in mode.steps if _axes(d) != {"m"}] for mode in held.modes)
    rows = held.along(0).cosize
    if element_bits != bits:
        per = WORD_BITS // bits
        if values[:1] != [(per, E(1))] or element_bits > WORD_BITS:
            return None
        wide = WORD_BITS // element_bits
        values = [(wide, E(1))] * (wide > 1) + [_scaled(d, wide, per) for d in values[1:]]
        lanes = [_scaled(d, wide, per) for d in lanes]
    moved = [[(size, _along(step, across)) for size, step in digits] for digits in (lanes, values)]
    elements, count = WORD_BITS // element_bits, 0
    while elements > 1:
        elements //= int(moved[1][count][0])
        count += 1
    return Matrices(tuple(moved[0]), tuple(moved[1][:count]), tuple(moved[1][count:]), rows, 1 - contiguous)


@lru_cache(maxsize=256)  # every structure of a machine asks of the same few
def mistake_in_form(held: Layout, bits: int, most: int) -> str:
    """Why lanes cannot hold matrices of elements of `bits` so, `most` of them at once; "" where they can."""
    one = held.project({0: 0, 1: 1})
    lanes, values = held.modes
    elements = math.prod(int(size) for size, step in values.steps if _axes((size, step)) != {"m"})
    if lanes.size != WARP:
        return f"gives its matrices {held} to {lanes.size} lanes, not to {WARP}"
    if elements * bits % WORD_BITS:
        held_each = f"{elements} element{'s' * (elements > 1)}"
        return f"gives each lane {held_each} of {bits} bits of its matrices {held}, no whole 32-bit registers"
    row, rows = one.along(1).cosize, one.along(0).cosize
    if row * bits != 8 * MATRIX_ROW_BYTES:
        return f"has {row} elements of {bits} bits in a row of its matrices {held}, and not {MATRIX_ROW_BYTES} bytes"
    places = {tuple(map(int, place)) for place in one.coordinates((0, 1))}
    if len(places) != rows * row or WARP * elements != rows * row:
        return f"does not give every element of its matrices {held} to one lane once"
    if rows * most > WARP:
        return f"moves {most} matrices of {rows} rows, and {WARP} lanes point at a row each"
    return ""


def registers_of(held: Layout, bits: int) -> int:
    """Registers of one matrix, in a lane."""
    elements = math.prod(int(size) for size, step in held[1].steps if _axes((size, step)) != {"m"})
    return elements * bits // WORD_BITS


def _alike(have: tuple[Digit, ...], want: tuple[Digit, ...]) -> Expr | bool:
    """Where digits are those; of a window their sizes hang on how wide it is."""
    if Layout.of(have)[0] == Layout.of(want)[0]:
        return True
    steps = len(have) == len(want) and all(a == b for (_, a), (_, b) in zip(have, want, strict=True))
    return steps and all_of([expr(a) == int(b) for (a, _), (b, _) in zip(have, want, strict=True)])


def _axes(digit: Digit) -> set[Axis]:
    return {axis for axis, _ in digit[1].terms} if isinstance(digit[1], Step) else set()


def _along(step: Leaf | Step, across: dict[Axis, Axis]) -> Leaf | Step:
    return sum((count * E(across[axis]) for axis, count in step.terms), Step(())) if isinstance(step, Step) else step


def _scaled(digit: Digit, wide: int, per: int) -> Digit:
    """A digit whose steps along a row count `per` elements of a register, in elements of which it has `wide`."""
    size, step = digit
    if not isinstance(step, Step):
        return digit
    return size, sum((c * wide // per * E(a) if a == 1 else c * E(a) for a, c in step.terms), Step(()))


@lru_cache(maxsize=256)  # every structure of a machine asks of the same few
def holds_every_element_once(fragment: Layout) -> bool:
    """Whether a fragment of numbers has each element of its two extents in one value of one lane."""
    places = {tuple(map(int, place)) for place in fragment.coordinates((0, 1))}
    return len(places) == fragment.size == fragment.along(0).cosize * fragment.along(1).cosize


def matrix(transposed: bool = False) -> Layout:
    """(lane, element of its register) -> row and column of one 8x8 matrix of 16-bit elements in memory."""
    held = Layout.of(HELD[0].steps, HELD[1].steps[:1])
    return held.project(TRANSPOSED) if transposed else held


def runs_across(partition: Partition, contiguous: int | None) -> bool:
    """Whether a register's elements run across the contiguous axis of what they are in memory."""
    _, across = partition.threads.steps[0]
    return not isinstance(across, Step) or contiguous is None or same(across.along(contiguous), 0)
