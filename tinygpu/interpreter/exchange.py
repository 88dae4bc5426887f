"""What CTAs of a cluster bring to an instruction that they carry out together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinygpu.interpreter.elements import Array


@dataclass(slots=True, eq=False)
class Exchange:
    """Operands on their way between the CTAs of one cluster.

    brought  (statement, how often it was carried out, first rank of those who do) -> what each of them brought
    counts   (statement, rank) -> how often it has come there
    moves    how often something was brought
    """

    brought: dict[tuple[int, int, int], dict[int, Array]] = field(default_factory=dict)
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    moves: int = 0

    def meet(
        self, statement: int, rank: int, ranks: Sequence[int], own: Array, found: list[Array]
    ) -> Iterator[str]:
        """Brings an operand and waits for those of the CTAs of these ranks; `found` gets all, in their order."""
        count = self.counts.get((statement, rank), 0)
        self.counts[statement, rank] = count + 1
        first = min(ranks)
        parts = self.brought.setdefault((statement, count, first), {})
        parts[rank] = own
        self.moves += 1
        while len(parts) < len(ranks):
            yield "for the CTAs of its cluster"
        self.brought.pop((statement, count, first), None)
        found += [parts[r] for r in sorted(parts)]
