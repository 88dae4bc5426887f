"""LinearLayout: a layout between power-of-two spaces, as a 0/1 matrix over coordinate bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import f2
from tinygpu.layouts.algebra import coalesce, concatenate
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """The map x -> XOR of columns[k] over the set bits k of x: L(x ^ y) = L(x) ^ L(y).

    columns    images of the one-hot inputs 1, 2, 4, ...
    out_bits   width of an image in bits
    inputs     names of groups of input bits with their widths, lowest first; () names all bits "x"

    >>> LinearLayout((2, 1, 3), 2)(0b101)
    1
    """

    columns: tuple[int, ...]
    out_bits: int
    inputs: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(int(c) for c in self.columns))
        inputs = tuple((str(name), int(width)) for name, width in self.inputs) or (("x", len(self.columns)),)
        object.__setattr__(self, "inputs", inputs)
        if self.out_bits < 0:
            raise LayoutError(f"a linear layout cannot have {self.out_bits} output bits")
        for k, column in enumerate(self.columns):
            if not 0 <= column < 1 << self.out_bits:
                raise LayoutError(
                    f"column {k} of a linear layout is {column}, which does not fit into {self.out_bits} output bits"
                )
        names = [name for name, _ in inputs]
        if len(set(names)) != len(names):
            raise LayoutError(f"inputs {', '.join(names)} of a linear layout must have different names")
        if any(width < 0 for _, width in inputs) or sum(width for _, width in inputs) != len(self.columns):
            raise LayoutError(
                f"inputs {_widths(inputs)} of a linear layout must add up to its {len(self.columns)} columns"
            )

    @classmethod
    def identity(cls, bits: int) -> LinearLayout:
        """Every bit to itself."""
        return cls(tuple(1 << k for k in range(bits)), bits)

    @classmethod
    def from_layout(cls, layout: Layout, names: tuple[str, ...] = ()) -> LinearLayout:
        """The matrix of a shape:stride layout: from bits of the linear index to bits of the offset.

        Exists if and only if every size is a power of two and the images 2^k * stride of the bits share no bit
        (else adding them would carry, which XOR does not). `names` names the top-level modes as input groups.
        """
        columns: list[int] = []
        taken = 0
        for size, stride in layout.leaves:
            if size & (size - 1):
                raise LayoutError(f"{layout} is not linear over F2: size {size} is not a power of two")
            for k in range(size.bit_length() - 1):
                image = stride << k
                if image & taken:
                    raise LayoutError(
                        f"{layout} is not linear over F2: the image {image} of a coordinate bit shares bits with the "
                        f"images before it, so that adding them carries"
                    )
                taken |= image
                columns.append(image)
        inputs: tuple[tuple[str, int], ...] = ()
        if names:
            if len(names) != layout.rank:
                raise LayoutError(f"{layout} has {layout.rank} modes; {len(names)} names were given")
            inputs = tuple((n, mode.size.bit_length() - 1) for n, mode in zip(names, layout.modes, strict=True))
        return cls(tuple(columns), taken.bit_length(), inputs)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LinearLayout:
        """The layout that `to_json` wrote."""
        return cls(tuple(value["columns"]), value["out_bits"], tuple((n, w) for n, w in value["inputs"]))

    def to_json(self) -> dict[str, Any]:
        """{"columns": [...], "out_bits": ..., "inputs": [[name, width], ...]}."""
        return {"columns": list(self.columns), "out_bits": self.out_bits, "inputs": [list(i) for i in self.inputs]}

    def to_layout(self) -> Layout:
        """The shape:stride layout with the same offset at every index, one top-level mode per input group.

        Exists if and only if no two columns share a bit; otherwise it is a swizzle of some layout, not a layout.
        """
        taken = 0
        for k, column in enumerate(self.columns):
            if column & taken:
                raise LayoutError(
                    f"{self} is not a shape:stride layout: column {k}, {column}, shares bits with a column before it, "
                    f"so that XOR and addition differ"
                )
            taken |= column
        modes = []
        for name, _ in self.inputs:
            columns = self.group(name).columns
            modes.append(coalesce(Layout((2,) * len(columns), columns)))
        return modes[0] if len(modes) == 1 else concatenate(*modes)

    def __str__(self) -> str:
        parts = [f"{name}: {', '.join(map(str, self.group(name).columns)) or '-'}" for name, _ in self.inputs]
        return f"F2[{'; '.join(parts)}]"

    @property
    def in_bits(self) -> int:
        return len(self.columns)

    @property
    def size(self) -> int:
        return 1 << self.in_bits

    def __call__(self, index: int) -> int:
        """The image of one linear index."""
        if not 0 <= index < self.size:
            raise LayoutError(f"{self}: index {index} is outside [0, {self.size})")
        return f2.image(self.columns, index)

    def index(self, **coordinates: int) -> int:
        """The linear index at named coordinates, each below 2^width; groups that are not named are 0.

        >>> LinearLayout((1, 2, 4), 3, (("lane", 2), ("warp", 1))).index(lane=3, warp=1)
        7
        """
        widths = dict(self.inputs)
        for name, value in coordinates.items():
            if name not in widths:
                raise LayoutError(f"{self} has no input {name!r}; its inputs are {', '.join(widths)}")
            if not 0 <= value < 1 << widths[name]:
                raise LayoutError(f"{self}: {name} {value} is outside [0, {1 << widths[name]})")
        index = low = 0
        for name, width in self.inputs:
            index |= coordinates.get(name, 0) << low
            low += width
        return index

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The images of an int64 array of linear indices."""
        indices = np.asarray(indices, dtype=np.int64)
        if indices.size and not (indices.min() >= 0 and indices.max() < self.size):
            outside = int(indices.min()) if indices.min() < 0 else int(indices.max())
            raise LayoutError(f"{self}: index {outside} is outside [0, {self.size})")
        if self.out_bits > 62:
            raise LayoutError(f"{self}: {self.out_bits} output bits do not fit into 62-bit offsets")
        images = indices & sum(1 << k for k, column in enumerate(self.columns) if column == 1 << k)
        for k, column in enumerate(self.columns):
            if column != 1 << k:
                images ^= (indices >> k & 1) * column
        return images

    def offsets(self) -> NDArray[np.int64]:
        """(2^in_bits,) the image of every index."""
        return self.at(np.arange(self.size, dtype=np.int64))

    def matrix(self) -> NDArray[np.uint8]:
        """(out_bits, in_bits) the 0/1 matrix; row and column 0 are the lowest bits."""
        bits = [[column >> row & 1 for column in self.columns] for row in range(self.out_bits)]
        return np.array(bits, dtype=np.uint8).reshape(self.out_bits, self.in_bits)

    @property
    def rank(self) -> int:
        """The image has 2^rank elements."""
        return f2.rank(self.columns)

    @property
    def kernel(self) -> tuple[int, ...]:
        """A basis of the indices that map to 0: as many as in_bits - rank."""
        return f2.eliminate(self.columns).kernel

    @property
    def is_injective(self) -> bool:
        return self.rank == self.in_bits

    @property
    def is_surjective(self) -> bool:
        return self.rank == self.out_bits

    @property
    def is_bijective(self) -> bool:
        return self.is_injective and self.is_surjective

    def group(self, name: str) -> LinearLayout:
        """The restriction to one named group of input bits."""
        low = 0
        for known, width in self.inputs:
            if known == name:
                return LinearLayout(self.columns[low : low + width], self.out_bits, ((name, width),))
            low += width
        raise LayoutError(f"{self} has no input {name!r}; its inputs are {', '.join(n for n, _ in self.inputs)}")

    def restrict(self, in_bits: Iterable[int]) -> LinearLayout:
        """The restriction to some input bits, in the order given (P in the closed forms)."""
        bits = list(in_bits)
        for bit in bits:
            if not 0 <= bit < self.in_bits:
                raise LayoutError(f"{self} has no input bit {bit}; it has {self.in_bits}")
        return LinearLayout(tuple(self.columns[bit] for bit in bits), self.out_bits)

    def project(self, out_bits: Iterable[int]) -> LinearLayout:
        """Only some output bits, in the order given (W and B in the closed forms); bits above out_bits are 0."""
        bits = list(out_bits)
        if any(bit < 0 for bit in bits):
            raise LayoutError(f"{self} has no output bit {min(bits)}; they count from 0")
        columns = tuple(sum((column >> bit & 1) << k for k, bit in enumerate(bits)) for column in self.columns)
        return LinearLayout(columns, len(bits), self.inputs)

    def widened(self, out_bits: int) -> LinearLayout:
        """The same images, in a space of more output bits."""
        return LinearLayout(self.columns, out_bits, self.inputs)

    def compose(self, inner: LinearLayout) -> LinearLayout:
        """self o inner: the matrix product; the inputs are those of inner."""
        if inner.out_bits != self.in_bits:
            raise LayoutError(
                f"composing {self} with {inner}: the inner layout gives {inner.out_bits} bits, the outer one takes "
                f"{self.in_bits}; widen one of them"
            )
        return LinearLayout(tuple(f2.image(self.columns, c) for c in inner.columns), self.out_bits, inner.inputs)

    def solve(self, target: int) -> int | None:
        """An index whose image is `target`, or None where there is none; add kernel elements for all of them."""
        return f2.eliminate(self.columns).solve(target)

    def inverse(self) -> LinearLayout:
        """The inverse matrix."""
        if not self.is_bijective:
            raise LayoutError(
                f"{self} has no inverse: {self.in_bits} input bits, {self.out_bits} output bits and rank {self.rank} "
                f"must all be equal"
            )
        elimination = f2.eliminate(self.columns)
        return LinearLayout(tuple(elimination.solve(1 << k) or 0 for k in range(self.out_bits)), self.in_bits)

    def direct_product(self, other: LinearLayout) -> LinearLayout:
        """self (+) other: block-diagonal. Images of self are the low bits, of other the high bits.

        In a group that both have, the bits of self come first: (+) repeats a tile `self` in the pattern `other`.
        """
        mine = {name: self.group(name).columns for name, _ in self.inputs}
        more = {name: self._above(other.group(name).columns) for name, _ in other.inputs}
        groups = {name: mine.get(name, ()) + more.get(name, ()) for name in [*mine, *more]}
        inputs = tuple((name, len(columns)) for name, columns in groups.items())
        columns = tuple(column for group in groups.values() for column in group)
        return LinearLayout(columns, self.out_bits + other.out_bits, inputs)

    def _above(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(column << self.out_bits for column in columns)

    def left_divide(self, tile: LinearLayout) -> LinearLayout:
        """The layout L' with self = tile (+) L' on every coordinate: whether an instruction's tile fits.

        In each group of tile, the lowest bits of self must be those of tile, and all other bits of self must leave the
        low output bits of tile alone. Otherwise there is no such L'.
        """
        if tile.out_bits > self.out_bits:
            raise LayoutError(f"{self} / {tile}: the tile gives {tile.out_bits} bits, the layout only {self.out_bits}")
        low = (1 << tile.out_bits) - 1
        widths = dict(tile.inputs)
        for name in widths:
            if name not in dict(self.inputs):
                raise LayoutError(f"{self} / {tile}: the layout has no input {name!r}")
        columns: list[int] = []
        inputs = []
        for name, width in self.inputs:
            mine = self.group(name).columns
            taken = widths.get(name, 0)
            theirs = tile.group(name).columns if name in widths else ()
            if mine[:taken] != theirs:
                raise LayoutError(
                    f"{self} / {tile}: the low bits of {name} map to {', '.join(map(str, mine[:taken])) or 'nothing'}, "
                    f"not to {', '.join(map(str, theirs))}"
                )
            for column in mine[taken:]:
                if column & low:
                    raise LayoutError(
                        f"{self} / {tile}: a bit of {name} outside the tile maps to {column}, which changes the low "
                        f"{tile.out_bits} bits"
                    )
            columns.extend(column >> tile.out_bits for column in mine[taken:])
            inputs.append((name, width - taken))
        return LinearLayout(tuple(columns), self.out_bits - tile.out_bits, tuple(inputs))


def _widths(inputs: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name}:{width}" for name, width in inputs)
