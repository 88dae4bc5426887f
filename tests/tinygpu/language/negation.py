"""A machine that is right, y = -x, for tests that break it in one place."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa

Program = Callable[[Any, Any], None]
UNKNOWN = (
    "unknown dtype 'f33'; known: f64, f32, tf32, f16, bf16, e4m3, e5m2, e2m3, e3m2, e2m1, ue8m0, s32, u32, s8, u8, s4, "
    "u4"
)


def negate(x: Any) -> Any:
    return -x


def thing(program: Program | None = None, leave_out: tuple[str, ...] = (), **attributes: Any) -> type[Machine]:
    """A machine that is right, but for what is given: y = -x, one element per thread."""

    def body(ns: dict[str, Any]) -> None:
        n = Dim()
        made: dict[str, Any] = {"n": n, "x": Input("f32", n), "y": Output("f32", n)}
        made |= {"warps": Param(1, 2, 4), "ld": isa.LdGlobal(1), "st": isa.StGlobal(1), "neg": isa.Neg("f32")}
        made |= {"reference": staticmethod(negate), "program": program or right}
        for name, value in (made | attributes).items():
            if name not in leave_out:
                ns[name] = value(n) if isinstance(value, Later) else value

    return types.new_class("Thing", (Machine,), {}, body)


class Later:
    """A declaration that needs the machine's dim."""

    def __init__(self, make: Callable[[Dim], Any]) -> None:
        self.make = make

    def __call__(self, n: Dim) -> Any:
        return self.make(n)


def around(inner: Callable[..., Any]) -> Program:
    """A program with a grid and a role around `inner(self, p, x, y, who)`."""

    def program(self: Any, p: Any) -> None:
        shape = (self.warps * 32,)
        who = blocked(shape, threads=self.warps * 32)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            inner(self, p, self.x.tile(i, shape=shape), self.y.tile(i, shape=shape), who)

    return program


@around
def right(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
    p.store(self.st, y, p.apply(self.neg, p.load(self.ld, x, who)))


def refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(DeclarationError) as error:
        make()
    assert str(error.value) == sentence, str(error.value)
