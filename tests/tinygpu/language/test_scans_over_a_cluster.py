"""What a scan over the CTAs of a cluster asks for, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tinygpu as tg
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
    return p.scan(self.add, x, axis=1, by=self.exchange, cluster=1)


def in_a_branch(self: Any, p: Any, x: Any, j: Any) -> Any:
    with p.when(j < self.n - 64):
        p.store(self.st, self.y.tile(0, j, shape=SHAPE), over(self, p, x, j))
    return x


def of_no_identity(self: Any, p: Any, x: Any, j: Any) -> Any:
    added = Combine(lambda p, left, right: (p.apply(self.add, left[0], right[0]),))
    return p.scan(added, (x,), axis=1, by=self.exchange, cluster=1)[0]


TWO = {"cluster": (1, 2)}
SENTENCES: dict[str, tuple[Body, dict[str, Any], str]] = {
    "an axis that is not there": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, by=self.exchange, cluster=2), TWO,
        "add scans over the cluster along axis 2 of the grid, where there is no cluster",
    ),
    "no cluster": (over, {}, "add scans over the cluster along axis 1 of the grid, where there is no cluster"),
    "the grid, too": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, by=self.exchange, cluster=1, grid=1), TWO,
        "a scan goes over the CTAs of a cluster or over the grid; give one of cluster= and grid=",
    ),
    "a branch": (
        in_a_branch, TWO,
        "%v3 = add %v2 of the CTAs before along 1 of the cluster: the CTAs of a cluster meet equally often, and this "
        "is in a branch",
    ),
    "no identity": (
        of_no_identity, TWO,
        "a scan over the cluster begins with what changes nothing, and <lambda> does not say what; give a Combine with "
        "its identity, or a carry",
    ),
    "lanes alone": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, by=self.up, cluster=1), TWO,
        "add scans over the cluster through shared memory, and by= says nothing of that; give an exchange",
    ),
    "nobody": (
        lambda self, p, x, j: p.scan(self.add, x, axis=1, cluster=1), TWO,
        "add scans over the cluster through shared memory, and by= says nothing of that; give an exchange",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_what_a_scan_over_a_cluster_refuses(name: str) -> None:
    body, of_grid, sentence = SENTENCES[name]
    with pytest.raises(DeclarationError) as refused:
        scanning(body, **of_grid)
    assert str(refused.value).endswith(f"Scanning.program: {sentence}")


def test_the_listing_says_whose_results_are_taken() -> None:
    machine = scanning(over, **TWO)
    program = trace(machine, machine.problem(m=2, n=300), (("exchange", "shuffles"),)).program
    assert "%v3 = add %v2 of the CTAs before along 1 of the cluster" in str(program)


def test_devices_without_clusters_refuse_it() -> None:
    space = tg.space(scanning(over, **TWO), m=2, n=64, device="a100")
    sentence = "cluster size (device): the CTAs of a cluster fit into the clusters that every such device has; "
    said = tg.explain(space, exchange="shuffles").sentences
    assert [s for s in said if s.startswith(sentence)]
