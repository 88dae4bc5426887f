"""Conversions that the predictor counts are those that the emulator sees issued, warp by warp."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tinygpu.cost.counting import count
from tinygpu.cost.demand import Demand
from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.language.machine import Machine
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.norm import RmsNorm
from tinygpu.machines.softmax import Softmax
from tinygpu.ptx import isa
from tinygpu.ptx.launching.emulated import emulate_launch
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import buffers_of, workspaces
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

HEADS = {"b": 1, "h": 2, "g": 1, "t": 192, "d": 64}
# Machine, device, sizes, types, and what is fixed of a candidate: tiles are full ones, and divide what they cut.
CASES: tuple[tuple[type[Machine], str, dict[str, int], dict[str, str], dict[str, int | str]], ...] = (
    (Softmax, "h100", {"m": 64, "n": 4096}, {"x": "f16"}, {"reads": "once", "vector": 8}),
    (Softmax, "a100", {"m": 64, "n": 512}, {"x": "bf16"}, {"reads": "once", "vector": 1, "step": 1}),  # no pairs
    (RmsNorm, "a100", {"m": 64, "n": 4096}, {"x": "f16"}, {"reads": "once", "vector": 8}),
    (MatmulAmpere, "a100", {"m": 256, "n": 256, "k": 64}, {}, {"store": "staged", "bm": 128, "bn": 64}),
    (AttentionAmpere, "a100", {**HEADS, "s": 512}, {}, {"bn": 64}),
    (AttentionHopper, "h100", {**HEADS, "s": 192}, {}, {"bn": 64, "groups": 3}),
)
CONVERSION = re.compile(r"cvt\.rn\.(bf16|f16)(x2)?\.f32|cvt\.f32\.(bf16|f16)")


def issued(space: MachineSpace, point: dict[str, int | str]) -> int:
    """Warp instructions of the whole launch, as they are counted."""
    index = space.structure_index(point)
    values = {**space.environment, **{a: int(point[a]) for a in space.traces[index].axes}}
    counts = count(space.traces[index].program, tuple(space.machine.heuristics))  # anew: what spaces count is kept
    d: Demand = counts.demand(values, space.device)
    return int(np.asarray(d.ctas) * np.asarray(d.total.warp_instructions))


@pytest.mark.parametrize(("machine", "chip", "sizes", "types", "fixed"), CASES)
@pytest.mark.end_to_end
def test_counted_conversions_are_those_that_are_emulated(
    machine: type[Machine], chip: str, sizes: dict[str, int], types: dict[str, str], fixed: dict[str, int | str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Counted is what the counts lose where conversions cost nothing."""
    problem = machine.problem(**sizes, dtypes=types)
    space = build_space(machine, problem, device(chip))
    drawn = space.space.sample(4000, np.random.default_rng(1))
    point = next(p for p in drawn if fixed.items() <= p.items())
    counted = issued(space, point)
    with monkeypatch.context() as patch:
        patch.setattr(isa.Cvt, "issued", lambda self, values: expr(0))
        counted -= issued(build_space(machine, problem, device(chip)), point)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    operands, scalars = make_inputs(machine, problem, "random", 0)
    grid = kernel.grid(problem)
    buffers = {**buffers_of(operands), **workspaces(kernel, problem, grid[0])}
    report = emulate_launch(kernel, kernel.ptx, problem, grid, buffers, scalars, check=False)
    emulated = sum(c.executed for line, c in report.lines.items() if CONVERSION.search(report.line_texts[line]))
    assert counted == emulated > 0
