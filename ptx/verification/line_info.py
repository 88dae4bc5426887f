"""Which statement of its program a line of a kernel belongs to: a fault of the text is told where the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.ptx.emulator import Advisory, EmulationFault, PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.lowering.line_table import LineTable

_LINE = re.compile(r"\bline (\d+)")


class LineInfo(LineTable):
    """What is told of the lines of one kernel; nothing is looked up before something is wrong."""

    def where(self, line: int, registers: Mapping[str, int] | None = None) -> str:
        """`` saxpy.py:24, in `%v1 = ld x[4*i:+4]`, tile (3,) ``; "" for a line that no statement printed.

        registers  of the thread that is at the line, by their names: they hold the tile and the rounds
        """
        found = self.lines.get(line)
        if found is None:
            return ""
        held = registers or {}
        known = {
            name: value
            for name, at in found.indices.items()
            if (value := at if isinstance(at, int) else held.get(at)) is not None
        }
        place = f"{found.statement.place}, " if found.statement.place else ""
        return f"{place}in `{found.statement.headline(frozenset())}`{in_words(self.program, known)}"

    def fault(self, fault: EmulationFault) -> str:
        """A fault of the kernel with the statement that it is about, and those of other lines that it speaks of."""
        where = self.where(fault.line, fault.registers)
        return self._behind(where, str(fault), fault.line, fault.sentence)

    def advisory(self, found: Advisory) -> str:
        return self._behind(self.where(found.line), str(found), found.line, found.sentence)

    def refusal(self, error: PtxSyntaxError | UnsupportedInstruction) -> str:
        """What the emulator cannot read or run, with the statement whose text it is."""
        return self._behind(self.where(error.line), str(error), error.line, "")

    def _behind(self, where: str, said: str, line: int, sentence: str) -> str:
        """A sentence behind the first of its statements; those of further lines that it speaks of stand at its end."""
        others = [number for number in dict.fromkeys(map(int, _LINE.findall(sentence))) if number != line]
        named = {number: at for number in others if (at := self.where(number))}
        first = where or next(iter(named.values()), "")
        ends = [f"line {number} is {at}" for number, at in named.items()]
        return "; ".join([f"{first}: {said}" if first else said, *ends])


def in_words(program: Program, known: Mapping[str, int]) -> str:
    """Tile, part, what data say, and rounds.

    known  indices of the grid and of the loops around, the outermost first
    """
    axes = [a.index for a in program.grid.axes]
    out = ""
    if known.keys() >= set(axes):
        out += f", tile ({', '.join(str(known[a]) for a in axes)}{',' * (len(axes) == 1)})"
    if n.PART in known and program.grid.scheduler.settled().launch_rule.slices > 1:
        out += f", slice {known[n.PART]}"
    if n.FIRST_ROUND in known:
        out += f", from round {known[n.FIRST_ROUND]} on"
    named = {name: f"{name} = {at}" for name, at in known.items() if name not in (*axes, n.PART, n.FIRST_ROUND)}
    said = [words for name, words in named.items() if name in program.said_by_data]
    rounds = [words for name, words in named.items() if name not in program.said_by_data]
    out += f", where {', '.join(said)}" if said else ""
    return out + (f", round {', '.join(rounds)}" if rounds else "")


__all__ = ["LineInfo", "in_words"]
