"""The layouts of a machine, symbolic, and those of one candidate, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tinygpu.api.choosing import AnySpace, best_refined, choose, of_each
from tinygpu.api.machines import Family
from tinygpu.api.problems import Asked
from tinygpu.devices import Device
from tinygpu.language.machine import Machine
from tinygpu.language.posing import problem
from tinygpu.language.trace import trace
from tinygpu.program.layouts import LINES, BufferLayout, Distribution, buffer_layouts, distributions
from tinygpu.program.placement import place
from tinygpu.program.program import Program
from tinygpu.search.refine import Refined
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace

# Rows and columns of a picture of holders.
WINDOW = (16, 16)


class NoSuchChoice(ValueError):
    """A name that chooses no structure of a machine."""


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """Every layout of a program.

    title    which machine, and which structure or candidate of it
    machine  its name
    point    the candidate, or what was chosen of the structure
    numbers  the layouts are those of a candidate
    """

    title: str
    machine: str
    point: Mapping[str, int | str]
    numbers: bool
    distributions: tuple[Distribution, ...]
    buffers: tuple[BufferLayout, ...]

    def pictures(self) -> Iterator[tuple[str, str]]:
        """A title and a picture of every layout that differs from those before it; of numbers."""
        seen: dict[str, list[Distribution]] = {}
        for d in self.distributions:
            seen.setdefault(f"{d.shape} {d.layout}", []).append(d)
        for alike in seen.values():
            names = ", ".join(dict.fromkeys(d.tile for d in alike))
            yield f"who holds what of {names} (T3:V1+1 is value 1 of thread 3, and one more holder)", drawn(alike[0])
        for b in self.buffers:
            picture = b.picture(LINES)
            if picture is not None:
                yield f"what lies in each bank of {b.buffer.name}, first stage (row,column of elements)", str(picture)


def drawn(d: Distribution) -> str:
    """Who holds each element, as text; or why there is no picture."""
    try:
        return str(d.picture(WINDOW))
    except ValueError as several:
        return str(several)


def layouts_of_machine(machine: type[Machine], choices: Mapping[str, int | str]) -> Layouts:
    """The symbolic layouts of the first structure that has these choices, for the machine's default types.

    Raises NoSuchChoice where there is none, and for the name of a parameter.
    """
    listed = {c.name: tuple(map(str, c.labels)) for c in machine.choices()}
    for name, value in choices.items():
        if name in {p.name for p in machine.params()}:
            raise NoSuchChoice(
                f"{name}={value} is a number of a candidate, and layouts with numbers are those of a candidate for a "
                "problem on a device: give --shape and --device too"
            )
        if name not in listed:
            known = ", ".join(listed) or "no choices"
            raise NoSuchChoice(f"{machine.__name__} has no choice {name!r}; it has {known}")
        if str(value) not in listed[name]:
            raise NoSuchChoice(f"{name} of {machine.__name__} is {' or '.join(listed[name])}, not {value!r}")
    structures = list(machine.structures())
    wanted = [s for s in structures if all(str(dict(s)[name]) == str(value) for name, value in choices.items())]
    if not wanted:
        asked = " ".join(f"{name}={value}" for name, value in choices.items())
        raise NoSuchChoice(f"{machine.__name__} has no structure with {asked}")
    default = problem(machine, machine.smallest_dims(), following=False)
    program = trace(machine, default, wanted[0]).program
    chosen = " ".join(f"{name}={value}" for name, value in wanted[0])
    which = f"the first of {len(wanted)} structures" if len(wanted) > 1 else "the only structure"
    title = f"{machine.__name__}, {which}{f': {chosen}' if chosen else ''}"
    return _layouts(title, machine.__name__, dict(wanted[0]), program)


def layouts_of_candidate(
    family: Family, asked: Asked, device: Device, point: Mapping[str, int | str]
) -> tuple[Layouts, ...]:
    """The layouts of the best candidate with these values, its swizzles solved; of a plan those of every step.

    Raises ProblemError where no machine takes the problem, and NotAdmitted where none has such a candidate.
    """

    def best_of(space: AnySpace) -> tuple[float, list[tuple[MachineSpace, Refined]]]:
        if isinstance(space, PlanSpace):
            made = choose(space, point)
            return made.score, [(part.space, part.refined) for part in made.parts]
        best = best_refined(space, point)[0][0]
        return best.score, [(space, best)]

    _, found = min(of_each(family, asked, device, best_of), key=lambda pair: pair[0])
    return tuple(layouts_of_refined(space, best) for space, best in found)


def layouts_of_refined(space: MachineSpace, best: Refined) -> Layouts:
    """The layouts of a candidate whose swizzles are solved."""
    chosen = " ".join(f"{name}={value}" for name, value in best.point.items())
    title = f"{space.machine.__name__} for {space.problem} on {space.device.name}: {chosen}"
    return _layouts(title, space.machine.__name__, best.point, best.program, best.layouts.swizzles)


def _layouts(
    title: str,
    machine: str,
    point: Mapping[str, int | str],
    program: Program,
    swizzles: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
) -> Layouts:
    placement = None if swizzles is None else place(program, swizzles)
    held, stored = tuple(distributions(program)), tuple(buffer_layouts(program, placement))
    return Layouts(title, machine, point, swizzles is not None, held, stored)
