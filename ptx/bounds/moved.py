"""Functions of NumPy that move elements, or choose among them by their order: each end goes where the value goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinygpu.ptx.bounds.enclosure import Enclosure, Values, marks_of

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
ORDERED = frozenset({"max", "min", "amax", "amin", "nanmax", "nanmin", "sort", "clip", "median", "partition", "round",
                     "packbits"})  # fmt: skip
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
    marks = marks_of(*operands)
    value = call(function, [o.value for o in operands])
    quantum = min((o.quantum for o in operands), default=0.0)
    if all(o.exact for o in operands):
        return _each(lambda v: Enclosure(v, v, v, quantum, marks), value)
    low, high = (call(function, [getattr(o, end) for o in operands]) for end in ("low", "high"))
    if function.__name__ in ORDERED:
        low, high = _with_unknown(function, operands, call, low, high)
    terms = max(o.terms for o in operands)
    if all(o.span is None for o in operands) or function.__name__ in ORDERED:
        return _each(lambda v, least, most: Enclosure(v, least, most, 0.0, marks, terms), value, low, high)
    spans = call(function, [o.reach for o in operands])

    def made(v: Values, least: Values, most: Values, span: Values) -> Enclosure:
        return Enclosure(v, least, most, 0.0, marks, terms, span)

    return _each(made, value, low, high, spans)


def _with_unknown(
    function: Callable[..., Any], operands: Sequence[Enclosure], call: Callable[..., Any], low: Any, high: Any
) -> tuple[Any, Any]:
    """The ends of results among which an element may be no number: nothing can be said of these."""
    masks = [o.unknown for o in operands]
    if not any(mask.any() for mask in masks):
        return low, high
    reduces = np.shape(low) != np.broadcast_shapes(*[m.shape for m in masks])
    named = {"max", "min", "amax", "amin", "nanmax", "nanmin"}
    if reduces and function.__name__ in named:
        touched = call(np.max, masks)
    elif function.__name__ in ("clip", "round"):
        touched = np.logical_or.reduce(np.broadcast_arrays(*masks))
    else:
        touched = np.ones(np.shape(low), dtype=bool)
    return np.where(touched, -np.inf, low), np.where(touched, np.inf, high)


def _each(make: Callable[..., Enclosure], *found: Any) -> Any:
    if isinstance(found[0], (list, tuple)):
        return [make(*parts) for parts in zip(*found, strict=True)]
    return make(*found)
