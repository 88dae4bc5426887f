"""The verbs that make values of positions, and choose between values by conditions."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.dtypes import PREDICATE, dtype
from tinygpu.expressions import Expr
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.operand_checks import axes_of
from tinygpu.language.tracing.operating import Operating
from tinygpu.language.verb import verb
from tinygpu.program import nodes as n


@dataclass(slots=True, eq=False)
class Selecting(Operating):
    """Positions, and what is chosen by conditions on them."""

    @verb("p.index")
    def index(self, partition: Partition, axis: int) -> Tile:
        """An s32 tile under a partition: of each element its coordinate along an axis of the tile.

        Where a window begins is added to it for the place in the tensor.
        """
        self._fits_role("the index", partition)
        if not 0 <= axis < len(partition.shape):
            raise self.fail(f"p.index counts along axis {axis}, and the tile has {axes_of(len(partition.shape))}")
        result = self._value(dtype("s32"), partition, "an index")
        self.emit(n.Index(result, axis))
        return result

    @verb("p.where")
    def where(
        self,
        condition: Tile,
        chosen: Tile | n.ScalarArgument | Expr | float,
        other: Tile | n.ScalarArgument | Expr | float,
        into: Tile | None = None,
    ) -> Tile:
        """`chosen` where the condition holds, else `other`, by the machine's declared selection of their type.

        into  an existing tile that gets the values, which a loop carries on to its next round
        """
        beside = self._beside_a_tile((condition, chosen, other), into)
        condition, chosen, other = beside
        if condition.dtype != PREDICATE:
            raise self.fail(
                f"p.where chooses by a tile of predicates, and {condition} is {condition.dtype}; compare first, with "
                "an isa.Compare"
            )
        kinds = [o.dtype for o in (chosen, other, into) if isinstance(o, (Tile, n.ScalarArgument))]
        if not kinds:
            raise self.fail("p.where chooses between two numbers, whose type nothing says; make one a tile by p.full")
        takes = (PREDICATE.name, kinds[0].name, kinds[0].name)
        selections, _ = self._declared("where", takes)
        if not selections:
            raise self.fail(
                f"p.where chooses between values of {kinds[0]}, and the machine declares no instruction for that; "
                f"declare one, as isa.Select({kinds[0].name!r})"
            )
        return self.apply(selections[0], condition, chosen, other, into=into)
