"""Relayouts within a warp of any extents: words are dealt to rounds.

A lane gives words, and words go to lanes that want values of them. In a round a lane gives one word, which any number
of lanes may read, and a lane reads one. Where each word has one reader, rounds are matchings of lanes, and there are as
many as one lane gives or takes at most (König: the edges of a bipartite multigraph can be coloured with as many colours
as its largest degree). Where words have several readers the rounds are as few as a greedy choice finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.relayout.plan import LANES, RelayoutPlan
from tinygpu.layouts.relayout.words import Words, packed


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """A word of lane `giver` goes to lane `taker`."""

    giver: int
    word: int
    taker: int


def plan(
    a: NDArray[np.int64], b: NDArray[np.int64], value_bytes: int, packing: tuple[int, int]
) -> RelayoutPlan | None:
    """The plan for (lanes, values) coordinates before and behind, or None where b wants what a does not hold."""
    edges = _edges(a, b, packing[0])
    if edges is None:
        return None
    words = Words(packed(a, packing[0], value_bytes))
    own = list(range(words.inputs))
    pool = list(own)
    for matched in rounds(edges):
        given = {edge.giver: edge.word for edge in matched}
        content = np.full_like(words.content[0], -1)
        for lane, held in given.items():
            content[lane] = words.content[held][lane]
        sources = np.full(LANES, _most_read(matched))
        for edge in matched:
            sources[edge.taker] = edge.giver
        word = words.assembled(content, own)
        if word is None:
            raise ValueError("a lane gives a word that it does not have")
        pool.append(words.shuffled(word, sources))
    outputs = [words.assembled(wanted, pool) for wanted in packed(b, packing[1], value_bytes).transpose(1, 0, 2)]
    found = [word for word in outputs if word is not None]
    if len(found) < len(outputs):
        raise ValueError("the rounds do not bring all values that are wanted")
    return words.plan(found)


def _most_read(matched: list[Edge]) -> int:
    """The lane that most read, for those who need nothing in a round: lanes that have the same select nothing later."""
    return Counter(edge.giver for edge in matched).most_common(1)[0][0]


def _edges(a: NDArray[np.int64], b: NDArray[np.int64], per_word: int) -> list[Edge] | None:
    """Which words go where: from the holder of a value that gives least so far, where it has several."""
    holders: dict[int, list[tuple[int, int]]] = {}
    for lane, values in enumerate(a.tolist()):
        for place, value in enumerate(values):
            if value >= 0:
                holders.setdefault(value, []).append((lane, place // per_word))
    load: Counter[int] = Counter()
    edges: set[Edge] = set()
    for taker, values in enumerate(b.tolist()):
        for value in values:
            if value < 0:
                continue
            options = holders.get(value)
            if options is None:
                return None
            if any(lane == taker or Edge(lane, word, taker) in edges for lane, word in options):
                continue
            giver, word = min(options, key=lambda o: (load[o[0]], (o[0] - taker) % LANES))
            load[giver] += 1
            edges.add(Edge(giver, word, taker))
    return sorted(edges)


def rounds(edges: list[Edge]) -> list[list[Edge]]:
    """The edges by round: matchings, or where a word has several readers, rounds in which they read it together."""
    if len({(e.giver, e.word) for e in edges}) == len(edges):
        return _matchings(edges)
    return min(_shared(edges), _matchings(edges), key=len)


def most_at_a_lane(edges: Iterable[Edge]) -> int:
    """The largest degree: what one lane gives or takes."""
    listed = list(edges)
    degrees = Counter(("gives", e.giver) for e in listed) + Counter(("takes", e.taker) for e in listed)
    return max(degrees.values(), default=0)


def _matchings(edges: list[Edge]) -> list[list[Edge]]:
    """König: as many matchings as the largest degree. An edge takes a colour that is free at its giver; where its taker
    has that colour, the path of this colour and one that is free at the taker exchanges both."""
    colours = range(most_at_a_lane(edges))
    at: dict[tuple[str, int], dict[int, Edge]] = {}
    for edge in edges:
        giver, taker = at.setdefault(("gives", edge.giver), {}), at.setdefault(("takes", edge.taker), {})
        mine = next(c for c in colours if c not in giver)
        theirs = next(c for c in colours if c not in taker)
        path, end, colour = [], ("takes", edge.taker), mine
        while (following := at.get(end, {}).get(colour)) is not None:
            path.append((following, colour))
            end = ("gives", following.giver) if end[0] == "takes" else ("takes", following.taker)
            colour = theirs if colour == mine else mine
        for met, old in path:
            for end in (("gives", met.giver), ("takes", met.taker)):
                if at[end].get(old) is met:
                    del at[end][old]
        for met, old in path:
            new = theirs if old == mine else mine
            at["gives", met.giver][new] = at["takes", met.taker][new] = met
        giver[mine] = taker[mine] = edge
    return [
        [found for (side, _), coloured in at.items() if side == "gives" and (found := coloured.get(colour))]
        for colour in colours
    ]


def _shared(edges: list[Edge]) -> list[list[Edge]]:
    """Round after round, each lane gives the word that most of the lanes that are left to read want."""
    left, out = list(edges), []
    while left:
        readers = Counter((e.giver, e.word) for e in left)
        busy = Counter(e.taker for e in left)
        given: dict[int, int] = {}
        taken: dict[int, Edge] = {}
        for edge in sorted(left, key=lambda e: (-readers[e.giver, e.word], -busy[e.taker], e)):
            if edge.taker not in taken and given.setdefault(edge.giver, edge.word) == edge.word:
                taken[edge.taker] = edge
        out.append(sorted(taken.values()))
        left = [e for e in left if taken.get(e.taker) != e]
    return out
