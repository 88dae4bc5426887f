"""What a user is told, and what two-byte sums are: machines that are refused, in a sentence, or nearly so."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import DeclarationError, Dim, InOut, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


def refusal(program: Any, **attributes: Any) -> str:
    """The sentence with which a machine of this program is refused."""
    n = Dim()
    body = {"n": n, "x": Input("f16", n), "y": InOut("f16", n), "warps": Param(1), **attributes}
    body |= {"program": program, "reference": staticmethod(lambda x, y: y)}
    with pytest.raises(DeclarationError) as refused:
        types.new_class("Refused", (Machine,), {}, lambda namespace: _assign(namespace, body))
    return str(refused.value)


def _assign(namespace: dict[str, Any], body: dict[str, Any]) -> None:
    for name, value in body.items():
        namespace[name] = value


def test_halves_are_reduced_value_by_value_in_their_own_precision() -> None:
    class Halves(Machine):
        """y = sums of the rows of x"""

        m, n = Dim(), Dim()
        x, y = Input("f16", m, n), Output("f16", m)
        ld, st, add, exchange = isa.LdGlobal(2), isa.StGlobal(1), isa.Add("f16"), isa.Exchange("shuffles", "pairs")
        warps, exact = Param(1, 4), False

        def program(self, p: Any) -> None:
            who = blocked((2, 256), threads=32 * self.warps, vector=2)
            with p.grid((self.m, 2)) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, 0, shape=(2, 256)), who)
                p.store(self.st, self.y.column(i, 2), p.reduce(self.add, x, axis=1, by=self.exchange))

        @staticmethod
        def reference(x: Any) -> Any:
            return x.sum(axis=1)

    x = np.random.default_rng(0).integers(-4, 5, (3, 200)).astype(np.float16)
    for point in ({"warps": 1, "exchange": "shuffles"}, {"warps": 4, "exchange": "pairs"}):
        kernel = tg.emit(tg.space(Halves, m=3, n=200, device="a100"), point)
        assert (tg.emulate(kernel, x) == x.sum(axis=1)).all()


def test_a_tensor_that_is_written_is_not_read_through_the_read_only_path() -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            p.load(self.ld, self.y.tile(i, shape=(32,)), blocked((32,), threads=32))

    assert refusal(program, ld=isa.LdGlobalReadOnly(1)) == (
        "Refused.program: ld (ld.global.nc) reads y through the read-only path, and the program writes it; "
        "load it with ld.global"
    )


def test_nothing_is_moved_outside_a_role() -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)) as (i,):
            p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))

    assert refusal(program, ld=isa.LdGlobal(1)) == (
        "Refused.program: x is touched outside a role; say which warps do it with `with p.role(...)`"
    )


def test_a_tensor_follows_a_tensor_and_not_its_name() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Named(Machine):
            n = Dim()
            x = Input(("f32", "f16"), n)
            y = Output({"f32": ("f32",), "f16": ("f16",)}, n, follows="x")  # type: ignore[arg-type]

    assert str(refused.value) == (
        "Named.y: follows= is the tensor itself, as follows=x after x = Input(...), not 'x'"
    )


def test_a_comparison_of_tiles_as_objects_is_no_condition() -> None:
    def program(self: Any, p: Any) -> None:
        who = blocked((32,), threads=32)
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, shape=(32,)), who)
            p.where(x == p.full(who, "f16"), x, x)

    assert refusal(program, ld=isa.LdGlobal(1)) == (
        "Refused.program: p.where: condition must be a tile (a window of a tensor, a buffer of a slot, or a value in "
        "registers), not False; == and != compare tiles as objects, equal(x, y) and not_equal(x, y) their elements"
    )


def test_a_crossing_of_parts_needs_a_tile_of_the_whole_shape() -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)) as _, p.role("all", warps=1):
            row, column = (p.full(blocked(shape, threads=32), "f16") for shape in ((1, 32), (32, 1)))
            p.apply(self.add, row, column)

    assert refusal(program, add=isa.Add("f16")) == (
        "Refused.program: add mixes extents 32 and 1 along axis 0; no operand has the whole shape: give into= a tile "
        "that has it, by p.full"
    )
