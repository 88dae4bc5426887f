"""Sums of products of two arrays over named axes, as `np.einsum` gives them, by products of matrices.

`np.einsum` goes through all indices in one loop. A product of matrices does the same many times as fast, and means the
same: an infinity times zero is no number, wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from tinygpu.ptx.bounds.enclosure import Values


def contracted(formula: str, *operands: Values) -> Values:
    """`np.einsum(formula, *operands)`.

    >>> contracted("bij,bkj->bik", np.ones((2, 3, 5)), np.ones((2, 4, 5))).shape
    (2, 3, 4)
    """
    if len(operands) != 2 or any(o.dtype != np.float64 for o in operands):
        return np.asarray(np.einsum(formula, *operands))
    by_matrices = _as_matrices(formula)
    found = None if by_matrices is None else by_matrices(*operands)
    return np.asarray(np.einsum(formula, *operands)) if found is None else found


def summed_terms(formula: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """Terms of each sum of `np.einsum(formula, ...)` of arrays of these shapes; at least 1.

    >>> summed_terms("...ij,...jk->...ik", [(8, 2, 3), (8, 3, 5)])
    3
    """
    terms, arrow, out = formula.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms.split(","), shapes, strict=False):
        front, _, back = term.partition("...")
        for label, size in (*zip(front, shape, strict=False), *zip(back[::-1], shape[::-1], strict=False)):
            sizes[label] = max(size, sizes.get(label, 1))
    # Without an arrow the axes that are named once are kept.
    kept = out if arrow else {label for label in sizes if terms.count(label) == 1}
    return math.prod(size for label, size in sizes.items() if label not in kept)


@lru_cache(maxsize=256)
def _as_matrices(formula: str) -> Callable[[Values, Values], Values | None] | None:
    """What multiplies matrices instead; None where an axis is named twice, is not named, or is summed of one alone.

    It gives None where an axis of one element stands for all of the other array's.
    """
    terms, arrow, out = formula.replace(" ", "").partition("->")
    first, comma, second = terms.partition(",")
    if not arrow or not comma or "." in formula or any(len(set(t)) < len(t) for t in (first, second, out)):
        return None
    batch = [x for x in out if x in first and x in second]
    rows, columns = ([x for x in out if x in one and x not in batch] for one in (first, second))
    summed = [x for x in first if x in second and x not in out]
    if set(first) | set(second) != {*batch, *rows, *columns, *summed} or len(batch + rows + columns) < len(out):
        return None
    left, right = [first.index(x) for x in batch + rows + summed], [second.index(x) for x in batch + summed + columns]
    made = batch + rows + columns
    back = [made.index(x) for x in out]

    def product(a: Values, b: Values) -> Values | None:
        one, other = (dict(zip(t, x.shape, strict=True)) for t, x in ((first, a), (second, b)))
        size = one | other
        if any(size[x] != extent for x, extent in one.items()):
            return None
        m, n, k = (math.prod(size[x] for x in axes) for axes in (rows, columns, summed))
        shape = [size[x] for x in batch]
        found = a.transpose(left).reshape(*shape, m, k) @ b.transpose(right).reshape(*shape, k, n)
        return np.asarray(found.reshape([size[x] for x in made]).transpose(back))

    return product
