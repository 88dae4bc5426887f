"""The user's class: a small machine for one operation.

A machine declares tensors, instructions, parameters, constraints, a `program` and a `reference`. When the class is
made, its program is traced once for every structure (every combination of its Choices) with parameters as symbols, so
that a machine that cannot work fails here, with a sentence that names the class and the attribute.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.instruction import Instruction
from tinygpu.language.names import mistake_in_names
from tinygpu.language.parameters import (
    AccessPattern,
    Choice,
    DeclarationError,
    Dim,
    Named,
    Option,
    Param,
    UnknownLayout,
)
from tinygpu.language.problem import Problem, problem
from tinygpu.language.require import Require
from tinygpu.language.route import Route
from tinygpu.language.tensors import Scalar, Tensor, TensorDeclaration
from tinygpu.language.tile import Tile, gmem_tile

Structure = tuple[tuple[str, str | int], ...]

# What the predictor charges for; a machine that leaves one out is predicted as if it had no such cost.
HEURISTICS = ("coalescing", "bank conflicts", "occupancy", "locality")


class _Namespace(dict[str, Any]):
    """A class body in which a declaration learns its name as soon as it is assigned."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, (Named, Instruction, Route)) and key in RESERVED:
            raise DeclarationError(f"{self.title}.{key}: this name belongs to Machine; choose another one")
        if isinstance(value, Named):
            if key in self and self[key] is not value:
                raise DeclarationError(f"{self.title}.{key}: declared twice; every declaration has a name of its own")
            try:
                value.bind_name(key)
            except DeclarationError as error:
                raise DeclarationError(f"{self.title}.{error}") from None
        super().__setitem__(key, value)


class _MachineType(type):
    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> _Namespace:
        return _Namespace(name)

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        return super().__new__(cls, name, bases, dict(namespace), **kwargs)


class BoundTensor:
    """A tensor as `program` sees it: windows of it are the operands of loads, copies and stores.

    leading  coordinates along its first axes, where it stands for one part of a batch
    """

    def __init__(self, tensor: Tensor, leading: tuple[Expr, ...] = ()) -> None:
        self.tensor = tensor
        self.leading = leading
        self.name = tensor.name
        self.dtype: DType = tensor.dtype
        self.contiguous = tensor.contiguous_axis

    @property
    def rank(self) -> int:
        """Dims along which its windows run."""
        return self.tensor.rank - len(self.leading)

    def at(self, *leading: Operand) -> BoundTensor:
        """One part of a batch: the tensor of the remaining dims, at coordinates along the first ones."""
        if not 0 < len(leading) < self.rank:
            raise DeclarationError(
                f"{self.name} has {_dims(self.rank)}; "
                f"at() takes 1 coordinate or more and leaves a dim, not {len(leading)}"
            )
        return BoundTensor(self.tensor, (*self.leading, *map(expr, leading)))

    def tile(self, *offset: Operand, shape: tuple[Operand, ...]) -> Tile:
        """The window of `shape` that begins at `offset`."""
        if len(offset) != self.rank or len(shape) != self.rank:
            raise DeclarationError(
                f"{self.name} has {_dims(self.rank)}; the window gives {len(offset)} offsets and {len(shape)} extents"
            )
        return gmem_tile(self.tensor, offset, shape, None, self.leading)

    def row(self, offset: Operand, extent: Operand) -> Tile:
        """A window of a tensor with one dim, as a 1 x extent tile that stands for every row."""
        return self._line(offset, extent, 1)

    def column(self, offset: Operand, extent: Operand) -> Tile:
        """A window of a tensor with one dim, as an extent x 1 tile that stands for every column."""
        return self._line(offset, extent, 0)

    def _line(self, offset: Operand, extent: Operand, axis: int) -> Tile:
        if self.rank != 1:
            raise DeclarationError(f"{self.name} has {_dims(self.rank)}; row and column take a tensor with one")
        shape: list[Operand] = [1, 1]
        start: list[Operand] = [0, 0]
        axes: list[int | None] = [None, None]
        shape[axis], start[axis], axes[axis] = extent, offset, len(self.leading)
        return gmem_tile(self.tensor, tuple(start), tuple(shape), tuple(axes), self.leading)


def _dims(count: int) -> str:
    return "1 dim" if count == 1 else f"{count} dims"


class Machine(metaclass=_MachineType):
    """Base class of machines; see the guide for a first one."""

    heuristics: ClassVar[tuple[str, ...]] = HEURISTICS
    # Whether small integers give the reference's result bit for bit; False for machines that divide or approximate.
    exact: ClassVar[bool] = True
    # Relative error that approximate instructions (ex2, tanh, ...) add to a result, of random inputs.
    approximation: ClassVar[float] = 0.0
    # The operation in NumPy, a static method: takes inputs, scalars and options by name, and gives the output, or a
    # dict of several.
    reference: ClassVar[Callable[..., Any]]

    def program(self, p: Any) -> None:
        """What the machine does, written with the verbs of `Tracer`."""
        raise NotImplementedError

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "program" not in vars(cls) and not any("program" in vars(b) for b in cls.__mro__[1:-2]):
            return  # a base class for other machines
        _check(cls)
        from tinygpu.language.trace import trace_default

        trace_default(cls)

    # -- what is declared ------------------------------------------------------------------------------------------
    @classmethod
    def declarations(cls, kind: type) -> tuple[Any, ...]:
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                found.pop(name, None)
                if isinstance(value, kind):
                    found[name] = value
        return tuple(found.values())

    @classmethod
    def dim_names(cls) -> tuple[str, ...]:
        return tuple(d.name for d in cls.declarations(Dim))

    @classmethod
    def params(cls) -> tuple[Param, ...]:
        return cls.declarations(Param)

    @classmethod
    def choices(cls) -> tuple[Choice, ...]:
        return cls.declarations(Choice)

    @classmethod
    def option_declarations(cls) -> tuple[Option, ...]:
        return cls.declarations(Option)

    @classmethod
    def tensor_declarations(cls) -> tuple[TensorDeclaration, ...]:
        return cls.declarations(TensorDeclaration)

    @classmethod
    def scalar_declarations(cls) -> tuple[Scalar, ...]:
        return cls.declarations(Scalar)

    @classmethod
    def requirements(cls) -> tuple[Require, ...]:
        return cls.declarations(Require)

    @classmethod
    def layouts(cls) -> tuple[UnknownLayout, ...]:
        return cls.declarations(UnknownLayout)

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        """Whether the tensor exists under these options; a machine with optional operands overrides it."""
        return True

    @classmethod
    def uses_scalar(cls, name: str, options: dict[str, Any]) -> bool:
        """Whether the scalar exists under these options; a machine with optional scalars overrides it."""
        return True

    @classmethod
    def scalars(cls, options: Mapping[str, Any]) -> tuple[Scalar, ...]:
        """The scalars that exist under these options: those that a launch gives."""
        return tuple(s for s in cls.scalar_declarations() if cls.uses_scalar(s.name, dict(options)))

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        """(exact, approximation) under these options."""
        return cls.exact, cls.approximation

    @classmethod
    def refuses(cls, problem: Problem) -> str:
        """Why a combination of types, orders and options that are each on offer is not taken; "" takes it."""
        return ""

    @classmethod
    def summary(cls) -> str:
        """The first line of the machine's docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    def structures(cls) -> Iterator[Structure]:
        """Every combination of the structural choices, as (attribute, label) pairs."""
        declared = cls.choices()
        for labels in itertools.product(*[c.labels for c in declared]):
            yield tuple((c.name, label) for c, label in zip(declared, labels, strict=True))

    @classmethod
    def problem(cls, **dims: Any) -> Problem:
        """A problem of this machine: dims by name.

        `dtypes=`, `majors=`, `lds=`, `aligns=` and `options=` are as in `problem`.
        """
        extra = {k: dims.pop(k) for k in ("dtypes", "majors", "lds", "aligns", "options") if k in dims}
        return problem(cls, dims, **extra)

    # -- inside a trace --------------------------------------------------------------------------------------------
    def attribute_of(self, instruction: Any) -> str:
        """The name under which the class declares an instruction or route."""
        for base in type(self).__mro__:
            for name, value in vars(base).items():
                if value is instruction or (isinstance(value, Choice) and any(o is instruction for o in value.options)):
                    return name
        for name, value in vars(self).items():
            if value is instruction:
                return name
        return str(instruction)


RESERVED = frozenset(name for name in dir(Machine) if not name.startswith("__"))


def _check(cls: type[Machine]) -> None:
    title = cls.__name__
    if not cls.dim_names():
        raise DeclarationError(f"{title}: a machine declares at least one Dim")
    if not any(t.access != "in" for t in cls.tensor_declarations()):
        raise DeclarationError(f"{title}: a machine declares at least one Output or InOut")
    if "reference" not in {name for base in cls.__mro__[:-2] for name in vars(base)}:
        raise DeclarationError(f"{title}.reference: a machine says what it computes, as a static method in NumPy")
    wrong = mistake_in_names(cls) or _mistake_in_reference(cls)
    if wrong:
        raise DeclarationError(f"{title}{': ' if wrong.startswith('a kernel') else '.'}{wrong}")
    instructions = cls.declarations(Instruction) + cls.declarations(Route)
    listed = [*instructions, *(o for c in cls.choices() for o in c.options)]
    count = len({type(h).__name__ for i in listed for h in (i.hops if isinstance(i, Route) else (i,))
                 if isinstance(h, Instruction)})
    if count > 12:
        raise DeclarationError(f"{title}: a small machine has about ten instructions at most, not {count}")
    for name in cls.heuristics:
        if name not in HEURISTICS:
            raise DeclarationError(f"{title}.heuristics: unknown heuristic {name!r}; known: {', '.join(HEURISTICS)}")
    known = {p.name for p in cls.params()} | set(cls.dim_names())
    for r in cls.requirements():
        for symbol_name in sorted(r.condition.symbols):
            head = symbol_name.split(".")[0]
            if symbol_name not in known and head not in {"device", *(t.name for t in cls.tensor_declarations())}:
                raise DeclarationError(f"{title}.{r.name}: the constraint names {symbol_name!r}, which is not declared")


def _mistake_in_reference(cls: type[Machine]) -> str:
    """What is wrong with how `reference` takes its arguments, which are given by name."""
    given = [t.name for t in cls.tensor_declarations() if t.access != "out"]
    given += [d.name for d in (*cls.scalar_declarations(), *cls.option_declarations())]
    takes = inspect.signature(cls.reference).parameters
    named = [p.name for p in takes.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    anything = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    missing = [name for name in given if name not in named and not anything]
    strange = [name for name in named if name not in given and takes[name].default is inspect.Parameter.empty]
    if missing or strange:
        return f"reference: it is called with {', '.join(given)}, by name, and takes {', '.join(takes) or 'nothing'}"
    return ""


__all__ = ["AccessPattern", "BoundTensor", "Expr", "Machine", "Structure"]
