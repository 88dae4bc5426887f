"""A problem: the numbers and types that a machine is asked to work for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.dtypes import DType, dtype
from tinygpu.language.parameters import Dim
from tinygpu.language.strides import MOST_STRIDE_ELEMS, order_of, overlapping, packed, resized
from tinygpu.language.tensors import Access, Major, Tensor, TensorDeclaration


class ProblemError(ValueError):
    """A problem that does not fit the machine: a missing dim, an unknown dtype, a leading dimension too small."""


# Dims, and leading dimensions of tensors with two dims, are 32-bit arguments of kernels, which multiply them as signed
# numbers where windows begin before a tensor; other strides and byte offsets are signed 64-bit numbers.
MOST_ELEMS = 2**31 - 1
MOST_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of a problem; raises ProblemError where it is larger than the arguments of a kernel can say.

    shape        extents, slowest axis first
    ld           leading dimension: elements between neighbours along the next-contiguous axis
    align_bytes  alignment of the pointer
    outer        elements between neighbours along the axes that come after these two, in the order of memory; (): they
                 follow without gaps
    order        its axes, the fastest first; (): as `major` says
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    major: Major
    ld: int
    align_bytes: int
    access: Access
    outer: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.order == order_of(len(self.shape), self.major):
            object.__setattr__(self, "order", ())
        most = MOST_ELEMS if len(self.shape) < 3 else MOST_STRIDE_ELEMS
        if isinstance(self.ld, bool) or not isinstance(self.ld, int) or self.ld > most:
            raise ProblemError(
                f"the leading dimension of {self.name} is a whole number of elements up to {most}, not {self.ld!r}"
            )
        further = self.memory_order[2:]
        if len(self.outer) not in (0, len(further)):
            raise ProblemError(f"{self.name} has {len(further)} axes beyond its rows, and {len(self.outer)} strides")
        for axis, stride in zip(further, self.outer, strict=False):
            if isinstance(stride, bool) or not isinstance(stride, int) or not 1 <= stride <= MOST_STRIDE_ELEMS:
                raise ProblemError(
                    f"the stride of {self.name} along axis {axis} is a whole number of elements from 1 to "
                    f"{MOST_STRIDE_ELEMS}, not {stride!r}"
                )
        if self.outer and self.outer == tuple(self._packed[axis] for axis in further):
            object.__setattr__(self, "outer", ())
        size = self.extent_elems * max(self.dtype.bits // 8, 1)
        if size > MOST_BYTES:
            raise ProblemError(
                f"{self.name} reaches over {size:,} bytes from its first element to its last, and kernels count up to "
                f"{MOST_BYTES:,}"
            )

    @property
    def contiguous_axis(self) -> int:
        return self.memory_order[0]

    @property
    def memory_order(self) -> tuple[int, ...]:
        """Its axes as they lie in memory, the fastest first."""
        return self.order or order_of(len(self.shape), self.major)

    @property
    def _packed(self) -> tuple[int, ...]:
        return packed(self.shape, self.memory_order, dict.fromkeys(self.memory_order[1:2], self.ld))

    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        further = dict(zip(self.memory_order[2:], self.outer, strict=False))
        return tuple(further.get(axis, step) for axis, step in enumerate(self._packed))

    @property
    def overlaps(self) -> bool:
        """Whether two of its elements may lie at the same place."""
        return overlapping(self.shape, self.strides())

    def pitch(self, axis: int) -> str:
        """What the stride of an axis that is not the contiguous one is called in expressions."""
        return f"{self.name}.{'ld' if axis == self.memory_order[1] else f'stride{axis}'}"

    def resized(
        self, shape: tuple[int, ...], fitting: Callable[[int, int], int] | None = None, most_gap: int | None = None
    ) -> Operand:
        """The same with other extents: axes keep their order in memory and the gaps between them.

        fitting   (axis, least stride) -> a stride that the axis may have; None: the least
        most_gap  elements to which wider gaps are cut; what is left of them when divided by that stays
        """
        order = self.memory_order
        if shape == self.shape and fitting is None:
            return self
        found = resized(self.shape, self.strides(), order, shape, fitting or (lambda axis, least: least), most_gap)
        ld = found[order[1]] if len(order) > 1 else shape[0]
        return replace(self, shape=shape, ld=ld, outer=tuple(found[axis] for axis in order[2:]))

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
            f"{o.name}:{o.dtype}{'' if o.major == 'row' else f':{o.major}'}" for o in self.operands
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
            strides = o.strides()
            out |= {f"{o.name}.stride{axis}": strides[axis] for axis in o.memory_order[2:]}
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
                    **({"outer": list(o.outer)} if o.outer else {}),
                    **({"order": list(o.order)} if o.order else {}),
                }
                for o in self.operands
            ],
            "options": dict(self.options),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Problem:
        operands = tuple(
            Operand(
                o["name"], dtype(o["dtype"]), tuple(o["shape"]), o["major"], o["ld"], o["align_bytes"], o["access"],
                tuple(o.get("outer", ())), tuple(o.get("order", ())),
            )
            for o in data["operands"]
        )
        return Problem(tuple(data["dims"].items()), operands, tuple(data["options"].items()))


def tensors(p: Problem, declarations: tuple[TensorDeclaration, ...]) -> tuple[Tensor, ...]:
    """The problem's tensors without their numbers, but for dims that are listed."""
    by_name = {d.name: d for d in declarations}
    out = []
    for o in p.operands:
        declared = by_name[o.name]
        listed = tuple(dict.fromkeys((d.name, p.dim[d.name]) for d in declared.dims if isinstance(d, Dim) and d.values))
        labels = declared.labels(dict(p.options))
        memory, values = declared.memory, declared.values
        out.append(Tensor(o.name, o.dtype, labels, o.access, o.major, memory, o.order, listed, values))
    return tuple(out)
