"""Posing a problem to a machine: what is asked is checked against its declarations, and the rest is filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from tinygpu.dtypes import DType, dtype
from tinygpu.language.parameters import Dim, Option
from tinygpu.language.problem import Operand, Problem, ProblemError
from tinygpu.language.strides import packed
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.users_code import answer

# Sizes that are tried so that a dim that follows has a size.
MOST_FITTED = 1 << 12
_TRUTHS = {"yes": "true", "no": "false"}


class TakesProblems(Protocol):
    """What a machine says of the problems that it takes; see `Declared`."""

    @classmethod
    def dim_names(cls) -> tuple[str, ...]: ...

    @classmethod
    def following_dims(cls) -> tuple[Dim, ...]: ...

    @classmethod
    def dim_values(cls) -> dict[str, tuple[int, ...]]: ...

    @classmethod
    def tensor_declarations(cls) -> tuple[TensorDeclaration, ...]: ...

    @classmethod
    def option_declarations(cls) -> tuple[Option, ...]: ...

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool: ...

    @classmethod
    def misfit(cls, problem: Problem) -> str: ...

    @classmethod
    def refuses(cls, problem: Problem) -> str: ...


def problem(
    machine: type[TakesProblems],
    dims: Mapping[str, int],
    *,
    dtypes: Mapping[str, str] | None = None,
    majors: Mapping[str, str] | None = None,
    lds: Mapping[str, int] | None = None,
    strides: Mapping[str, Mapping[int, int]] | None = None,
    aligns: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    following: bool = True,
) -> Problem:
    """The problem that `machine` is asked for; what is left out takes the machine's default.

    dims     every dim of the machine, at least 1
    dtypes   per tensor; others follow the tensor that they are declared to follow, or take their first dtype
    lds      leading dimensions in elements; default: rows without gaps
    strides  per tensor, of some of its axes: elements between neighbours; default: axis after axis without gaps
    aligns   pointer alignment in bytes; default 16, of floats of 4 and 6 bits 32, which TMA asks for where it pads them
    options  the machine's options
    following  whether dims follow from others as the machine says; else all are given
    """
    title = machine.__name__
    _known(title, "dim", dims, machine.dim_names())
    switches = _options(machine, options or {})
    dims = _dims(machine, dims, switches, following)
    tensor_names = tuple(t.name for t in machine.tensor_declarations())
    for what, given in (("dtype", dtypes), ("major", majors), ("leading dimension", lds), ("strides", strides),
                        ("alignment", aligns)):
        _known(title, f"tensor (its {what} was given)", given or {}, tensor_names)
    chosen = _dtypes(machine, dtypes or {})
    operands = []
    for declared in machine.tensor_declarations():
        if not machine.uses_tensor(declared.name, switches):
            continue
        major = (majors or {}).get(declared.name, declared.majors[0])
        if major not in declared.majors:
            raise ProblemError(f"{title}: {declared.name} is {' or '.join(declared.majors)}-major, not {major!r}")
        shape = declared.shape(dims, switches)
        order = declared.order(major)
        contiguous = shape[order[0]]
        apart = _strides(f"{title}: {declared.name}", (strides or {}).get(declared.name, {}), order)
        said = [*_said(apart, order[1:2]), *_said(lds or {}, (declared.name,))]
        if len(set(said)) > 1:
            apart_by = f"{said[0]} elements apart, or {said[1]}; say one"
            raise ProblemError(f"{title}: the rows of {declared.name} are {apart_by}")
        ld = next(iter(said), contiguous)
        if ld < contiguous:
            raise ProblemError(
                f"{title}: the leading dimension of {declared.name} is {ld}, "
                f"less than its {contiguous} contiguous elements"
            )
        kind = chosen[declared.name]
        align = (aligns or {}).get(declared.name, 32 if kind.is_float and kind.bits < 8 else 16)
        if align < 1 or align & (align - 1) or align * 8 < kind.bits:
            raise ProblemError(
                f"{title}: the alignment of {declared.name} is a power of two of at least one {kind} element, "
                f"in bytes, not {align}"
            )
        try:
            found = packed(shape, order, {**apart, **dict.fromkeys(order[1:2], ld)})
            outer = tuple(found[axis] for axis in order[2:])
            made = Operand(declared.name, kind, shape, major, ld, align, declared.access, outer, order)
        except ProblemError as error:
            raise ProblemError(f"{title}: {error}") from None
        if made.overlaps:
            raise ProblemError(
                f"{title}: elements of {declared.name} lie at the same place, with {' x '.join(map(str, shape))} "
                f"elements and strides of {', '.join(map(str, made.strides()))}; axes are further apart than what lies "
                "between their neighbours"
            )
        operands.append(made)
    posed = Problem(tuple((d, dims[d]) for d in machine.dim_names()), tuple(operands), tuple(switches.items()))
    wanted, what = "a sentence, and \"\" for a problem that it takes", f"{title}.refuses"
    reason = machine.misfit(posed) or answer(
        machine.refuses, posed, wanted=wanted, fits=lambda found: isinstance(found, str), what=what
    )
    if reason:
        raise ProblemError(f"{title}: {reason}")
    return posed


def _dims(
    machine: type[TakesProblems], given: Mapping[str, int], options: Mapping[str, Any], following: bool
) -> dict[str, int]:
    """Every dim; a constant is what it is, and what follows is computed."""
    title, out = machine.__name__, dict[str, int]()
    follow = {d.name: d for d in machine.following_dims()} if following else {}
    for name, listed in machine.dim_values().items():
        if name in follow:
            continue
        if name not in given and len(listed) != 1:
            needed = [n for n, values in machine.dim_values().items() if len(values) != 1 and n not in follow]
            raise ProblemError(f"{title} needs the dim {name}: give {_shape(tuple(needed))}")
        size = out[name] = given[name] if name in given else listed[0]
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < 2**31:
            raise ProblemError(f"{title}: the dim {name} is a whole number from 1 to 2147483647, not {size!r}")
        if listed and size not in listed:
            raise ProblemError(f"{title}: the dim {name} is {' or '.join(map(str, listed))}, not {size}")
    for name, size in followed(title, tuple(follow.values()), out, options).items():
        if given.get(name, size) != size:
            raise ProblemError(f"{title}: the dim {name} is {size} for these sizes, not {given[name]!r}")
        if size < 1:
            raise ProblemError(f"{title}: the dim {name} would be {size} for these sizes; it is 1 or more")
        out[name] = size
    return {name: out[name] for name in machine.dim_names()}


def followed(
    title: str, dims: tuple[Dim, ...], sizes: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, int]:
    """The dims that follow from others, computed one after the other."""
    known: dict[str, Any] = {**options, **sizes}
    out: dict[str, int] = {}
    for d in dims:
        if d.follows is None:
            continue
        given = tuple(known[name] for name in d.reads)
        known[d.name] = out[d.name] = _size(d.follows, given, f"{title}.{d.name}")
    return out


@lru_cache(maxsize=1 << 16, typed=True)
def _size(follows: Callable[..., int], given: tuple[Any, ...], what: str) -> int:
    """What a dim is for these sizes and options; many sizes are tried until one fits, and the same again for others."""
    return int(answer(follows, *given, wanted="a whole number", fits=_whole, what=what))


def fitted(
    title: str, following: tuple[Dim, ...], sizes: Mapping[str, int], options: Mapping[str, Any], kept: Iterable[str]
) -> dict[str, int]:
    """Sizes in which dims that follow from others are as they are here: each has a dim that it follows from made fit,
    where that does not give it its size as it is.

    kept  dims that stay what they are

    Where no size fits, the dims stay.
    """
    out, fixed = dict(sizes), {*kept, *(d.name for d in following)}
    for d in following:
        if followed(title, (d,), out, options)[d.name] == sizes[d.name]:
            continue
        for name in (n for n in d.reads if n in sizes and n not in fixed):
            tried = (out | {name: size} for size in range(1, max(MOST_FITTED, 2 * sizes[name])))
            found = (t for t in tried if followed(title, (d,), t, options)[d.name] == sizes[d.name])
            out = next(found, out)
            break
    return out


def _whole(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)


def _said(given: Mapping[Any, int], names: tuple[Any, ...]) -> list[int]:
    """What was said of any of these names."""
    return [given[name] for name in names if name in given]


def _strides(what: str, given: Mapping[int, int], order: tuple[int, ...]) -> dict[int, int]:
    """What was said of strides: by axis, but for the contiguous one, which has neighbours side by side."""
    for axis, stride in given.items():
        if isinstance(axis, bool) or axis not in order:
            raise ProblemError(f"{what} has the axes 0 to {len(order) - 1}, and a stride is given for {axis!r}")
        if axis == order[0] and stride != 1:
            raise ProblemError(f"{what} is contiguous along axis {axis}, and a stride of {stride!r} is given there")
    return {axis: stride for axis, stride in given.items() if axis != order[0]}


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
        value = _meant(o, given.get(o.name, o.default))
        if value not in o.values:
            raise ProblemError(
                f"{machine.__name__}: {o.name} is {' or '.join(map(str, o.values))}, not {value!r}"
            )
        out[o.name] = value
    return out


def _meant(option: Option, given: Any) -> Any:
    """The value that a word of a command line says: one that is written like it, or yes and no for true and false."""
    if not isinstance(given, str) or given in option.values:
        return given
    words = {given, given.lower(), _TRUTHS.get(given.lower(), given)}
    found = [v for v in option.values if str(v) in words or (isinstance(v, bool) and str(v).lower() in words)]
    return found[0] if found else int(given) if given.isdigit() else given
