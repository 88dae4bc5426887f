"""Operators of Python between tiles in registers: each stands for an instruction that the machine declares.

`x * y` is the declared instruction whose `sign` is "*" for the type of x and y. Who finds it is the trace under way
(`tinygpu.language.tracing.operating`); tiles know it by their link.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
# Powers that are products.
MOST_FACTORS = 4


class CarriesOut(Protocol):
    """The trace under way, as operators need it."""

    def operate(self, sign: str, *operands: Any, into: Any = None) -> Any: ...

    def offers(self, sign: str, *operands: Any) -> bool: ...


class Link:
    """What carries out the operators of a program's tiles; None once the program is traced."""

    __slots__ = ("trace",)

    def __init__(self, trace: CarriesOut | None) -> None:
        self.trace = trace


class Operators:
    """Python's operators, of tiles with numbers, dims, scalars and tiles; `tinygpu.language` has functions beside them.

    `==` and `!=` compare tiles as Python's objects: `equal` and `not_equal` compare their elements.
    """

    __slots__ = ()
    # Numbers of NumPy leave operators to the tile beside them; so do expressions over dims.
    __array_ufunc__ = None

    def __add__(self, other: Any) -> Any:
        return operate("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return operate("+", self, other)

    def __iadd__(self, other: Any) -> Any:
        return operate("+", self, other, into=self)

    def __sub__(self, other: Any) -> Any:
        return operate("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return operate("-", other, self)

    def __isub__(self, other: Any) -> Any:
        return operate("-", self, other, into=self)

    def __mul__(self, other: Any) -> Any:
        return operate("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return operate("*", self, other)

    def __imul__(self, other: Any) -> Any:
        return operate("*", self, other, into=self)

    def __truediv__(self, other: Any) -> Any:
        return operate("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if isinstance(other, (int, float)) and other == 1 and not offers("/", other, self):
            return operate("reciprocal", self)
        return operate("/", other, self)

    def __itruediv__(self, other: Any) -> Any:
        return operate("/", self, other, into=self)

    def __floordiv__(self, other: Any) -> Any:
        return operate("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return operate("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return operate("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return operate("%", other, self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and 2 <= other <= MOST_FACTORS:
            square = operate("*", self, self)
            return {2: lambda: square, 3: lambda: square * self, 4: lambda: square * square}[other]()
        others = "others are sqrt(x), rsqrt(x) or exp2(log2(x) * y)"
        raise TypeError(f"{self} ** {other}: a tile has the powers 2 to {MOST_FACTORS}; {others}")

    def __neg__(self) -> Any:
        return operate("-", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return operate("abs", self)

    def __invert__(self) -> Any:
        return operate("~", self)

    def __and__(self, other: Any) -> Any:
        return operate("&", self, other)

    def __rand__(self, other: Any) -> Any:
        return operate("&", self, other)

    def __or__(self, other: Any) -> Any:
        return operate("|", self, other)

    def __ror__(self, other: Any) -> Any:
        return operate("|", self, other)

    def __xor__(self, other: Any) -> Any:
        return operate("^", self, other)

    def __rxor__(self, other: Any) -> Any:
        return operate("^", self, other)

    def __lshift__(self, other: Any) -> Any:
        return operate("<<", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return operate("<<", other, self)

    def __rshift__(self, other: Any) -> Any:
        return operate(">>", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return operate(">>", other, self)

    def __bool__(self) -> bool:
        """A tile is no condition of Python's: max(x, y) and `x if x > y else y` ask for one."""
        raise TypeError(
            "the elements of a tile are not known while a program is traced; write where(x > y, x, y) to choose, and "
            "&, | and ~ for and, or and not"
        )

    def __lt__(self, other: Any) -> Any:
        return operate("<", self, other)

    def __le__(self, other: Any) -> Any:
        return operate("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return operate(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return operate(">=", self, other)


class Waiting(Operators):
    """A value that is made later, and perhaps several times: of what an operator makes of it, the same is true."""

    __slots__ = ()

    def later(self, sign: str, make: Callable[..., Any], operands: tuple[Any, ...], into: Any = None) -> Any:
        """What an operator, or a function, makes of operands, this among them: `make` of them as they are then."""
        raise NotImplementedError


class Alone:
    """Operators of single numbers given at launch: with a tile they are the tile's, without one they wait for one.

    `1 - self.beta` is worked out where a tile meets it, by the instructions that the machine declares for tiles.
    """

    __slots__ = ()
    __array_ufunc__ = None

    @property
    def scalars(self) -> tuple[Any, ...]:
        """The numbers given at launch of which it is made."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        """A number given at launch is no condition of Python's."""
        compared = isinstance(self, OfNumbers) and self.sign in COMPARISONS
        said = as_written(self.sign, self.operands) if isinstance(self, OfNumbers) and compared else f"{self} > 0"
        raise TypeError(f"{self} is not known while a program is traced; write where({said}, x, y)")

    def __add__(self, other: Any) -> Any:
        return _later("+", operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _later("+", operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _later("-", operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _later("-", operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _later("*", operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _later("*", operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _later("/", operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _later("/", operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _later("//", operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _later("//", operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return _later("%", operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _later("%", operator.mod, other, self)

    def __and__(self, other: Any) -> Any:
        return _later("&", operator.and_, self, other)

    def __rand__(self, other: Any) -> Any:
        return _later("&", operator.and_, other, self)

    def __or__(self, other: Any) -> Any:
        return _later("|", operator.or_, self, other)

    def __ror__(self, other: Any) -> Any:
        return _later("|", operator.or_, other, self)

    def __xor__(self, other: Any) -> Any:
        return _later("^", operator.xor, self, other)

    def __rxor__(self, other: Any) -> Any:
        return _later("^", operator.xor, other, self)

    def __lshift__(self, other: Any) -> Any:
        return _later("<<", operator.lshift, self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _later("<<", operator.lshift, other, self)

    def __rshift__(self, other: Any) -> Any:
        return _later(">>", operator.rshift, self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _later(">>", operator.rshift, other, self)

    def __invert__(self) -> Any:
        return _later("~", operator.invert, self)

    def __pow__(self, other: Any) -> Any:
        return _later("**", operator.pow, self, other)

    def __neg__(self) -> Any:
        return _later("-", operator.neg, self)

    def __abs__(self) -> Any:
        return _later("abs", operator.abs, self)

    def __lt__(self, other: Any) -> Any:
        return _later("<", operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _later("<=", operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return _later(">", operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _later(">=", operator.ge, self, other)


@dataclass(frozen=True, slots=True, eq=False)
class OfNumbers(Alone):
    """What an operator or a function makes of numbers given at launch; its instructions stand where a tile meets it.

    make  the same of tiles
    """

    sign: str
    make: Callable[..., Any]
    operands: tuple[Any, ...]

    @property
    def scalars(self) -> tuple[Any, ...]:
        return tuple(s for o in self.operands if isinstance(o, Alone) for s in o.scalars)

    def __str__(self) -> str:
        words = as_written(self.sign, self.operands)
        return words if self.sign[0].isalpha() else f"({words})"

    def __repr__(self) -> str:
        return f"the number {self} of the launch"


def _later(sign: str, make: Callable[..., Any], *operands: Any) -> Any:
    """A number of numbers given at launch; beside a tile the operator is the tile's."""
    return NotImplemented if are_tiles(*operands) else OfNumbers(sign, make, operands)


def are_tiles(*operands: Any) -> bool:
    """Whether there is a tile among some operands."""
    return any(isinstance(o, Operators) for o in operands)


def waiting_among(operands: tuple[Any, ...]) -> Waiting | None:
    """The first of some operands that is made later."""
    return next((o for o in operands if isinstance(o, Waiting)), None)


def operate(sign: str, *operands: Any, into: Any = None) -> Any:
    """What the trace under way makes of operands, a tile among them."""
    operands = tuple(o.item() if isinstance(o, np.generic) else o for o in operands)
    if (waiting := waiting_among(operands)) is not None:
        make = operator.truediv if sign == "/" else partial(operate, sign)  # 1 / x may be a reciprocal
        return waiting.later(sign, make, operands, into)
    return _trace(sign, operands).operate(sign, *operands, into=into)


def offers(sign: str, *operands: Any) -> bool:
    """Whether the machine declares what a sign stands for between these operands; of what waits, that is asked then."""
    if waiting_among(operands) is not None:
        return True
    return _trace(sign, operands).offers(sign, *operands)


def as_written(sign: str, operands: tuple[Any, ...]) -> str:
    """An operation as its author wrote it: `%v1 * 2`, `-%v1`, `exp2(%v1)`."""
    words = [str(o) for o in operands]
    if sign[0].isalpha():
        return f"{sign}({', '.join(words)})"
    return f" {sign} ".join(words) if len(words) > 1 else f"{sign}{words[0]}"


def _trace(sign: str, operands: tuple[Any, ...]) -> CarriesOut:
    tiles: list[Any] = [o for o in operands if isinstance(o, Operators)]
    for tile in tiles:
        if tile.link is None:
            raise TypeError(
                f"{as_written(sign, operands)}: {tile.name} lies in {tile.memory}, and operators are of values in "
                "registers; load it first"
            )
    trace: CarriesOut | None = tiles[0].link.trace
    if trace is None:
        raise TypeError(f"{as_written(sign, operands)}: this tile belongs to a program that has ended")
    return trace
