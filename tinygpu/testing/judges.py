"""Puts one candidate before its judges, in order: lowering, the launch's limits, the assembler, the emulator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tinygpu.devices import Device
from tinygpu.language.live_registers import registers_estimate
from tinygpu.ptx.assembling.assembler import AssemblerError, AssemblerUnavailable, assemble
from tinygpu.ptx.emulator import EmulationFault, Order
from tinygpu.ptx.launching.kernel import LaunchError
from tinygpu.ptx.lowering.build import Built, build
from tinygpu.ptx.lowering.lower import LoweringError
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.testing.case import Case
from tinygpu.testing.workbench import Workbench
from tinygpu.users_code import with_place

Stage: TypeAlias = Literal["right", "lowering", "launch", "assembler", "fault", "wrong"]
ORDERS: tuple[Order, ...] = ("late", "early", "random")

# What building a kernel of a point that no space admits may raise, besides a sentence of its own.
_REFUSALS = (LoweringError, LaunchError, ValueError, TypeError, ArithmeticError, LookupError)


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What became of one candidate.

    stage      "right", or who refused it: "lowering", "launch", "assembler", the emulator by a "fault", or by results
               that are "wrong"
    sentence   why
    built      its kernel, where it got that far
    registers  per thread, as the assembler reports them; 0 where it was not asked
    estimate   per thread, as the space estimates them
    spills     whether the assembler had to spill
    """

    stage: Stage
    sentence: str = ""
    built: Built | None = None
    registers: int = 0
    estimate: int = 0
    spills: bool = False
    verification: Verification | None = None


def judge(
    case: Case, bench: Workbench, *, orders: Sequence[Order] = ORDERS, random_inputs: bool = True, seed: int = 0,
    only: int | None = None,
) -> Judgement:  # fmt: skip
    """Lowers, assembles for the device's target, and verifies one candidate, admitted or not.

    only  the number of the one run of its verification that is tried, without the assembler; None tries all
    """
    if case.point is None:
        raise ValueError(f"{case} names no candidate")
    try:
        program = case.space(bench).program(case.point)
        built = build(program, case.problem, case.point, bench.solver)
    except _REFUSALS as refused:
        return Judgement("lowering", _said(refused))
    kernel = built.kernel
    try:
        kernel.check(case.problem)
    except LaunchError as refused:
        return Judgement("launch", str(refused), built)
    if not case.device.runs(kernel.architecture):
        return Judgement("launch", f"{case.device.name} does not run kernels for {kernel.architecture}", built)
    limit = launch_limit(case.device, kernel.threads, kernel.smem_bytes, math.prod(kernel.grid(case.problem)))
    if limit:
        return Judgement("launch", limit, built)
    estimate = int(registers_estimate(program))
    registers, spills = 0, False
    if only is None:
        try:
            assembly = assemble(kernel.ptx, kernel.assembled_for(case.device.portable_target))
            registers, spills = assembly.registers, assembly.spills
        except AssemblerUnavailable:
            pass
        except AssemblerError as refused:
            return Judgement("assembler", with_place(refused), built)
    try:
        lines = LineInfo.of(built, case.problem)
        found = verify(
            kernel, case.machine, case.problem, orders=orders, random_inputs=random_inputs, seed=seed, only=only,
            lines=lines,
        )  # fmt: skip
    except (EmulationFault, *_REFUSALS) as refused:
        return Judgement("fault", _said(refused), built, registers, estimate, spills)
    if found.passed:
        return Judgement("right", "", built, registers, estimate, spills, found)
    bad = next(c for c in found.checks if not c.passed)
    stage: Stage = "fault" if bad.fault else "wrong"
    return Judgement(stage, f"{bad} on {found.problem}", built, registers, estimate, spills, found)


def launch_limit(device: Device, threads: int, smem_bytes: int, ctas: int) -> str:
    """Which limit of the device a launch breaks; "" for none."""
    if threads > device.max_threads_per_block:
        return f"{threads} threads per CTA > {device.max_threads_per_block} on {device.name}"
    if smem_bytes > device.max_smem_bytes_per_block:
        return f"{smem_bytes:,} B of shared memory per CTA > {device.max_smem_bytes_per_block:,} on {device.name}"
    if ctas >= 2**31:
        return f"{ctas:,} CTAs in the grid > 2,147,483,647"
    return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {with_place(error)}"
