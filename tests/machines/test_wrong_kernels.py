"""Kernels of every shipped machine, edited in the ways in which results go wrong: verification refuses every one.

What a machine's author might have got wrong is edited into the PTX, and the emulator runs it; tests/machines/
test_wrong_results.py tries more types and options, without running anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.epilogue import Epilogue
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

Edit = Callable[[str, np.random.Generator], str]

# Small candidates; all else is drawn.
FIXED: dict[str, dict[str, Any]] = {
    "axpby": {"warps": 1, "vector": 2, "rows": 1},
    "bias_relu": {"warps": 1, "vector": 2, "rows": 2},
    "transpose": {"warps": 1, "exchange": "shfl.sync.idx"},
    "matmul_simt": {"bm": 32, "bn": 32, "bk": 8},
    "matmul_ampere": {"bm": 32, "bn": 32, "bk": 32},
    "matmul_skinny": {"bm": 16, "bn": 64, "bk": 64, "product": "mma.sync"},
    "matmul_basic_hopper": {"bm": 64, "bn": 32, "bk": 32, "stages": 2},
    "matmul_basic_blackwell": {"bn": 32, "bk": 32, "stages": 2, "piece": 16},
    "matmul_blackwell": {"bn": 32, "bk": 32, "stages": 2, "piece": 16, "cluster_m": 1, "cluster_n": 1},
    "matmul_skinny_blackwell": {"bm": 16, "bk": 32, "stages": 2, "tiles": 1, "split_k": 1},
    "matmul_mx": {"bm": 32, "bn": 32, "bk": 128},
    "matmul_blackwell_mx": {"bn": 128, "bk": 128, "stages": 2, "piece": 16},
    "matmul_blackwell_nvfp4": {"bn": 128, "bk": 128, "stages": 2, "piece": 16},
    "matmul_nvfp4": {"bm": 32, "bn": 32, "bk": 64},
    "matmul_blackwell_consumer": {"bm": 32, "bn": 32, "bk": 32, "split_k": 1, "stream_k": 0},
    "matmul_hopper": {"bm": 64, "bn": 32, "bk": 32, "schedule": "single", "split_k": 1},
}
RESULT = re.compile(r"max\.NaN\.f32 (%r\d+), (%r\d+), 0f00000000;")
PACKED = re.compile(r"cvt\.rn\.f16x2\.f32 (%r\d+), (%r\d+), (%r\d+);")  # two results, where no activation takes them
STORE = re.compile(r"st\.global\.(?:v\d\.)?b32 \[[^\]]*\], \{?([^};]*)\}?;")


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    machine: type[Machine]
    problem: Problem
    kernel: Kernel

    def verified(self, ptx: str) -> Verification:
        return verify(replace(self.kernel, ptx=ptx), self.machine, self.problem, orders=("late",))


ON_BLACKWELL = (
    "matmul_basic_blackwell", "matmul_blackwell", "matmul_skinny_blackwell", "matmul_blackwell_mx",
    "matmul_blackwell_nvfp4",
)  # fmt: skip
ON_CONSUMER_BLACKWELL = ("matmul_blackwell_consumer", "matmul_mx", "matmul_nvfp4")
ON_HOPPER = ("matmul_skinny", "matmul_basic_hopper", "matmul_hopper")


@cache
def subject(name: str) -> Subject:
    (machine,) = family(name).machines
    following = {d.name for d in machine.following_dims()}
    sizes = {name: 96 for name in machine.dim_names() if name not in following}
    sizes |= {"m": 16 if name.startswith("matmul_skinny") else 48} if "m" in sizes else {}
    sizes |= {"group": 32} if "group" in sizes else {}
    options = {"activation": "relu", "with_bias": True} if issubclass(machine, Epilogue) else {}
    problem = machine.problem(**sizes, options=options)
    on = "b200" if name in ON_BLACKWELL else "h100" if name in ON_HOPPER else "a100"
    on = "rtx5090" if name in ON_CONSUMER_BLACKWELL else on
    space = build_space(machine, problem, device(on))
    (point,) = space.space.restrict(FIXED.get(name, {})).sample(1, np.random.default_rng(0))
    return Subject(machine, problem, build(space.program(point), problem, point, SolverCache()).kernel)


def of_a_result(statement: str) -> Edit:
    """A statement about every sum before the activation or a conversion takes it; else about one value stored."""

    def edit(ptx: str, rng: np.random.Generator) -> str:
        for taken in (RESULT, PACKED):
            if taken.search(ptx):
                return taken.sub(lambda m: f"{statement.format(m[2])}\n{m[0]}", ptx)
        stores = list(STORE.finditer(ptx))
        store = stores[int(rng.integers(len(stores)))]
        place = ptx.rindex("\n", 0, store.start()) + 1
        first = store[1].split(",")[0]
        return f"{ptx[:place]}{statement.format(first)}\n{ptx[place:]}"

    return edit


def replaced(pattern: str, by: str) -> Edit:
    return lambda ptx, rng: re.sub(pattern, by, ptx)


def without_one(pattern: str) -> Edit:
    """One statement of these is dropped."""

    def edit(ptx: str, rng: np.random.Generator) -> str:
        found = list(re.finditer(rf"^.*\b(?:{pattern}).*;$", ptx, re.M))
        if not found:
            return ptx
        one = found[int(rng.integers(len(found)))]
        return ptx[: one.start()] + ptx[one.end() + 1 :]

    return edit


def stale_lane(ptx: str, rng: np.random.Generator) -> str:
    """One result is that of the one before; in an element-wise kernel, one register of a store."""
    found = list(RESULT.finditer(ptx))
    if len(found) > 1:
        at = int(rng.integers(1, len(found)))
        one, before = found[at], found[at - 1]
        return f"{ptx[: one.start()]}max.NaN.f32 {one[1]}, {before[2]}, 0f00000000;{ptx[one.end() :]}"
    if packed := PACKED.search(ptx):
        return ptx.replace(packed[0], f"cvt.rn.f16x2.f32 {packed[1]}, {packed[3]}, {packed[3]};")
    stores = [m for m in STORE.finditer(ptx) if "," in m[1]]
    first, second = stores[0][1].split(", ")[:2]
    return ptx.replace(stores[0][0], stores[0][0].replace(f"{first}, {second}", f"{first}, {first}"))


def narrow_accumulator(ptx: str, rng: np.random.Generator) -> str:
    """Every accumulator passes through f16 after every product."""

    def narrowed(m: re.Match[str]) -> str:
        registers = re.findall(r"%r\d+", m[1])
        steps = "\n".join(
            f"cvt.rn.f16.f32 narrow{i}, {r};\ncvt.f32.f16 {r}, narrow{i};" for i, r in enumerate(registers)
        )
        declared = "".join(f".reg .b16 narrow{i}; " for i in range(len(registers)))
        return f"{m[0]}\n{{ {declared}\n{steps}\n}}"

    product = r"(?:mma\.sync\S*|fma\.rn\.f32) (\{[^}]*\}|%r\d+),.*;"
    return re.sub(product, narrowed, ptx)


EDITS: dict[str, Edit] = {
    "one added": of_a_result("add.rn.f32 {0}, {0}, 0f3F800000;"),
    "1/128 added": of_a_result("add.rn.f32 {0}, {0}, 0f3C000000;"),
    "scaled by 1 + 2^-10": of_a_result("mul.rn.f32 {0}, {0}, 0f3F802000;"),
    "NaN taken for zero": replaced(r"max\.NaN\.f32", "max.f32"),
    "last rounding cuts off": replaced(r"cvt\.rn\.(f16x2|f16)\.f32", r"cvt.rz.\1.f32"),
    "a step missing": without_one(r"mma\.sync\.aligned|wgmma\.mma_async\S+|fma\.rn\.f32"),
    "a lane stale": stale_lane,
    "f16 accumulator": narrow_accumulator,
}


# Machines of which every store of a small problem's kernel has elements: an edit of any of them is wrong.
EDITED = [n for n in SHIPPED if n.startswith("matmul") or n in ("axpby", "bias_relu", "transpose")]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", EDITED)
def test_unedited_kernels_are_right(name: str) -> None:
    found = subject(name).verified(subject(name).kernel.ptx)
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", EDITS)
@pytest.mark.parametrize("name", EDITED)
def test_kernels_with_wrong_results_are_refused(name: str, what: str) -> None:
    of = subject(name)
    edited = EDITS[what](of.kernel.ptx, np.random.default_rng(len(name)))
    if edited == of.kernel.ptx:
        pytest.skip(f"{name} has nothing of the kind")
    found = of.verified(edited)
    assert not found.passed, str(found)
    wrong = next(c for c in found.checks if not c.passed)
    assert wrong.fault or wrong.worst is not None
    if wrong.worst is not None:
        (output,) = (o.name for o in of.problem.operands if o.access != "in")
        assert f"; {output}[" in str(wrong)
        assert ", wanted " in str(wrong)
        assert "(bound " in str(wrong)
