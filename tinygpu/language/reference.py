"""A machine's reference as others call it: every output by name, or a sentence that says what is wrong with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinygpu.language.declared import Declared
from tinygpu.language.instruction.base import with_article
from tinygpu.language.problem import Problem
from tinygpu.users_code import UsersCodeError, answer, at, place_of, users_code


def reference_of(machine: type[Declared], shapes: Mapping[str, tuple[int, ...]]) -> Callable[..., dict[str, Any]]:
    """`machine.reference`, checked.

    shapes  of the outputs, by name, in the order in which the machine declares them; a reference of one output may
            return it without its name

    What it gives raises UsersCodeError where the reference raises, or returns anything but numbers of these shapes.
    """
    here = f"{machine.__name__}.reference"

    def call(**arguments: Any) -> dict[str, Any]:
        try:
            return given(**arguments)
        except UsersCodeError as error:
            raise at(error, "" if place_of(error) else machine._place_of("reference")) from error.__cause__

    def given(**arguments: Any) -> dict[str, Any]:
        with users_code(here):
            result = machine.reference(**arguments)
        named = result if isinstance(result, Mapping) else dict.fromkeys(list(shapes)[:1], result)
        for name, shape in shapes.items():
            if name not in named:
                one = f"one {type(result).__name__}"
                got = ", ".join(map(repr, named)) if isinstance(result, Mapping) else one
                raise UsersCodeError(
                    f"{here} returns {got or 'an empty dict'}, and there is no {name!r} in it: it must return "
                    f"{_wanted(shapes)}"
                )
            _check(f"{here} returns ", name, named[name], shape, shapes)
        return {name: named[name] for name in shapes}

    return call


def mistake_in_reference(machine: type[Declared], more: Sequence[str]) -> str:
    """What is wrong with how `reference` takes its arguments, which are given by name; "" where nothing is.

    more  names of numbers that it may ask for beside the operation's own arguments
    """
    given = [t.name for t in machine.tensor_declarations() if t.access != "out"]
    given += [d.name for d in (*machine.scalar_declarations(), *machine.option_declarations())]
    takes = inspect.signature(machine.reference).parameters
    named = [p.name for p in takes.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    anything = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    missing = [name for name in given if name not in named and not anything]
    known = {*given, *more}
    strange = [name for name in named if name not in known and takes[name].default is inspect.Parameter.empty]
    if missing or strange:
        return f"reference: it is called with {', '.join(given)}, by name, and takes {', '.join(takes) or 'nothing'}"
    return ""


def sizes_named(machine: type[Declared]) -> tuple[str, ...]:
    """The dims that a reference asks for: what it computes depends on sizes, and not on its arrays alone."""
    return tuple(name for name in machine.dim_names() if name in inspect.signature(machine.reference).parameters)


def constants_of(machine: type[Declared], problem: Problem, point: Mapping[str, Any]) -> dict[str, Any]:
    """What a reference is given beside arrays and scalars: options, and the dims and parameters that it asks for.

    point  of the candidate whose meaning is asked for; UsersCodeError where it lacks a parameter that is asked for
    """
    takes = inspect.signature(machine.reference).parameters
    out: dict[str, Any] = dict(problem.options)
    out |= {name: problem.dim[name] for name in sizes_named(machine)}
    for p in machine.params():
        if p.name in takes:
            if p.name not in point:
                raise UsersCodeError(
                    f"{machine.__name__}.reference asks for the parameter {p.name}: what it computes is known for a "
                    "candidate, and none is given here"
                )
            out[p.name] = int(point[p.name])
    return out


def precision_of(machine: type[Declared], options: Mapping[str, Any]) -> tuple[bool, float]:
    """`machine.precision`, checked: whether sums of whole numbers are exact, and a relative error."""

    def fits(found: Any) -> bool:
        pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], bool)
        return pair and isinstance(found[1], (int, float)) and found[1] >= 0

    wanted = "(whether sums of whole numbers are exact, the relative error of approximate instructions)"
    return answer(machine.precision, dict(options), wanted=wanted, fits=fits, what=f"{machine.__name__}.precision")


def _check(here: str, name: str, value: Any, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]) -> None:
    of = f" for {name}" if len(shapes) > 1 else ""
    if not hasattr(value, "shape") and not isinstance(value, int | float):
        raise UsersCodeError(f"{here}{_kind(value)}{of}: it must return {_wanted(shapes)}")
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biufV":
        raise UsersCodeError(f"{here}an array of {value.dtype}{of}: it must return numbers")
    if np.shape(value) != shape:
        got = _extents(np.shape(value))
        raise UsersCodeError(f"{here}an array of shape {got}{of}: it must return {_wanted(shapes)}")


def _wanted(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """`an array of shape (40,) for y`, or a dict of them."""
    listed = [f"an array of shape {_extents(shape)} for {name}" for name, shape in shapes.items()]
    return listed[0] if len(listed) == 1 else f"a dict with {' and '.join(listed)}"


def _extents(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _kind(value: Any) -> str:
    return "None" if value is None else with_article(type(value).__name__)
