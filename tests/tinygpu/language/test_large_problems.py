"""Sizes and pitches: every door takes what a kernel's arguments hold, and refuses in words what they do not."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tinygpu.cli.app import app, expected
from tinygpu.devices import device
from tinygpu.language import Problem
from tinygpu.language.problem import MOST_ELEMS, ProblemError
from tinygpu.machines.elementwise import BiasRelu
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.launching.binding import problem_of
from tinygpu.ptx.launching.kernel import Kernel, LaunchError
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.runtime.arrays import reader_of
from tinygpu.ptx.runtime.errors import LaunchRefused
from tinygpu.ptx.runtime.launch import Argument
from tinygpu.ptx.verification.derived import MOST_GAP_ELEMS, derive
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SIZES = {"m": 64, "n": 64, "k": 64}
POINT = {"warps": 1, "vector": 1, "rows": 1, "across": 32}


def kernel_of(machine: Any, problem: Problem, chip: str, **fixed: Any) -> Kernel:
    space = build_space(machine, problem, device(chip))
    (point,) = space.space.restrict(fixed).sample(1, np.random.default_rng(0))
    return build(space.program(point), problem, point, SolverCache()).kernel


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return kernel_of(BiasRelu, BiasRelu.problem(m=37, n=101, lds={"x": 103}), "a100", **POINT)


@settings(max_examples=60)
@given(st.integers(-(2**70), 2**70) | st.sampled_from([2**p + d for p in (31, 32, 40, 63) for d in (-1, 0, 1)]))
@example(MOST_ELEMS)
def test_a_leading_dimension_is_refused_or_arrives_as_it_is(kernel: Kernel, ld: int) -> None:
    if not 101 <= ld <= MOST_ELEMS:
        with pytest.raises(ProblemError) as refused:
            BiasRelu.problem(m=37, n=101, lds={"x": ld})
        large = f"BiasRelu: the leading dimension of x is a whole number of elements up to 2147483647, not {ld}"
        small = f"BiasRelu: the leading dimension of x is {ld}, less than its 101 contiguous elements"
        assert str(refused.value) == (small if ld < 101 else large)
        return
    problem = BiasRelu.problem(m=37, n=101, lds={"x": ld})
    given = {a.name: (a.type, a.value) for a in launch_of(kernel, problem).arguments if a.kind == "number"}
    assert given["x"] == ("u32", ld)
    assert struct.unpack("<i", struct.pack("<I", ld)) == (ld,), "signed as unsigned: windows begin before tensors"
    assert Problem.from_json(kernel.launch_json(problem)["problem"]) == problem
    assert derive(kernel, BiasRelu, problem).operand("x").ld <= 101 + 2 * MOST_GAP_ELEMS


@pytest.mark.parametrize("ld", [2**31, 2**32, 2**32 + 64, 10**30])
def test_every_door_refuses_a_leading_dimension_that_no_argument_holds(ld: int) -> None:
    sentence = f"the leading dimension of a is a whole number of elements up to 2147483647, not {ld}"
    with pytest.raises(ProblemError) as posed:
        MatmulAmpere.problem(**SIZES, lds={"a": ld})
    assert str(posed.value) == f"MatmulAmpere: {sentence}"
    data = MatmulAmpere.problem(**SIZES).to_json()
    data["operands"][0]["ld"] = ld
    with pytest.raises(ProblemError) as read:
        Problem.from_json(data)
    assert str(read.value) == sentence
    with pytest.raises(ProblemError):
        dataclasses.replace(MatmulAmpere.problem(**SIZES).operand("a"), ld=ld)
    for command in ("tune", "space", "bundle", "predict"):
        words = [command, "matmul", "--shape", "m=64,n=64,k=64", "--device", "a100", "--ld", f"a={ld}"]
        words += ["-o", "never.bundle"] if command == "bundle" else []
        ended = CliRunner().invoke(app, words)
        assert isinstance(ended.exception, ProblemError), command
        assert expected(ended.exception)
        assert str(ended.exception) == f"matmul: {sentence}"


def test_arrays_whose_rows_are_too_far_apart_are_refused() -> None:
    far = np.lib.stride_tricks.as_strided(np.zeros(4, np.float16), (2, 1), (2**34, 2))
    bias = np.zeros(1, np.float16)
    views = {"x": reader_of(far, "x").view(far, "x"), "bias": reader_of(bias, "bias").view(bias, "bias")}
    with pytest.raises(ProblemError) as refused:
        problem_of(BiasRelu, views, {})
    assert str(refused.value) == (
        "BiasRelu: the leading dimension of x is a whole number of elements up to 2147483647, not 8589934592"
    )


def test_an_argument_of_a_launch_holds_its_value() -> None:
    assert Argument("number", "a", "u32", 2**32 - 1).value == 2**32 - 1
    for value in (2**32, -1):
        with pytest.raises(LaunchRefused) as refused:
            Argument("number", "a", "u32", value)
        assert str(refused.value) == (f"the argument a is of type u32, which holds 0 to 4294967295, not {value}")


def test_rows_that_tma_cannot_step_over_are_refused_before_the_launch() -> None:
    """A pitch of 2^40 bytes needs three dims; two are bounded by the leading dimension."""
    problem = MatmulHopper.problem(**SIZES)
    kernel = kernel_of(MatmulHopper, problem, "h100")
    operands = tuple(dataclasses.replace(o, shape=(2, 2**31 - 8), ld=2**31 - 8) for o in problem.operands)
    kernel.check(dataclasses.replace(problem, operands=operands))
    spec = dataclasses.replace(kernel.maps[0], order=(2, 1, 0))
    deep = dataclasses.replace(problem.operand(spec.tensor), shape=(2, 512, 2**31 - 8), ld=2**31 - 8)
    others = tuple(deep if o.name == deep.name else o for o in problem.operands)
    with pytest.raises(LaunchError) as refused:
        dataclasses.replace(kernel, maps=(spec,)).check(dataclasses.replace(problem, operands=others))
    pitch = 512 * (2**31 - 8) * 2
    assert str(refused.value) == (
        f"matmulhopper moves {deep.name} by TMA, which steps over less than 1,099,511,627,776 bytes at a time, and "
        f"here it would be {pitch:,}; use a candidate or a machine without TMA"
    )


def test_a_tensor_larger_than_any_address_is_refused() -> None:
    o = MatmulAmpere.problem(**SIZES).operand("a")
    with pytest.raises(ProblemError) as refused:
        dataclasses.replace(o, shape=(2**31 - 1, 2**31 - 1, 2**31 - 1), ld=2**31 - 1)
    assert str(refused.value).startswith("a reaches over ")
    assert str(refused.value).endswith(
        " bytes from its first element to its last, and kernels count up to 9,223,372,036,854,775,807"
    )


@pytest.mark.parametrize("k", [131_071, 131_072])
def test_sums_of_s8_that_may_leave_s32_are_refused(k: int) -> None:
    asked = {"dtypes": {"a": "s8"}}
    if k < 131_072:
        assert MatmulHopper.problem(m=64, n=64, k=k, **asked).dim["k"] == k
        return
    for result in ("s32", "f16"):
        with pytest.raises(ProblemError) as refused:
            MatmulAmpere.problem(m=64, n=64, k=k, dtypes={"a": "s8", "c": result})
        assert str(refused.value) == (
            "MatmulAmpere: the sum of k = 131,072 products of s8 may leave s32: 131,072 times -128 * -128 is 2^31; "
            "k is at most 131,071, so split the product and add the parts"
        )


def test_dims_are_from_1_to_the_largest_signed_number_of_32_bits() -> None:
    for size in (1, 2**30, 2**31 - 1):
        assert MatmulAmpere.problem(m=size, n=8, k=8).environment()["m"] == size
    for wrong in (0, -1, 2**31, True, 1.0):
        with pytest.raises(ProblemError) as refused:
            MatmulAmpere.problem(m=wrong, n=8, k=8)  # type: ignore[arg-type]
        sentence = f"MatmulAmpere: the dim m is a whole number from 1 to 2147483647, not {wrong!r}"
        assert str(refused.value) == sentence
