"""The operands that a machine declares: tensors with symbolic dims, and scalars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tinygpu.dtypes import DType, dtype, not_in_memory
from tinygpu.expressions import Expr, Operand, expr, symbol
from tinygpu.language.memories import GMEM, Memory
from tinygpu.language.parameters import DeclarationError, Dim, Named, Option
from tinygpu.language.strides import MOST_AXES, order_of
from tinygpu.language.values import Values

Access = Literal["in", "out", "inout"]
# "row", "col", or the names of the dims in the order in which they lie in memory, the slowest first: "b.s.h.d".
Major = str
# What a tensor is declared over: a size that the problem gives, a number, or what an option says.
DimLike = Dim | Option | int


class TensorDeclaration(Named):
    """A tensor operand: dtypes that it may have (the first is the default), dims, and what the kernel does with it.

    Leading dimension, further strides and pointer alignment are facts of a problem, apart from dims: in constraints
    they are `NAME.ld` and `NAME.stride0` (of axis 0; elements), and `NAME.align` (bytes).
    """

    access: Access = "in"

    def __init__(
        self,
        dtypes: str | tuple[str, ...] | dict[str, tuple[str, ...]],
        *dims: DimLike,
        majors: tuple[str | tuple[Dim, ...], ...] = ("row",),
        follows: TensorDeclaration | None = None,
        memory: Memory = GMEM,
        values: Values | None = None,
    ) -> None:
        """
        dtypes   one, several (the first is the default), or, with `follows`, those that go with each dtype of that
                 tensor: {"f16": ("f16", "f32"), "s8": ("s32",)}
        dims     the slowest axis first, five at most
        majors   which orders the tensor may have in memory, the first is the default: "row", "col" (of two dims), or
                 the dims themselves in the order in which they lie in memory, the slowest first
        follows  the tensor, declared before, whose dtype decides
        memory   where it lies: GMEM, or a memory of one's own
        values   what its elements are drawn from, and where they lie: uniform(-1, 1), integers(0, v)
        """
        self.values = values
        self.follows = follows
        self.memory = memory
        self.table = dtypes if isinstance(dtypes, dict) else {}
        self.dims = dims
        self.orders = majors
        self.dtypes: tuple[DType, ...] = ()
        listed = (dtypes,) if isinstance(dtypes, str) else tuple(n for ns in self.table.values() for n in ns) or dtypes
        try:
            self.dtypes = tuple(dict.fromkeys(dtype(n) for n in listed))
            self.mistake = next((f"{t} {why}" for t in self.dtypes if (why := not_in_memory(t))), "")
        except ValueError as error:
            self.mistake = str(error)
        others = [d for d in dims if isinstance(d, bool) or not isinstance(d, (Dim, Option, int))]
        small = [d for d in dims if isinstance(d, int) and d < 1]
        unsized = [d for d in dims if isinstance(d, Option) and not all(_is_size(v) for v in d.values)]
        lists = [order for order in majors if isinstance(order, tuple)] if isinstance(majors, tuple) else []
        if follows is not None and not isinstance(follows, TensorDeclaration):
            self.follows = None
            self.mistake = f"follows= is the tensor itself, as follows=x after x = Input(...), not {follows!r}"
        elif isinstance(dtypes, dict) != (follows is not None):
            self.mistake = "a tensor that follows another gives its dtypes per dtype of that one, as a dict"
        elif follows is not None and set(self.table) != {t.name for t in follows.dtypes}:
            had = ", ".join(t.name for t in follows.dtypes)
            self.mistake = f"the dtypes are given for {', '.join(self.table)}, and {follows.name} can be {had}"
        elif not dims:
            self.mistake = "a tensor needs at least one dim"
        elif others:
            self.mistake = f"a tensor's dims are Dims of the machine, numbers or Options, not {others[0]!r}"
        elif small:
            self.mistake = f"a dim has 1 element or more, not {small[0]}"
        elif unsized:
            self.mistake = f"an Option that is a dim has whole numbers from 1 on, not {_first_unsized(unsized[0])!r}"
        elif len(dims) > MOST_AXES:
            self.mistake = f"a tensor has {MOST_AXES} dims at most, not {len(dims)}"
        elif len(dims) != 2 and "col" in majors:
            self.mistake = f"only a tensor with two dims can be column-major, not one with {len(dims)}"
        elif not _are_orders(majors):
            self.mistake = f"majors are 'row', 'col' or tuples of the dims, not {majors!r}"
        elif any(sorted(map(id, order)) != sorted(map(id, dims)) for order in lists):
            self.mistake = f"an order among majors has each of the {len(dims)} dims once, the slowest first"
        elif lists and len(set(map(id, dims))) < len(dims):
            self.mistake = "majors tell dims apart by name, and a dim occurs twice; leave the orders out"
        elif not isinstance(memory, Memory):
            self.mistake = f"a tensor's memory is GMEM or a Memory of one's own, not {memory!r}"
        elif memory.unwritten():
            self.mistake = f"{memory} {memory.unwritten()}"
        elif memory.writer == "host" and self.access != "in":
            written = "and the kernel this tensor"
            self.mistake = f"the host alone writes {memory}, {written}; declare it an Input, or in GMEM"
        elif values is not None and self.access == "out":
            self.mistake = f"an Output is written before anybody reads it, and has no values to draw, as {values}"
        else:
            self.mistake = self.mistake or _mistake_in(values)

    @property
    def majors(self) -> tuple[str, ...]:
        """The orders that the tensor may have, as a problem names them."""
        return tuple(o if isinstance(o, str) else ".".join(_label(d) for d in o) for o in self.orders)

    def order(self, major: str) -> tuple[int, ...]:
        """The axes as they lie in memory under one of the orders, the fastest first."""
        listed = self.orders[self.majors.index(major)]
        if isinstance(listed, str):
            return order_of(len(self.dims), listed)
        return tuple(next(a for a, d in enumerate(self.dims) if d is dim) for dim in reversed(listed))

    def names(self) -> tuple[str, ...]:
        """The names of its dims, and the digits of numbers."""
        return tuple(map(_label, self.dims))

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of its dims; of one that is a number, or that an option decides, its digits."""
        return tuple(str(options[d.name]) if isinstance(d, Option) else _label(d) for d in self.dims)

    def shape(self, sizes: Mapping[str, int], options: Mapping[str, Any]) -> tuple[int, ...]:
        """Its extents in a problem with these dims and options."""
        return tuple(
            d if isinstance(d, int) else int(options[d.name]) if isinstance(d, Option) else sizes[d.name]
            for d in self.dims
        )

    @property
    def dtype(self) -> DType:
        """Inside `program`: the dtype that the problem gives."""
        raise self._outside("dtype")

    @property
    def contiguous(self) -> int:
        """Inside `program`: the axis whose neighbours are neighbours in memory."""
        raise self._outside("contiguous")

    def tile(self, *offset: Operand, shape: tuple[Operand, ...], step: tuple[Operand, ...] = ()) -> Any:
        """Inside `program`: the window of `shape` that begins at `offset`, in elements, which are `step` apart."""
        raise self._outside("tile")

    def at(self, *leading: Operand) -> Any:
        """Inside `program`: one part of a batch, at coordinates along the first dims."""
        raise self._outside("at")

    def __getitem__(self, index: Operand | tuple[Operand, ...]) -> Any:
        """Inside `program`: one element of a tensor of whole numbers, as a number that expressions may name."""
        raise DeclarationError(f"{self.name}[{index}] exists inside `program`, where it is loaded")

    __iter__ = None  # one element after the other is not what a declaration gives

    def segment(self, begin: Operand, end: Operand) -> Any:
        """Inside `program`: the part of the tensor from one row up to another."""
        raise self._outside("segment")

    def rows(self, by: Any) -> Any:
        """Inside `program`: the tensor of the rows that values in registers name."""
        raise self._outside("rows")

    def row(self, offset: Operand, extent: Operand) -> Any:
        """Inside `program`, for one dim: a 1 x extent window that stands for every row."""
        raise self._outside("row")

    def column(self, offset: Operand, extent: Operand) -> Any:
        """Inside `program`, for one dim: an extent x 1 window that stands for every column."""
        raise self._outside("column")

    def _outside(self, name: str) -> DeclarationError:
        return DeclarationError(f"{self.name}.{name} exists inside `program`, where types and layouts are decided")

    def dtypes_for(self, other: DType) -> tuple[DType, ...]:
        """The dtypes that go with the dtype of the tensor that this one follows."""
        return tuple(dtype(n) for n in self.table[other.name])


def _are_orders(majors: Any) -> bool:
    known = isinstance(majors, tuple) and all(isinstance(o, tuple) or o in ("row", "col") for o in majors)
    return known and bool(majors)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _first_unsized(option: Option) -> Any:
    return next(v for v in option.values if not _is_size(v))


def _label(dim: DimLike) -> str:
    return str(dim) if isinstance(dim, int) else dim.name


class Input(TensorDeclaration):
    """A tensor that the kernel reads."""

    access = "in"


class Output(TensorDeclaration):
    """A tensor that the kernel writes, every element exactly once."""

    access = "out"


class InOut(TensorDeclaration):
    """A tensor that the kernel reads and writes."""

    access = "inout"


class Scalar(Named):
    """A number given at launch; `values` is what it is drawn from, and where it lies."""

    def __init__(self, dtype_name: str, *, values: Values | None = None) -> None:
        self.values = values
        if dtype_name in ("f32", "s32", "u32"):
            self.dtype = dtype(dtype_name)
            self.mistake = _mistake_in(values)
        else:
            self.mistake = f"a Scalar is f32, s32 or u32, not {dtype_name!r}"


def _mistake_in(values: Values | None) -> str:
    if values is None:
        return ""
    if not isinstance(values, Values):
        return f"values are a distribution, as uniform(-1, 1) or integers(0, v), not {values!r}"
    return values.mistake


@dataclass(frozen=True, slots=True)
class Tensor:
    """A declared tensor with its dtype and major-ness decided.

    dims     names of its dims, slowest first; of a number its digits
    major    "row": the last dim is contiguous; "col" (two dims): the first is; or the dims as they lie in memory
    memory   where it lies
    order    its axes, the fastest first; (): as `major` says
    known    dims that are numbers while the program is traced
    values   what its elements are declared to be drawn from; saved programs do not know it
    """

    name: str
    dtype: DType
    dims: tuple[str, ...]
    access: Access
    major: Major = "row"
    memory: Memory = GMEM
    order: tuple[int, ...] = ()
    known: tuple[tuple[str, int], ...] = ()
    values: Values | None = field(default=None, compare=False, metadata={"saved": False})

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def contiguous_axis(self) -> int:
        """The axis whose neighbours are neighbours in memory."""
        return self.memory_order[0]

    @property
    def memory_order(self) -> tuple[int, ...]:
        """Its axes as they lie in memory, the fastest first."""
        return self.order or order_of(self.rank, self.major)

    def size(self, axis: int) -> Expr:
        """Elements along an axis: a number where it is known while the program is traced."""
        dim = self.dims[axis]
        return expr(int(dim)) if dim.isdigit() else expr(dict(self.known).get(dim, symbol(dim)))

    @property
    def ld(self) -> Expr:
        """Elements between neighbours along the next-contiguous axis; a fact of the problem."""
        return symbol(f"{self.name}.ld")

    @property
    def pitches(self) -> tuple[tuple[int, str], ...]:
        """(axis, name of the fact) of every axis but the contiguous one, in the order of memory."""
        _, *rows = self.memory_order
        return tuple((axis, f"{self.name}.{f'stride{axis}' if n else 'ld'}") for n, axis in enumerate(rows))

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each axis."""
        out = [expr(1)] * self.rank
        for axis, name in self.pitches:
            out[axis] = symbol(name)
        return tuple(out)

    @property
    def align(self) -> Expr:
        """Alignment of the pointer, in bytes; a fact of the problem."""
        return symbol(f"{self.name}.align")


def extent_of(dim: str, sizes: Mapping[str, int]) -> int:
    """What a dim is in numbers."""
    return int(dim) if dim.isdigit() else sizes[dim]
