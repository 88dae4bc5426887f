"""A problem: the numbers and types that a machine is asked to work for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinygpu.dtypes import DType, dtype
from tinygpu.language.tensors import Access, Major, Tensor, TensorDeclaration

if TYPE_CHECKING:
    from tinygpu.language.machine import Machine


class ProblemError(ValueError):
    """A problem that does not fit the machine: a missing dim, an unknown dtype, a leading dimension too small."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of a problem.

    shape        extents, slowest axis first
    ld           leading dimension: elements between neighbours along the next-contiguous axis
    align_bytes  alignment of the pointer
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    major: Major
    ld: int
    align_bytes: int
    access: Access

    @property
    def contiguous_axis(self) -> int:
        return 0 if self.major == "col" else len(self.shape) - 1

    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        rank = len(self.shape)
        order = [self.contiguous_axis] + [a for a in reversed(range(rank)) if a != self.contiguous_axis]
        out = [1] * rank
        step = self.ld
        for axis in order[1:]:
            out[axis] = step
            step *= self.shape[axis]
        return tuple(out)

    @property
    def extent_elems(self) -> int:
        """Elements from the first to just after the last, gaps between rows included."""
        return 1 + sum((s - 1) * d for s, d in zip(self.shape, self.strides(), strict=True))


Signature = tuple[tuple[tuple[str, str, str], ...], tuple[tuple[str, Any], ...]]


@dataclass(frozen=True, slots=True)
class Problem:
    """Dims, operands and options of one problem."""

    dims: tuple[tuple[str, int], ...]
    operands: tuple[Operand, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        dims = ",".join(f"{k}={v}" for k, v in self.dims)
        tensors = " ".join(
            f"{o.name}:{o.dtype}{'' if o.major == 'row' else ':col'}" for o in self.operands
        )
        options = "".join(f" {k}={v}" for k, v in self.options)
        return f"{dims} {tensors}{options}"

    @property
    def dim(self) -> dict[str, int]:
        return dict(self.dims)

    def operand(self, name: str) -> Operand:
        return next(o for o in self.operands if o.name == name)

    @property
    def signature(self) -> Signature:
        """What decides the shape of the program: types, major-ness and options, but no sizes."""
        return tuple((o.name, o.dtype.name, o.major) for o in self.operands), self.options

    def environment(self) -> dict[str, int]:
        """Every number that expressions may name: dims, `NAME.ld` and `NAME.align`."""
        out = dict(self.dims)
        for o in self.operands:
            out[f"{o.name}.ld"] = o.ld
            out[f"{o.name}.align"] = o.align_bytes
        return out

    def to_json(self) -> dict[str, Any]:
        return {
            "dims": dict(self.dims),
            "operands": [
                {
                    "name": o.name,
                    "dtype": o.dtype.name,
                    "shape": list(o.shape),
                    "major": o.major,
                    "ld": o.ld,
                    "align_bytes": o.align_bytes,
                    "access": o.access,
                }
                for o in self.operands
            ],
            "options": dict(self.options),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Problem:
        operands = tuple(
            Operand(
                o["name"], dtype(o["dtype"]), tuple(o["shape"]), o["major"], o["ld"], o["align_bytes"], o["access"]
            )
            for o in data["operands"]
        )
        return Problem(tuple(data["dims"].items()), operands, tuple(data["options"].items()))


def problem(
    machine: type[Machine],
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
        operands.append(Operand(declared.name, kind, shape, _major(major), ld, align, declared.access))
    made = Problem(tuple((d, dims[d]) for d in machine.dim_names()), tuple(operands), tuple(switches.items()))
    reason = machine.refuses(made)
    if reason:
        raise ProblemError(f"{title}: {reason}")
    return made


def _major(text: str) -> Major:
    return "col" if text == "col" else "row"


def _known(title: str, what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise ProblemError(f"{title} has no {what} {name!r}; it has {', '.join(known)}")


def _shape(names: tuple[str, ...]) -> str:
    return ",".join(f"{n}=..." for n in names)


def _dtypes(machine: type[Machine], given: Mapping[str, str]) -> dict[str, DType]:
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


def _options(machine: type[Machine], given: Mapping[str, Any]) -> dict[str, Any]:
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


def tensors(p: Problem, declarations: tuple[TensorDeclaration, ...]) -> tuple[Tensor, ...]:
    """The problem's tensors without their numbers."""
    by_name = {d.name: d for d in declarations}
    return tuple(
        Tensor(o.name, o.dtype, tuple(d.name for d in by_name[o.name].dims), o.access, o.major) for o in p.operands
    )
