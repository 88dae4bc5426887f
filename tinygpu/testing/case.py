"""A case: one machine, problem, device and candidate. Checks look at it, it shrinks, and a snippet rebuilds it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tinygpu.devices import Device
from tinygpu.language.machine import Machine
from tinygpu.language.posing import fitted, followed
from tinygpu.language.problem import Operand, Problem, ProblemError
from tinygpu.program.program import Program
from tinygpu.spaces.build import MachineSpace
from tinygpu.testing.workbench import Allowance, Workbench

Point: TypeAlias = Mapping[str, int | str]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One candidate (or, without a point, one problem on one device)."""

    machine: type[Machine]
    problem: Problem
    device: Device
    point: Point | None = None

    def __str__(self) -> str:
        head = f"{self.machine.__name__} {describe(self.problem)} on {self.device.name}"
        return head if self.point is None else head + ": " + " ".join(f"{k}={v}" for k, v in self.point.items())

    def space(self, bench: Workbench) -> MachineSpace:
        return bench.space(self.machine, self.problem, self.device)

    def snippet(self, check: str) -> str:
        """Python that runs one of the checks of `tinygpu.testing.cases` again, on this case alone."""
        point = "" if self.point is None else f", {dict(self.point)!r}"
        return "\n".join(
            [
                *import_lines(self.machine),
                "from tinygpu.devices import device",
                "from tinygpu.testing import Case, examine",
                "",
                f"problem = {problem_source(self.machine, self.problem)}",
                f"case = Case({self.machine.__name__}, problem, device({self.device.name!r}){point})",
                f"print(examine({check!r}, case))",
            ]
        )


def describe(problem: Problem) -> str:
    """The problem with its pitches and alignments, where they are not the plain ones."""
    odd = []
    for o in problem.operands:
        if len(o.shape) > 1 and o.ld != o.shape[o.contiguous_axis]:
            odd.append(f"{o.name}.ld={o.ld}")
        further = zip(o.memory_order[2:], o.outer, strict=False)
        odd += [f"{o.name}.stride{axis}={stride}" for axis, stride in further]
        if o.align_bytes != 16:
            odd.append(f"{o.name}.align={o.align_bytes}")
    return " ".join([str(problem), *odd])


def import_lines(machine: type[Machine]) -> list[str]:
    """How a script gets hold of the machine: by import, or from the file that it was loaded from."""
    name, module = machine.__name__, machine.__module__
    if getattr(sys.modules.get(module), name, None) is machine:
        if _importable(module):
            return [f"from {module} import {name}"]
        place = getattr(sys.modules[module], "__file__", None)
        if place:
            path = Path(place)
            return [
                "from tinygpu.api.machines import family",
                f"({name},) = family({f'{path}:{name}'!r}).machines",
            ]
    return [f"# define or import {name} here"]


def _importable(module: str) -> bool:
    """Whether another process would find the module too, where it was found here; what is loaded does not count."""
    parent = sys.modules.get(module.rpartition(".")[0])
    places = getattr(parent, "__path__", None)
    specs = (finder.find_spec(module, places) for finder in sys.meta_path)
    found = next((s for s in specs if s is not None), None)
    return found is not None and found.origin == getattr(sys.modules[module], "__file__", None)


def problem_source(machine: type[Machine], problem: Problem) -> str:
    """The call that makes the problem; what the machine would choose by itself is left out."""
    plain = machine.problem(**problem.dim, following=False)
    usual = {o.name: o for o in plain.operands}
    parts = [f"{k}={v}" for k, v in _said(machine, problem).items()]
    by_tensor = {
        "dtypes": {o.name: o.dtype.name for o in problem.operands if _other(usual, o, "dtype")},
        "majors": {o.name: o.major for o in problem.operands if _other(usual, o, "major")},
        "lds": {o.name: o.ld for o in problem.operands if o.ld != o.shape[o.contiguous_axis]},
        "strides": {o.name: dict(zip(o.memory_order[2:], o.outer, strict=True)) for o in problem.operands if o.outer},
        "aligns": {o.name: o.align_bytes for o in problem.operands if o.align_bytes != 16},
        "options": {k: v for k, v in problem.options if dict(plain.options)[k] != v},
    }
    parts += [f"{k}={v!r}" for k, v in by_tensor.items() if v]
    return f"{machine.__name__}.problem({', '.join(parts)})"


def _other(usual: Mapping[str, Operand], o: Operand, field: str) -> bool:
    return o.name not in usual or getattr(usual[o.name], field) != getattr(o, field)


def resize(machine: type[Machine], problem: Problem, dims: Mapping[str, int]) -> Problem:
    """The problem with other dims, but for those that are listed; rows and strides keep their gaps.

    Of dims from which others follow that `dims` names, the first is what gives these their size; dims stay what they
    are where nothing would be left of those that follow.
    """
    listed = {name for name, values in machine.dim_values().items() if values}
    size = {**problem.dim, **{name: value for name, value in dims.items() if name not in listed}}
    asked = tuple(d for d in machine.following_dims() if d.name in dims)
    size = fitted(machine.__name__, asked, size, dict(problem.options), {*listed})
    for d in machine.following_dims():
        if followed(machine.__name__, (d,), size, dict(problem.options))[d.name] < 1:
            size |= {name: problem.dim[name] for name in d.reads if name in problem.dim}
    size |= followed(machine.__name__, machine.following_dims(), size, dict(problem.options))
    shapes = {t.name: t.shape(size, dict(problem.options)) for t in machine.tensor_declarations()}
    operands = tuple(o.resized(shapes[o.name]) for o in problem.operands)
    return Problem(tuple(size.items()), operands, problem.options)


def of_their_own(machine: type[Machine], program: Program, names: Iterable[str]) -> list[str]:
    """Those dims that have sizes of their own: all but those that follow from others and that no tiles divide."""
    tiled = {str(axis.size) for axis in program.grid.axes}
    going_along = {d.name for d in machine.following_dims()} - tiled
    return [name for name in names if name not in going_along]


def shrink(case: Case, fails: Callable[[Case], bool], bench: Workbench, allowance: Allowance) -> Case:
    """A smaller case for which `fails` still says yes: the smallest that was found before the allowance was spent.

    Problems become plainer and dims smaller first, then parameters move towards their first values.
    """
    best = case
    improved = True
    while improved and not allowance.spent:
        improved = False
        for smaller in _smaller(best):
            if allowance.spent:
                break
            if admitted(smaller, bench) and fails(smaller):
                best, improved = smaller, True
                break
    return best


def _smaller(case: Case) -> Iterator[Case]:
    yield from (replace(case, problem=p) for p in _plainer(case.machine, case.problem))
    listed = case.machine.dim_values() | {d.name: (0,) for d in case.machine.following_dims()}
    for name, size in case.problem.dims:
        for less in (1, 2, 3, 5, 7, size // 4, size // 2, size - 1):
            if 1 <= less < size and not listed[name]:
                yield replace(case, problem=resize(case.machine, case.problem, {name: less}))
    if case.point is None:
        return
    for p in case.machine.params():
        for value in p.values[: p.values.index(int(case.point[p.name]))]:
            yield replace(case, point={**case.point, p.name: value})
    for c in case.machine.choices():
        for label in c.labels[: c.labels.index(case.point[c.name])]:
            yield replace(case, point={**case.point, c.name: label})


def _plainer(machine: type[Machine], problem: Problem) -> Iterator[Problem]:
    plain = machine.problem(**problem.dim, following=False)
    dtypes = {o.name: o.dtype.name for o in problem.operands}
    majors = {o.name: o.major for o in problem.operands}
    options = dict(problem.options)
    usual = {o.name: o for o in plain.operands}
    for o in problem.operands:
        if o.align_bytes != 16:
            yield replace(problem, operands=_with(problem, o, replace(o, align_bytes=16)))
        if o.outer:
            yield replace(problem, operands=_with(problem, o, replace(o, outer=())))
        if o.ld != o.shape[o.contiguous_axis]:
            yield replace(problem, operands=_with(problem, o, replace(o, ld=o.shape[o.contiguous_axis], outer=())))
        if o.name in usual and o.major != usual[o.name].major:
            yield _remade(machine, problem, dtypes, majors | {o.name: usual[o.name].major}, options)
    if any(o.name in usual and o.dtype != usual[o.name].dtype for o in problem.operands):
        yield _remade(machine, problem, {}, majors, options)
    for name, value in plain.options:
        if options[name] != value:
            fewer = options | {name: value}
            kept = {t: k for t, k in dtypes.items() if machine.uses_tensor(t, fewer)}
            with contextlib.suppress(ProblemError):  # nothing may be left of a dim that follows from it
                yield _remade(machine, problem, kept, {t: m for t, m in majors.items() if t in kept}, fewer)


def _with(problem: Problem, old: Operand, new: Operand) -> tuple[Operand, ...]:
    return tuple(new if o is old else o for o in problem.operands)


def _remade(
    machine: type[Machine],
    problem: Problem,
    dtypes: Mapping[str, str],
    majors: Mapping[str, str],
    options: Mapping[str, object],
) -> Problem:
    return machine.problem(**_said(machine, problem), dtypes=dtypes, majors=majors, options=options)


def _said(machine: type[Machine], problem: Problem) -> dict[str, int]:
    """The dims that a problem is posed with: those that follow from no others."""
    following = {d.name for d in machine.following_dims()}
    return {name: size for name, size in problem.dims if name not in following}


def admitted(case: Case, bench: Workbench) -> bool:
    """Whether the case is one that the machine allows: its space can be built, and holds its point."""
    try:
        space = case.space(bench)
    except Exception:  # whatever a user's program raises for these sizes: it is another case than the one looked at
        return False
    return case.point is None or not space.space.explain(case.point)
