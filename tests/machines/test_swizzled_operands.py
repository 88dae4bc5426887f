"""An operand that TMA writes with another swizzle than its descriptor names: what nothing but numbers would show."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from copied_rows import Held

from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.machines.matmul_basic_blackwell import MatmulBasicBlackwell
from tinygpu.machines.matmul_basic_hopper import MatmulBasicHopper
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

PRODUCT = {"m": 136, "n": 72, "k": 72}
NARROW = {"bn": 32, "bk": 32, "stages": 3, "swizzle": 64}


def made(machine: type[Machine], on: str, sizes: dict[str, int], parts: dict[str, int]) -> tuple[Problem, Kernel]:
    problem = machine.problem(**sizes)
    space = build_space(machine, problem, device(on))
    (point,) = space.space.restrict(parts).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


def reswizzled(kernel: Kernel, tensor: str, swizzle_bytes: int) -> Kernel:
    """The kernel, with another swizzle in the tensor map of an operand."""
    maps = [replace(m, swizzle_bytes=swizzle_bytes) if m.tensor == tensor else m for m in kernel.maps]
    assert maps != list(kernel.maps)
    return replace(kernel, maps=tuple(maps))


@pytest.mark.parametrize(
    ("machine", "on", "sizes", "parts", "tensor", "written", "said"),
    [
        (
            MatmulBasicHopper, "h100", PRODUCT, {"bm": 64, **NARROW}, "b", 128,
            "B of wgmma is read with the swizzle 64B, but the tensor copy on line 0 wrote it with the swizzle 128B: "
            "tensor map and matrix descriptor must name the same",
        ),
        (
            MatmulBasicBlackwell, "b200", PRODUCT, NARROW, "a", 0,
            "A of tcgen05.mma is read with the swizzle 64B, but the tensor copy on line 0 wrote it without a swizzle: "
            "tensor map and matrix descriptor must name the same",
        ),
        (
            Held, "b200", {"m": 130, "n": 32}, {"width": 64}, "a", 128,
            "the source of tcgen05.cp is read with the swizzle 64B, but the tensor copy on line 0 wrote it with the "
            "swizzle 128B: tensor map and matrix descriptor must name the same",
        ),
    ],
    ids=["wgmma", "tcgen05.mma", "tcgen05.cp"],
)  # fmt: skip
def test_a_tensor_map_with_another_swizzle_is_told(
    machine: type[Machine], on: str, sizes: dict[str, int], parts: dict[str, int], tensor: str, written: int, said: str
) -> None:
    problem, kernel = made(machine, on, sizes, parts)
    assert verify(kernel, machine, problem, orders=("late",), random_inputs=False).passed
    found = verify(reswizzled(kernel, tensor, written), machine, problem, orders=("late",), random_inputs=False)
    assert not found.passed
    sentences = [re.sub(r"copy on line \d+", "copy on line 0", c.fault) for c in found.checks]
    assert any(sentence.endswith(f"`: {said} [operand swizzled otherwise]") for sentence in sentences), sentences
    lines = kernel.ptx.splitlines()
    line = next(int(n) for c in found.checks for n in re.findall(r"copy on line (\d+)", c.fault))
    assert "cp.async.bulk.tensor" in lines[line - 1]
