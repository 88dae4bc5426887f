"""The swizzle with the fewest bank conflicts: found by Z3, or refuted by it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tinygpu.cost.banks import ROW_BYTES
from tinygpu.solver.phases import Linear, Pair, Phase, least_imaginable, total_wavefronts

if TYPE_CHECKING:
    from tinygpu.constraints.query import Notebook, Query

Verdict: TypeAlias = Literal["proved", "unknown"]
Xor: TypeAlias = tuple[tuple[int, int], ...]

# Two hundred times what accesses with some structure need; lanes at random places may take it all, about 0.1 s.
RLIMIT = 400_000
# Fewer XORs are a nicety, so less is spent on them.
SPARSE_RLIMIT = 40_000
# Phases that join a query at a time.
JOIN_PHASES = 3


@dataclass(frozen=True, slots=True)
class SwizzleQuestion:
    """Which masks serve these phases with few wavefronts?

    name          in words, for the log
    sources       source bit -> the bits (as a mask in bytes) that it may flip
    phases        what the banks are asked to serve
    vector_bytes  bytes that stay whole: no mask has a bit below it, no two units conflict only by a bit below it
    rlimit        Z3's resource limit for one query
    """

    name: str
    sources: tuple[tuple[int, int], ...]
    phases: tuple[Phase, ...]
    vector_bytes: int
    rlimit: int = RLIMIT

    @property
    def floor(self) -> int:
        """Wavefronts that no layout undercuts."""
        return least_imaginable(self.phases)


@dataclass(frozen=True, slots=True)
class SwizzleFinding:
    """What the search came to.

    xor       (source bit, mask in bytes) pairs of the best swizzle below the bound, or None where there is none
    total     its wavefronts
    verdict   "proved" when Z3 refuted everything better (or, without a swizzle, everything below the bound)
    asked     queries put to Z3
    reason    why the verdict is unknown, in Z3's words
    """

    xor: Xor | None
    total: int
    verdict: Verdict
    asked: int
    reason: str = ""


def find_swizzle(question: SwizzleQuestion, least: int, below: int, notebook: Notebook | None = None) -> SwizzleFinding:
    """The swizzle of fewest wavefronts in total, if some has fewer than `below`; among those one with few XORs.

    least   a total that none undercuts: the question's floor, or more where more is known
    """
    search = _Search(question, notebook)
    best: Xor | None = None
    bound, reason = below - 1, ""
    # The least total first: most questions end there. Then downwards from the best that is known, so that
    # the last answer is the refutation of the total just below the optimum.
    attempt, silent = least, set[int]()
    while bound >= least and attempt not in silent:
        answer, found = search.ask(attempt)
        if found is not None:
            best, bound = found, search.total(found) - 1
        elif answer == "unsat":
            least = attempt + 1
        else:
            reason = search.reason
            silent.add(attempt)
        attempt = bound
    if best is not None:
        best = search.sparsest(best)
        bound = search.total(best) - 1
    verdict: Verdict = "unknown" if bound >= least else "proved"
    return SwizzleFinding(best, bound + 1, verdict, search.asked, reason if verdict == "unknown" else "")


class _Search:
    """The queries of one search. Phases join only when a model breaks them: a few of many often decide.

    That is sound both ways: phases left out are counted with the fewest wavefronts imaginable, so a refutation holds
    for all of them, and a model counts only after all phases were evaluated under it.
    """

    def __init__(self, question: SwizzleQuestion, notebook: Notebook | None) -> None:
        self.question, self.notebook = question, notebook
        self.asked, self.reason = 0, ""
        self.excess = [phase.times * phase.levels[0] for phase in question.phases]
        self.joined: set[int] = set()
        self.join({})

    def join(self, masks: Mapping[int, int]) -> None:
        """Takes in the phases that lose most under these masks."""
        loss = [
            (phase.times * phase.wavefronts(masks) - least, -index)
            for index, (phase, least) in enumerate(zip(self.question.phases, self.excess, strict=True))
            if index not in self.joined
        ]
        self.joined.update(-index for lost, index in sorted(loss, reverse=True)[:JOIN_PHASES] if lost > 0)

    def ask(self, at_most: int, ones: int | None = None) -> tuple[str, Xor | None]:
        """Z3's verdict on a total (and on a number of flipped bits), and the swizzle when it is "sat"."""
        from tinygpu.constraints.query import ask  # z3 takes some 100 ms to import: only when there is a question

        while True:
            chosen = [self.question.phases[index] for index in sorted(self.joined)]
            rlimit = self.question.rlimit if ones is None else min(SPARSE_RLIMIT, self.question.rlimit)
            part = replace(self.question, phases=tuple(chosen), rlimit=rlimit)
            answer = ask(swizzle_query(part, at_most - (self.question.floor - part.floor), ones), self.notebook)
            self.asked += 1
            if answer.verdict != "sat":
                self.reason = _reason_of(answer.reason, part.rlimit)
                return answer.verdict, None
            found = read_xor(answer.model)
            if self.total(found) <= at_most:
                return "sat", found
            self.join(dict(found))

    def total(self, xor: Xor) -> int:
        return total_wavefronts(self.question.phases, dict(xor))

    def sparsest(self, best: Xor) -> Xor:
        """A swizzle that is no worse, with as few flipped bits as Z3 finds: each is an instruction in a kernel.

        It can be better: Z3 may answer the narrower question where it was silent on the wider one.
        """
        low, high = 0, _ones(best)
        while low < high:
            middle = (low + high) // 2
            _, found = self.ask(self.total(best), middle)
            if found is None:
                low = middle + 1
            else:
                best, high = found, _ones(found)
        return best


def swizzle_query(question: SwizzleQuestion, at_most: int, ones: int | None = None) -> Query:
    """The query: masks under which the phases need `at_most` wavefronts in total, with at most `ones` flipped bits."""
    from tinygpu.constraints.query import Query

    limit = "" if ones is None else f" and at most {ones} XORed bits"
    return Query(
        name=f"{question.name}: at most {at_most} wavefronts{limit}",
        build=lambda context: _terms(question, at_most, ones, context),
        check=lambda model: total_wavefronts(question.phases, dict(read_xor(model))) <= at_most,
        rlimit=question.rlimit,
    )


def _terms(question: SwizzleQuestion, at_most: int, ones: int | None, context: Any) -> list[Any]:
    import z3

    low = question.vector_bytes.bit_length() - 1
    width = ROW_BYTES.bit_length() - 1 - low
    masks = {bit: z3.BitVec(f"mask!{bit}!{low}", width, ctx=context) for bit, _ in question.sources}
    terms: list[Any] = [
        masks[bit] & z3.BitVecVal(~(allowed >> low), width, ctx=context) == 0 for bit, allowed in question.sources
    ]
    write = _Writer(masks, low, width, context)
    slack = at_most - question.floor
    if slack < 0:
        return [z3.BoolVal(False, ctx=context)]
    costs: list[tuple[Any, int]] = []
    never: set[Pair] = set()
    for index, phase in enumerate(question.phases):
        # Levels that this phase cannot afford even if all others are at their best are out of the question.
        affordable = [level for level in phase.levels if phase.times * (level - phase.levels[0]) <= slack]
        if affordable == [1]:
            never.update(pair for row in phase.rows for pair in row)
        elif affordable[-1] < phase.levels[-1]:
            terms.extend(write.at_most(row, affordable[-1] - 1) for row in phase.rows)
        for level, next_level in itertools.pairwise(affordable):
            reached = z3.Bool(f"phase!{index}!{level}", ctx=context)
            terms.extend(z3.Implies(reached, write.at_most(row, level - 1)) for row in phase.rows)
            costs.append((z3.Not(reached), phase.times * (next_level - level)))
    terms.extend(write.at_most((pair,), 0) for pair in sorted(never))
    if costs:
        terms.append(z3.PbLe(costs, slack))
    terms.extend(write.definitions)
    if ones is not None:
        flips = [(z3.Extract(place, place, mask) == 1, 1) for mask in masks.values() for place in range(width)]
        if flips:
            terms.append(z3.PbLe(flips, ones))
    return terms


class _Writer:
    """Writes Z3 terms about pairs of units; equal terms are made once."""

    def __init__(self, masks: Mapping[int, Any], low: int, width: int, context: Any) -> None:
        import z3

        self.z3, self.masks, self.low, self.width, self.context = z3, masks, low, width, context
        self.moved: dict[tuple[int, int], Any] = {}
        self.said: dict[Pair, Any] = {}
        self.named: dict[Pair, Any] = {}
        self.definitions: list[Any] = []

    def at_most(self, pairs: Sequence[Pair], count: int) -> Any:
        """The term that at most `count` of the pairs conflict."""
        terms = [(pair, self.conflict(pair)) for pair in pairs]
        unsure = [pair for pair, term in terms if not isinstance(term, bool)]
        left = count - sum(1 for _, term in terms if term is True)
        if left < 0 or left >= len(unsure):
            return self.z3.BoolVal(left >= 0, ctx=self.context)
        if left == 0:
            return self.z3.And([self.z3.Not(self.said[pair]) for pair in unsure])
        return self.z3.PbLe([(self.name(pair), 1) for pair in unsure], left)

    def name(self, pair: Pair) -> Any:
        """A constant that is true if the pair conflicts, so that sums stay short."""
        if pair not in self.named:
            self.named[pair] = self.z3.Bool(f"pair!{len(self.named)}", ctx=self.context)
            self.definitions.append(self.z3.Implies(self.said[pair], self.named[pair]))
        return self.named[pair]

    def conflict(self, pair: Pair) -> Any:
        """The term that two units start in the same bank; True or False where no mask decides."""
        if pair not in self.said:
            if not any(pair.sources >> bit & 1 for bit in self.masks):
                self.said[pair] = pair.conflicts({})
            elif isinstance(pair, Linear):
                self.said[pair] = self.swizzled(pair.source, 0) == self.number(pair.bank)
            else:
                one = self.swizzled(pair.source, pair.place) + self.number(pair.shift)
                self.said[pair] = one == self.swizzled(pair.other_source, pair.other_place)
        return self.said[pair]

    def swizzled(self, source: int, place: int) -> Any:
        """place ^ the masks of the set bits of source, without the bits inside a vector."""
        if (source, place) not in self.moved:
            term: Any = None
            for bit, mask in self.masks.items():
                if source >> bit & 1:
                    term = mask if term is None else term ^ mask
            if term is None:
                term = self.number(place)
            elif place >> self.low:
                term = term ^ self.number(place)
            self.moved[source, place] = term
        return self.moved[source, place]

    def number(self, value: int) -> Any:
        return self.z3.BitVecVal(value >> self.low, self.width, ctx=self.context)


def read_xor(model: Mapping[str, int]) -> Xor:
    """The (source bit, mask) pairs of a model, without the masks that flip nothing."""
    pairs = []
    for name, value in model.items():
        kind, *numbers = name.split("!")
        if kind == "mask" and value:
            pairs.append((int(numbers[0]), value << int(numbers[1])))
    return tuple(sorted(pairs))


def _reason_of(reason: str, rlimit: int) -> str:
    # Z3 calls a query that met its resource limit "canceled"; none of ours is canceled otherwise.
    return f"resource limit of {rlimit:,}" if "cancel" in reason or "resource" in reason else reason


def _ones(xor: Xor) -> int:
    return sum(mask.bit_count() for _, mask in xor)
