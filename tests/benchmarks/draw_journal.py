"""The journal of a long run: a line of JSON for each draw, so that a run which was ended goes on behind its last one.

A line that a kill has cut short is dropped when the run goes on, and its draw is made again.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Drawn:
    """What became of one draw.

    types      of the operands
    structure  the options of the candidate's Choices
    stage      "right", "none" (no problem that was drawn has candidates there), who refused it, or "crash"
    sentence   why
    cpu        seconds, those of the assembler included
    registers  per thread by the assembler, 0 where there is none; `estimate` is the space's
    spills     whether the assembler had to spill: a search leaves such a candidate out once it is assembled
    products   kinds and groups of the tcgen05.mma of the candidate's program, as "f16 1"; "" where it has none
    orders     of asynchronous work, one for each of its emulations, as "late early random"
    """

    number: int
    machine: str
    on: str
    types: str
    structure: str
    case: str
    stage: str
    sentence: str
    cpu: float
    registers: int = 0
    estimate: int = 0
    spills: bool = False
    products: str = ""
    orders: str = ""

    @property
    def failed(self) -> bool:
        return self.stage not in ("right", "none")


def spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def read(journal: Path) -> Iterator[Drawn]:
    """The draws of a journal; a last line that was cut off is left out."""
    if not journal.exists():
        return
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            yield Drawn(**json.loads(line))
        except (ValueError, TypeError):
            return


def gone_on(journal: Path, cpu_seconds: float, made: Callable[[int], Iterator[Drawn]]) -> list[Drawn]:
    """The draws of a journal, and behind them as many more as the CPU time of all of them together has room for.

    made  the draws from a number on; it goes on only while there is time
    """
    draws = list(read(journal))
    left = cpu_seconds - sum(d.cpu for d in draws)
    journal.write_text("".join(f"{json.dumps(asdict(d))}\n" for d in draws), encoding="utf-8")
    further = made(1 + max((d.number for d in draws), default=-1))
    _collect_behind_draws()
    begun = spent()
    with journal.open("a", encoding="utf-8") as file:
        while spent() - begun < left:
            draws.append(next(further))
            gc.collect(1)
            file.write(f"{json.dumps(asdict(draws[-1]))}\n")
            file.flush()
    return draws


def _collect_behind_draws() -> None:
    """Cycles are looked for when a draw is over: what the emulator leaves is few objects, and large ones. Looking for
    them again and again, and through all that draws share, took a fifth of the time.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
