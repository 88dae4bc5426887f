"""What a wrong candidate points to: who is wrong, and the parameters and constraints that decide it."""

from __future__ import annotations

from itertools import chain

from tinygpu.ptx.verification.voices import who_is_wrong
from tinygpu.spaces import Part, Space
from tinygpu.testing.case import Case, Point
from tinygpu.testing.coverage import stores
from tinygpu.testing.judges import Judgement, judge
from tinygpu.testing.repairs import helpful
from tinygpu.testing.workbench import Allowance, Workbench

# CPU seconds for statements that, written otherwise, would make the case right.
REPAIR_SECONDS = 6.0
# Candidates that differ in one parameter, of which the verdict is asked.
NEIGHBOURS = 24


def pointers(
    case: Case, larger: Case, judged: Judgement, bench: Workbench, allowance: Allowance
) -> tuple[str, ...]:
    """Sentences about a case that is not right, the most telling first.

    larger  the case as it was found, of which `case` is a smaller one
    judged  what became of `case`
    """
    out = []
    if judged.stage == "wrong":
        voice = _alone(case, judged)
        if voice:
            out.append(voice)
        by = stores(case.space(bench).program(case.point or {}))
        listed = "; ".join(f"{name} by {' and '.join(names)}" for name, names in by.items())
        out.append(f"stored: {listed}; wanted: {case.machine.__name__}.reference")
    decided = deciding(case, bench, allowance)
    if judged.stage == "wrong" and not any("one is too loose" in line for line in decided):
        out += helpful(case, larger, bench, Allowance.of(REPAIR_SECONDS))
    return (*out, *decided)


def _alone(case: Case, judged: Judgement) -> str:
    """Which of reference, program and kernel differs from the other two, and where."""
    built = judged.built
    if built is None:
        return ""
    return who_is_wrong(built.program, built.layouts.swizzles, built.kernel, case.machine, case.problem)


def deciding(case: Case, bench: Workbench, allowance: Allowance) -> tuple[str, ...]:
    """Which parameters decide that the case is not right, and the constraints that name them.

    Candidates that differ from it in one value are judged, until the allowance is spent; where none of them is right,
    those too that are legal and only never the best.
    """
    point = case.point or {}
    space = case.space(bench).space
    admitted = _by_turns(space.neighbours(point), point)
    legal = (n for n in _by_turns(_legal(space).neighbours(point), point) if n not in admitted)
    right: dict[str, list[str]] = {}
    tried = 0
    for other in chain(admitted, legal):
        if tried == NEIGHBOURS or allowance.spent or (right and other not in admitted):
            break
        tried += 1
        changed = next(name for name in point if other[name] != point[name])
        neighbour = Case(case.machine, case.problem, case.device, other)
        if judge(neighbour, bench, orders=("late",)).stage == "right":
            right.setdefault(changed, []).append(str(other[changed]))
    if not tried:
        return ()
    if not right:
        where = f"{case.machine.__name__}.program, or its reference"
        return (f"no other value of one parameter helps ({tried} tried): it is {where}, not a constraint",)
    out = []
    for name, values in right.items():
        own = [r for r in case.machine.requirements() if name in r.condition.symbols]
        named = ", ".join(f"{r.name.replace('_', ' ')!r} ({r.condition})" for r in own)
        limits = f"of your constraints on it, {named}, one is too loose" if own else "no constraint of yours limits it"
        out.append(f"with {name}={' or '.join(values)} in place of {point[name]} it is right; {limits}")
    return tuple(out)


def _legal(space: Space) -> Space:
    """The space with all that is legal, the best or not."""
    parts = (
        Part(p.fixed, p.axes, tuple(c for c in p.constraints if c.kind == "legality"), p.environment)
        for p in space.parts
    )
    return Space(space.name, tuple(parts))


def _by_turns(neighbours: tuple[dict[str, int | str], ...], point: Point) -> list[dict[str, int | str]]:
    """The neighbours, one value of each parameter after the other."""
    by: dict[str, list[dict[str, int | str]]] = {}
    for other in neighbours:
        changed = next(name for name in other if other[name] != point[name])
        by.setdefault(changed, []).append(other)
    out = []
    while any(by.values()):
        for queue in by.values():
            if queue:
                out.append(queue.pop(0))
    return out
