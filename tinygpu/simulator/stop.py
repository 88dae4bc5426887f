"""A stop: a statement of a program at which a role waits, hands over, goes round, or leaves a copy under way.

The simulator goes through the program's own tree (`tinygpu.program.statement`), and what it has to know of a statement
beyond that stands beside it. What a role does between two stops is one stretch of work, since the units carry it out
side by side; it stands at the statement before which, or at the end of whose body, it has to be done. A statement
without a stop is part of the stretch around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from tinygpu.program.statement import Body, Statement

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Stop(Generic[T]):
    """What a role does at one statement, beside what it does at those inside of it.

    before  stretches that it carries out before the statement begins
    copies  what is left under way: by the statement itself, or by what it has run ahead of its other bodies
    into    the pipeline whose slots the copies fill ("": there are none)
    bodies  those of the statement that the role goes through itself
    ends    per body, stretches that it carries out where the body ends
    begun   asynchronous products of a block, which are asked for where it ends; the role goes on, and waits for them
            where `tinygpu.program.groups` says
    told    the products begun tell of their completion themselves (a commit): the role never waits for them, and what
            it hands over behind them is handed over when they are complete
    """

    before: tuple[T, ...] = ()
    copies: tuple[T, ...] = ()
    into: str = ""
    bodies: tuple[Body, ...] = ()
    ends: tuple[tuple[T, ...], ...] = ()
    begun: tuple[T, ...] = ()
    told: bool = False

    @property
    def is_ring(self) -> bool:
        """Whether the role fills slots ahead of the bodies that use them."""
        return bool(self.into and self.bodies)

    def map(self, function: Callable[[T], U]) -> Stop[U]:
        """The same stop with every stretch replaced."""
        ends = tuple(tuple(map(function, end)) for end in self.ends)
        before, copies, begun = (tuple(map(function, part)) for part in (self.before, self.copies, self.begun))
        return Stop(before, copies, self.into, self.bodies, ends, begun, self.told)


Stops: TypeAlias = Mapping[Statement, Stop[T]]


__all__ = ["Stop", "Stops"]
