"""Functions of NumPy that move elements, or choose among them by their order: each end goes where the value goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinygpu.ptx.bounds.enclosure import Enclosure

# Elements are moved, left out, repeated.
MOVED = frozenset(
    {
        "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "expand_dims", "squeeze", "broadcast_to",
        "flip", "fliplr", "flipud", "roll", "rot90", "repeat", "tile", "take", "take_along_axis", "diagonal", "diag",
        "tril", "triu", "pad", "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack", "atleast_1d",
        "atleast_2d", "atleast_3d", "copy", "compress", "delete", "insert", "append", "permute_dims",
        "matrix_transpose", "resize", "split", "array_split", "hsplit", "vsplit", "dsplit",
        "broadcast_arrays", "unstack", "block",
    }
)  # fmt: skip
# Monotone in every element: the least result comes of the least elements.
ORDERED = frozenset({"max", "min", "amax", "amin", "nanmax", "nanmin", "sort", "clip", "median", "partition", "round"})
# Ways of padding that only repeat elements.
_PADDING = frozenset({"constant", "edge", "wrap", "reflect", "symmetric", "maximum", "minimum", "empty"})


def known(name: str, kwargs: Mapping[str, Any], args: Sequence[Any]) -> bool:
    """Whether the function does nothing but move or order elements."""
    if name == "pad":
        mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
        return isinstance(mode, str) and mode in _PADDING
    return name in MOVED or name in ORDERED


def apply(function: Callable[..., Any], operands: Sequence[Enclosure], call: Callable[..., Any]) -> Any:
    """The function applied to the values and to both ends.

    call  calls `function` with arrays in the place of the operands
    """
    approximated = any(o.approximated for o in operands)
    value = call(function, [o.value for o in operands])
    whole = all(o.whole for o in operands)
    if all(o.exact for o in operands):
        return _each(lambda v: Enclosure(v, v, v, whole, approximated), value)
    low, high = (call(function, [getattr(o, end) for o in operands]) for end in ("low", "high"))
    return _each(lambda v, least, most: Enclosure(v, least, most, False, approximated), value, low, high)


def _each(make: Callable[..., Enclosure], *found: Any) -> Any:
    if isinstance(found[0], (list, tuple)):
        return [make(*parts) for parts in zip(*found, strict=True)]
    return make(*found)
