"""Runs mutants and says how each was noticed: a fault, an advisory that the original has not, a wrong result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mutations.equivalent import listed, proved
from mutations.operators import Mutant, mutants
from mutations.subjects import Subject
from tinygpu.ptx.emulator import EmulationFault, emulate
from tinygpu.ptx.emulator.state.emulation import Order

Orders = tuple[tuple[Order, int], ...]
ORDERS: Orders = (("late", 0), ("early", 0), ("spurious", 0), *(("random", seed) for seed in range(1, 7)))
# Under so many of them a mutant must pass unnoticed that is listed as no worse than the original.
LISTED = 4
# Basic blocks of one batch of CTAs; the subjects need some thousands. A loop may have lost its end.
STEP_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a mutant ended.

    caught   "fault", "advisory", "wrong result", or "" where nothing was noticed
    what     the fault's kind, the advisory's rule
    reason   why an unnoticed mutant computes the same; "" where there is none
    reached  the original executes the line: a mutant of code that the problem does not reach says nothing
    """

    subject: str
    mutant: Mutant
    caught: str
    what: str = ""
    reason: str = ""
    reached: bool = True

    @property
    def missed(self) -> bool:
        return not self.caught and not self.reason

    def __str__(self) -> str:
        missed = "MISSED" if self.reached else "NOT REACHED"
        end = f"{self.caught} ({self.what})" if self.caught else self.reason or missed
        return f"{self.subject}: {self.mutant} -> {end}"


def outcome(subject: Subject, text: str, order: Order, seed: int) -> tuple[str, str, frozenset[str]]:
    """(how it ended, the fault's kind, rules of advisories) of one run; ("", "", ...) is a right result."""
    launch = subject.make()
    try:
        report = emulate(
            text, entry=subject.entry, order=order, seed=seed, **{"step_limit": STEP_LIMIT, **launch.options}
        )
    except EmulationFault as fault:
        return "fault", fault.kind, frozenset()
    rules = frozenset(advisory.rule for advisory in report.advisories)
    return "" if launch.right() else "wrong result", "", rules


@dataclass(frozen=True, slots=True)
class Original:
    """What runs of the original show: the rules of its advisories, the lines that it executes."""

    advisories: frozenset[str]
    lines: frozenset[int]


def judge(subject: Subject, mutant: Mutant, original: Original, orders: Orders = ORDERS) -> Verdict:
    """How a mutant is noticed.

    What is proved to be no worse needs no run beyond the first, what is read from the kernel's text must pass unnoticed
    under the first orders too, and all else goes through every one.
    """
    reached, reason = bool(original.lines & mutant.lines), listed(subject, mutant)
    for number, (order, seed) in enumerate(orders[:LISTED] if reason else orders):
        caught, what, rules = outcome(subject, mutant.text, order, seed)
        if caught:
            return Verdict(subject.name, mutant, caught, what)
        if rules - original.advisories:
            return Verdict(subject.name, mutant, "advisory", ", ".join(sorted(rules - original.advisories)))
        if not number and not reason:
            reason = proved(subject, mutant)
            if reason:
                break
    return Verdict(subject.name, mutant, "", reason=reason, reached=reached)


def observe(subject: Subject, orders: Orders = ORDERS) -> Original:
    """Runs the original, which must be right under these orders; ValueError where it is not."""
    known: frozenset[str] = frozenset()
    for order, seed in orders:
        caught, what, rules = outcome(subject, subject.text, order, seed)
        if caught:
            raise ValueError(f"{subject} itself ends with a {caught} {what} under order {order}")
        known |= rules
    report = emulate(subject.text, entry=subject.entry, **subject.make().options)
    return Original(known, frozenset(line for line, counts in report.lines.items() if counts.executed))


def verdicts(
    subject: Subject, chosen: Iterable[Mutant] | None = None, orders: Orders = ORDERS
) -> Iterator[Verdict]:
    """Verdicts on every mutant of a subject, or on those chosen."""
    original = observe(subject, orders)
    for mutant in mutants(subject.text, subject.entry) if chosen is None else chosen:
        yield judge(subject, mutant, original, orders)


def table(results: Sequence[Verdict]) -> str:
    """Caught, equivalent and missed per kind, as a table in Markdown."""
    heads = ["change", "mutants", "fault", "advisory", "wrong result", "equivalent", "missed"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    kinds = sorted({v.mutant.kind for v in results})
    for kind in [*kinds, "all"]:
        mine = [v for v in results if kind in (v.mutant.kind, "all")]
        cells = [len(mine), *(sum(v.caught == c for v in mine) for c in ("fault", "advisory", "wrong result"))]
        cells += [sum(not v.caught and bool(v.reason) for v in mine), sum(v.missed for v in mine)]
        lines.append(f"| {kind} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
