"""Verification of the kernels of a candidate: each by itself, then all of them in their order.

Every step is verified as the machine that it is, so that its rings and edges are tried. Then the kernels run one after
another through one device memory, on a small problem of the whole: what each leaves is held to its own machine's
reference on the very bytes that it read, so that a wrong one is named, and what the last leaves to the plan's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinygpu.ptx.emulator import EmulationFault, Order, PreparedKernel, PtxSyntaxError, UnsupportedInstruction, prepare
from tinygpu.ptx.launching.kernels import Kernels, Stage
from tinygpu.ptx.verification.comparison import Check, compare
from tinygpu.ptx.verification.derived_whole import derive_whole
from tinygpu.ptx.verification.in_order import DeviceMemory, run_stage, said_of
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.step_judge import StepJudge
from tinygpu.ptx.verification.trial import Trial, draw
from tinygpu.ptx.verification.verify import CPU_SECONDS, RefusedText, Verification, verify
from tinygpu.seeds import check_seed

# Operands and workspaces of the whole that are run together, at most.
MOST_BYTES = 1 << 28


def verify_kernels(
    kernels: Kernels,
    *,
    orders: Sequence[Order] = ("late", "early", "random"),
    random_inputs: bool = True,
    seed: int = 0,
    thorough: bool = False,
    cpu_seconds: float = CPU_SECONDS,
    to_first_failure: bool = False,
    lines: Sequence[LineInfo] = (),
) -> Verification:
    """Emulates the kernels of a candidate; the arguments are those of `verify`.

    lines  of each kernel
    """
    check_seed(seed)
    known: list[LineInfo | None] = [*lines] if lines else [None] * len(kernels.stages)

    def alone(stage: Stage, of: LineInfo | None, seconds: float) -> Verification:
        return verify(
            stage.kernel,
            stage.machine,
            stage.problem,
            orders=orders,
            random_inputs=random_inputs,
            seed=seed,
            thorough=thorough,
            whole=thorough,
            cpu_seconds=seconds,
            to_first_failure=to_first_failure,
            lines=of,
        )

    if not kernels.stages[0].name:
        return alone(kernels.stages[0], known[0], cpu_seconds)
    begun = time.process_time()
    small = derive_whole(kernels)
    checks: list[Check] = []
    left_out: list[str] = []
    notes: list[str] = []
    for stage, of in zip(kernels.stages, known, strict=True):
        found = alone(stage, of, cpu_seconds / (len(kernels.stages) + 1))
        checks += [replace(c, where=f"step {stage.name}{', ' + c.where if c.where else ''}") for c in found.checks]
        left_out += [f"step {stage.name}, {sentence}" for sentence in found.left_out]
        notes += [f"step {stage.name}: {sentence}" for sentence in found.notes]
        if to_first_failure and not found.passed:
            return Verification(kernels.name, small.problem, tuple(checks), None, {}, tuple(left_out), tuple(notes))
    codes = [_prepared(stage, of) for stage, of in zip(small.stages, known, strict=True)]
    judges = [StepJudge(stage) for stage in small.stages]
    trials: dict[Inputs, Trial] = {}
    size = sum(o.extent_elems * o.dtype.bytes for o in (*small.problem.operands, *small.workspaces))
    if size > MOST_BYTES:
        left_out.append(f"all steps in their order: {size:,} bytes of tensors, more than {MOST_BYTES:,}")
    else:
        for number, (inputs, order) in enumerate(_runs(orders, random_inputs)):
            spent = time.process_time() - begun
            if number and spent > cpu_seconds:
                left_out.append(f"all steps in their order, {inputs}, {order}: more than {cpu_seconds:g} s of CPU time")
                continue
            if inputs not in trials:
                trials[inputs] = draw(small.machine, small.problem, inputs, seed)
            checks += _run(small, codes, known, judges, trials[inputs], order, seed)
            if to_first_failure and not all(c.passed for c in checks):
                break
    return Verification(kernels.name, small.problem, tuple(checks), None, {}, tuple(left_out), tuple(notes))


def _runs(orders: Sequence[Order], random_inputs: bool) -> Iterator[tuple[Inputs, Order]]:
    for order in orders[:2]:
        yield "integers", order
    if random_inputs:
        yield "specials", "spurious"


def _prepared(stage: Stage, lines: LineInfo | None) -> PreparedKernel:
    try:
        return prepare(stage.kernel.ptx)
    except PtxSyntaxError as error:
        raise RefusedText(said_of(stage, lines.refusal(error) if lines is not None else str(error))) from error


def _run(
    kernels: Kernels,
    codes: Sequence[PreparedKernel],
    lines: Sequence[LineInfo | None],
    judges: Sequence[StepJudge],
    trial: Trial,
    order: Order,
    seed: int,
) -> list[Check]:
    """The checks of one run of all kernels: that of the whole, behind those of steps that are wrong in it."""
    inputs = trial.inputs
    memory = DeviceMemory.of(kernels, trial.arrays)
    wrong: list[Check] = []
    for stage, code, of, judge in zip(kernels.stages, codes, lines, judges, strict=True):
        given = judge.given(memory)
        try:
            left = run_stage(stage, code, memory, trial.scalars, order, seed)
        except EmulationFault as fault:
            said = str(fault) if of is None else of.fault(fault)
            return [*wrong, Check(inputs, order, float("nan"), 0.0, 0, 0, said, f"all steps, in step {stage.name}")]
        except (PtxSyntaxError, UnsupportedInstruction) as error:
            raise RefusedText(said_of(stage, of.refusal(error) if of is not None else str(error))) from error
        check = judge.check(memory, given, trial, order)
        if left.report.advisories:
            check = replace(check, fault=f"advisory: {left.report.advisories[0]}")
        for w in stage.kernel.workspaces:
            if w.zeroed and left.spaces[w.name].array.any():
                check = replace(check, fault=f"{w.name} is left with other bytes than zeros, on which the next relies")
        if not check.passed:
            wrong.append(check)
    whole = compare(trial, memory.tensors, order)
    return [*wrong, replace(whole, where="all steps in their order" + ("" if whole.passed or wrong else _why(kernels)))]


def _why(kernels: Kernels) -> str:
    """Where every step is right and the whole is not: what may be meant, in words."""
    narrow = [o for o in kernels.workspaces if o.dtype.is_float and o.dtype.bits < 32]
    if not narrow:
        return ", each of which is right"
    rounded = " and ".join(f"{o.name} to {o.dtype}" for o in narrow)
    return f", each of which is right, and which round {rounded}, as the reference must (x.astype)"
