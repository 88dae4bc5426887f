"""What a machine leaves open: finite choices, structural choices, options, unknown layouts and access patterns.

A declaration gets its name from the attribute it is assigned to, at once, so that later lines of the same class
body can build expressions from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Self, overload

from tinygpu.expressions import Expr, symbol


class DeclarationError(Exception):
    """A machine that cannot work, refused when it is declared; the message names the class and the attribute."""


class Named:
    """A declaration that learns its attribute's name (see `Machine`).

    mistake  what is wrong with it; told when the name is known, so that the message can name the attribute
    """

    name: str = ""
    mistake: str = ""

    def bind_name(self, name: str) -> None:
        if self.mistake:
            raise DeclarationError(f"{name}: {self.mistake}")
        if self.name and self.name != name:
            raise DeclarationError(f"{name}: this declaration already belongs to {self.name!r}; declare another one")
        self.name = name


class Param(Expr, Named):
    """A finite choice between non-negative integers: a tile size, a number of stages, a vector width.

    >>> stages = Param(2, 3, 4)
    """

    __slots__ = ("name", "values")

    def __init__(self, *values: int) -> None:
        self.name = ""
        self.values: tuple[int, ...] = values
        wrong = [v for v in values if isinstance(v, bool) or not isinstance(v, int) or v < 0]
        if not values:
            self.mistake = "a Param needs at least one value"
        elif wrong:
            self.mistake = f"a Param takes non-negative integers, not {wrong[0]!r}; other choices are a Choice"
        elif len(set(values)) != len(values):
            self.mistake = f"a Param lists each value once, not {values}"

    def __getattr__(self, name: str) -> Any:
        if name == "sympy":
            raise DeclarationError("a Param is used before it has a name; assign it to an attribute first")
        raise AttributeError(f"a Param has no {name!r}")

    def bind_name(self, name: str) -> None:
        Named.bind_name(self, name)
        self.sympy = symbol(name).sympy


class AccessPattern(Param):
    """An unknown partition: how many threads stand side by side along the contiguous axis of a tile.

    The space keeps the patterns under which the threads cover the tile exactly once; among those a pattern with more
    threads along the contiguous axis never touches more sectors, so the narrower ones are dominated.
    """

    __slots__ = ()

    def __init__(self, *values: int) -> None:
        super().__init__(*(values or (1, 2, 4, 8, 16, 32, 64, 128, 256)))


class Dim(Expr, Named):
    """A size of the problem, known at launch: at least 1.

    values  where it is always one of these: what the program is traced for, so that tiles may have its size; a Dim of
            one value is a constant, which problems need not name
    follows  where other dims and options decide it, a function of these, by name: Dim(follows=lambda h, r: h - r + 1)
    """

    __slots__ = ("_reads", "follows", "name", "values")

    def __init__(self, *values: int, follows: Callable[..., int] | None = None) -> None:
        self.name = ""
        self.values: tuple[int, ...] = values
        self.follows = follows
        self._reads: tuple[str, ...] | None = None
        wrong = [v for v in values if isinstance(v, bool) or not isinstance(v, int) or not 1 <= v < 2**31]
        if wrong:
            self.mistake = f"a Dim is a whole number from 1 to 2147483647, not {wrong[0]!r}"
        elif len(set(values)) != len(values):
            self.mistake = f"a Dim lists each of its values once, not {values}"
        elif follows is not None and not callable(follows):
            self.mistake = f"what a Dim follows from is a function of dims and options, not {follows!r}"
        elif follows is not None and values:
            self.mistake = "a Dim has values of its own, or follows from others, not both"

    def bind_name(self, name: str) -> None:
        Named.bind_name(self, name)
        self.sympy = symbol(name).sympy


    @property
    def reads(self) -> tuple[str, ...]:
        """The dims and options from which it follows."""
        if self._reads is None:  # asked for every size that is tried
            self._reads = tuple(inspect.signature(self.follows).parameters) if self.follows is not None else ()
        return self._reads


class Size(int):
    """A Dim whose value is known while a program is traced: a number that remembers which dim it is."""

    dim: str

    def __new__(cls, value: int, dim: str) -> Size:
        made = super().__new__(cls, value)
        made.dim = dim
        return made


class Decided(Named):
    """A declaration that is decided before `program` runs, which finds a value under its name: of any type."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Any: ...
    def __get__(self, instance: object, owner: type) -> Any:
        return self


class Choice(Decided):
    """A structural choice: between instructions, schedules or any other values; the program is traced for each.

    >>> load = Choice("direct", "staged")

    ordered  why an option is never slower than those after it, where it is legal; "" if that is not so
    """

    least = 2  # options; one alone is no choice

    def __init__(self, *options: Any, ordered: str = "") -> None:
        self.ordered = ordered
        self.options = options
        labels = self.labels
        twice = [label for i, label in enumerate(labels) if label in labels[:i]]
        if len(options) < self.least:
            self.mistake = f"a Choice needs at least two options, not {len(options)}"
        elif twice:
            self.mistake = f"two options of the Choice are called {twice[0]!r}; each has a name of its own"

    def label(self, option: Any) -> str | int:
        """The name that a point shows for one option."""
        return option if isinstance(option, (str, int)) else str(option)

    @property
    def labels(self) -> tuple[str | int, ...]:
        return tuple(self.label(o) for o in self.options)

    def option(self, label: str | int) -> Any:
        for option in self.options:
            if self.label(option) == label:
                return option
        raise ValueError(f"{self.name} has no option {label!r}; it has {', '.join(map(str, self.labels))}")


class Option(Decided):
    """A structural switch that the problem sets and the search does not touch; the first value is the default.

    >>> activation = Option("none", "relu", "gelu")
    """

    def __init__(self, *values: str | int | bool) -> None:
        self.values = values
        if not values:
            self.mistake = "an Option needs at least one value"

    @property
    def default(self) -> str | int | bool:
        return self.values[0]


class UnknownLayout(Named):
    """A shared-memory layout that the solver finds: the one under which every access to the buffer conflicts least.

    Chunks of a row may be exchanged by an XOR with row bits; rows are as long as the buffer's `pad` makes them.
    """

    def __repr__(self) -> str:
        return "UnknownLayout()"
