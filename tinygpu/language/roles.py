"""Asynchrony: Role (which warps do what), Pipeline (how a buffer is handed over), Token (what is still under way).

A user names the producers and consumers of a pipeline; phases, parities, arrival counts, transaction bytes and fences
follow from the instructions inside, and are derived when a program is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.buffer import Buffer

# What tells that a slot is full where mbarriers hand it over from role to role; the warps that fill it, by arriving.
ARRIVALS = "arrivals"
HANDED_OVER = ("mbarrier", "tcgen05 commit", ARRIVALS)


@dataclass(frozen=True, slots=True, eq=False)
class Role:
    """A set of warps with a register budget.

    warps      how many
    first      the first of them, counted in warps from the start of the CTA
    registers  registers per thread (0: whatever the assembler gives)
    share      (r, n): of the tiles that a persistent CTA takes, those whose number leaves r when divided by n
    """

    name: str
    warps: Expr
    first: Expr
    registers: int
    share: tuple[int, int]

    @property
    def threads(self) -> Expr:
        return self.warps * 32

    @property
    def which(self) -> str:
        """Its warps by number: "warp 0", "warps 4 to 7"."""
        return f"warp {self.first}" if self.warps.same(1) else f"warps {self.first} to {self.first + self.warps - 1}"


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """The only way to hand buffers over: `stages` slots that one role produces and another consumes.

    completion  what tells that a slot is full: "barrier" (plain stores), "commit group" (cp.async), "mbarrier" (TMA),
                "tcgen05 commit", "arrivals" (stores into TMEM, or for other roles), or "turn" (no buffers: roles
                take turns, in the order in which they first do); found from the instructions inside
    """

    name: str
    stages: Expr
    buffers: tuple[Buffer, ...]
    completion: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """What an asynchronous instruction yields: something is under way into `buffer`, completed by `completion`."""

    number: int
    buffer: str
    completion: str

    def __str__(self) -> str:
        return f"token{self.number}({self.buffer}: {self.completion})"


def role(
    name: str, warps: Operand, first: Operand = 0, registers: int = 0, share: tuple[int, int] = (0, 1)
) -> Role:
    return Role(name, expr(warps), expr(first), registers, share)
