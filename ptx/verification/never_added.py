"""Sums in tensor memory that are read though no product was added to them: they hold whatever was there before."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.interpreter.elements import Array
from tinygpu.interpreter.worker import Moment
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.ptx.verification.line_info import in_words
from tinygpu.ptx.verification.trial import Trial


def never_added(program: Program, trial: Trial, ctas: int | None) -> Iterator[str]:
    """A sentence for each load of sums to which no product was added, run on the inputs of a trial: the first tile.

    ctas  that are launched of a persistent grid, at most
    """
    told: dict[int, str] = {}
    axes = [a.index for a in program.grid.axes]

    def looked_at(moment: Moment) -> Array:
        s = moment.statement
        if isinstance(s, n.Load) and moment.written is not None and id(s) not in told:
            where = in_words(program, {name: moment.known[name] for name in axes})
            told[id(s)] = (
                f"{s.source.name} is loaded{s.place and f' ({s.place})'}{where}, where no product was added to it "
                "behind p.clear: the first product overwrites what is in the columns, and without one they stay as "
                "they were; where a loop may have no rounds, store what it added up in `with p.when(...)` that there "
                "are some"
            )
        return moment.values

    program.run(trial.arrays, trial.scalars, sizes=trial.problem.dim, ctas=ctas, watch=looked_at)
    yield from told.values()
