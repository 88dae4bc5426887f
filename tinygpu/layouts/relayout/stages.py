"""Stages: a lane's values in words of one grouping and order, made of those of another by picks from pairs of words.

Of the values of a lane, which F2 numbers, a coset of `group` stands in one word; the words of lane l are counted from
value `order[l]` on. Each stage exchanges one vector of the group, or changes the order in one direction; either makes
every word of two words of the stage before. A word is made when it is asked for, and of the given words at once where
two of them have all that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import f2
from tinygpu.layouts.relayout.subspace import extended, images, intersection, outside, reduced
from tinygpu.layouts.relayout.words import Words, packed


@dataclass(frozen=True, slots=True)
class Stage:
    """One arrangement of a lane's values.

    group      vectors of which a word holds all combinations
    order      (lanes,) the value that the first word begins with
    direction  how far apart the two words of the stage before are that make one of this; 0: it is one word
    """

    group: tuple[int, ...]
    order: NDArray[np.int64]
    direction: int


class Stages:
    """Stages from given words on."""

    def __init__(
        self,
        words: Words,
        lanes: Sequence[int],
        values: Sequence[int],
        value_bytes: int,
        group: Sequence[int],
        order: NDArray[np.int64],
        given: Callable[[int], list[int]],
    ) -> None:
        """given  the words that have what the first stage's word at a value needs"""
        self.words = words
        self.base, self.held = images(lanes), images(values)
        self.value_bytes = value_bytes
        self.given = given
        self.stages = [Stage(tuple(group), order, 0)]
        self.made: dict[tuple[int, int], int] = {}

    # -- adding stages ---------------------------------------------------------------------------------------------
    def regroup(self, group: Sequence[int]) -> None:
        """Other values share a word."""
        before = self.stages[-1].group
        if tuple(group) == before:
            return
        common = intersection(before, group)
        old, new = outside(before, common), outside(group, common)
        for place, vector in enumerate(new):
            last = place == len(new) - 1 and len(old) <= len(new)
            between = (*common, *new[: place + 1], *old[place + 1 :])
            self._then(tuple(group) if last else between, self.stages[-1].order, vector)
        if self.stages[-1].group != tuple(group):
            self._then(tuple(group), self.stages[-1].order, 0)

    def reorder(self, order: NDArray[np.int64]) -> None:
        """Another order, linear as the one before: one stage for each direction in which lanes differ."""
        stage = self.stages[-1]
        bits = [1 << k for k in range(len(order).bit_length() - 1)]
        change = [reduced(int(order[bit] ^ stage.order[bit]), stage.group) for bit in bits]
        directions = extended([], change, len(change))
        solved = f2.eliminate(directions)
        parts = images([solved.solve(c) or 0 for c in change])
        for place, direction in enumerate(directions):
            step = np.where(parts >> place & 1, direction, 0)
            self._then(stage.group, self.stages[-1].order ^ step, direction)
        # what is left moves values within their words, where places are counted from the same value in every order
        self.stages[-1] = replace(self.stages[-1], order=order)

    def _then(self, group: tuple[int, ...], order: NDArray[np.int64], direction: int) -> None:
        self.stages.append(Stage(group, order, direction))

    # -- making words ----------------------------------------------------------------------------------------------
    def word(self, value: int) -> int:
        """The word of the last stage that begins with a value."""
        return self._word(len(self.stages) - 1, value)

    def _word(self, place: int, value: int) -> int:
        stage = self.stages[place]
        value = reduced(value, stage.group)
        if (place, value) not in self.made:
            self.made[place, value] = self._made(place, stage, value)
        return self.made[place, value]

    def _made(self, place: int, stage: Stage, value: int) -> int:
        first = np.array([reduced(int(v), stage.group) for v in value ^ stage.order])
        taken = self.held[first[:, None] ^ images(stage.group)[None]] ^ self.base[:, None]
        wanted = packed(taken, taken.shape[1], self.value_bytes)[:, 0]
        away = images([s.direction for s in self.stages[1 : place + 1] if s.direction])
        pool = list(dict.fromkeys(word for v in away for word in self.given(value ^ int(v))))
        found = self.words.assembled(wanted, pool, None if place == 0 else 2)
        if found is None:
            parts = dict.fromkeys([self._word(place - 1, value), self._word(place - 1, value ^ stage.direction)])
            found = self.words.assembled(wanted, list(parts))
        if found is None:
            raise ValueError("two words do not have what a stage makes of them")
        return found
