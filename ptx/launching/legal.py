"""Sizes that kernels take: what machines and plans demand of them, for other problems than the one they were made for.

Sizes are launch arguments, so that one kernel serves many problems. What it was specialised for are its facts
(`Kernel.check`); what else a machine says of legal sizes, as that a row fits into its tile, is asked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import find_violation
from tinygpu.language.plan import Plan
from tinygpu.language.trace import trace
from tinygpu.ptx.launching.kernels import Kernels, Stage


def unlawful(kernels: Kernels) -> str:
    """Which constraint of legality the sizes break with this candidate, with the numbers; "" where they break none."""
    for stage in kernels.stages:
        known = stage.problem.environment() | _numbers(dict(stage.kernel.point))
        if sentence := _broken(_of_machine(stage), known, set(stage.problem.environment())):
            return f"step {stage.name}: {sentence}" if stage.name else sentence
    if issubclass(kernels.machine, Plan):
        sizes = kernels.problem.environment()
        title = kernels.machine.__name__
        own = [r.constraint(title) for r in kernels.machine.requirements()]
        return _broken(own, sizes | _numbers(kernels.point), set(sizes))
    return ""


def _of_machine(stage: Stage) -> tuple[Constraint, ...]:
    point = dict(stage.kernel.point)
    structure = tuple((c.name, point[c.name]) for c in stage.machine.choices())
    return trace(stage.machine, stage.problem, structure).constraints


def _numbers(point: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in point.items() if isinstance(value, int)}


def _broken(constraints: Iterable[Constraint], known: Mapping[str, int], sizes: set[str]) -> str:
    """The first constraint about sizes that does not hold."""
    for c in constraints:
        if c.kind == "legality" and c.condition.symbols & sizes and c.condition.symbols <= known.keys():
            violation = find_violation(c, known)
            if violation is not None:
                return violation.sentence
    return ""
