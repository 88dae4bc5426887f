"""Words: the straight line of a plan while it is made, and which bytes every word holds in every lane.

Bytes have numbers, the same for the same byte of the same value wherever it is held; -1 is a byte of no value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.relayout.plan import FIRST, WORD_BYTES, Kind, Pick, RelayoutPlan, Shuffle, Step

Bytes = NDArray[np.int64]

class Words:
    """The words made so far; `content` is (lanes, bytes of a word) for each of them."""

    def __init__(self, held: Bytes) -> None:
        """held  (lanes, words, bytes of a word): what a lane has at the beginning"""
        self.content = [held[:, word] for word in range(held.shape[1])]
        self.inputs = len(self.content)
        self.steps: list[Step] = []
        self.known: dict[Step, int] = {}

    def plan(self, outputs: list[int]) -> RelayoutPlan:
        """The plan that leaves these words, without steps that nothing uses."""
        needed, count = set(outputs), self.inputs
        for word in range(len(self.content) - 1, count - 1, -1):
            if word in needed:
                step = self.steps[word - count]
                needed |= {step.word} if isinstance(step, Shuffle) else {step.first, step.second}
        kept = [word for word in range(count, len(self.content)) if word in needed]
        number = {word: word for word in range(count)} | {word: count + place for place, word in enumerate(kept)}
        steps = [self.steps[word - count] for word in kept]
        moved: list[Step] = [
            Shuffle(number[s.word], s.sources)
            if isinstance(s, Shuffle)
            else Pick(number[s.first], number[s.second], s.bytes_of)
            for s in steps
        ]
        kind: Kind = "shuffles" if any(isinstance(s, Shuffle) for s in moved) else "registers"
        return RelayoutPlan(kind, count, tuple(moved), tuple(number[word] for word in outputs))

    def shuffled(self, word: int, sources: Bytes) -> int:
        """The word that lane l gets from lane `sources[l]`."""
        return self._add(Shuffle(word, tuple(int(s) for s in sources)), self.content[word][sources])

    def assembled(self, wanted: Bytes, pool: list[int], most: int | None = None) -> int | None:
        """A word with the wanted bytes, (lanes, bytes of a word), -1 where any will do, from words of the pool.

        most  None where it would take bytes of more words than these
        """
        there = np.stack([self._has(wanted, word) for word in pool])  # (words, lanes, bytes)
        used: list[int] = []
        left = wanted >= 0
        while left.any() and (most is None or len(used) < most):
            counts = (there & left).sum(axis=(1, 2))
            best = int(counts.argmax())  # the first of those that have most of what is left
            if not counts[best]:
                return None
            used.append(best)
            left = left & ~there[best]
        return None if left.any() else self._tree(wanted, [pool[order] for order in sorted(used)] or pool[:1])

    def _tree(self, wanted: Bytes, pool: list[int]) -> int:
        """Pairs of words, then pairs of what they give: bytes that are wanted of each part stand in their place."""
        if len(pool) == 1:
            return self._pick(wanted, pool[0], pool[0])
        half = (len(pool) + 1) // 2
        parts = pool[:half], pool[half:]
        one, other = (self._tree(self._of(wanted, p), p) if len(p) > 1 else p[0] for p in parts)
        return self._pick(wanted, one, other)

    def _of(self, wanted: Bytes, pool: list[int]) -> Bytes:
        """The wanted bytes that some word of the pool has."""
        there = np.any([self._has(wanted, word) for word in pool], axis=0)
        return np.where(there, wanted, -1)

    def _has(self, wanted: Bytes, word: int) -> NDArray[np.bool_]:
        """(lanes, bytes of a word) which of the wanted bytes a word has, at whatever place."""
        found: NDArray[np.bool_] = (wanted[:, :, None] == self.content[word][:, None, :]).any(axis=2)
        return found

    def _pick(self, wanted: Bytes, first: int, second: int) -> int:
        both = np.concatenate([self.content[first], self.content[second]], axis=1)
        digit = (wanted[:, :, None] == both[:, None, :]).argmax(axis=2)
        matters = wanted >= 0
        for byte in range(WORD_BYTES):  # where any byte will do: what other lanes take
            lanes = np.flatnonzero(matters[:, byte])
            digit[~matters[:, byte], byte] = digit[lanes[0], byte] if len(lanes) else byte
        chosen = tuple(int(c) for c in (digit << 4 * np.arange(WORD_BYTES)).sum(axis=1))
        if set(chosen) == {FIRST}:
            return first
        if set(chosen) == {FIRST | 0x4444}:
            return second
        content = np.take_along_axis(both, digit, axis=1)
        return self._add(Pick(first, second, chosen), content)

    def _add(self, step: Step, content: Bytes) -> int:
        if step not in self.known:
            self.known[step] = len(self.content)
            self.steps.append(step)
            self.content.append(content)
        return self.known[step]

def packed(values: Bytes, per_word: int, value_bytes: int) -> Bytes:
    """(lanes, words, bytes of a word): the bytes of (lanes, values), so many values to a word; -1 holds none."""
    lanes, count = values.shape
    words = np.full((lanes, count // per_word, WORD_BYTES), -1, dtype=np.int64)
    each = np.where(values < 0, -1, values * value_bytes)[:, :, None] + np.where(
        values[:, :, None] < 0, 0, np.arange(value_bytes)
    )
    words[:, :, : per_word * value_bytes] = each.reshape(lanes, count // per_word, per_word * value_bytes)
    return words
