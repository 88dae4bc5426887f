"""Subspaces over F2, given by lists of vectors: extending, intersecting, and what lies beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import f2


def images(columns: Sequence[int]) -> NDArray[np.int64]:
    """(2^n,) the image of every combination of n columns."""
    out = np.zeros(1, dtype=np.int64)
    for column in columns:
        out = np.concatenate([out, out ^ column])
    return out


def extended(basis: Sequence[int], vectors: Iterable[int], most: int) -> list[int]:
    """The basis, and those of the vectors that are independent of all before them, up to a dimension."""
    found = list(basis)
    for vector in vectors:
        if len(found) < most and f2.rank([*found, vector]) > len(found):
            found.append(vector)
    return found


def outside(vectors: Sequence[int], basis: Sequence[int]) -> list[int]:
    """Those of the vectors that are independent of the basis and of those before them."""
    start = extended([], basis, len(basis))
    return extended(start, vectors, len(start) + len(vectors))[len(start) :]


def intersection(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """A basis of what two lists of independent vectors both span."""
    below = (1 << len(one)) - 1
    return [f2.image(one, k & below) for k in f2.eliminate([*one, *other]).kernel]


def reduced(vector: int, basis: Sequence[int]) -> int:
    """The vector of a coset that has no leading bit of the basis's echelon form."""
    pivots = f2.eliminate(basis).pivots
    for bit in sorted(pivots, reverse=True):
        if vector >> bit & 1:
            vector ^= pivots[bit][0]
    return vector


def cosets(basis: Sequence[int], bits: int) -> list[int]:
    """The reduced vector of each coset of a basis among vectors of so many bits."""
    pivots = f2.eliminate(basis).pivots
    return sorted(int(v) for v in images([1 << k for k in range(bits) if k not in pivots]))
