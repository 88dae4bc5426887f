"""What a scan over the CTAs of a cluster asks for, and one over the grid, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tinygpu as tg
from tinygpu.language import Combine, DeclarationError, Dim, Input, Machine, Output, blocked
from tinygpu.language.trace import trace
from tinygpu.ptx import isa

Body = Callable[..., Any]
SHAPE = (1, 32)


def scanning(body: Body, over: dict[str, int], **of_grid: Any) -> type[Machine]:
    """A machine whose tiles of 32 elements are scanned by `body(self, p, x, j, **over)`."""

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
                p.store(self.st, self.y.tile(i, j, shape=SHAPE), body(self, p, x, j, **over))

        @staticmethod
        def reference(x: Any) -> Any:
            return x.cumsum(axis=1)

    return Scanning


def scanned(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    return p.scan(self.add, x, axis=1, by=self.exchange, **over)


def by_lanes_alone(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    return p.scan(self.add, x, axis=1, by=self.up, **over)


def by_nobody(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    return p.scan(self.add, x, axis=1, **over)


def in_a_loop(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    with p.loop(self.n, step=32):
        return scanned(self, p, x, j, **over)


def in_a_branch(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    with p.when(j < self.n - 64):
        p.store(self.st, self.y.tile(0, j, shape=SHAPE), scanned(self, p, x, j, **over))
    return x


def of_no_identity(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    added = Combine(lambda p, left, right: (p.apply(self.add, left[0], right[0]),))
    return p.scan(added, (x,), axis=1, by=self.exchange, **over)[0]


def carried(self: Any, p: Any, x: Any, j: Any, **over: Any) -> Any:
    before = p.full(blocked(SHAPE, threads=32).reduced(1), "f32")
    return p.scan(self.add, x, axis=1, by=self.exchange, carry=before, **over)


CLUSTER, GRID, TWO = {"cluster": 1}, {"grid": 1}, {"cluster": (1, 2)}
SENTENCES: dict[str, tuple[Body, dict[str, int], dict[str, Any], str]] = {
    "an axis of the cluster that is not there": (
        scanned, {"cluster": 2}, TWO,
        "add scans over the cluster along axis 2 of the grid, where there is no cluster",
    ),
    "an axis of the grid that is not there": (
        scanned, {"grid": 2}, {}, "add scans over axis 2 of the grid, and it has the axes 0 to 1",
    ),
    "no cluster": (
        scanned, CLUSTER, {}, "add scans over the cluster along axis 1 of the grid, where there is no cluster",
    ),
    "the cluster and the grid": (
        scanned, CLUSTER | GRID, TWO,
        "a scan goes over the CTAs of a cluster or over the grid; give one of cluster= and grid=",
    ),
    "the grid, of clusters": (
        scanned, GRID, TWO,
        "add scans over the grid, where each CTA waits for those before it; give every CTA one tile: p.grid without "
        "cluster=, persistent=, slices= or a scheduler",
    ),
    "the grid, tile after tile": (
        scanned, GRID, {"persistent": True},
        "add scans over the grid, where each CTA waits for those before it; give every CTA one tile: p.grid without "
        "cluster=, persistent=, slices= or a scheduler",
    ),
    "the grid in a loop": (
        in_a_loop, GRID, {}, "add scans over the grid inside a loop; each tile is scanned once, outside of it",
    ),
    "the cluster in a branch": (
        in_a_branch, CLUSTER, TWO,
        "%v3 = add %v2 of the CTAs before along 1 of the cluster: the CTAs of a cluster meet equally often, and this "
        "is in a branch",
    ),
    "the grid in a branch": (
        in_a_branch, GRID, {}, "add scans over the grid inside p.when, and all CTAs take part; write it outside",
    ),
    "the grid with a carry": (
        carried, GRID, {}, "what stands before a scan comes from the tiles before or by carry=; give one of them",
    ),
    "the cluster without an identity": (
        of_no_identity, CLUSTER, TWO,
        "a scan over the cluster begins with what changes nothing, and <lambda> does not say what; give a Combine with "
        "its identity, or a carry",
    ),
    "the grid without an identity": (
        of_no_identity, GRID, {},
        "a scan over the grid begins with what changes nothing, and <lambda> does not say what; give a Combine with "
        "its identity",
    ),
    **{
        f"the {place} by {who}": (
            body, over, of_grid,
            f"add scans over the {place} through shared memory, and by= says nothing of that; give an exchange",
        )
        for place, over, of_grid in (("cluster", CLUSTER, TWO), ("grid", GRID, {}))
        for who, body in (("lanes alone", by_lanes_alone), ("nobody", by_nobody))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_what_a_scan_over_ctas_refuses(name: str) -> None:
    body, over, of_grid, sentence = SENTENCES[name]
    with pytest.raises(DeclarationError) as refused:
        scanning(body, over, **of_grid)
    assert str(refused.value).endswith(f"Scanning.program: {sentence}")


@pytest.mark.parametrize(
    ("over", "of_grid", "said"),
    [
        (CLUSTER, TWO, "%v3 = add %v2 of the CTAs before along 1 of the cluster"),
        (GRID, {}, "of the tiles before along 1 of the grid"),
    ],
)
def test_the_listing_says_whose_results_are_taken(over: dict[str, int], of_grid: dict[str, Any], said: str) -> None:
    machine = scanning(scanned, over, **of_grid)
    program = trace(machine, machine.problem(m=2, n=300), (("exchange", "shuffles"),)).program
    assert said in str(program)


def test_devices_without_clusters_refuse_scans_over_them() -> None:
    space = tg.space(scanning(scanned, CLUSTER, **TWO), m=2, n=64, device="a100")
    sentence = "cluster size (device): the CTAs of a cluster fit into the clusters that every such device has; "
    said = tg.explain(space, exchange="shuffles").sentences
    assert [s for s in said if s.startswith(sentence)]
