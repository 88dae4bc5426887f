"""What roles, loops and buffers are declared with."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr, joined
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import CELL_BITS, TMEM, TMEM_LANES
from tinygpu.language.partition import Condition
from tinygpu.language.roles import Role
from tinygpu.language.tracing.record import Record
from tinygpu.layouts.layout import Layout


@dataclass(slots=True, eq=False)
class BlockChecks(Record):
    """Checks of a role, a step, and the shape of a buffer."""

    def _check_role(self, made: Role) -> None:
        # PTX ISA, setmaxnreg: the register count is a multiple of 8 from 24 to 256, for a whole warpgroup.
        if made.registers and (made.registers % 8 or not 24 <= made.registers <= 256):
            raise self.fail(
                f"role {made.name!r} has a budget of {made.registers} registers; it is a multiple of 8 from 24 to 256"
            )
        if made.registers:
            self._whole_warpgroups(made, "a register budget")
        rest, every = made.share
        if not 0 <= rest < every:
            raise self.fail(f"role {made.name!r} takes the share {made.share}; (r, n) has 0 <= r < n")
        if every > 1 and not (self.grid_node and self.grid_node.scheduler.persistent):
            raise self.fail(f"role {made.name!r} takes a share of one tile per CTA; make the grid persistent")
        if every > 1 and self.grid_node and self.grid_node.scheduler.takes_over:
            raise self.fail(
                f"role {made.name!r} takes tiles {rest} of every {every}, and of clusters that take each other over "
                "nobody knows how many tiles are left; give every role all tiles, or leave out launch_control"
            )

    def _whole_warpgroups(self, role: Role, what: str) -> None:
        for count, words in ((role.warps, "warps"), (role.first, "as its first warp")):
            whole = count % 4 == 0
            if whole.same(False):
                raise self.fail(f"role {role.name!r} has {count} {words}, and {what} takes whole warpgroups of 4 warps")
            sentence = f"role {role.name} is made of whole warpgroups, which {what} takes"
            self.require((Condition(f"warpgroups of {role.name}", whole, sentence),))

    def _check_step(self, step: Operand) -> None:
        if expr(step).is_number and int(expr(step)) < 1:
            raise self.fail(f"a loop goes on by 1 element or more each round, not by {step}")

    def _check_swizzle_atoms(self, b: Buffer) -> None:
        """TMA and wgmma take the pattern of a swizzle from the address, and it has 8 rows.

        PTX ISA, "Swizzling Modes": patterns repeat after 256, 512 or 1024 bytes.
        """
        if b.swizzle_bytes is None or (b.rows.is_number and int(b.rows) % 8 == 0):
            return
        alone = (b.stages == 1) & (b.pitch_bytes == b.swizzle_bytes)
        sentence = f"slots of {b.name} are whole atoms of the swizzle: they have a multiple of 8 rows"
        self.require((Condition("rows of a swizzle", (b.rows % 8 == 0) | alone, sentence),))

    def _check_over(self, made: tuple[Buffer, ...]) -> None:
        """Buffers that lie in the columns of others find them, and fit."""
        own = {b.name: b for b in made if b.memory is TMEM and not b.over}
        for b in made:
            if b.over and b.over not in own:
                raise self.fail(
                    f"{b.name} lies in the columns of {b.over}, and the slot has no such buffer in TMEM with columns "
                    "of its own"
                )
            if b.over:
                columns, room = (of.shape[1] * of.element_bits for of in (b, own[b.over]))
                sentence = f"{b.name} has no more columns than {b.over}, in which it lies"
                self.require((Condition(f"columns of {b.over}", columns <= room, sentence),))

    def _check_tmem(self, shape: tuple[Expr, ...], kind: DType, path: Layout | None) -> None:
        if len(shape) != 2:
            raise self.fail(f"a buffer in TMEM has two axes, lanes and columns, not {len(shape)}")
        fits = shape[0] <= TMEM_LANES
        if fits.same(False):
            raise self.fail(f"a buffer in TMEM has at most {TMEM_LANES} lanes, not {shape[0]}")
        sentence = f"a buffer in TMEM has at most {TMEM_LANES} rows, its lanes"
        self.require((Condition("tmem lanes", fits, sentence),))
        if path is None:
            return
        if not isinstance(path, Layout):
            said = "a layout (row, column) -> (lane, column), as path(columns) of an instruction gives it"
            raise self.fail(f"the path of a buffer in TMEM is {said}, not {path!r}")
        if kind.bits not in (CELL_BITS // 2, CELL_BITS) or path.rank not in (2, 3) or not shape[0].same(_size(path[0])):
            has = f"{joined(shape, ' x ')} of {kind}"
            raise self.fail(f"the path {path} is not one of {has}: it has other rows, or they fill no cells")
        if not shape[1].same(_size(path[1])):
            sentence = "the columns of a buffer in TMEM are those of its path"
            self.require((Condition("tmem path", shape[1] == _size(path[1]), sentence),))


def _size(mode: Layout) -> Expr:
    total = expr(1)
    for size, _ in mode.steps:
        total = total * size
    return total
