"""The verb that gives every element what all elements up to it have together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, overload

from tinygpu.language.combine import Combine
from tinygpu.language.exchange import ExchangePlan
from tinygpu.language.instruction import Elementwise, LaneShift
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.combining import By, Combining, can_meet
from tinygpu.language.tracing.operand_checks import axes_of, extents_of
from tinygpu.language.verb import verb
from tinygpu.program import nodes as n


@dataclass(slots=True, eq=False)
class Scanning(Combining):
    """Prefixes along an axis of a tile, of rounds of a loop, or of tiles of the grid."""

    @overload
    def scan(
        self, combine: Elementwise, value: Tile, axis: int, exclusive: bool = False, by: By = None,
        carry: Tile | None = None, grid: int | None = None, cluster: int | None = None,
    ) -> Tile: ...
    @overload
    def scan(
        self, combine: Combine, value: tuple[Tile, ...], axis: int, exclusive: bool = False, by: By = None,
        carry: tuple[Tile, ...] | None = None, grid: int | None = None, cluster: int | None = None,
    ) -> tuple[Tile, ...]: ...
    @verb("p.scan")
    def scan(
        self, combine: Elementwise | Combine, value: Tile | tuple[Tile, ...], axis: int, exclusive: bool = False,
        by: By = None, carry: Tile | tuple[Tile, ...] | None = None, grid: int | None = None,
        cluster: int | None = None,
    ) -> Tile | tuple[Tile, ...]:
        """What all elements up to each one along `axis` have together; the result is held as the tile is.

        exclusive  the element itself is left out; the first one gets what changes nothing
        by         as in `p.reduce`; lanes exchange by a LaneShift
        carry      a tile of extent 1 along the axis: what stands before all elements, and then what all have together,
                   as the rounds of a loop hand it on
        grid       an axis of the grid: what the tiles before this one along it have stands before all elements
        cluster    an axis of the grid: what the CTAs of a cluster before this one along it have does, behind carry
        """
        if cluster is not None and grid is not None:
            raise self.fail("a scan goes over the CTAs of a cluster or over the grid; give one of cluster= and grid=")
        if cluster is not None:
            carry = self._before_in_cluster(combine, value, axis, by, carry, cluster)
        if grid is not None:
            if carry is not None:
                raise self.fail("what stands before a scan comes from the tiles before or by carry=; give one of them")
            carry = self._before(combine, value, axis, by, grid)
        name, values, who = self._combined("scan", combine, value, axis)
        merge = self._merge("scan", name, combine, values, who.reduced(axis))
        plan = self._plan("scan", name, by)
        if plan is not None and not isinstance(plan.shuffle, LaneShift):
            raise self.fail(
                f"p.scan shifts values between lanes, and {plan.shuffle} does not; give by= an exchange, or a "
                "LaneShift such as isa.ShflUp()"
            )
        carries = self._carries(name, values, who.reduced(axis), carry)
        if exclusive and not carries and not merge.identity:
            raise self.fail(
                f"an exclusive scan begins with what changes nothing, and {name} does not say what; give a Combine "
                "with its identity, or a carry"
            )
        self.require(can_meet(f"scan of {values[0].name}", self._meeting(name, values[0], axis), plan))
        results = tuple(self._value(tile.dtype, who, f"the scan by {name}") for tile in values)
        self.emit(n.Scan(name, merge, plan, values, results, axis, exclusive, carries))
        if isinstance(value, Tile):
            return results[0]
        self.siblings |= dict.fromkeys((tile.name for tile in results), tuple(tile.name for tile in results))
        return results

    def _before(
        self, combine: Elementwise | Combine, value: Tile | tuple[Tile, ...], axis: int, by: By, grid: int
    ) -> tuple[Tile, ...]:
        """What the tiles before this one along an axis of the grid have together."""
        name, values, who = self._combined("scan", combine, value, axis)
        merge = self._merge("scan", name, combine, values, who.reduced(axis))
        plan = self._plan("scan", name, by)
        self._check_looks_back(name, merge, plan, grid)
        own = self._together(combine, value, axis, by, merge, values, who.reduced(axis))
        what = f"the scan by {name} over the grid"
        before = tuple(self._value(tile.dtype, who.reduced(axis), what) for tile in values)
        for tile in own:
            self._use(tile)
        self.emit(n.Preceding(name, merge, plan, own, before, axis, grid))
        return before

    def _before_in_cluster(
        self, combine: Elementwise | Combine, value: Tile | tuple[Tile, ...], axis: int, by: By,
        carry: Tile | tuple[Tile, ...] | None, cluster: int,
    ) -> tuple[Tile, ...]:
        """What the CTAs of a cluster before this one have together, behind what is carried."""
        name, values, who = self._combined("scan", combine, value, axis)
        held = who.reduced(axis)
        merge = self._merge("scan", name, combine, values, held)
        plan = self._plan("scan", name, by)
        ctas = self._ctas_that_meet("scans", name, plan, cluster)
        if carry is None and not merge.identity:
            raise self.fail(
                f"a scan over the cluster begins with what changes nothing, and {name} does not say what; give a "
                "Combine with its identity, or a carry"
            )
        own = self._together(combine, value, axis, by, merge, values, held)
        carries = self._carries(name, values, held, carry)
        what = f"the scan by {name} over the cluster"
        before = tuple(self._value(tile.dtype, held, what) for tile in values)
        for tile in own:
            self._use(tile)
        self.emit(n.PrecedingInCluster(name, merge, plan, own, before, axis, cluster, ctas, carries))
        return before

    def _together(
        self, combine: Elementwise | Combine, value: Tile | tuple[Tile, ...], axis: int, by: By, merge: n.Merge,
        values: tuple[Tile, ...], held: Partition,
    ) -> tuple[Tile, ...]:
        """What all elements of a tile have together, in the order of the axis where it matters."""
        if isinstance(combine, Elementwise) and isinstance(value, Tile):
            return (self.reduce(combine, value, axis, by),)
        of = zip(values, merge.identity, strict=True)
        totals = tuple(self.full(held, tile.dtype, number) for tile, number in of)
        known = set(self.unused)
        self.scan(cast(Combine, combine), cast(tuple[Tile, ...], value), axis, by=by, carry=totals)
        for prefix in set(self.unused) - known:
            self.unused.pop(prefix)
        return totals

    def _check_looks_back(self, name: str, merge: n.Merge, plan: ExchangePlan | None, axis: int) -> None:
        node = self.grid_node
        if node is None or not 0 <= axis < len(node.axes):
            there = "there is none" if node is None else f"it has {axes_of(len(node.axes))}"
            raise self.fail(f"{name} scans over axis {axis} of the grid, and {there}")
        if not node.scheduler.in_order or any(not a.cluster.same(1) for a in node.axes):
            raise self.fail(
                f"{name} scans over the grid, where each CTA waits for those before it; give every CTA one tile: "
                "p.grid without cluster=, persistent=, slices= or a scheduler"
            )
        if self.depth or self.slots or self.fixing_up:
            where = "a loop" if self.depth else "a slot" if self.slots else "p.fix_up"
            raise self.fail(f"{name} scans over the grid inside {where}; each tile is scanned once, outside of it")
        if not merge.identity:
            raise self.fail(
                f"a scan over the grid begins with what changes nothing, and {name} does not say what; give a Combine "
                "with its identity"
            )
        if plan is None or not plan.warps:
            raise self.fail(
                f"{name} scans over the grid through shared memory, and by= says nothing of that; give an exchange"
            )

    def _carries(
        self, name: str, values: tuple[Tile, ...], held: Partition, carry: Tile | tuple[Tile, ...] | None
    ) -> tuple[Tile, ...]:
        """What stands before all elements."""
        if carry is None:
            return ()
        tiles = (carry,) if isinstance(carry, Tile) else tuple(carry)
        if len(tiles) != len(values):
            raise self.fail(f"{name} scans {len(values)} tiles, and {len(tiles)} are carried")
        for tile, of in zip(tiles, values, strict=True):
            self._use(tile)
            self._written(tile)
            if tile.partition is None or tile.dtype != of.dtype:
                here = f"{tile.name} is {tile.dtype} in {tile.memory}"
                raise self.fail(f"{name} carries {of.dtype} in registers, and {here}")
            stand_in = self._stand_in(of.name, of, held)
            if not all(a.same(b) for a, b in zip(tile.shape, held.shape, strict=True)):
                raise self.fail(f"{name} carries {extents_of(stand_in)}, and {tile} has {extents_of(tile)}")
            self._broadcasts(name, (tile,), stand_in)
        return tiles
