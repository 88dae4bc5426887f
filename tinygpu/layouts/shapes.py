"""Nested tuples of integers: the shapes, strides and coordinates of layouts.

A shape is a positive integer or a tuple of shapes. It names a finite index space: all coordinates, in
colexicographic order (the first mode runs fastest), so that each coordinate also has a linear index in [0, size).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, overload

from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.leaf import Leaf, leaf, same
from tinygpu.layouts.step import Step

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
ShapeTree: TypeAlias = "Leaf | tuple[ShapeTree, ...]"
StrideTree: TypeAlias = "Leaf | Step | tuple[StrideTree, ...]"


def normalised(tree: Any, what: str) -> IntTuple:
    """`tree` as plain ints and tuples (lists and NumPy integers are converted); `what` names it in the error."""
    if isinstance(tree, (tuple, list)):
        return tuple(normalised(t, what) for t in tree)
    number = leaf(tree, what)
    if not isinstance(number, int):
        raise LayoutError(f"{what} must be an integer or a tuple of them, not {tree!r}")
    return number


def leaves(tree: Any, what: str) -> ShapeTree:
    """As `normalised`, of a tree whose leaves may be expressions."""
    return tuple(leaves(t, what) for t in tree) if isinstance(tree, (tuple, list)) else leaf(tree, what)


def checked_shape(shape: object) -> ShapeTree:
    """`shape` with plain leaves; every number among them must be 1 or more."""
    tree = leaves(shape, "a shape")
    for size in flatten(tree):
        if isinstance(size, int) and size < 1:
            raise LayoutError(f"shape {text(tree)}: {size} is not a size; each mode needs a size of 1 or more")
    return tree


@overload
def flatten(tree: IntTuple) -> tuple[int, ...]: ...
@overload
def flatten(tree: ShapeTree) -> tuple[Leaf, ...]: ...
@overload
def flatten(tree: StrideTree) -> tuple[Leaf | Step, ...]: ...
def flatten(tree: Any) -> tuple[Any, ...]:
    """The leaves, from left to right.

    >>> flatten((2, (3, 4)))
    (2, 3, 4)
    """
    if not isinstance(tree, tuple):
        return (tree,)
    out: list[Any] = []
    for branch in tree:
        if isinstance(branch, tuple):
            out += flatten(branch)
        else:
            out.append(branch)
    return tuple(out)


@overload
def unflatten(leaves: tuple[IntTuple, ...], profile: StrideTree) -> IntTuple: ...
@overload
def unflatten(leaves: tuple[ShapeTree, ...], profile: StrideTree) -> ShapeTree: ...
@overload
def unflatten(leaves: tuple[StrideTree, ...], profile: StrideTree) -> StrideTree: ...
def unflatten(leaves: tuple[Any, ...], profile: StrideTree) -> Any:
    """`leaves` in the nesting of `profile`; a leaf may itself be a tuple.

    >>> unflatten((5, 6, 7), (2, (3, 4)))
    (5, (6, 7))
    """
    places = len(flatten(profile))
    if len(leaves) != places:
        raise LayoutError(f"{len(leaves)} leaves do not fit into {text(profile)}, which has {places}")
    return _take(iter(leaves), profile)


def _take(stream: Iterator[Any], profile: StrideTree) -> Any:
    if isinstance(profile, tuple):
        return tuple(_take(stream, branch) for branch in profile)
    return next(stream)


def size(shape: IntTuple) -> int:
    """How many coordinates the index space has: the product of the leaves; () is one point."""
    total = 1
    for extent in flatten(shape):
        total *= extent
    return total


def equal(a: StrideTree, b: StrideTree) -> bool:
    """Whether both are nested alike and have the same leaves, expression for expression."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return (
            isinstance(a, tuple)
            and isinstance(b, tuple)
            and len(a) == len(b)
            and all(equal(x, y) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, Step) or isinstance(b, Step):
        return isinstance(a, Step) and isinstance(b, Step) and a == b
    return same(a, b)


def congruent(a: StrideTree, b: StrideTree) -> bool:
    """True when both are nested in the same way, whatever the leaves."""
    if not isinstance(a, tuple) or not isinstance(b, tuple):
        return not isinstance(a, tuple) and not isinstance(b, tuple)
    return len(a) == len(b) and all(congruent(x, y) for x, y in zip(a, b, strict=True))


def refines(fine: IntTuple, coarse: IntTuple) -> bool:
    """True when every mode of `coarse` is a mode, or a group of modes, of `fine` with the same size.

    Then every coordinate of `coarse` is also one of `fine`, at the same linear index.

    >>> refines(((2, 2), 8), (4, 8))
    True
    """
    if isinstance(coarse, int):
        return size(fine) == coarse
    if isinstance(fine, int):
        return False
    return len(fine) == len(coarse) and all(refines(f, c) for f, c in zip(fine, coarse, strict=True))


def prefix_products(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The linear index of one step along each mode: (1, s0, s0 s1, ...), as many as `sizes`."""
    products, total = [], 1
    for extent in sizes:
        products.append(total)
        total *= extent
    return tuple(products)


def index_of(coordinate: IntTuple, shape: IntTuple) -> int:
    """The linear index of a coordinate. Where the shape is nested, an integer stands for a linear index in it.

    >>> index_of((1, 2), (4, 8)), index_of((1, 2), (4, (2, 4)))
    (9, 9)
    """
    if isinstance(coordinate, int):
        extent = size(shape)
        if not 0 <= coordinate < extent:
            raise LayoutError(f"coordinate {coordinate} is outside [0, {extent}), the domain of {text(shape)}")
        return coordinate
    if isinstance(shape, int) or len(coordinate) != len(shape):
        raise LayoutError(f"coordinate {text(coordinate)} does not fit the shape {text(shape)}")
    index, step = 0, 1
    for part, mode in zip(coordinate, shape, strict=True):
        index += step * index_of(part, mode)
        step *= size(mode)
    return index


def coordinate_of(index: int, shape: IntTuple) -> IntTuple:
    """The nested coordinate at a linear index: the inverse of `index_of`.

    >>> coordinate_of(9, (4, (2, 4)))
    (1, (0, 1))
    """
    extent = size(shape)
    if not 0 <= index < extent:
        raise LayoutError(f"index {index} is outside [0, {extent}), the domain of {text(shape)}")
    if isinstance(shape, int):
        return index
    parts = []
    for mode in shape:
        extent = size(mode)
        parts.append(coordinate_of(index % extent, mode))
        index //= extent
    return tuple(parts)


def text(tree: StrideTree) -> str:
    """The notation of the papers, without spaces: "(4,(2,4))"."""
    if isinstance(tree, tuple):
        return "(" + ",".join(text(branch) for branch in tree) + ")"
    return str(tree)


def parse(source: str) -> IntTuple:
    """The nested tuple that `text` wrote; spaces are allowed, "(4)" is a tuple of one.

    >>> parse("(4,(2,4))")
    (4, (2, 4))
    """
    tree: IntTuple = _parsed(source, _number)
    return tree


def parse_strides(source: str) -> StrideTree:
    """The same of strides, which may be steps along axes.

    >>> text(parse_strides("((2@1, 1@0), 0)"))
    '((2@1,1@0),0)'
    """
    tree: StrideTree = _parsed(source, _stride)
    return tree


def _parsed(source: str, leaf: Callable[[str, int], tuple[Any, int]]) -> Any:
    tree, end = _parse_tree(source, 0, leaf)
    if source[end:].strip():
        raise LayoutError(f"{source!r}: unexpected {source[end:].strip()!r} after {text(tree)}")
    return tree


def _number(source: str, at: int) -> tuple[int, int]:
    end = at
    while source[end : end + 1].isdecimal():
        end += 1
    if end == at:
        raise LayoutError(f"{source!r}: expected a number or '(' at position {at}, as in (4,(2,4))")
    return int(source[at:end]), end


def _stride(source: str, at: int) -> tuple[int | Step, int]:
    end = at
    while source[end : end + 1] not in ("", "(", ")", ",") and not source[end].isspace():
        end += 1
    if "@" not in source[at:end]:
        return _number(source, at)
    return Step.parse(source[at:end]), end


def _parse_tree(source: str, at: int, leaf: Callable[[str, int], tuple[Any, int]]) -> tuple[Any, int]:
    at = _skip(source, at)
    if source[at : at + 1] != "(":
        return leaf(source, at)
    branches: list[Any] = []
    at = _skip(source, at + 1)
    if source[at : at + 1] == ")":
        return (), at + 1
    while True:
        branch, at = _parse_tree(source, at, leaf)
        branches.append(branch)
        at = _skip(source, at)
        if source[at : at + 1] == ")":
            return tuple(branches), at + 1
        if source[at : at + 1] != ",":
            raise LayoutError(f"{source!r}: expected ',' or ')' at position {at}, as in (4,(2,4))")
        at += 1


def _skip(source: str, at: int) -> int:
    while source[at : at + 1].isspace():
        at += 1
    return at
