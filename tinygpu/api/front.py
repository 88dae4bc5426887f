"""The front door: spaces, and what is asked of them: why a point is out, how long it takes, its kernel.

`import tinygpu as tg` offers one call for each thing that people do with a machine. These here do without the emulator,
which is as large as all the rest; what runs kernels is in `tinygpu.api.kernels`.

A machine is a class, a name as on the command line ("matmul_ampere"), or a file and a class ("saxpy.py:Saxpy"). A
problem is given by its dims (`n=1000`), as a mapping of them, or as a `Problem`. A point is given by the parameters
that are decided, by name or as a mapping; the rest is chosen by the predictor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygpu.api import explain as explaining
from tinygpu.api import predict as predicting
from tinygpu.api.choosing import AnySpace, Chosen, choose
from tinygpu.api.machines import Family, MachineNotFound, family
from tinygpu.api.problems import Asked
from tinygpu.api.timeline import SPANS
from tinygpu.cost.predictor import Launch
from tinygpu.devices import Device
from tinygpu.devices import device as find_device
from tinygpu.files.error import excerpt
from tinygpu.language.declared import Declared
from tinygpu.language.machine import Machine
from tinygpu.language.plan import Plan
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.notebook import html as notebook
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace, space_of

Values = Mapping[str, int | str]
Strides = Mapping[int, int] | Sequence[int]


def space(
    machine: str | type[Declared],
    problem: Mapping[str, int] | Problem | None = None,
    *,
    device: str | Device,
    dtypes: str | Mapping[str, str] | None = None,
    majors: Mapping[str, str] | None = None,
    lds: Mapping[str, int] | None = None,
    strides: Mapping[str, Strides] | None = None,
    aligns: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    **dims: int,
) -> AnySpace:
    """All candidates of a machine or a plan for one problem on one device: `tg.space(Saxpy, n=1000, device="a100")`.

    device   a name of the library, a file of your own, or a Device
    dtypes   one for every tensor that can have it ("bf16"), or by tensor ({"a": "e4m3"})
    majors   by tensor: "row" or "col"
    lds      leading dimensions by tensor, in elements
    strides  by tensor: elements between neighbours along each axis, or along some by number ({0: 65536})
    aligns   alignments of pointers by tensor, in bytes
    options  the machine's options

    `.size`, `.sample(3)`, `.parameters`, `point in space`, `.restrict({"bm": 128})`, `for point in space`. Raises
    ProblemError where the machine does not take the problem, MachineNotFound for a family of several machines.
    """
    chosen = family_of(machine)
    if len(chosen.machines) > 1:
        names = ", ".join(m.__name__ for m in chosen.machines)
        raise MachineNotFound(
            f"{chosen.name} is a family of machines ({names}), each with a space of its own; name one"
        )
    (one,) = chosen.machines
    asked = asked_of(chosen, problem, dtypes, majors, lds, strides, aligns, options, dims)
    return space_of(one, asked.of(one), find_device(device))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a point is in a space, and why not: a sentence for each constraint that it breaks, with the numbers."""

    space: str
    sentences: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether there is something to explain: the point is out."""
        return bool(self.sentences)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.space}: {'out' if self.sentences else 'in'}", *self.sentences])

    def _repr_html_(self) -> str:
        return notebook.verdict(not self.sentences, f"{self.space}: {'out' if self.sentences else 'in'}") + (
            notebook.sentences(self.sentences) if self.sentences else ""
        )


def explain(space: AnySpace, point: Values | None = None, /, **values: int | str) -> Explanation:
    """Why a point is out of a space; parameters that are left open may take any value.

    Raises SpaceError for a parameter that the machine does not have.
    """
    found = explaining.explain(_space("explain", space), _point(point, values))
    return Explanation(space.space.name, found)


def predict(
    space: AnySpace, point: Values | None = None, /, *, launch: Launch = "graph", **values: int | str
) -> predicting.AnyPredicted:
    """How long the best candidate with these values takes, where the time goes, and how far that is from the roofline.

    launch  "graph": launches follow each other in a CUDA graph; "stream": queued one by one

    In closed form, and one SM simulated event by event. Raises NotAdmitted, with the reasons, where there is none.
    """
    if launch not in ("graph", "stream"):
        raise ValueError(f'launches are queued in a "graph" or in a "stream", not {launch!r}')
    return predicting.predict_in(_space("predict", space), _point(point, values), launch=launch, keep=SPANS[".svg"])


def emit(space: AnySpace, point: Values | None = None, /, **values: int | str) -> Chosen:
    """The best candidate with these values as a kernel: `.ptx`, `.point`, registers, launch, layouts; not verified.

    Raises NotAdmitted, with the reasons, where there is none.
    """
    return choose(_space("emit", space), _point(point, values))


def family_of(machine: str | type[Declared]) -> Family:
    """The machines behind what a caller names; a class is a family of one."""
    if isinstance(machine, str):
        return family(machine)
    if not (isinstance(machine, type) and issubclass(machine, (Machine, Plan))):
        raise MachineNotFound(f"a machine is a class, a name, or path/to/file.py:ClassName, not {excerpt(machine)}")
    return Family(machine.__name__, (machine,))


def _space(call: str, given: AnySpace) -> AnySpace:
    if not isinstance(given, MachineSpace | PlanSpace):
        example = 'tg.space(M, n=1000, device="a100")'
        raise TypeError(f"{call} is asked of a space, as {example} gives one, not of {excerpt(given)}")
    return given


def asked_of(
    chosen: Family,
    problem: Mapping[str, int] | Problem | None,
    dtypes: str | Mapping[str, str] | None,
    majors: Mapping[str, str] | None,
    lds: Mapping[str, int] | None,
    strides: Mapping[str, Strides] | None,
    aligns: Mapping[str, int] | None,
    options: Mapping[str, Any] | None,
    dims: Mapping[str, int],
) -> Asked:
    """What was said of the problem, in whichever form."""
    if isinstance(problem, Problem):
        if dims or any(word is not None for word in (dtypes, majors, lds, strides, aligns, options)):
            raise ProblemError(f"{chosen.name} takes a whole problem, or dims and types; both were given")
        return Asked.like(problem)
    if problem is not None and not isinstance(problem, Mapping):
        raise ProblemError(f"{chosen.name} takes dims by name, a mapping of them or a Problem, not {excerpt(problem)}")
    if problem is not None and dims:
        raise ProblemError(f"{chosen.name} takes dims by name or as one mapping; both were given")
    kinds = {"*": dtypes} if isinstance(dtypes, str) else dtypes or {}
    sizes = dict(dims if problem is None else problem)
    apart = {name: dict(s if isinstance(s, Mapping) else enumerate(s)) for name, s in (strides or {}).items()}
    return Asked(sizes, kinds, majors or {}, lds or {}, aligns or {}, options or {}, apart)


def _point(point: Values | None, values: Values) -> dict[str, int | str]:
    return {**(point or {}), **values}


__all__ = ["Explanation", "emit", "explain", "predict", "space"]
