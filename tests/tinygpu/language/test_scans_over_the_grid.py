"""What a scan over the grid asks for, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.language import Combine, DeclarationError, Dim, Input, Machine, Output, blocked
from tinygpu.language.trace import trace
from tinygpu.ptx import isa

Body = Callable[[Any, Any, Any, Any], Any]
SHAPE = (1, 32)


def scanning(body: Body, **of_grid: Any) -> type[Machine]:
    """A machine whose tiles of 32 elements are scanned by `body(self, p, x, j)`."""

    class Scanning(Machine):
        """y is a scan of x"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        ld, st, add, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.Exchange("shuffles", "pairs")
        up = isa.ShflUp()

        def program(self, p: Any) -> None:
            who = blocked(SHAPE, threads=32)
            with p.grid((self.m, 1), (self.n, 32), **of_grid) as (i, j), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, j, shape=SHAPE), who)
                p.store(self.st, self.y.tile(i, j, shape=SHAPE), body(self, p, x, j))

        @staticmethod
        def reference(x: Any) -> Any:
            return x.cumsum(axis=1)

    return Scanning


def over(self: Any, p: Any, x: Any, j: Any) -> Any:
    return p.scan(self.add, x, axis=1, by=self.exchange, grid=1)


def in_a_loop(self: Any, p: Any, x: Any, j: Any) -> Any:
    with p.loop(self.n, step=32):
        return over(self, p, x, j)


def in_a_branch(self: Any, p: Any, x: Any, j: Any) -> Any:
    with p.when(j < self.n - 64):
        p.store(self.st, self.y.tile(0, j, shape=SHAPE), over(self, p, x, j))
    return x


def of_no_identity(self: Any, p: Any, x: Any, j: Any) -> Any:
    added = Combine(lambda p, left, right: (p.apply(self.add, left[0], right[0]),))
    return p.scan(added, (x,), axis=1, by=self.exchange, grid=1)[0]


def carried(self: Any, p: Any, x: Any, j: Any) -> Any:
    before = p.full(blocked(SHAPE, threads=32).reduced(1), "f32")
    return p.scan(self.add, x, axis=1, by=self.exchange, carry=before, grid=1)


SENTENCES: dict[str, tuple[Body, dict[str, Any], str]] = {
    "an axis that is not there": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, by=self.exchange, grid=2), {},
        "add scans over axis 2 of the grid, and it has the axes 0 to 1",
    ),
    "a cluster": (
        over, {"cluster": (1, 2)},
        "add scans over the grid, where each CTA waits for those before it; give every CTA one tile: p.grid without "
        "cluster=, persistent=, slices= or a scheduler",
    ),
    "tile after tile": (
        over, {"persistent": True},
        "add scans over the grid, where each CTA waits for those before it; give every CTA one tile: p.grid without "
        "cluster=, persistent=, slices= or a scheduler",
    ),
    "a loop": (in_a_loop, {}, "add scans over the grid inside a loop; each tile is scanned once, outside of it"),
    "a branch": (in_a_branch, {}, "add scans over the grid inside p.when, and all CTAs take part; write it outside"),
    "a carry": (carried, {}, "what stands before a scan comes from the tiles before or by carry=; give one of them"),
    "no identity": (
        of_no_identity, {},
        "a scan over the grid begins with what changes nothing, and <lambda> does not say what; give a Combine with "
        "its identity",
    ),
    "lanes alone": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, by=self.up, grid=1), {},
        "add scans over the grid through shared memory, and by= says nothing of that; give an exchange",
    ),
    "nobody": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, grid=1), {},
        "add scans over the grid through shared memory, and by= says nothing of that; give an exchange",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_what_a_scan_over_the_grid_refuses(name: str) -> None:
    body, of_grid, sentence = SENTENCES[name]
    with pytest.raises(DeclarationError) as refused:
        scanning(body, **of_grid)
    assert str(refused.value).endswith(f"Scanning.program: {sentence}")


def test_the_listing_says_what_is_looked_back_at() -> None:
    machine = scanning(over)
    program = trace(machine, machine.problem(m=2, n=300), (("exchange", "shuffles"),)).program
    assert "of the tiles before along 1 of the grid" in str(program)
