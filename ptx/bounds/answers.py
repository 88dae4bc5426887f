"""The answers of a reference: for every element of every output, what a kernel may return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.array import Enclosed
from tinygpu.ptx.bounds.enclosure import CannotBound, Enclosure, Mark, Values, exactly
from tinygpu.ptx.bounds.of_sizes import of_sizes
from tinygpu.ptx.bounds.sensitivity import sensitivity

Reference = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What one output may be, before it is rounded to its type.

    value      the reference in double precision
    low, high  what rounding on the way may make of it (see `Enclosure`)
    followed   "" where the error was followed through every step of the reference; else why it was estimated
    marks      what happened on the way (see `Enclosure`)
    """

    value: Values
    low: Values
    high: Values
    followed: str = ""
    marks: frozenset[Mark] = frozenset()


def answers(
    reference: Reference,
    arguments: Mapping[str, Any],
    constants: Mapping[str, Any],
    outputs: Sequence[str],
    rounding: Rounding,
    kinds: Mapping[str, Any] | None = None,
) -> dict[str, Answer]:
    """What every output may be.

    arguments  inputs and scalars by name, in 64 bits; whole numbers are exact in all that follows where they stay small
    constants  options, which are given as they are
    kinds      NumPy's types of the tensors, which a reference may ask for
    """
    of = kinds or {}
    given = {name: Enclosed(_given(v, rounding), rounding, of.get(name)) for name, v in arguments.items()}
    try:
        with np.errstate(all="ignore"):
            found = by_name(reference(**given, **constants), outputs)
        return {name: _finished(found[name], rounding) for name in outputs}
    except Exception as unknown:  # of NumPy, too, which wants arrays of its own; a reference that is wrong fails again
        return _estimated(reference, arguments, constants, outputs, rounding, _why(unknown))


def by_name(result: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """What a reference returns, as a dict: one output needs no name."""
    return dict(result) if isinstance(result, dict) else {outputs[0]: result}


def _why(error: BaseException) -> str:
    """What a reference does that has no rule."""
    if isinstance(error, CannotBound):
        return str(error)
    cause = error.__cause__ or error.__context__
    return _why(cause) if cause is not None else f"wants an array of NumPy ({type(error).__name__}: {error})"


def _given(value: Any, rounding: Rounding) -> Enclosure:
    held = exactly(value)
    known = held.quantum == 1.0 and (rounding.exact or held.value.dtype.kind != "f")
    return replace(held, quantum=1.0 if known else 0.0)


def _finished(result: Any, rounding: Rounding) -> Answer:
    held = result.enclosure if isinstance(result, Enclosed) else of_sizes(result, rounding)
    known = held.quantum or held.value.dtype.kind in "iub"
    if known or "approximated" in held.marks or not rounding.approximation:
        return Answer(held.value, held.low, held.high, marks=held.marks)
    with np.errstate(all="ignore"):
        off = [np.where(np.isfinite(e), rounding.approximation * np.abs(e), 0.0) for e in (held.low, held.high)]
        return Answer(held.value, held.low - off[0], held.high + off[1], marks=held.marks)


def _estimated(
    reference: Reference,
    arguments: Mapping[str, Any],
    constants: Mapping[str, Any],
    outputs: Sequence[str],
    rounding: Rounding,
    why: str,
) -> dict[str, Answer]:
    def call(given: Mapping[str, Any]) -> dict[str, Values]:
        with np.errstate(all="ignore"):
            found = by_name(reference(**given, **constants), outputs)
        return {name: np.asarray(found[name]) for name in outputs}

    values = call(arguments)
    whole = rounding.exact and all(_is_whole(v) for v in arguments.values())
    if whole and all(_is_whole(v) for v in values.values()):
        return {name: Answer(v, v, v, why) for name, v in values.items()}
    off = sensitivity(call, arguments, rounding)
    out = {}
    for name, value in values.items():
        with np.errstate(all="ignore"):
            error = np.where(np.isfinite(value), off[name], 0.0)
            out[name] = Answer(value, value - error, value + error, why)
    return out


def _is_whole(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "iub" or bool(np.all(array == np.rint(array)))
