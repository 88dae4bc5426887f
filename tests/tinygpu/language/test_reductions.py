"""Reductions that cannot be are refused in a sentence, when they are declared or by a constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import (
    Choice,
    Combine,
    DeclarationError,
    Dim,
    E,
    ExchangePlan,
    Input,
    Layout,
    Machine,
    Output,
    Param,
    Partition,
    blocked,
    maximum,
    minimum,
)
from tinygpu.ptx import isa

Inner = Callable[[Any, Any, Any, Any], Any]


def machine(inner: Inner, kind: str = "f32") -> type[Machine]:
    """A machine whose program hands `inner` (self, p, a tile, who holds it)."""

    class Thing(Machine):
        """Something is reduced"""

        m, n = Dim(), Dim()
        x = Input(kind, m, n)
        y = Output(kind, m)
        warps, across = Param(1, 2, 3), Param(3, 16, 32, 64, 96)
        ld, st, add, more, choose = isa.LdGlobal(1), isa.StGlobal(1), isa.Add(kind), isa.Max(kind), isa.Select(kind)
        shuffle, exchange = isa.ShflBfly(), isa.Exchange()

        def program(self, p: Any) -> None:
            shape = (96, 96)
            who = blocked(shape, threads=32 * self.warps, across=self.across)
            with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
                inner(self, p, p.load(self.ld, self.x.tile(i, 0, shape=shape), who), who)
                p.store(self.st, self.y.column(i, shape[0]), p.full(who.reduced(1), kind))

        @staticmethod
        def reference(x: Any) -> Any:
            return x.sum(axis=1)

    return Thing


def pair(self: Any, p: Any, left: Any, right: Any) -> Any:
    return tuple(p.apply(self.add, a, b) for a, b in zip(left, right, strict=True))


REFUSED: list[tuple[Inner, str]] = [
    (
        lambda self, p, x, who: p.reduce(self.add, (x, x), axis=1, by=self.shuffle),
        "p.reduce takes one tile with add, not ...; a Combine takes several",
    ),
    (
        lambda self, p, x, who: p.reduce(Combine(lambda *a: pair(self, *a)), x, axis=1, by=self.shuffle),
        "p.reduce takes several tiles with the Combine <lambda>, as a tuple, not %v1",
    ),
    (
        lambda self, p, x, who: p.reduce(
            Combine(lambda *a: pair(self, *a)), (x, p.full(who.reduced(1), "f32")), axis=1, by=self.shuffle
        ),
        "<lambda> reduces tiles of 96x96 and 96x1 together",
    ),
    (
        lambda self, p, x, who: p.reduce(Combine(lambda p, a, b: a[0]), (x, x), axis=1, by=self.shuffle),
        "<lambda> makes a tuple of 2 tiles, f32, f32, of two; it gives %left0",
    ),
    (
        lambda self, p, x, who: p.reduce(
            Combine(lambda p, a, b: (p.apply(self.add, a[0], x), b[1])), (x, x), axis=1, by=self.shuffle
        ),
        "<lambda> makes one tuple of two by p.apply of what it is given, each into a tile of its own; it takes no "
        "other tile and no other verb",
    ),
    (
        lambda self, p, x, who: p.reduce(Combine(lambda p, a, b: (a[0], x)), (x, x), axis=1, by=self.shuffle),
        "<lambda> gives %v1, which is neither of what it is given nor made of it",
    ),
    (
        lambda self, p, x, who: p.reduce(
            Combine(lambda *a: pair(self, *a), identity=(0,)), (x, x), axis=1, by=self.shuffle
        ),
        "<lambda> has an identity of 1 values, and combines 2 tiles",
    ),
    (
        lambda self, p, x, who: p.reduce(
            Combine(lambda p, a, b: (a[0], p.apply(isa.Cvt("f32", "s32"), a[1]))), (x, x), axis=1, by=self.shuffle
        ),
        "<lambda> makes s32 of f32; a tuple keeps its types, f32, f32",
    ),
    (
        lambda self, p, x, who: p.reduce(self.add, x, axis=1, by=self.exchange, cluster=0),
        "add reduces over the cluster along axis 0 of the grid, where there is no cluster",
    ),
    (
        lambda self, p, x, who: p.scan(self.add, x, axis=1, by=self.shuffle),
        "p.scan shifts values between lanes, and shfl.sync does not; give by= an exchange, or a LaneShift such as "
        "isa.ShflUp()",
    ),
    (
        lambda self, p, x, who: p.scan(
            Combine(lambda *a: pair(self, *a)), (x, x), axis=1, exclusive=True, by=isa.ShflUp()
        ),
        "an exclusive scan begins with what changes nothing, and <lambda> does not say what; give a Combine with its "
        "identity, or a carry",
    ),
    (
        lambda self, p, x, who: p.scan(self.add, x, axis=1, by=isa.ShflUp(), carry=p.full(who, "f32")),
        "add carries 96x1, and %v2 has 96x96",
    ),
    (
        lambda self, p, x, who: p.scan(self.add, x, axis=1, by=isa.ShflUp(), carry=p.full(who.reduced(1), "s32")),
        "add carries f32 in registers, and v2 is s32 in RMEM",
    ),
    (
        lambda self, p, x, who: p.reduce(
            self.add, p.full(Partition((32, 32), Layout.of([(32, E(0) + E(1))], [(32, E(1))])), "f32"), axis=1,
            by=self.shuffle,
        ),
        "add: holders of [32x32] (32,32):(1@0+1@1,1@1) step along axis 1 and another one at once",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("inner", "sentence"), REFUSED)
def test_what_cannot_be_combined_is_refused_when_it_is_declared(inner: Inner, sentence: str) -> None:
    with pytest.raises(DeclarationError) as error:
        machine(inner)
    said = str(error.value)
    before, _, after = sentence.partition("...")
    assert said.startswith(f"Thing.program: {before}")
    assert said.endswith(after)
    assert "..." in sentence or said == f"Thing.program: {sentence}"


def reasons(by: Any, kind: str = "f32", combine: str = "add", **point: Any) -> list[str]:
    def inner(self: Any, p: Any, x: Any, who: Any) -> None:
        plan = self.exchange if by == "search" else by
        total = p.reduce(getattr(self, combine), x, axis=1, by=plan)
        p.store(self.st, self.y.column(0, 96), total)

    space = tg.space(machine(inner, kind), m=96, n=96, device="a100")
    found = tg.explain(space, {"exchange": "shuffles", **point} if by == "search" else {"exchange": "redux", **point})
    return [s for s in found.sentences if s.startswith(("reduction", "redux"))]


def out_by(by: Any, kind: str = "f32", combine: str = "add", **point: Any) -> str:
    (sentence,) = reasons(by, kind, combine, **point)
    return sentence.partition(": ")[2].partition("; ")[0]


def test_holders_that_cannot_meet_are_out_by_a_constraint() -> None:
    lanes = "the threads along the reduced axis are lanes of one warp"
    whole = "the threads along the reduced axis are whole warps, and a power of two of the lanes of one"
    alone = "without by= a thread must have all values along the reduced axis"
    assert reasons(isa.ShflBfly(), warps=1, across=32) == []
    assert out_by(isa.ShflBfly(), warps=2, across=64) == lanes
    assert out_by(isa.ShflBfly(), warps=3, across=3) == lanes
    assert reasons("search", warps=2, across=64) == []
    assert reasons("search", warps=3, across=96) == []
    assert out_by("search", warps=3, across=3) == whole
    assert out_by(None, warps=1, across=32) == alone


def admitted(kind: str, combine: str = "add") -> set[tuple[str, int, int]]:
    def inner(self: Any, p: Any, x: Any, who: Any) -> None:
        total = p.reduce(getattr(self, combine), x, axis=1, by=self.exchange)
        p.store(self.st, self.y.column(0, 96), total)

    space = tg.space(machine(inner, kind), m=96, n=96, device="a100").space
    points = space.sample(400, np.random.default_rng(0))
    return {(str(p["exchange"]), int(p["warps"]), int(p["across"])) for p in points}


def test_an_exchange_that_does_nothing_of_its_own_is_left_to_the_plain_one() -> None:
    held = {(2, 16), (2, 32), (3, 16), (3, 32), (3, 96)}  # one warp has no registers for the tile
    assert admitted("f32") == {("shuffles", *each) for each in held}  # three warps make no pairs
    whole = {("redux", *each) for each in held if each[1] % 32 == 0}
    assert admitted("s32") == admitted("f32") | whole


def test_an_exchange_of_the_class_is_by_what_it_names() -> None:
    said = r"^Thing\.exchange: an Exchange is by shuffles, pairs or redux, not by 'x'"
    with pytest.raises(DeclarationError, match=said):

        class Thing(Machine):
            exchange = isa.Exchange("pairs", "x")


class Own(isa.ShflBfly):
    """A shuffle of a user's own"""


@pytest.mark.end_to_end
def test_an_exchange_of_ones_own_is_a_choice_like_any_other() -> None:
    class Sums(Machine):
        """y = sums of rows"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m)
        ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")
        warps = Param(4)
        way = Choice(ExchangePlan("mine", Own()), ExchangePlan("in pairs", Own(), in_pairs=True))

        def program(self, p: Any) -> None:
            who = blocked((1, 256), threads=32 * self.warps)
            with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, 0, shape=(1, 256)), who)
                p.store(self.st, self.y.column(i, 1), p.reduce(self.add, x, axis=1, by=self.way))

        @staticmethod
        def reference(x: Any) -> Any:
            return x.sum(axis=1)

    space = tg.space(Sums, m=5, n=200, device="a100")
    for way in ("mine", "in pairs"):
        assert tg.verify(tg.emit(space, way=way, warps=4)).passed


def test_operators_make_one_tuple_of_two_as_they_make_tiles() -> None:
    class Spread(Machine):
        """y = the largest less the smallest of each row"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m)
        ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")
        exchange = isa.Exchange("pairs", "shuffles")
        warps = Param(1, 4)

        def program(self, p: Any) -> None:
            who = blocked((1, 256), threads=32 * self.warps)
            both = Combine(lambda p, a, b: (maximum(a[0], b[0]), minimum(a[1], b[1])))
            with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, 0, shape=(1, 256)), who)
                top, low = p.reduce(both, (x, x), axis=1, by=self.exchange)
                p.store(self.st, self.y.column(i, 1), top - low)

        @staticmethod
        def reference(x: Any) -> Any:
            return x.max(axis=1) - x.min(axis=1)

    space = tg.space(Spread, m=3, n=256, device="h100")
    x = np.random.default_rng(0).normal(size=(3, 256)).astype(np.float32)
    for warps, exchange in ((1, "shuffles"), (4, "pairs")):
        kernel = tg.emit(space, exchange=exchange, warps=warps)
        assert (tg.emulate(kernel, x) == x.max(axis=1) - x.min(axis=1)).all()


def of_cluster(inner: Callable[[Any, Any, Any, Any], Any], roles: int = 1) -> str:
    """What is said of a machine whose CTAs form clusters; `inner` (self, p, a tile, who holds it) reduces."""
    with pytest.raises(DeclarationError) as error:

        class Thing(Machine):
            """Something is reduced over a cluster"""

            m, n = Dim(), Dim()
            x, y = Input("f32", m, n), Output("f32", m, n)
            ld, st, add, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.Exchange()
            shuffle, ctas = isa.ShflBfly(), Param(1, 2)

            def program(self, p: Any) -> None:
                who = blocked((1, 128), threads=128)
                with p.grid((self.m, 1), (self.n, 128), cluster=(1, self.ctas)) as (i, j):
                    for role in range(roles):
                        with p.role(f"role{role}", warps=4, first=4 * role):
                            x = p.load(self.ld, self.x.tile(i, j, shape=(1, 128)), who)
                            p.store(self.st, self.y.tile(i, j, shape=(1, 128)), x)
                            inner(self, p, x, (i, j))

            @staticmethod
            def reference(x: Any) -> Any:
                return x

    return str(error.value).removeprefix("Thing.program: ")


def test_a_cluster_meets_with_all_threads_of_all_its_ctas_equally_often() -> None:
    def reduced(self: Any, p: Any, x: Any, at: Any, by: Any = None) -> None:
        total = p.reduce(self.add, x, axis=1, by=by or self.exchange, cluster=1)
        p.store(self.st, self.y.tile(*at, shape=(1, 1)), total)

    def in_a_branch(self: Any, p: Any, x: Any, at: Any) -> None:
        with p.when(at[1] < 128):
            reduced(self, p, x, at)

    def in_rounds(self: Any, p: Any, x: Any, at: Any) -> None:
        with p.loop(at[1] + 1, step=1):
            reduced(self, p, x, at)

    said = "%v2 = add %v1 along 1 by shuffles, and of the cluster along 1: "
    equally = "the CTAs of a cluster meet equally often, and this is "
    assert of_cluster(reduced, 2) == f"{said}all threads of the CTAs meet, and the CTA has several roles"
    assert of_cluster(in_a_branch) == f"{said}{equally}in a branch"
    assert of_cluster(in_rounds) == f"{said}{equally}as often as tile1 says".replace("%v2", "%v3")
    assert of_cluster(lambda self, p, x, at: reduced(self, p, x, at, self.shuffle)) == (
        "add reduces over the cluster through shared memory, and by= says nothing of that; give an exchange"
    )
