"""The real problem with shorter loops: its tensors reach as far, its tiles stay, and mistakes far out are seen."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language.problem import Operand, Problem
from tinygpu.language.strides import overlapping
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.convolution import Convolution
from tinygpu.machines.elementwise import Axpby
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.shortened import _reaching, shortened
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def made(machine: Any, problem: Problem, **values: Any) -> Kernel:
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.restrict(values).sample(1, np.random.default_rng(0))
    return build(space.program(point), problem, point, SolverCache()).kernel


def narrow(ptx: str) -> str:
    """The text with products of two registers in loops counted in 32 bits."""
    inside = r"^    mul\.wide\.u32 (%d\d+), (%r\d+), (%r\d+);"
    text, found = re.subn(inside, r"    { .reg .u32 %q; mul.lo.u32 %q, \2, \3; cvt.u64.u32 \1, %q; }", ptx, flags=re.M)
    assert found == 1
    return text


@st.composite
def operands(draw: Any) -> tuple[Operand, tuple[int, ...]]:
    """An operand of any order and strides, and a shape of which no axis is longer."""
    rank = draw(st.integers(1, 5))
    order = tuple(draw(st.permutations(range(rank))))
    shape = tuple(draw(st.integers(1, 40)) for _ in range(rank))
    strides, step = dict[int, int](), 1
    for axis in order:
        strides[axis] = step
        step = step * shape[axis] + draw(st.integers(0, 3))
    ld = strides[order[1]] if rank > 1 else shape[0]
    outer = tuple(strides[axis] for axis in order[2:])
    major: Literal["row", "col"] = "col" if order == (0, 1) else "row"
    made = Operand("x", dtype("f16"), shape, major, ld, 16, "in", outer, order if rank > 2 else ())
    return made, tuple(draw(st.integers(1, size)) for size in shape)


@settings(max_examples=300, deadline=None)
@given(operands())
def test_no_element_lies_farther_out_or_on_another_and_the_last_is_more_than_half_as_far_along_every_axis(
    case: tuple[Operand, tuple[int, ...]],
) -> None:
    operand, shape = case
    names = tuple(f"d{axis}" for axis in range(len(shape)))
    short = _reaching(operand, names, dict(zip(names, shape, strict=True)))
    assert short.shape == shape
    assert not overlapping(shape, short.strides())
    for axis, (was, now) in enumerate(zip(operand.shape, shape, strict=True)):
        before, after = (was - 1) * operand.strides()[axis], (now - 1) * short.strides()[axis]
        assert after <= before
        if now == was:
            assert after == before
        elif now > 1 and axis != operand.contiguous_axis:
            assert 2 * after > before
            assert short.strides()[axis] % operand.strides()[axis] == 0


def test_a_product_keeps_its_tiles_and_reaches_as_far_with_few_rounds() -> None:
    problem = MatmulSimt.problem(m=4096, n=3000, k=10000, majors={"b": "row"})
    kernel = made(MatmulSimt, problem, bm=64, bn=64)
    small = derive(kernel, MatmulSimt, problem)
    short = shortened(kernel, MatmulSimt, problem, small)
    assert short is not None
    assert short.dim == {"m": 4096, "n": 3000, "k": small.dim["k"]}
    assert small.dim["k"] < 10000
    assert kernel.grid(short) == kernel.grid(problem)
    a, b, c = (short.operand(name) for name in "abc")
    assert (a.ld, c) == (problem.operand("a").ld, problem.operand("c"))
    assert 0.9 * problem.operand("b").extent_elems < b.extent_elems <= problem.operand("b").extent_elems


def test_what_has_no_longer_loop_or_none_at_all_is_not_shortened() -> None:
    problem = MatmulSimt.problem(m=4096, n=4096, k=8)
    kernel = made(MatmulSimt, problem, bm=64, bn=64)
    assert shortened(kernel, MatmulSimt, problem, derive(kernel, MatmulSimt, problem)) is None
    line = Axpby.problem(n=1 << 20)
    kernel = made(Axpby, line)
    assert shortened(kernel, Axpby, line, derive(kernel, Axpby, line)) is None


def test_dims_from_which_others_follow_and_numbers_of_the_kernel_stay() -> None:
    problem = Convolution.problem(n=4, h=30, w=30, c=512, r=3, s=3, k=128)
    kernel = made(Convolution, problem)
    small = derive(kernel, Convolution, problem)
    fewer = replace(small, dims=tuple((d, 1 if d in "rs" else size) for d, size in small.dims))
    short = shortened(kernel, Convolution, problem, fewer)
    assert short is not None
    assert short.dim == problem.dim | {"c": small.dim["c"]}
    known = replace(kernel, known=(("c", 512),))
    assert shortened(known, Convolution, problem, small) is None


def test_what_a_machine_calls_illegal_or_a_kernel_was_not_made_for_is_not_shortened() -> None:
    problem = AttentionAmpere.problem(b=2, h=2, g=1, s=512, t=2048, d=64)
    kernel = made(AttentionAmpere, problem)
    small = derive(kernel, AttentionAmpere, problem)
    assert shortened(kernel, AttentionAmpere, problem, small) is not None
    other = replace(small, dims=tuple((d, 7 if d == "t" else size) for d, size in small.dims))
    facts = (*kernel.facts, replace(kernel.facts[0], name="t", divisor=16))
    assert shortened(replace(kernel, facts=facts), AttentionAmpere, problem, other) is None


@pytest.mark.end_to_end
def test_an_offset_of_32_bits_along_a_loop_is_seen() -> None:
    """The rows of b, 2^20 elements apart, reach beyond what 32 bits count in its last rounds alone."""
    problem = MatmulSimt.problem(m=64, n=64, k=8192, majors={"b": "row"}, lds={"b": 1 << 20})
    kernel = made(MatmulSimt, problem, bm=64, bn=64, copy_b="ld.global+st.shared")
    right = verify(kernel, MatmulSimt, problem, orders=("late",), random_inputs=False, thorough=True)
    assert right.passed
    (far,) = [c.where for c in right.checks if c.where.startswith("CTA")]
    assert re.fullmatch(r"CTA 0 of 1, with k=\d+ of 8,192", far)
    wrong = replace(kernel, ptx=narrow(kernel.ptx))
    found = verify(wrong, MatmulSimt, problem, orders=("late",), random_inputs=False, thorough=True)
    assert [c.where for c in found.checks if not c.passed] == [far]
    assert "inside the buffer but in none of its backed windows" in found.checks[-1].fault
