"""Tiles that CTAs share: how they are dealt, who divides which loops, and what is combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinygpu.expressions import Expr, Operand, any_of, expr, symbol
from tinygpu.language.instruction import Transfer
from tinygpu.language.memories import GMEM, RMEM
from tinygpu.language.partition import Condition
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.operand_checks import OperandChecks
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.schedulers.launch_control import LaunchControl
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK


@dataclass(slots=True, eq=False)
class SharingChecks(OperandChecks):
    """Checks of tile schedulers, divided loops, atomic stores and the fix-up."""

    def _dealt(
        self, persistent: bool, slices: Operand, stream_k: Operand, launch_control: Operand, cluster: Expr,
        given: TileScheduler | None,
    ) -> TileScheduler:  # fmt: skip
        """How tiles are dealt, by the words of `p.grid`, to CTAs or clusters of them; checked."""
        made: TileScheduler = StaticPersistent(expr(slices)) if persistent else OneTile(expr(slices))
        if not expr(stream_k).same(0):
            made = StreamK(expr(stream_k), made)
        if not expr(launch_control).same(0):
            made = LaunchControl(expr(launch_control), made, cluster)
        if given is not None:
            if persistent or made.shares or made.takes_over:
                raise self.fail(
                    f"p.grid takes a scheduler, here {type(given).__name__}, or persistent, slices, stream_k and "
                    "launch_control; leave out the one or the others"
                )
            made = given
        if made.refusal():
            raise self.fail(made.refusal())
        self.constraints.extend(made.conditions())
        return made

    def _divides(self, extent: Expr, rounds: Expr) -> Expr:
        """The number of CTAs that divide a loop of so many rounds over an extent."""
        if self.grid_node is None:
            raise self.fail(
                "a loop is divided among the CTAs that share a tile; open `with p.grid(..., slices=)` first"
            )
        if self.fixing_up:
            raise self.fail("a loop is divided where only the last CTA of a tile is left; divide it before p.fix_up")
        known = self.divided if self.divided is not None else rounds
        slices, deals_rounds = self.grid_node.scheduler.slices, self.grid_node.scheduler.deals_rounds
        if deals_rounds and not known.same(rounds):
            raise self.fail(
                f"one loop of {known} rounds is divided and one of {rounds}; stream-K deals out rounds that all divided"
                " loops of a tile have in common"
            )
        if deals_rounds and not any(extent.same(symbol(dim)) for dim in self.machine.dim_names()):
            raise self.fail(
                f"a loop over {extent} is divided, and stream-K deals out the rounds of loops over a dim; write "
                "p.loop(DIM, divided=True)"
            )
        self.divided = known
        self._check_divided(extent, rounds, slices)
        return slices

    def _check_divided(self, extent: Expr, rounds: Expr, parts: Expr) -> None:
        """Rounds beyond the end of a tensor touch nothing; those beyond another extent would touch what is there."""
        names = {*self.machine.dim_names(), *(p.name for p in self.machine.params())}
        own = sorted(extent.symbols - names)
        if own:
            raise self.fail(
                f"a loop over {extent} has other rounds in other tiles, and those that CTAs divide are the same in all;"
                " divide a loop over a dim"
            )
        if not any(extent.same(symbol(dim)) for dim in self.machine.dim_names()) and not parts.same(1):
            sentence = f"the CTAs that share a tile divide the {rounds} rounds over {extent} without rest"
            self.require((Condition(f"parts of {extent}", rounds % parts == 0, sentence),))

    def _writes_alone(self, name: str, target: Tile) -> None:
        """Of the CTAs that share a tile one writes the results."""
        if target.tensor is not None and self.grid_node and self.grid_node.scheduler.shares and not self.fixing_up:
            which = self.grid_node.scheduler.writers
            raise self.fail(
                f"{name} writes {target.name} in {which} CTAs that share a tile; combine what they have, and write "
                "that inside `with p.fix_up(...)`"
            )

    def _combines(self, name: str, instruction: Transfer, target: Tile) -> None:
        """What a store combines with is there before the launch; whoever comes when, and how often, is no matter."""
        if target.tensor is not None and target.tensor.access != "inout":
            raise self.fail(
                f"{name} ({instruction}) combines with what {target.name} holds, which is declared Output; declare it "
                "InOut"
            )

    def _check_combined(self, body: Sequence[n.Statement]) -> None:
        """What one store combines into, nothing else reads or writes: they come in any order, of all CTAs."""
        touching: dict[str, list[n.Statement]] = {}
        for s in walk(tuple(body)):
            for tile in (*s.reads, *s.writes):
                if tile.tensor is not None:
                    touching.setdefault(tile.tensor.name, []).append(s)
        for tensor, statements in touching.items():
            combining = [s for s in statements if any(getattr(i, "combines", False) for i in s.instructions)]
            others = [s for s in statements if s not in combining or s.instructions != combining[0].instructions]
            if combining and others:
                first, other = (getattr(s, "name", str(s)) for s in (combining[0], others[0]))
                raise self.fail(
                    f"{first} combines into {tensor} what CTAs store in any order, and {other} touches {tensor} too; "
                    "give what else is read or written a tensor of its own"
                )

    def _check_fix_up(self, name: str, store: Any, load: Any, value: Tile) -> None:
        stored, loaded = self._instruction(store, (Transfer,), "fix_up"), self._instruction(load, (Transfer,), "fix_up")
        filling = "produce" in self.slots.values()
        if self.fixing_up or self.depth > len(self.rounds) or filling:
            where = "another p.fix_up" if self.fixing_up else "a slot that is produced" if filling else "a loop"
            raise self.fail(f"p.fix_up stands inside {where}; each tile is fixed up once, where the loops are done")
        if self.depth > 1:
            raise self.fail("p.fix_up stands inside two loops of p.unroll; one goes through the pieces of a tile")
        self._path(store, RMEM, GMEM)
        self._path(load, GMEM, RMEM)
        if load.read_only:
            raise self.fail(f"{loaded} ({load}) reads through the read-only path what other CTAs write; use ld.global")
        if store.combines:
            raise self.fail(f"{stored} ({store}) combines with what is there, and a workspace is empty; use st.global")
        vector = expr(store.vector)
        if not vector.same(load.vector):
            raise self.fail(f"{stored} leaves {store.vector} values at once, and {loaded} takes {load.vector}")
        for acting in (store, load):
            self._acts(self.machine.attribute_of(acting), acting)
            width = acting.width_bytes(value.dtype)
            legal = any_of([width == w for w in acting.widths_bytes])
            sentence = f"{acting.label} moves whole vectors of the values that {name} combines"
            self.require((Condition(f"{acting.label} width in the workspace", legal, sentence),))
        if value.partition is not None:
            whole = value.partition.value_count % vector == 0
            sentence = f"what a thread holds of {value.name} is a whole number of vectors of {store.vector}"
            self.require((Condition("vectors of the workspace", whole, sentence),))

    def _check_pieces(self, index: str, body: Sequence[n.Statement]) -> None:
        """Rounds that fix up a piece each: lowering makes and leaves all pieces before the first of them is taken."""
        found = [s for s in walk(tuple(body)) if isinstance(s, n.FixUp) and s.piece == index]
        if not found:
            return
        *makes, last = body
        if found != [last]:
            raise self.fail(
                "a round of p.unroll goes on behind p.fix_up; it fixes up one piece of the tile, and ends with that"
            )
        own = {t.name for s in makes for t in s.writes}
        for s in makes:
            if s.children or s.defines or not all(_is_made(t, s) for t in s.writes):
                what = s.headline(frozenset())
                raise self.fail(
                    f"before p.fix_up, a round of p.unroll makes values of its own and nothing else, and here it does "
                    f"more: {what}"
                )
        if found[0].value.name not in own:
            raise self.fail(
                f"%{found[0].value.name} is the same in every round of p.unroll, and each fixes up a piece of its own; "
                "load or compute that in the round"
            )
        inside = list(walk(found[0].body))
        for s in inside:
            for tile in s.reads:
                if tile.name in own:
                    raise self.fail(
                        f"%{tile.name} is made in a round of p.unroll and used inside p.fix_up, which is carried out "
                        "when all pieces are left; make it inside"
                    )
        for name in sorted({t.name for s in inside for t in s.writes} & {t.name for s in makes for t in s.reads}):
            raise self.fail(
                f"{name} is read before p.fix_up in a round of p.unroll, and written inside; all pieces are made "
                "before the first one is fixed up"
            )


def _is_made(tile: Tile, s: n.Statement) -> bool:
    """Whether a value in registers begins with a statement, which adds to nothing that was there."""
    return tile.memory is RMEM and all(read.name != tile.name for read in s.reads)
