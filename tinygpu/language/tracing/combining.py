"""The verb that combines what threads hold along an axis of a tile, and what verbs of that kind have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast, overload

from tinygpu.expressions import Expr, expr
from tinygpu.language.combine import Combine, identity_of
from tinygpu.language.exchange import ExchangePlan, lanes_only
from tinygpu.language.instruction import Elementwise, Shuffle
from tinygpu.language.meeting import Meeting, meeting
from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import Choice
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.computing import Computing
from tinygpu.language.tracing.operand_checks import axes_of, extents_of
from tinygpu.language.verb import verb
from tinygpu.program import nodes as n
from tinygpu.users_code import answer

By: TypeAlias = Shuffle | ExchangePlan | None
# Values that go to other threads are words, parts of one, or two of them.
EXCHANGED_BITS = (16, 32, 64)


@dataclass(slots=True, eq=False)
class Combining(Computing):
    """What threads make together of tiles in registers."""

    @overload
    def reduce(
        self, combine: Elementwise, value: Tile, axis: int, by: By = None, cluster: int | None = None
    ) -> Tile: ...
    @overload
    def reduce(
        self, combine: Combine, value: tuple[Tile, ...], axis: int, by: By = None, cluster: int | None = None
    ) -> tuple[Tile, ...]: ...
    @verb("p.reduce")
    def reduce(
        self, combine: Elementwise | Combine, value: Tile | tuple[Tile, ...], axis: int, by: By = None,
        cluster: int | None = None,
    ) -> Tile | tuple[Tile, ...]:
        """Combines tiles along `axis`; extent 1 is left there, and every thread that held a part holds the result.

        combine  an instruction of two values of one type that gives a third, or a Combine of several tiles
        value    a tile; for a Combine as many tiles as it takes, of the same extents and holders
        by       how the threads that differ along the axis exchange what they have: an exchange, or a shuffle where
                 they are lanes of one warp; None: every thread has all values along the axis
        cluster  an axis of the grid: the CTAs of a cluster along it combine the tiles that each of them has
        """
        name, values, who = self._combined("reduce", combine, value, axis)
        merge = self._merge("reduce", name, combine, values, who.reduced(axis))
        plan = self._plan("reduce", name, by)
        self.require(can_meet(f"reduction of {values[0].name}", self._meeting(name, values[0], axis), plan))
        what = f"the reduction by {name}"
        results = tuple(self._value(tile.dtype, who.reduced(axis), what) for tile in values)
        ctas = expr(1) if cluster is None else self._ctas_that_meet("reduces", name, plan, cluster)
        self.emit(n.Reduce(name, merge, plan, values, results, axis, cluster, ctas))
        if isinstance(value, Tile):
            return results[0]
        self.siblings |= dict.fromkeys((tile.name for tile in results), tuple(tile.name for tile in results))
        return results

    # -- what is combined ------------------------------------------------------------------------------------------
    def _combined(
        self, verb_name: str, combine: Elementwise | Combine, value: Tile | tuple[Tile, ...], axis: int
    ) -> tuple[str, tuple[Tile, ...], Partition]:
        """(what the listing calls it, the tiles, who holds the first of them)."""
        if isinstance(combine, Combine):
            name = combine.name
            several = isinstance(value, (tuple, list)) and value and all(isinstance(tile, Tile) for tile in value)
            if not several:
                shown = str(value) if isinstance(value, Tile) else repr(value)
                raise self.fail(f"p.{verb_name} takes several tiles with the Combine {name}, as a tuple, not {shown}")
            values = tuple(value) if not isinstance(value, Tile) else ()
        else:
            name = self._instruction(combine, (Elementwise,), verb_name)
            if not isinstance(value, Tile):
                raise self.fail(f"p.{verb_name} takes one tile with {name}, not {value!r:.40}; a Combine takes several")
            values = (value,)
        for tile in values:
            self._use(tile)
            if tile.partition is None:
                raise self.fail(f"{name} {verb_name}s registers, and {tile.name} lies in {tile.memory}")
            if tile.dtype.bits not in EXCHANGED_BITS:
                raise self.fail(
                    f"{name} {verb_name}s {tile.dtype}, and threads exchange values of 16, 32 or 64 bits; convert it "
                    "to f32 or s32 first"
                )
            if not all(map(lambda a, b: a.same(b), tile.shape, values[0].shape)):
                raise self.fail(f"{name} {verb_name}s tiles of {extents_of(values[0])} and {extents_of(tile)} together")
        if not 0 <= axis < len(values[0].shape):
            here = axes_of(len(values[0].shape))
            raise self.fail(f"{name} {verb_name}s along axis {axis}, and {values[0]} has {here}")
        self._broadcasts(name, values[1:], values[0])
        who = values[0].partition
        if who is None:
            raise self.fail(f"{name} {verb_name}s registers, and {values[0].name} has none")
        return name, values, who

    def _ctas_that_meet(self, does: str, name: str, plan: ExchangePlan | None, axis: int) -> Expr:
        """How many CTAs of a cluster there are along an axis of the grid."""
        grid = self.grid_node
        if grid is None or not 0 <= axis < len(grid.axes) or grid.axes[axis].cluster.same(1):
            raise self.fail(f"{name} {does} over the cluster along axis {axis} of the grid, where there is no cluster")
        if plan is None or not plan.warps:
            raise self.fail(
                f"{name} {does} over the cluster through shared memory, and by= says nothing of that; give an exchange"
            )
        if self.fixing_up or grid.scheduler.shares:
            raise self.fail(
                f"{name} {does} over the cluster, and CTAs that share tiles are not all there; p.fix_up combines"
            )
        return grid.axes[axis].cluster

    def _meeting(self, name: str, tile: Tile, axis: int) -> Meeting:
        if tile.partition is None:
            raise self.fail(f"{name} combines registers, and {tile.name} has none")
        try:
            return meeting(tile.partition, axis)
        except ValueError as error:
            raise self.fail(f"{name}: {error}") from None

    def _plan(self, verb_name: str, name: str, by: By) -> ExchangePlan | None:
        if by is None:
            return None
        if isinstance(by, Choice):
            raise self.fail(
                f"p.{verb_name} exchanges by what the search chooses; declare the choice in the class, and give "
                "self.NAME"
            )
        if not isinstance(by, (Shuffle, ExchangePlan)):
            raise self.fail(f"p.{verb_name} exchanges by a Shuffle or an ExchangePlan, not {by!r}")
        plan = lanes_only(by) if isinstance(by, Shuffle) else by
        for instruction in plan.instructions:
            if unwritten := instruction.unwritten():
                raise self.fail(f"{self.machine.attribute_of(instruction)} ({instruction}) {unwritten}")
            self._acts(name, instruction)
        return plan

    # -- how two become one ----------------------------------------------------------------------------------------
    def _merge(
        self, verb_name: str, name: str, combine: Elementwise | Combine, values: tuple[Tile, ...], held: Partition
    ) -> n.Merge:
        """The steps by which two tuples of values become one; their tiles have names of their own."""
        counted = self.counter
        left, right = (
            tuple(self._stand_in(f"{side}{place}", tile, held) for place, tile in enumerate(values))
            for side in ("left", "right")
        )
        with self.nested() as body:
            if isinstance(combine, Combine):
                made = self._two_become_one(name, combine, left, right)
            else:
                takes, gives = combine.elements()
                kind = values[0].dtype
                if takes != (gives, gives) or kind.name != gives:
                    raise self.fail(f"{name} cannot {verb_name} {kind}: it takes {', '.join(takes)} and gives {gives}")
                made = (self.apply(combine, left[0], right[0]),)
        self._forget(f"v{number}" for number in range(counted + 1, self.counter + 1))
        self.begun, self.counter = "", counted
        known = {tile.name: tile for tile in (*left, *right)}
        steps: list[n.Apply] = []
        for s in body:
            taken = isinstance(s, n.Apply) and all(tile.name in known for tile in s.reads)
            if not isinstance(s, n.Apply) or not taken or s.result.name in known:
                raise self.fail(
                    f"{name} makes one tuple of two by p.apply of what it is given, each into a tile of its own; it "
                    "takes no other tile and no other verb"
                )
            if not s.instruction.form(False):
                raise self.fail(f"{name} combines value by value, and {s.name} has a text for whole registers only")
            operands = tuple(known[o.name] if isinstance(o, Tile) else o for o in s.operands)
            known[s.result.name] = replace(s.result, name=f"made{len(steps)}")
            steps.append(replace(s, operands=operands, result=known[s.result.name]))
        foreign = next((tile for tile in made if tile.name not in known), None)
        if foreign is not None:
            raise self.fail(f"{name} gives {foreign}, which is neither of what it is given nor made of it")
        if isinstance(combine, Combine):
            identity = combine.identity
        else:
            known_by_sign = identity_of(combine.sign, values[0].dtype)
            identity = () if known_by_sign is None else (known_by_sign,)
        whole = tuple(known[tile.name] for tile in made)
        return n.Merge(left, right, whole, tuple(steps), identity, isinstance(combine, Combine))

    def _stand_in(self, name: str, tile: Tile, held: Partition) -> Tile:
        """A value of a tuple, while its author says what becomes of it."""
        zero = tuple(expr(0) for _ in held.shape)
        return Tile(name, RMEM, tile.dtype, held.shape, zero, (), None, None, held, link=self.link)

    def _two_become_one(
        self, name: str, combine: Combine, left: tuple[Tile, ...], right: tuple[Tile, ...]
    ) -> tuple[Tile, ...]:
        """What the author of a Combine makes of two tuples."""
        kinds = ", ".join(tile.dtype.name for tile in left)
        merge: Callable[..., Any] = combine.merge
        made = answer(merge, self, left, right, wanted="", fits=lambda _: True)
        several = isinstance(made, tuple) and all(isinstance(tile, Tile) for tile in made)
        if not several or len(made) != len(left):
            shown = ", ".join(map(str, made)) if several else str(made) if isinstance(made, Tile) else repr(made)
            raise self.fail(f"{name} makes a tuple of {len(left)} tiles, {kinds}, of two; it gives {shown}")
        wrong = next(((a, b) for a, b in zip(made, left, strict=True) if a.dtype != b.dtype), None)
        if wrong is not None:
            raise self.fail(f"{name} makes {wrong[0].dtype} of {wrong[1].dtype}; a tuple keeps its types, {kinds}")
        if combine.identity and len(combine.identity) != len(left):
            raise self.fail(f"{name} has an identity of {len(combine.identity)} values, and combines {len(left)} tiles")
        for number, tile in zip(combine.identity, left, strict=False):
            self._number_in(f"the identity of {name}", number, tile.dtype)
        return cast(tuple[Tile, ...], made)


def can_meet(title: str, who: Meeting, plan: ExchangePlan | None) -> tuple[Condition, ...]:
    """What must hold for the threads that differ along an axis to combine what they have."""
    if plan is None:
        sentence = "without by= a thread must have all values along the reduced axis; by= says how threads meet"
        return (Condition(title, who.apart, sentence),)
    if not plan.warps:
        return (Condition(title, who.within_warps, "the threads along the reduced axis are lanes of one warp"),)
    sentence = "the threads along the reduced axis are whole warps, and a power of two of the lanes of one"
    return (Condition(title, who.whole, sentence),)
