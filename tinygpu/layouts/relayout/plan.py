"""RelayoutPlan: what the lanes of a warp do so that values get from one distribution to another.

A plan is a straight line over 32-bit words. Words 0, 1 ... are the registers that a lane has; each step makes the next
word; and the plan names the words that are left in the registers of the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

LANES = 32
WORD_BYTES = 4
FIRST, SECOND = 0x3210, 0x7654  # all bytes of one of the two words that `prmt` chooses from

Kind = Literal["nothing", "registers", "shuffles", "shared"]


@dataclass(frozen=True, slots=True)
class Pick:
    """A word of bytes that each lane picks from two of its own.

    bytes_of  per lane, the selector of `prmt`: four digits of four bits, the low byte's first; 0 to 3 are the bytes of
              `first` and 4 to 7 those of `second`
    """

    first: int
    second: int
    bytes_of: tuple[int, ...]

    @property
    def selects(self) -> bool:
        """Whether every lane takes one of the two words whole: a select instead of a byte permutation."""
        return set(self.bytes_of) <= {FIRST, SECOND}


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A round: every lane gets what lane `sources[lane]` has in a word."""

    word: int
    sources: tuple[int, ...]


Step: TypeAlias = Pick | Shuffle


@dataclass(frozen=True, slots=True)
class RelayoutPlan:
    """How values get to their new holders.

    kind     "nothing": every thread has its values in their registers; "registers": every thread has its values, in
             other registers; "shuffles": every warp has them; "shared": values change warps, and go through memory
    inputs   words that a lane has
    steps    what is done, in order; the same in every warp
    outputs  the word that each register of the target is
    """

    kind: Kind
    inputs: int
    steps: tuple[Step, ...] = ()
    outputs: tuple[int, ...] = ()

    def __str__(self) -> str:
        counts = ((self.shuffles, "shuffle"), (self.selects, "select"), (self.permutes, "byte permutation"))
        named = [f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count]
        return f"{self.kind}: {', '.join(named)}" if named else self.kind

    @property
    def shuffles(self) -> int:
        """Rounds: words that a warp exchanges."""
        return sum(isinstance(s, Shuffle) for s in self.steps)

    @property
    def selects(self) -> int:
        return sum(isinstance(s, Pick) and s.selects for s in self.steps)

    @property
    def permutes(self) -> int:
        """Byte permutations within pairs of words."""
        return sum(isinstance(s, Pick) and not s.selects for s in self.steps)

    def in_halves(self) -> RelayoutPlan:
        """The plan for values of two words, which are neighbours: both go the same way."""
        steps: list[Step] = []
        number = {(word, half): 2 * word + half for word in range(self.inputs) for half in range(2)}
        for word, step in enumerate(self.steps, self.inputs):
            for half in range(2):
                number[word, half] = 2 * self.inputs + len(steps)
                if isinstance(step, Shuffle):
                    steps.append(Shuffle(number[step.word, half], step.sources))
                else:
                    steps.append(Pick(number[step.first, half], number[step.second, half], step.bytes_of))
        outputs = tuple(number[word, half] for word in self.outputs for half in range(2))
        return RelayoutPlan(self.kind, 2 * self.inputs, tuple(steps), outputs)

    def carried_out(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """(lanes, outputs) words of the target, from the (lanes, inputs) words of a warp."""
        made = [words[:, k] for k in range(self.inputs)]
        for step in self.steps:
            if isinstance(step, Shuffle):
                made.append(made[step.word][list(step.sources)])
            else:
                pair = np.stack([made[step.first], made[step.second]], axis=1).astype("<u4").view(np.uint8)
                digits = np.array(step.bytes_of)[:, None] >> 4 * np.arange(WORD_BYTES) & 7
                made.append(np.take_along_axis(pair, digits, axis=1).copy().view("<u4")[:, 0])
        return np.stack([made[k] for k in self.outputs], axis=1)
