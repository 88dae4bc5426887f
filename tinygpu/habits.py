"""What one writes out of habit, of arrays or of another language of kernels, and how it is said of tiles here."""

from __future__ import annotations

import re

# What Python says of it -> how it is said here.
_SAID: tuple[tuple[str, str], ...] = (
    (r"operand 'Tile' does not support ufuncs", "functions of tiles are imported from tinygpu.language"),
    (r"must be real number, not Tile|\(\) argument must be .*, not '?Tile'?", "elements are not known while a program "
     "is traced; functions of tiles are imported from tinygpu.language, and p.cast converts"),
    (r"for @: 'Tile'", "products of matrices are p.multiply, by a matrix instruction"),
    (r"'Tile' object is not subscriptable", "a part of a tile is tile.window(...), and axes come and go by unsqueeze "
     "and squeeze"),
    (r"'_GeneratorContextManager' object is not (iterable|an iterator)", "it is a block: `with ... as i:`"),
    (r"'Tile' object has no attribute '(sum|max|min|prod|mean|all|any|argmax|argmin|norm|var|std)'",
     "a tile is reduced by p.reduce(combine, tile, axis=..., by=...)"),
    (r"'Tile' object has no attribute '(cumsum|cumprod|cummax)'",
     "prefixes are p.scan(combine, tile, axis=..., by=...)"),
    (r"'Tile' object has no attribute '(reshape|view|flatten|ravel|expand_dims|broadcast_to)'",
     "axes are taken apart and joined by split, merge, unsqueeze and squeeze"),
    (r"'Tile' object has no attribute '(astype|to|type|float|half|int|bfloat16)'",
     "types change by p.cast(tile, dtype)"),
    (r"type Tile doesn't define __round__", "rint(x), floor(x) and others are imported from tinygpu.language"),
)  # fmt: skip


def hint(message: str) -> str:
    """How it is said of tiles; "" where nothing is known of it.

    >>> hint("'Tile' object has no attribute 'sum'")
    'a tile is reduced by p.reduce(combine, tile, axis=..., by=...)'
    """
    return next((here for there, here in _SAID if re.search(there, message)), "")
