"""What statements share that an instruction carries out: its name and itself, and the token that it may leave."""

from __future__ import annotations

from tinygpu.language.instruction import Instruction
from tinygpu.language.roles import Token
from tinygpu.program.statement import Statement


class ByInstruction(Statement):
    """What one instruction does, which the listing calls by its name in the machine."""

    __slots__ = ()
    name: str
    instruction: Instruction

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.instruction,)


class Asynchronous(Statement):
    """What may be under way when the statement behind it begins; then it leaves a token."""

    __slots__ = ()
    token: Token | None

    @property
    def tokens(self) -> tuple[Token, ...]:
        return () if self.token is None else (self.token,)

    @property
    def leaves(self) -> str:
        """What its line begins with."""
        return f"{self.token}: " if self.token else ""
