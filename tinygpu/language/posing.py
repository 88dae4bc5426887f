"""Posing a problem to a machine: what is asked is checked against its declarations, and the rest is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tinygpu.dtypes import DType, dtype
from tinygpu.language.parameters import Option
from tinygpu.language.problem import Operand, Problem, ProblemError
from tinygpu.language.tensors import Major, TensorDeclaration
from tinygpu.users_code import answer


class TakesProblems(Protocol):
    """What a machine says of the problems that it takes; see `Declared`."""

    @classmethod
    def dim_names(cls) -> tuple[str, ...]: ...

    @classmethod
    def tensor_declarations(cls) -> tuple[TensorDeclaration, ...]: ...

    @classmethod
    def option_declarations(cls) -> tuple[Option, ...]: ...

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool: ...

    @classmethod
    def refuses(cls, problem: Problem) -> str: ...


def problem(
    machine: type[TakesProblems],
    dims: Mapping[str, int],
    *,
    dtypes: Mapping[str, str] | None = None,
    majors: Mapping[str, str] | None = None,
    lds: Mapping[str, int] | None = None,
    aligns: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Problem:
    """The problem that `machine` is asked for; what is left out takes the machine's default.

    dims     every dim of the machine, at least 1
    dtypes   per tensor; others follow the tensor that they are declared to follow, or take their first dtype
    lds      leading dimensions in elements; default: rows without gaps
    aligns   pointer alignment in bytes; default 16, and at least one element
    options  the machine's options
    """
    title = machine.__name__
    _known(title, "dim", dims, machine.dim_names())
    for name in machine.dim_names():
        if name not in dims:
            raise ProblemError(f"{title} needs the dim {name}: give {_shape(machine.dim_names())}")
        if isinstance(dims[name], bool) or not isinstance(dims[name], int) or not 1 <= dims[name] < 2**31:
            raise ProblemError(f"{title}: the dim {name} is a whole number from 1 to 2147483647, not {dims[name]!r}")
    tensor_names = tuple(t.name for t in machine.tensor_declarations())
    for what, given in (("dtype", dtypes), ("major", majors), ("leading dimension", lds), ("alignment", aligns)):
        _known(title, f"tensor (its {what} was given)", given or {}, tensor_names)
    chosen = _dtypes(machine, dtypes or {})
    switches = _options(machine, options or {})
    operands = []
    for declared in machine.tensor_declarations():
        if not machine.uses_tensor(declared.name, switches):
            continue
        major = (majors or {}).get(declared.name, declared.majors[0])
        if major not in declared.majors:
            raise ProblemError(f"{title}: {declared.name} is {' or '.join(declared.majors)}-major, not {major!r}")
        shape = tuple(dims[d.name] for d in declared.dims)
        contiguous = shape[0 if major == "col" else -1]
        ld = (lds or {}).get(declared.name, contiguous)
        if ld < contiguous:
            raise ProblemError(
                f"{title}: the leading dimension of {declared.name} is {ld}, "
                f"less than its {contiguous} contiguous elements"
            )
        kind = chosen[declared.name]
        align = (aligns or {}).get(declared.name, 16)
        if align < 1 or align & (align - 1) or align * 8 < kind.bits:
            raise ProblemError(
                f"{title}: the alignment of {declared.name} is a power of two of at least one {kind} element, "
                f"in bytes, not {align}"
            )
        try:
            operands.append(Operand(declared.name, kind, shape, _major(major), ld, align, declared.access))
        except ProblemError as error:
            raise ProblemError(f"{title}: {error}") from None
    made = Problem(tuple((d, dims[d]) for d in machine.dim_names()), tuple(operands), tuple(switches.items()))
    wanted, what = "a sentence, and \"\" for a problem that it takes", f"{title}.refuses"
    reason = answer(machine.refuses, made, wanted=wanted, fits=lambda found: isinstance(found, str), what=what)
    if reason:
        raise ProblemError(f"{title}: {reason}")
    return made


def _major(text: str) -> Major:
    return "col" if text == "col" else "row"


def _known(title: str, what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise ProblemError(f"{title} has no {what} {name!r}; it has {', '.join(known) or 'none'}")


def _shape(names: tuple[str, ...]) -> str:
    return ",".join(f"{n}=..." for n in names)


def _dtypes(machine: type[TakesProblems], given: Mapping[str, str]) -> dict[str, DType]:
    out: dict[str, DType] = {}
    for declared in machine.tensor_declarations():
        allowed = _allowed(declared, out)
        name = given.get(declared.name, allowed[0].name)
        try:
            kind = dtype(name)
        except ValueError as error:
            raise ProblemError(f"{machine.__name__}: {declared.name}: {error}") from None
        if kind not in allowed:
            names = ", ".join(t.name for t in allowed)
            raise ProblemError(f"{machine.__name__}: {declared.name} can be {names} here, not {kind}")
        out[declared.name] = kind
    return out


def _allowed(declared: TensorDeclaration, chosen: Mapping[str, DType]) -> tuple[DType, ...]:
    if declared.follows is None:
        return declared.dtypes
    return declared.dtypes_for(chosen[declared.follows.name])


def _options(machine: type[TakesProblems], given: Mapping[str, Any]) -> dict[str, Any]:
    declared = machine.option_declarations()
    _known(machine.__name__, "option", given, tuple(o.name for o in declared))
    out = {}
    for o in declared:
        value = given.get(o.name, o.default)
        if value not in o.values:
            raise ProblemError(
                f"{machine.__name__}: {o.name} is {' or '.join(map(str, o.values))}, not {value!r}"
            )
        out[o.name] = value
    return out
