"""The kernels of every shipped machine as subjects, each with the problem on which verification would judge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mutations.statements import entries
from mutations.subjects import Launch, Subject
from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.ptx.build import build
from tinygpu.ptx.comparison import compare
from tinygpu.ptx.derived import derive
from tinygpu.ptx.inputs import arguments, make_inputs
from tinygpu.ptx.kernel import Kernel
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# Problem sizes of machines by name, and parameters that are fixed in each variant; all others are drawn.
SIZES: Mapping[str, tuple[Mapping[str, int], tuple[Mapping[str, Any], ...]]] = {
    "axpby": ({"n": 333}, ({},)),
    "bias_relu": ({"m": 37, "n": 101}, ({},)),
    "matmul_simt": ({"m": 70, "n": 61, "k": 45}, ({"bm": 32, "bn": 32, "bk": 8, "stages": 2}, {"bm": 32, "bn": 32})),
    "matmul_ampere": (
        {"m": 128, "n": 128, "k": 128},
        (
            {"bm": 32, "bn": 32, "bk": 32, "stages": 3},
            {"bm": 32, "bn": 64, "bk": 32, "wm": 2, "stages": 2, "put": "staged"},
        ),
    ),
}


def machine_subjects() -> list[Subject]:
    """One subject per shipped machine and variant; KeyError for a machine without sizes in this table."""
    found = []
    for name in SHIPPED:
        sizes, variants = SIZES[name]
        (machine,) = family(name).machines
        found += [_subject(f"machine {name} {n}", machine, sizes, fixed) for n, fixed in enumerate(variants)]
    return found


def _subject(name: str, machine: type[Machine], sizes: Mapping[str, int], fixed: Mapping[str, Any]) -> Subject:
    problem = machine.problem(**sizes)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.restrict(dict(fixed)).sample(1, np.random.default_rng(0))
    kernel = build(space.fill(point), problem, point, SolverCache()).kernel
    return Subject(name, kernel.ptx, entries(kernel.ptx)[0], _maker(machine, kernel, derive(kernel, problem)))


def _maker(machine: type[Machine], kernel: Kernel, problem: Problem) -> Callable[[], Launch]:
    def make() -> Launch:
        operands, scalars = make_inputs(machine, problem, "integers", 0)
        options = {
            "grid": kernel.grid(problem), "block": (kernel.threads, 1, 1), "dynamic_smem": kernel.smem_bytes,
            "args": arguments(kernel, problem, operands, scalars),
        }  # fmt: skip
        terms = kernel.terms(problem)
        return Launch(
            options, lambda: compare(machine, problem, operands, scalars, "integers", "late", 0, terms).passed
        )

    return make
