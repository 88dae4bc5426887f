"""Verbs of a program check what they are given before they use it, so that a mistake is named in the author's words.

`@verb` reads the kinds of the arguments from the function's own annotations; a kind that stands in no row of `KINDS` is
the verb's own to check.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, expr
from tinygpu.language.operators import Waiting
from tinygpu.language.parameters import DeclarationError, Named
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.schedulers.scheduler import TileScheduler

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be.

    holds  whether a value is of the kind
    said   the kind in words, after "must be"
    """

    holds: Callable[[Any], bool]
    said: str


def _is_operand(value: Any) -> bool:
    try:
        expr(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _is_type(value: Any) -> bool:
    try:
        return isinstance(value, DType) or (isinstance(value, str) and isinstance(dtype(value), DType))
    except ValueError:
        return True  # a name that there is not: the verb lists those that there are


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_operands(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_operand, value))


NUMBERS = "numbers, parameters, dims or expressions of them"
NUMBER = "a whole number, a parameter, a dim, or an expression of them"
TILE = Kind(lambda v: isinstance(v, Tile), "a tile (a window of a tensor, a buffer of a slot, or a value in registers)")
OPERAND = Kind(_is_operand, NUMBER)
KINDS: Mapping[str, Kind] = {
    "Tile": TILE,
    "Tile | None": Kind(lambda v: v is None or isinstance(v, Tile), TILE.said),
    "Partition": Kind(lambda v: isinstance(v, Partition), "a partition, as blocked(...) and p.tiled(...) give them"),
    "Partition | None": Kind(
        lambda v: v is None or isinstance(v, Partition), "a partition, as blocked(...) and p.tiled(...) give them"
    ),
    "Operand": OPERAND,
    "Operand | None": Kind(lambda v: v is None or _is_operand(v), NUMBER),
    "Operand | tuple[Operand, ...]": Kind(lambda v: _is_operand(v) or _all_operands(v), f"{NUMBER}, or one per axis"),
    "tuple[Operand, ...]": Kind(_all_operands, f"a tuple of {NUMBERS}, one per axis"),
    "tuple[Operand, Operand]": Kind(lambda v: _all_operands(v) and len(v) == 2, f"a pair of {NUMBERS}"),
    "tuple[Expr | int, Operand] | tuple[Expr | int, Operand, Operand]": Kind(
        lambda v: _all_operands(v) and len(v) in (2, 3), "a pair (dim, extent of a tile), or (dim, extent, groups)"
    ),
    "str | DType": Kind(_is_type, "a type, as 'f32' or self.x.dtype"),
    "DType | str": Kind(_is_type, "a type, as 'f32' or self.x.dtype"),
    "float": Kind(_is_number, "a number"),
    "int": Kind(lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number"),
    "int | None": Kind(lambda v: v is None or (isinstance(v, int) and not isinstance(v, bool)), "a whole number"),
    "bool": Kind(lambda v: isinstance(v, bool), "True or False"),
    "TileScheduler | None": Kind(lambda v: v is None or isinstance(v, TileScheduler), "a tile scheduler"),
    "str": Kind(lambda v: isinstance(v, str), "a name, as a string"),
}


# What is right where elements of a tile were to say where a window begins.
_ROWS = "; where each element of a tile names a row, a window is taken of tensor.rows(tile)"
# What is right where a tile is meant, and what a row has is given.
_OF_ROW = ", which passes make as they need it: `with row.tiles(x) as (at, x)` is one with its tiles in it"
# What is right where a number is meant, and a tuple of one is given.
_OF_GRID = "; p.grid gives a tuple, of one axis too: `with p.grid(...) as (i,)` takes the number out of it"
# What is longer in Python's words says nothing.
_LONGEST = 120
# What is right where a verb makes a tile of its own, and a tile that is there was meant.
_INTO = "; what it gives goes into a tile that is there by tile += ..., or by into= of p.apply, p.cast or p.where"


def verb(said: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a function check its arguments.

    said  what the author wrote to call it, as `p.load` or `blocked`; `.tile` is a method of something that has a name

    >>> @verb("p.rank")
    ... def rank(axis: "int") -> int:
    ...     return axis
    >>> rank("x")
    Traceback (most recent call last):
    tinygpu.language.parameters.DeclarationError: p.rank: axis must be a whole number, not 'x'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        kinds = {name: (p, KINDS.get(str(p.annotation).strip("'\""))) for name, p in signature.parameters.items()}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            here = f"{args[0].name}{said}" if said.startswith(".") else said  # type: ignore[attr-defined]
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as mismatch:
                more = _INTO if "into" in kwargs and "into" not in signature.parameters else ""
                raise DeclarationError(f"{here}: {mismatch}; it takes {_takes(signature)}{more}") from None
            for name, value in bound.arguments.items():
                parameter, kind = kinds[name]
                if kind is not None:
                    _check(here, parameter, kind, value)
            return function(*args, **kwargs)

        return checked

    return decorate


def _check(said: str, parameter: inspect.Parameter, kind: Kind, value: Any) -> None:
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    for one in (value.values() if isinstance(value, dict) else value) if several else (value,):
        if not kind.holds(one):
            objects = isinstance(one, bool) and kind is TILE
            why = "; == and != compare tiles as objects, equal(x, y) and not_equal(x, y) their elements" * objects
            if isinstance(one, Tile) or (isinstance(one, tuple | list) and any(isinstance(o, Tile) for o in one)):
                why = _ROWS * (kind.said.startswith("a tuple of numbers") or kind is OPERAND)
            why += _OF_ROW * isinstance(one, Waiting)
            why += _OF_GRID * (kind is OPERAND and isinstance(one, tuple) and len(one) == 1 and _is_operand(one[0]))
            raise DeclarationError(f"{said}: {parameter.name} must be {kind.said}, not {_shown(one)}{why}")


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Expr | Named | Tile | Waiting):
        return str(value)
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"an object of the class {type(value).__name__}"


def _takes(signature: inspect.Signature) -> str:
    """The arguments as an author gives them: `source, partition, fill=`."""
    listed = [p for p in signature.parameters.values() if p.name != "self"]
    return ", ".join(_given_as(p) for p in listed) or "nothing"


def _given_as(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return "name=..."
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return f"{parameter.name}=" if parameter.kind is parameter.KEYWORD_ONLY else parameter.name
