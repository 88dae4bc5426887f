"""What a problem's tensors are: contiguous axis, strides, extents and alignments, against the elements listed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import Dim, Input, Machine, Output, ProblemError
from tinygpu.language.bound_tensor import BoundTensor
from tinygpu.language.buffer import Buffer
from tinygpu.language.buffer_space import tmem_bytes
from tinygpu.language.memories import GMEM, TMEM
from tinygpu.language.parameters import AccessPattern
from tinygpu.language.problem import Operand
from tinygpu.language.tensors import Tensor


class Turned(Machine):
    """y = x, whichever axis of x is contiguous"""

    m, n = Dim(), Dim()
    x = Input(("s8", "f16", "f32"), m, n, majors=("row", "col"))
    y = Output("f32", m, n)


@pytest.mark.parametrize("major", ["row", "col"])
@pytest.mark.parametrize(("m", "n"), [(3, 7), (7, 3), (1, 5), (5, 1), (4, 4)])
def test_the_leading_dimension_is_at_least_the_contiguous_extent_and_that_where_none_is_given(
    m: int, n: int, major: str
) -> None:
    contiguous = n if major == "row" else m
    assert Turned.problem(m=m, n=n, majors={"x": major}).operand("x").ld == contiguous
    assert Turned.problem(m=m, n=n, majors={"x": major}, lds={"x": contiguous}).operand("x").ld == contiguous
    with pytest.raises(ProblemError) as refused:
        Turned.problem(m=m, n=n, majors={"x": major}, lds={"x": contiguous - 1})
    assert str(refused.value) == (
        f"Turned: the leading dimension of x is {contiguous - 1}, less than its {contiguous} contiguous elements"
    )


def test_an_alignment_is_a_power_of_two_that_holds_an_element() -> None:
    for kind, size in (("s8", 1), ("f16", 2), ("f32", 4)):
        for align in range(-1, 18):
            if align in (1, 2, 4, 8, 16) and align >= size:
                made = Turned.problem(m=4, n=4, dtypes={"x": kind}, aligns={"x": align})
                assert made.operand("x").align_bytes == align
            else:
                with pytest.raises(ProblemError) as refused:
                    Turned.problem(m=4, n=4, dtypes={"x": kind}, aligns={"x": align})
                assert str(refused.value) == (
                    f"Turned: the alignment of x is a power of two of at least one {kind} element, in bytes, "
                    f"not {align}"
                )


@pytest.mark.parametrize("major", ["row", "col"])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (4, 1), (2, 3, 4)])
def test_an_operand_reaches_from_its_first_element_to_its_last(shape: tuple[int, ...], major: str) -> None:
    contiguous = shape[0] if major == "col" else shape[-1]
    made = Operand("x", dtype("f32"), shape, major, contiguous + 3, 16, "in")  # type: ignore[arg-type]
    places = [
        sum(i * s for i, s in zip(index, made.strides(), strict=True))
        for index in itertools.product(*map(range, shape))
    ]
    assert len(set(places)) == len(places)
    assert (min(places), max(places)) == (0, made.extent_elems - 1)
    assert made.strides()[made.contiguous_axis] == 1
    assert np.prod(shape) == shape[0] or sorted(made.strides())[1] == contiguous + 3


def test_an_access_pattern_is_any_power_of_two_up_to_the_widest_tile() -> None:
    assert AccessPattern().values == tuple(2**bit for bit in range(9))


def test_a_line_of_a_tensor_is_one_wide_across() -> None:
    bound = BoundTensor(Tensor("x", dtype("f32"), ("m",), "in"))
    row, column = bound.row(2, 8), bound.column(2, 8)
    assert [int(e) for e in (*row.shape, *column.shape)] == [1, 8, 8, 1]
    assert row.memory is column.memory is GMEM


@pytest.mark.parametrize("stages", [1, 3])
def test_a_buffer_in_tmem_takes_whole_columns_of_32_bits(stages: int) -> None:
    for kind, columns in itertools.product(("f32", "f16", "s8"), (1, 3, 4, 31, 32, 128, 256)):
        shape = (expr(64), expr(columns))
        buffer = Buffer("t", TMEM, dtype(kind), shape, 1, expr(0), "", expr(stages), None)
        assert int(tmem_bytes(buffer)) == stages * -(-columns * dtype(kind).bits // 32) * 128 * 4
