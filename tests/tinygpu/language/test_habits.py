"""What is written out of habit, of arrays or of another language of kernels, is told as it is said here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from negation import around, refused, thing

from tinygpu.language import DeclarationError, Elementwise, where
from tinygpu.ptx import isa

HABITS: list[tuple[Any, str]] = [
    (lambda x: x.sum(axis=0), "a tile is reduced by p.reduce(combine, tile, axis=..., by=...)"),
    (lambda x: x.cumsum(axis=0), "prefixes are p.scan(combine, tile, axis=..., by=...)"),
    (lambda x: x.reshape(4, 8), "axes are taken apart and joined by split, merge, unsqueeze and squeeze"),
    (lambda x: x.to("f16"), "types change by p.cast(tile, dtype)"),
    (lambda x: x[:, None], "a part of a tile is tile.window(...), and axes come and go by unsqueeze and squeeze"),
    (lambda x: x @ x, "products of matrices are p.multiply, by a matrix instruction"),
    (lambda x: np.exp(x), "functions of tiles are imported from tinygpu.language"),
    (lambda x: round(x), "rint(x), floor(x) and others are imported from tinygpu.language"),
    (
        lambda x: math.exp(x),
        "elements are not known while a program is traced; functions of tiles are imported from tinygpu.language, and "
        "p.cast converts",
    ),
]


@pytest.mark.parametrize(("wrong", "here"), HABITS, ids=range(len(HABITS)))
def test_what_is_written_out_of_habit_is_told_as_it_is_said_here(wrong: Any, here: str) -> None:
    def habit(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.store(self.st, y, wrong(p.load(self.ld, x, who)))

    with pytest.raises(DeclarationError) as error:
        thing(around(habit))
    assert str(error.value).endswith(f"; {here}"), str(error.value)


def test_a_loop_is_a_block_and_rows_are_named_by_rows() -> None:
    def for_each(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        for _ in p.loop(3):
            pass

    def at_a_tile(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.x.tile(p.index(who, 0), shape=who.shape)

    def compared(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        value = p.load(self.ld, x, who)
        p.store(self.st, y, where(value == 1.0, value, 0.0))

    def at_all_numbers(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.x.tile((3,), shape=who.shape)

    with pytest.raises(DeclarationError) as error:
        thing(around(for_each))
    assert str(error.value).endswith("object is not iterable; it is a block: `with ... as i:`")
    number = "a whole number, a parameter, a dim, or an expression of them"
    rows = "where each element of a tile names a row, a window is taken of tensor.rows(tile)"
    refused(lambda: thing(around(at_a_tile)), f"Thing.program: x.tile: offset must be {number}, not %v1; {rows}")
    grid = "p.grid gives a tuple, of one axis too: `with p.grid(...) as (i,)` takes the number out of it"
    refused(lambda: thing(around(at_all_numbers)), f"Thing.program: x.tile: offset must be {number}, not (3,); {grid}")
    objects = "== compares tiles as objects, equal(x, y) their elements"
    operands = "operands are tiles, scalars, dims and numbers, not False"
    refused(lambda: thing(around(compared)), f"Thing.program: where(False, %v1, 0.0): {operands}; {objects}")


def test_integers_are_divided_by_what_the_machine_declares() -> None:
    class Remainder(Elementwise):
        operands, result, sign = ("s32", "s32"), "s32", "%"
        template, unit, source = "rem.s32 {d}, {a}, {b};", "alu", "PTX ISA, rem"

        def meaning(self, *values: Any) -> Any:
            return np.fmod(*values)

    def divided(sign: str) -> Any:
        def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
            at = p.index(who, 0)
            made = {"/": lambda: at / 3, "//": lambda: at // 3, "%": lambda: at % 3}[sign]()
            p.store(self.st, y, p.cast(made, "f32"))

        return around(inner)

    by = ">> and & divide by powers of two, p.cast and floor go by way of f32, and an Elementwise of your own may have"
    more = {"convert": isa.Cvt("s32", "f32")}
    for sign in ("/", "//", "%"):
        none = f"%v1 {sign} 3 is of s32, and no instruction that ships has the sign {sign!r} for that"
        refused(lambda sign=sign: thing(divided(sign), **more), f"Thing.program: {none}; {by} the sign")
    thing(divided("%"), remainder=Remainder(), **more)
