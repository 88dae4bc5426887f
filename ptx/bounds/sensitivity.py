"""Error of a reference whose steps cannot be followed: estimated by what small changes of its inputs change in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.enclosure import Values

_TRIES, _TRIES_OF_WHOLE = 4, 24
# Roundings that may add up unseen, and by how much more an unlucky one may be than those that were seen.
_ROUNDINGS, _UNLUCKY = 8, 8


def sensitivity(
    call: Callable[[Mapping[str, Any]], dict[str, Values]], arguments: Mapping[str, Any], rounding: Rounding
) -> dict[str, Values]:
    """How far each element may be off: eight times the largest change that eight roundings of every input made.

    An element that happened not to change is given the median of the changes in its output, which a few extreme
    numbers among random ones do not move; of whole numbers, which change where a comparison turns, one that none of
    more tries changes is exact. An estimate, not a proof.
    """
    rng = np.random.default_rng(0)
    exact = call(arguments)
    most = {name: np.zeros(value.shape) for name, value in exact.items()}
    whole = {name for name, value in exact.items() if value.dtype.kind in "iub"}
    for _ in range(_TRIES_OF_WHOLE if whole else _TRIES):
        moved = {name: _moved(value, rng, _ROUNDINGS * rounding.unit) for name, value in arguments.items()}
        for name, value in call(moved).items():
            with np.errstate(all="ignore"):
                most[name] = np.fmax(most[name], np.abs(_wide(value) - _wide(exact[name])))
    out = {}
    for name, change in most.items():
        if name in whole:
            out[name] = _UNLUCKY * change
            continue
        seen = change[np.isfinite(change) & (change > 0)]
        usual = float(np.median(seen)) if seen.size else 0.0
        with np.errstate(all="ignore"):
            out[name] = _UNLUCKY * np.maximum(change, usual) + rounding.function * np.abs(exact[name])
    return out


def _wide(values: Values) -> Values:
    """Whole numbers as floats: those of unsigned types have no negative differences, and truth values none."""
    return values.astype(np.float64) if values.dtype.kind in "iub" else values


def _moved(value: Any, rng: np.random.Generator, relative: float) -> Any:
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    moved = array * (1 + relative * rng.choice([-1.0, 1.0], array.shape))
    return moved if isinstance(value, np.ndarray) else float(moved)
