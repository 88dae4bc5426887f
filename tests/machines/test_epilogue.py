"""The epilogue of the matmuls: every option on every machine, in every type, at edges, is what NumPy says."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.api.problems import Asked, problems
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.language.problem import ProblemError
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.operands import KINDS, RESULTS
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing import Case
from tinygpu.testing.judges import judge
from tinygpu.testing.workbench import Workbench

EVERYTHING = {"with_bias": True, "scaling": "columns", "with_residual": True}


@cache
def space_of(machine: type[Machine], problem: Problem) -> MachineSpace:
    return build_space(machine, problem, device("h100"))


def right(machine: type[Machine], problem: Problem, seed: int, count: int = 1) -> int:
    """Draws candidates and judges them; how many there were."""
    space = space_of(machine, problem)
    points = space.space.sample(count, np.random.default_rng(seed)) if space.space.size else ()
    for point in points:
        found = judge(Case(machine, problem, space.device, point), Workbench(), seed=seed)
        assert found.stage == "right", f"{problem} {dict(point)}\n{found.sentence}"
    return len(points)


@pytest.mark.end_to_end
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("machine", "activation", "scaling"),
    [
        (MatmulAmpere, "relu", "columns"),
        (MatmulHopper, "gelu", "number"),
        (MatmulHopper, "none", "number"),
        (MatmulHopper, "relu", "columns"),
        (MatmulSimt, "silu", "number"),
        (MatmulHopper, "silu", "none"),
    ],
)
def test_scale_bias_activation_and_residual_come_in_this_order(
    machine: type[Machine], activation: str, scaling: str
) -> None:
    """Gaps between the rows of the residual, and a last tile that is partly outside along both axes."""
    options = {**EVERYTHING, "activation": activation, "scaling": scaling}
    problem = machine.problem(m=67, n=104, k=40, options=options, lds={"residual": 110})
    assert right(machine, problem, len(activation + scaling)) == 1


@pytest.mark.end_to_end
@pytest.mark.sampled(40)
@pytest.mark.parametrize(
    ("machine", "kind", "result"),
    [(MatmulHopper, kind, result) for kind in KINDS for result in RESULTS[kind]]
    + [(MatmulAmpere, "s8", "s32"), (MatmulAmpere, "bf16", "bf16")],
)
def test_every_type_of_operands_and_results(machine: type[Machine], kind: str, result: str) -> None:
    dtypes = {"a": kind, "b": kind, "c": result, "residual": result, "bias": "s32" if result == "s32" else "f32"}
    options = {**EVERYTHING, "scaling": "none" if result == "s32" else "columns", "activation": "relu"}
    problem = machine.problem(m=80, n=96, k=64, dtypes=dtypes, majors={"b": "col"}, options=options)
    assert right(machine, problem, 5) == 1


@pytest.mark.end_to_end
@pytest.mark.parametrize("ld", [97, *(pytest.param(ld, marks=pytest.mark.slow) for ld in (98, 104))])
def test_a_residual_of_any_pitch_is_read(ld: int) -> None:
    """Odd rows are read one by one, others in pairs, whatever TMA asks of the other operands."""
    problem = MatmulHopper.problem(m=70, n=96, k=64, lds={"residual": ld}, options={"with_residual": True})
    space = space_of(MatmulHopper, problem)
    (point,) = space.space.sample(1, np.random.default_rng(ld))
    assert point["vr"] == (1 if ld % 2 else 2)
    assert right(MatmulHopper, problem, ld) == 1


def test_what_is_left_out_is_no_argument_of_the_kernel() -> None:
    plain = MatmulHopper.problem(m=64, n=64, k=64)
    assert [o.name for o in plain.operands] == ["a", "b", "c"]
    assert MatmulHopper.scalars(dict(plain.options)) == ()
    full = MatmulHopper.problem(m=64, n=64, k=64, options={**EVERYTHING, "scaling": "number"})
    assert [o.name for o in full.operands] == ["a", "b", "bias", "c", "residual"]
    assert [s.name for s in MatmulHopper.scalars(dict(full.options))] == ["scale"]


@pytest.mark.parametrize(
    ("dtypes", "options", "sentence"),
    [
        (
            {"c": "s32"},
            {"activation": "gelu"},
            "MatmulHopper: where c is s32 the activation is none or relu, not gelu; c may be f32 instead",
        ),
        (
            {"c": "s32"},
            {"scaling": "number"},
            "MatmulHopper: where c is s32 the product is not scaled; let c be f32, f16 or bf16",
        ),
        (
            {"c": "s32", "bias": "f32"},
            {"with_bias": True},
            "MatmulHopper: where c is s32 the bias is s32 too, not f32",
        ),
        (
            {"c": "bf16", "bias": "s32"},
            {"with_bias": True},
            "MatmulHopper: where c is bf16 the bias is added in f32: it is f32, not s32",
        ),
        (
            {"c": "bf16", "bias": "f32", "residual": "f32"},
            {"with_residual": True},
            "MatmulHopper: residual can be bf16 here, not f32",
        ),
    ],
)
def test_what_integers_refuse(dtypes: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProblemError) as caught:
        MatmulHopper.problem(m=64, n=64, k=64, dtypes={"a": "s8", "b": "s8", **dtypes}, options=options)
    assert str(caught.value) == sentence


def test_the_whole_family_takes_every_option() -> None:
    options = {**EVERYTHING, "activation": "silu"}
    accepted, refused = problems(family("matmul"), Asked({"m": 64, "n": 64, "k": 64}, options=options))
    assert accepted
    assert not any("option" in r.sentence for r in refused)
    assert all(issubclass(machine, Epilogue) for machine, _ in accepted)
