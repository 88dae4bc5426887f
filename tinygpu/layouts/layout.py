"""Layout: shape:stride, a map from a nested index space to offsets, or to coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import Expr
from tinygpu.layouts import shapes
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.leaf import Leaf, filled, leaf, same, times
from tinygpu.layouts.picture import Picture, drawn_holders, drawn_offsets, notebook
from tinygpu.layouts.shapes import IntTuple, ShapeTree, StrideTree
from tinygpu.layouts.step import Axis, E, Step, axes_of

WINDOW = (16, 32)
"""Rows and columns of a picture in a notebook."""
_LISTED = 1 << 16  # values up to which a notebook's picture lists them


@dataclass(frozen=True, eq=False)
class Layout:
    """The map x -> sum of x_i * stride_i over the leaves of a nested shape.

    shape    positive integers, nested: the domain, in colexicographic order (the first mode runs fastest)
    stride   nested like the shape: elements between neighbours of a mode, or steps along axes; 0 repeats. Either all
             count offsets, or all are steps (or 0): then the layout is a map into coordinates, one layout per axis

    Sizes and strides may be expressions over parameters; `fill` puts numbers in their place, and what lists coordinates
    or asks for their number needs these. Two layouts are equal when shape and stride are, expression for expression;
    `algebra.coalesce` makes equal functions equal values.

    >>> Layout((4, 8), (8, 1))(1, 2)
    10
    >>> Layout.parse("((4,8),(2,2)):((2@1,1@0),(1@1,8@0))").coordinate(5, 3)  # accumulators of mma.sync, lane 5
    (9, 3)
    """

    shape: ShapeTree
    stride: StrideTree

    def __post_init__(self) -> None:
        shape = shapes.checked_shape(self.shape)
        stride = _strides(self.stride)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", stride)
        if not shapes.congruent(shape, stride):
            raise LayoutError(f"{self}: shape and stride must be nested alike, with one stride per size")
        for _, step in self.steps:
            if isinstance(step, int) and step < 0:
                raise LayoutError(f"{self}: stride {step} is negative; offsets count up from 0")
        if self.axes and any(not isinstance(step, Step) and not same(step, 0) for _, step in self.steps):
            raise LayoutError(f"{self}: strides count offsets, or they are steps along axes, not some of each")

    @classmethod
    def regrouped(cls, *modes: Sequence[tuple[Leaf, Leaf | Step]]) -> Layout:
        """As `of`, of leaves that are those of other layouts and were checked there."""
        sizes, strides = zip(*(_nested(mode) for mode in modes), strict=True) if modes else ((), ())
        return cls._known(sizes, strides)

    @classmethod
    def _known(cls, shape: ShapeTree, stride: StrideTree) -> Layout:
        """A layout made of parts of others, which were checked."""
        out = object.__new__(cls)
        object.__setattr__(out, "shape", shape)
        object.__setattr__(out, "stride", stride)
        return out

    @classmethod
    def column_major(cls, shape: IntTuple) -> Layout:
        """The compact layout in which the first mode is contiguous: the identity on linear indices."""
        leaves = shapes.flatten(shapes.normalised(shape, "a shape"))
        return cls.from_leaves(shape, leaves, shapes.prefix_products(leaves))

    @classmethod
    def row_major(cls, shape: IntTuple) -> Layout:
        """The compact layout in which the last mode is contiguous."""
        leaves = shapes.flatten(shapes.normalised(shape, "a shape"))
        return cls.from_leaves(shape, leaves, shapes.prefix_products(leaves[::-1])[::-1])

    @classmethod
    def of(cls, *modes: Sequence[tuple[Leaf, Leaf | Step]]) -> Layout:
        """One mode for each list of (size, stride), fastest first; an empty list is a mode of one value.

        >>> print(Layout.of([(4, 2 * E(1)), (8, E(0))], [(2, E(1))]))
        ((4,8),2):((2@1,1@0),1@1)
        """

        sizes, strides = zip(*(_nested(mode) for mode in modes), strict=True) if modes else ((), ())
        return cls(sizes, strides)

    @classmethod
    def identity(cls, extents: tuple[int, ...]) -> Layout:
        """Every coordinate of a tensor of these extents, mapped to itself.

        >>> print(Layout.identity((4, 8)))
        (4,8):(1@0,1@1)
        """
        return cls(extents, tuple(E(axis) for axis in range(len(extents))))

    @classmethod
    def product(cls, layouts: Mapping[Axis, Layout]) -> Layout:
        """Side by side: (x, y, ...) -> (layouts[first](x), layouts[second](y), ...); a mode counts along its own axis.

        >>> print(Layout.product({"cta": Layout(2, 1), "offset": Layout((8, 4), (4, 1))}))
        (2,(8,4)):(1@cta,(4@offset,1@offset))
        """
        strides = (
            shapes.unflatten(tuple(d * E(axis) for _, d in layout.leaves), layout.shape)
            for axis, layout in layouts.items()
        )
        return cls(tuple(layout.shape for layout in layouts.values()), tuple(strides))

    @classmethod
    def from_leaves(cls, profile: ShapeTree, sizes: tuple[ShapeTree, ...], strides: tuple[StrideTree, ...]) -> Layout:
        """The layout nested like `profile`, with the given sizes and strides in place of its leaves."""
        profile = shapes.leaves(profile, "a profile")
        return cls(shapes.unflatten(sizes, profile), shapes.unflatten(strides, profile))

    @classmethod
    def parse(cls, source: str) -> Layout:
        """The layout written as "(4,8):(1,4)" or "(4,8):(1@0,1@1)"; "(4,8)" alone is the compact column-major one."""
        return _written(source)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Layout:
        """The layout that `to_json` wrote."""
        return cls(value["shape"], _parsed(value["stride"]))

    def to_json(self) -> dict[str, Any]:
        """{"shape": ..., "stride": ...} with nested lists of integers; a step is written as its text, "2@1"."""
        return {"shape": _lists(self.shape), "stride": _lists(self.stride)}

    def __str__(self) -> str:
        return f"{shapes.text(self.shape)}:{shapes.text(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape!r}, {self.stride!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return shapes.equal(self.shape, other.shape) and shapes.equal(self.stride, other.stride)

    def __hash__(self) -> int:
        return hash((self.shape, self.stride))

    def _repr_html_(self) -> str:
        """Notebooks show this: the notation, and of numbers a picture of the first rows and columns."""
        return notebook(str(self), self._picture() if self.is_numeric else None)

    def _picture(self) -> Picture | None:
        """Offsets, or with up to two axes who holds what; rows and columns are the first two modes."""
        sizes = [mode.size for mode in self.modes]
        if len(sizes) > 2 or len(self.axes) > 2 or self.size > _LISTED:
            return None
        if not self.axes and self.cosize > 1 << 62:
            return None
        if not self.axes:
            rows, columns = [1, *sizes][-2:] if sizes else (1, 1)
            return drawn_offsets("offsets", self.offsets().reshape(columns, rows).T, WINDOW)
        at = np.concatenate([np.zeros((self.size, 2 - len(self.axes)), dtype=np.int64), self.coordinates()], axis=1)
        extents = (int(at[:, 0].max()) + 1, int(at[:, 1].max()) + 1)
        ways = ("down", "across")[-len(self.axes) :]
        title = ", ".join(f"axis {axis} {way}" for axis, way in zip(self.axes, ways, strict=True))
        return drawn_holders(f"who holds what: {title}", sizes[0], at, extents, WINDOW)

    @property
    def is_numeric(self) -> bool:
        """Whether all sizes and strides are numbers, and none an expression."""
        counts = [n for _, d in self.steps for n in ([c for _, c in d.terms] if isinstance(d, Step) else [d])]
        return all(isinstance(n, int) for n in (*counts, *(size for size, _ in self.steps)))

    @cached_property
    def extents(self) -> IntTuple:
        """The shape of a layout whose sizes are numbers; one with expressions is refused."""
        if not all(isinstance(size, int) for size in shapes.flatten(self.shape)):
            raise LayoutError(f"{self}: its sizes are expressions; fill in their numbers first")
        return shapes.normalised(self.shape, "a shape")

    @cached_property
    def size(self) -> int:
        """How many coordinates the domain has."""
        return shapes.size(self.extents)

    @cached_property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((s - 1) * d for s, d in self.leaves)

    @property
    def rank(self) -> int:
        """How many modes the shape has at the top; an integer shape is one mode."""
        return len(self.modes)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that some mode moves along; none for a layout into offsets."""
        return axes_of(stride for _, stride in self.steps)

    @cached_property
    def steps(self) -> tuple[tuple[Leaf, Leaf | Step], ...]:
        """(size, stride) of every leaf, fastest first; strides are offsets or steps."""
        return tuple(zip(shapes.flatten(self.shape), shapes.flatten(self.stride), strict=True))

    @cached_property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of every leaf, fastest first, of a layout of numbers into offsets; any other is refused."""
        if self.axes:
            named = ", ".join(map(str, self.axes))
            raise LayoutError(f"{self} is a map into coordinates; take it along one of its axes, {named}")
        found = [(s, d) for s, d in self.steps if isinstance(s, int) and isinstance(d, int)]
        if len(found) < len(self.steps):
            raise LayoutError(f"{self}: its sizes and strides are expressions; fill in their numbers first")
        return tuple(found)

    @cached_property
    def modes(self) -> tuple[Layout, ...]:
        """The top-level modes, each a layout of its own."""
        if not isinstance(self.shape, tuple) or not isinstance(self.stride, tuple):
            return (self,)
        return tuple(Layout._known(s, d) for s, d in zip(self.shape, self.stride, strict=True))

    def __getitem__(self, mode: int) -> Layout:
        modes = self.modes
        if not -len(modes) <= mode < len(modes):
            raise LayoutError(f"{self} has no mode {mode}; its {len(modes)} modes count from 0")
        return modes[mode]

    def __len__(self) -> int:
        return self.rank

    def __iter__(self) -> Iterator[Layout]:
        return iter(self.modes)

    # -- into offsets ----------------------------------------------------------------------------------------------

    def __call__(self, *coordinate: IntTuple) -> int:
        """The offset at a linear index, `layout(9)`, or at a coordinate, `layout(1, 2)` or `layout((1, (0, 1)))`.

        Where the shape is nested, an integer stands for a linear index into that mode. A coordinate outside the
        domain is a LayoutError.
        """
        where = coordinate[0] if len(coordinate) == 1 else coordinate
        index = shapes.index_of(shapes.normalised(where, "a coordinate"), self.extents)
        offset = 0
        for extent, step in self.leaves:
            offset += index % extent * step
            index //= extent
        return offset

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets at linear indices: an int64 array of the same shape; an index outside the domain is refused."""
        rest = np.array(indices, dtype=np.int64)
        if rest.size and not (rest.min() >= 0 and rest.max() < self.size):
            outside = int(rest.min()) if rest.min() < 0 else int(rest.max())
            raise LayoutError(f"{self}: index {outside} is outside [0, {self.size})")
        if self.cosize > 1 << 62:
            raise LayoutError(f"{self}: offsets up to {self.cosize - 1} do not fit into 64 bits")
        offsets = np.zeros_like(rest)
        for extent, step in self.leaves:
            if extent > 1:
                offsets += rest % extent * step
                rest //= extent
        return offsets

    def at_coordinates(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets at coordinates, shape (..., modes): one number for each top-level mode, within its size."""
        if coordinates.shape[-1] != self.rank:
            raise LayoutError(f"{self} has {self.rank} modes, and coordinates {coordinates.shape[-1]}")
        total = np.zeros(coordinates.shape[:-1], dtype=np.int64)
        for axis, mode in enumerate(self.modes):
            total += mode.at(coordinates[..., axis])
        return total

    def offsets(self) -> NDArray[np.int64]:
        """(size,) the offset of every coordinate, in colexicographic order."""
        return self.at(np.arange(self.size, dtype=np.int64))

    # -- into coordinates ------------------------------------------------------------------------------------------

    def along(self, axis: Axis) -> Layout:
        """The layout of the steps along one axis; one that no mode moves along gives 0 everywhere.

        >>> print(Layout.parse("(4,8):(1@0+2@1,1@1)").along(1))
        (4,8):(2,1)
        """
        return self._restrided(lambda step: step.along(axis))

    def digits_along(self, axis: Axis) -> Iterator[tuple[int, int]]:
        """(size, steps along one axis) of every leaf of a layout of numbers, fastest first."""
        for size, (_, stride) in zip(shapes.flatten(self.extents), self.steps, strict=True):
            count = stride.along(axis) if isinstance(stride, Step) else 0
            if not isinstance(count, int):
                raise LayoutError(f"{self}: its steps are expressions; fill in their numbers first")
            yield size, count

    def project(self, axes: Mapping[Axis, Axis | Step | None]) -> Layout:
        """The same modes along other axes; an axis that is left out, or becomes None, disappears.

        A transposition, the reduction along an axis and the part along some axes are projections. An axis that becomes
        a step is laid along other axes: matrices that are counted by "m" lie side by side.

        >>> print(Layout.parse("(4,8):(1@0,1@1)").project({0: 1, 1: 0}))
        (4,8):(1@1,1@0)
        >>> print(Layout.parse("(8,4):(1@0,1@m)").project({0: 0, "m": 8 * E(1)}))
        (8,4):(1@0,8@1)
        """

        def moved(step: Step) -> Step:
            out = Step(())
            for axis, count in step.terms:
                onto = axes.get(axis)
                if onto is not None:
                    out += (onto if isinstance(onto, Step) else E(onto)) * count
            return out

        return self._restrided(moved)

    def coordinate(self, *coordinate: IntTuple, axes: tuple[Axis, ...] | None = None) -> tuple[int, ...]:
        """The value along each axis, at a linear index or at a coordinate of the domain."""
        return tuple(self.along(axis)(*coordinate) for axis in (self.axes if axes is None else axes))

    def coordinates(self, axes: tuple[Axis, ...] | None = None) -> NDArray[np.int64]:
        """(size, axes) the values of every coordinate of the domain, in colexicographic order."""
        wanted = self.axes if axes is None else axes
        if any(isinstance(stride, int) and stride for _, stride in self.steps):
            raise LayoutError(f"{self} is a map into offsets and has no axes")
        place = {axis: number for number, axis in enumerate(wanted)}
        total = np.zeros((self.size, len(wanted)), dtype=np.int64)
        index, below = np.arange(self.size, dtype=np.int64), 1
        for (_, stride), size in zip(self.steps, shapes.flatten(self.extents), strict=True):
            for axis, count in stride.terms if isinstance(stride, Step) and size > 1 else ():
                if not isinstance(count, int):
                    raise LayoutError(f"{self}: its steps are expressions; fill in their numbers first")
                if axis in place:
                    total[:, place[axis]] += index // below % size * count
            below *= size
        return total

    def linearised(self, extents: tuple[int, ...]) -> Layout:
        """The layout into linear indices of a tensor with these extents, the first axis running fastest.

        An axis that leaves its extent is refused, because its index would land on a different coordinate.

        >>> print(Layout.parse("(2,4):(1@1,1@0)").linearised((4, 8)))
        (2,4):(4,1)
        """
        foreign = [axis for axis in self.axes if isinstance(axis, str) or axis >= len(extents)]
        if foreign:
            axes = f"{shapes.text(extents)} has {len(extents)} axes from 0 on"
            raise LayoutError(f"{self}: {axes}, and no {foreign[0]!r}")
        for axis, extent in enumerate(extents):
            reach = self.along(axis).cosize - 1
            if reach >= extent:
                raise LayoutError(
                    f"{self}: axis {axis} reaches {reach}, outside [0, {extent}) of the tensor {shapes.text(extents)}"
                )
        below = shapes.prefix_products(extents)
        return self._restrided(lambda step: sum((step.along(axis) * b for axis, b in enumerate(below)), start=0))

    def strided(self, pitches: Mapping[Axis, Leaf]) -> Layout:
        """The layout into offsets in which a step along an axis is as long as its pitch says: what it is composed with
        is one line along each axis.

        >>> print(Layout.parse("((4,8),2):((2@1,1@0),1@1)").strided({0: 96, 1: 1}))
        ((4,8),2):((2,96),1)
        """

        def offset(step: Step) -> Leaf:
            parts = [times(count, pitches[axis]) for axis, count in step.terms]
            return leaf(sum(parts[1:], start=parts[0]), "a stride")

        return self._restrided(offset)

    def _restrided(self, change: Callable[[Step], Leaf | Step]) -> Layout:
        if any(not isinstance(d, Step) and not same(d, 0) for _, d in self.steps):
            raise LayoutError(f"{self} is a map into offsets and has no axes")
        return Layout._known(self.shape, _changed(self.stride, lambda d: change(d) if isinstance(d, Step) else 0))

    # -- with expressions ------------------------------------------------------------------------------------------

    @cached_property
    def expressions(self) -> tuple[Expr, ...]:
        """Those among the sizes and strides."""
        found: list[Expr] = []
        for size, stride in self.steps:
            counts = (count for _, count in stride.terms) if isinstance(stride, Step) else (stride,)
            found += [leaf for leaf in (size, *counts) if isinstance(leaf, Expr)]
        return tuple(found)

    def replaced(self, function: Callable[[Expr], Expr]) -> Layout:
        """The layout with every expression replaced; one in which none changes is itself."""
        made = {id(found): function(found) for found in self.expressions}
        if all(made[id(found)] is found for found in self.expressions):
            return self

        def changed(value: Any) -> Any:
            if isinstance(value, Step):
                return value.replaced(lambda found: made[id(found)])
            return leaf(made[id(value)], "a size or stride") if isinstance(value, Expr) else value

        shape, stride = _changed(self.shape, changed), _changed(self.stride, changed)
        whole = all(not isinstance(size, int) or size > 0 for size in shapes.flatten(shape))
        return Layout._known(shape, stride) if whole else Layout(shape, stride)

    def fill(self, values: Mapping[str, int]) -> Layout:
        """The layout with numbers in place of its expressions; every symbol in them needs a value.

        >>> from tinygpu.expressions import symbol
        >>> print(Layout((4, symbol("n") // 4), (1, symbol("n"))).fill({"n": 32}))
        (4,8):(1,32)
        """
        sizes = tuple(filled(size, values) for size, _ in self.steps)
        strides = tuple(d.fill(values) if isinstance(d, Step) else filled(d, values) for _, d in self.steps)
        return Layout(shapes.unflatten(sizes, self.shape), shapes.unflatten(strides, self.shape))


@lru_cache(maxsize=1024)  # fragments are written down, and asked for by every structure of a machine
def _written(source: str) -> Layout:
    shape, colon, stride = source.partition(":")
    if not colon:
        return Layout.column_major(shapes.parse(shape))
    return Layout(shapes.parse(shape), shapes.parse_strides(stride))


def _nested(leaves: Sequence[tuple[Leaf, Leaf | Step]]) -> tuple[Any, Any]:
    """The shape and stride of one mode."""
    if len(leaves) == 1:
        return leaves[0]
    return (tuple(size for size, _ in leaves), tuple(stride for _, stride in leaves)) if leaves else (1, 0)


def _changed(tree: StrideTree, change: Callable[[Any], Any]) -> Any:
    """The tree with every leaf changed; a step along no axis is 0."""
    if isinstance(tree, tuple):
        return tuple(_changed(branch, change) for branch in tree)
    made = change(tree)
    return 0 if isinstance(made, Step) and not made.terms else made


def _strides(tree: Any) -> StrideTree:
    """Plain leaves, steps and tuples; a step along no axis is 0."""
    if isinstance(tree, (tuple, list)):
        return tuple(_strides(branch) for branch in tree)
    if isinstance(tree, Step):
        return tree if tree.terms else 0
    return shapes.leaves(tree, "a stride")


def _lists(tree: StrideTree) -> Any:
    if isinstance(tree, tuple):
        return [_lists(branch) for branch in tree]
    return tree if isinstance(tree, int) else str(tree)


def _parsed(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_parsed(branch) for branch in tree]
    return Step.parse(tree) if isinstance(tree, str) else tree
