"""A problem: the numbers and types that a machine is asked to work for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygpu.dtypes import DType, dtype
from tinygpu.language.tensors import Access, Major, Tensor, TensorDeclaration


class ProblemError(ValueError):
    """A problem that does not fit the machine: a missing dim, an unknown dtype, a leading dimension too small."""


# Dims and leading dimensions are 32-bit arguments of kernels, which multiply them as signed numbers where windows begin
# before a tensor; byte offsets are signed 64-bit numbers.
MOST_ELEMS = 2**31 - 1
MOST_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of a problem; raises ProblemError where it is larger than the arguments of a kernel can say.

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

    def __post_init__(self) -> None:
        if isinstance(self.ld, bool) or not isinstance(self.ld, int) or self.ld > MOST_ELEMS:
            raise ProblemError(
                f"the leading dimension of {self.name} is a whole number of elements up to {MOST_ELEMS}, "
                f"not {self.ld!r}"
            )
        size = self.extent_elems * max(self.dtype.bits // 8, 1)
        if size > MOST_BYTES:
            raise ProblemError(
                f"{self.name} reaches over {size:,} bytes from its first element to its last, and kernels count up to "
                f"{MOST_BYTES:,}"
            )

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


def tensors(p: Problem, declarations: tuple[TensorDeclaration, ...]) -> tuple[Tensor, ...]:
    """The problem's tensors without their numbers."""
    by_name = {d.name: d for d in declarations}
    return tuple(
        Tensor(
            o.name, o.dtype, tuple(d.name for d in by_name[o.name].dims), o.access, o.major, by_name[o.name].memory
        )
        for o in p.operands
    )
