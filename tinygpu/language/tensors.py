"""The operands that a machine declares: tensors with symbolic dims, and scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tinygpu.dtypes import DType, dtype, not_in_memory
from tinygpu.expressions import Expr, Operand, expr, symbol
from tinygpu.language.memories import GMEM, Memory
from tinygpu.language.parameters import DeclarationError, Dim, Named
from tinygpu.language.values import Values

Access = Literal["in", "out", "inout"]
Major = Literal["row", "col"]


class TensorDeclaration(Named):
    """A tensor operand: dtypes that it may have (the first is the default), dims, and what the kernel does with it.

    Leading dimension and pointer alignment are facts of a problem, apart from dims: in constraints they are
    `NAME.ld` (elements) and `NAME.align` (bytes).
    """

    access: Access = "in"

    def __init__(
        self,
        dtypes: str | tuple[str, ...] | dict[str, tuple[str, ...]],
        *dims: Dim,
        majors: tuple[Major, ...] = ("row",),
        follows: TensorDeclaration | None = None,
        memory: Memory = GMEM,
        values: Values | None = None,
    ) -> None:
        """
        dtypes   one, several (the first is the default), or, with `follows`, those that go with each dtype of that
                 tensor: {"f16": ("f16", "f32"), "s8": ("s32",)}
        dims     the slowest axis first
        majors   which orders the tensor may have in memory; the first is the default
        follows  the tensor, declared before, whose dtype decides
        memory   where it lies: GMEM, or a memory of one's own
        values   what its elements are drawn from, and where they lie: uniform(-1, 1), integers(0, v)
        """
        self.values = values
        self.follows = follows
        self.memory = memory
        self.table = dtypes if isinstance(dtypes, dict) else {}
        self.dims = dims
        self.majors = majors
        self.dtypes: tuple[DType, ...] = ()
        listed = (dtypes,) if isinstance(dtypes, str) else tuple(n for ns in self.table.values() for n in ns) or dtypes
        try:
            self.dtypes = tuple(dict.fromkeys(dtype(n) for n in listed))
            self.mistake = next((f"{t} {why}" for t in self.dtypes if (why := not_in_memory(t))), "")
        except ValueError as error:
            self.mistake = str(error)
        others = [d for d in dims if not isinstance(d, Dim)]
        if isinstance(dtypes, dict) != (follows is not None):
            self.mistake = "a tensor that follows another gives its dtypes per dtype of that one, as a dict"
        elif follows is not None and set(self.table) != {t.name for t in follows.dtypes}:
            had = ", ".join(t.name for t in follows.dtypes)
            self.mistake = f"the dtypes are given for {', '.join(self.table)}, and {follows.name} can be {had}"
        elif not dims:
            self.mistake = "a tensor needs at least one dim"
        elif others:
            self.mistake = f"a tensor's dims are Dims of the machine, not {others[0]!r}"
        elif len(dims) != 2 and "col" in majors:
            self.mistake = f"only a tensor with two dims can be column-major, not one with {len(dims)}"
        elif not majors or not set(majors) <= {"row", "col"}:
            self.mistake = f"majors are 'row' or 'col', not {majors!r}"
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
    def dtype(self) -> DType:
        """Inside `program`: the dtype that the problem gives."""
        raise self._outside("dtype")

    @property
    def contiguous(self) -> int:
        """Inside `program`: the axis whose neighbours are neighbours in memory."""
        raise self._outside("contiguous")

    def tile(self, *offset: Operand, shape: tuple[Operand, ...]) -> Any:
        """Inside `program`: the window of `shape` that begins at `offset`, in elements."""
        raise self._outside("tile")

    def at(self, *leading: Operand) -> Any:
        """Inside `program`: one part of a batch, at coordinates along the first dims."""
        raise self._outside("at")

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

    dims     names of its dims, slowest first
    major    "row": the last dim is contiguous; "col" (two dims): the first is
    memory   where it lies
    """

    name: str
    dtype: DType
    dims: tuple[str, ...]
    access: Access
    major: Major = "row"
    memory: Memory = GMEM

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def contiguous_axis(self) -> int:
        """The axis whose neighbours are neighbours in memory."""
        return 0 if self.major == "col" else self.rank - 1

    @property
    def ld(self) -> Expr:
        """Elements between neighbours along the next-contiguous axis; a fact of the problem."""
        return symbol(f"{self.name}.ld")

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each axis."""
        out, step = [expr(1)] * self.rank, self.ld
        for axis in reversed(range(self.rank)):
            if axis != self.contiguous_axis:
                out[axis], step = step, step * symbol(self.dims[axis])
        return tuple(out)

    @property
    def align(self) -> Expr:
        """Alignment of the pointer, in bytes; a fact of the problem."""
        return symbol(f"{self.name}.align")
