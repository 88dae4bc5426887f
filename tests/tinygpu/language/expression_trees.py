"""Random expressions of tiles as Python writes them, the machines that compute them, and NumPy's evaluation."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tinygpu.language as language
from tinygpu.language import Dim, Input, Machine, Output, Param, Scalar, blocked
from tinygpu.ptx import isa

FUNCTIONS = {
    name: getattr(language, name)
    for name in ("maximum", "minimum", "where", "equal", "not_equal", "exp2", "exp", "log", "sqrt", "rsqrt", "tanh",
                 "fma", "reciprocal", "floor", "ceil", "trunc", "rint", "sigmoid", "silu", "relu", "gelu")
}  # fmt: skip
# Of these every result is rounded once, as NumPy's is.
ROUNDED = {
    "f32": ("+", "-", "*", "/", "neg", "abs", "maximum", "minimum", "sqrt", "floor", "rint", "where", "square",
            "numbers"),
    "f64": ("+", "-", "*", "/", "neg", "abs", "sqrt", "ceil", "trunc", "where", "numbers"),
    "f16": ("+", "-", "*", "neg", "abs", "maximum", "minimum", "floor", "rint", "where", "square", "numbers"),
    "bf16": ("+", "-", "*", "neg", "abs", "maximum", "minimum", "where", "square", "numbers"),
    "s32": ("+", "-", "*", "neg", "abs", "maximum", "minimum", "&", "|", "^", "~", "<<", ">>", "where", "numbers"),
    "u32": ("+", "-", "*", "maximum", "minimum", "&", "|", "^", "~", "<<", ">>", "where", "numbers"),
}  # fmt: skip
# Of these some are approximate; the bounds of verification say how far results may be.
BOUNDED = ("+", "-", "*", "/", "neg", "abs", "maximum", "minimum", "exp", "exp2", "sigmoid", "rsqrt", "sqrt", "log",
           "where", "relu", "silu", "numbers", "fma", "dims", "scalar", "alone", "square")  # fmt: skip
NAMES = ("x", "z", "b", "c")
# Made of numbers that are given at launch, before a tile meets them.
ALONE = ("(1 - s)", "(s * s + 2.0)", "(-s / n)", "(2 / (s + 8))", "rsqrt(abs(s) + 1.0)", "sqrt(n)", "rsqrt(m + 1)",
         "exp2(minimum(s, 4.0))", "maximum(s, 0.5)", "(s - s ** 2)", "sigmoid(s)", "silu(s)",
         "where(s > 0, s, 2 * s)")


def expression(rng: np.random.Generator, words: tuple[str, ...], depth: int, whole: bool) -> str:
    """A random expression over x, z (tiles), b (a row) and c (a column)."""
    if depth == 0 or rng.random() < 0.15:
        return str(rng.choice(NAMES))

    def part() -> str:
        return expression(rng, words, depth - 1, whole)

    word = str(rng.choice(words))
    if word in ("+", "-", "*", "/", "&", "|", "^"):
        return f"({part()} {word} {part()})"
    if word in ("<<", ">>"):
        return f"({part()} {word} {int(rng.integers(0, 9))})"
    if word == "neg":
        return f"(-{part()})"
    if word == "~":
        return f"(~{part()})"
    if word == "square":
        return f"({part()} ** 2)"
    if word == "numbers":
        number = str(int(rng.integers(1, 9))) if whole else f"{rng.choice((0.5, 2.0, -1.5, 0.25, 3.0))}"
        sign = str(rng.choice(("+", "*") if whole else ("+", "*", "-")))
        number = f"k({number})"
        return f"({number} {sign} {part()})" if rng.random() < 0.5 else f"({part()} {sign} {number})"
    if word == "where":
        comparison = str(rng.choice(("<", "<=", ">", ">=")))
        condition = f"({part()} {comparison} {part()})"
        if rng.random() < 0.3:
            joined = str(rng.choice(("&", "|", "^")))
            condition = f"({condition} {joined} ~{rng.choice(('equal', 'not_equal'))}({part()}, {part()}))"
        return f"where({condition}, {part()}, {part()})"
    if word == "dims":
        return f"({part()} * n / m)" if rng.random() < 0.5 else f"(m - {part()})"
    if word == "alone":
        if rng.random() < 0.2:
            return f"where({rng.choice(('s > 0', 's * s <= 1', '-s >= 0.25'))}, {part()}, {part()})"
        return f"({part()} {rng.choice(('+', '*', '-'))} {rng.choice(ALONE)})"
    if word == "scalar":
        return f"(s * {part()})"
    if word in ("maximum", "minimum"):
        return f"{word}({part()}, {part()})"
    if word == "fma":
        return f"fma({part()}, {part()}, {part()})"
    if word in ("sqrt", "rsqrt", "log"):
        return f"{word}(abs({part()}) + 1{'' if whole else '.0'})"
    if word in ("exp", "exp2"):
        return f"{word}(minimum({part()}, 4.0))"
    return f"{word}({part()})"


def evaluated(written: str, number: Callable[[Any], Any] = lambda value: value, **values: Any) -> Any:
    """What Python makes of an expression, of tiles or of arrays.

    number  makes the numbers in it; those of Python make wider arrays of bf16
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return eval(written, {"__builtins__": {}, "abs": abs}, FUNCTIONS | {"k": number} | values)


def machine_of(
    written: str, kinds: tuple[str, ...], result: str, group: str, converted: str = "", contracting: bool = False
) -> type[Machine]:
    """A machine that computes an expression: x and z are m x n, b has n elements and c has m.

    converted    in which type it computes
    contracting  x * y + z is rounded once
    """
    used = set(re.findall(r"\b[xzbc]\b", written))

    class Tree(Machine):
        """y = an expression of x, z, b, c and s"""

        m, n = Dim(), Dim()
        s = Scalar("f32")
        x, z = Input(kinds[0], m, n), Input(kinds[1], m, n)
        b, c = Input(kinds[2], n), Input(kinds[3], m)
        y = Output(result, m, n)

        warps, vector = Param(1, 2), Param(1, 2, 4)
        ld, one, st, numbers = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector), isa.arithmetic(group)
        compute, contract, exact = converted, contracting, False

        def program(self, p: Any) -> None:
            shape = (self.warps, 32 * self.vector)
            who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
            with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
                loads = {
                    "x": lambda: p.load(self.ld, self.x.tile(i, j, shape=shape), who),
                    "z": lambda: p.load(self.ld, self.z.tile(i, j, shape=shape), who),
                    "b": lambda: p.load(self.ld, self.b.row(j, shape[1]), who.along(1)),
                    "c": lambda: p.load(self.one, self.c.column(i, shape[0]), who.along(0)),
                }
                values = {name: load() for name, load in loads.items() if name in used}
                made = evaluated(written, **values, s=self.s, n=self.n, m=self.m)
                p.store(self.st, self.y.tile(i, j, shape=shape), made)

        @staticmethod
        def reference(s: Any, x: Any, z: Any, b: Any, c: Any) -> Any:
            m, n = x.shape
            return evaluated(written, x=x, z=z, b=b[None, :], c=c[:, None], s=s, n=n, m=m)

    return Tree
