"""What two implementations of the layout algebra make of the same arguments, and the rule that explains it.

Ours either gives a layout or refuses with a sentence; pycute gives a layout or raises. An outcome holds both. A rule is
a predicate over outcomes with a sentence and an example; the rules of an operation exclude one another, and an outcome
that meets none of them is a difference that nobody has explained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pycute

from tinygpu.layouts import Layout, LayoutError, Swizzle


@dataclass(frozen=True)
class Outcome:
    """What became of one call.

    arguments  ours: layouts, numbers, tuples of layouts
    ours       our result; None where we refuse
    refusal    our sentence; "" where we give a result
    theirs     pycute's result; None where it raises
    raised     the name of its exception; "" where it gives a result
    """

    arguments: tuple[Any, ...]
    ours: Any
    refusal: str
    theirs: Any
    raised: str

    @property
    def both(self) -> bool:
        """Both give a result."""
        return not self.refusal and not self.raised

    @property
    def neither(self) -> bool:
        """Both refuse."""
        return bool(self.refusal and self.raised)

    @property
    def only_ours(self) -> bool:
        """We give a result, and pycute raises."""
        return bool(not self.refusal and self.raised)

    @property
    def only_theirs(self) -> bool:
        """We refuse, and pycute gives a result."""
        return bool(self.refusal and not self.raised)

    @property
    def without_modes(self) -> bool:
        """Some argument has a mode of no modes, ()."""
        flat = [part for a in self.arguments for part in (a if isinstance(a, tuple) and a else (a,))]
        return any(part == () or (isinstance(part, Layout) and "()" in str(part)) for part in flat)

    @cached_property
    def our_values(self) -> tuple[int, ...]:
        """Our result at every linear index."""
        return tuple(self.ours.offsets().tolist())

    @cached_property
    def their_values(self) -> tuple[int, ...] | None:
        """pycute's result at every linear index; None where it cannot say them."""
        return values(self.theirs)

    @property
    def same(self) -> bool:
        """Both give the same function, cut into modes of the same sizes."""
        return self.both and self.our_values == self.their_values and sizes(as_theirs(self.ours)) == sizes(self.theirs)


@dataclass(frozen=True)
class Rule:
    """One way in which an outcome may come about.

    name      short
    sentence  what both do, and why
    holds     whether an outcome is of this kind
    example   arguments that meet it, as text
    """

    name: str
    sentence: str
    holds: Callable[[Outcome], bool]
    example: tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """One operation in both libraries, with everything that may become of a call.

    name    ours
    ours    of our layouts
    theirs  of the same arguments as layouts of pycute
    rules   of which every outcome meets exactly one
    """

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    rules: tuple[Rule, ...]

    def outcome(self, *arguments: Any) -> Outcome:
        """What both make of these arguments."""
        ours, refusal, theirs, raised = None, "", None, ""
        try:
            ours = self.ours(*arguments)
        except LayoutError as error:
            refusal = str(error)
        try:
            theirs = self.theirs(*map(as_theirs, arguments))
        except (AssertionError, ValueError, IndexError, ZeroDivisionError, RecursionError) as error:
            raised = type(error).__name__
        return Outcome(arguments, ours, refusal, theirs, raised)

    def rule(self, *arguments: Any) -> Rule:
        """The one rule that explains what both make of these arguments; AssertionError where there is not one."""
        outcome = self.outcome(*arguments)
        met = [rule for rule in self.rules if rule.holds(outcome)]
        assert len(met) == 1, (
            f"{self.name} of {', '.join(map(text, arguments))}: ours {outcome.refusal or outcome.ours}, pycute "
            f"{outcome.raised or outcome.theirs}; this meets {[rule.name for rule in met] or 'no rule'}"
        )
        return met[0]


def as_theirs(argument: Any) -> Any:
    """A layout of ours as one of pycute; anything else as it is."""
    if isinstance(argument, Layout):
        return pycute.Layout(argument.shape, argument.stride)
    return tuple(map(as_theirs, argument)) if isinstance(argument, tuple) else argument


def values(theirs: Any) -> tuple[int, ...] | None:
    """A layout of pycute at every linear index; None where a mode of size 0 leaves it none.

    Flat, and with one mode more: pycute does not evaluate a layout that ends in ().
    """
    shape, stride = pycute.flatten(theirs.shape), pycute.flatten(theirs.stride)
    flat = pycute.Layout((*shape, 1), (*stride, 0))
    return None if 0 in shape else tuple(flat(i) for i in range(flat.size()))


def sizes(theirs: Any) -> list[int]:
    """How many coordinates each top-level mode of a layout of pycute has."""
    return [pycute.size(theirs[k]) for k in range(len(theirs))]


# -- rules that several operations share -------------------------------------------------------------------------------

Wanted: TypeAlias = Callable[[Outcome], "tuple[int, ...] | None"]


def agree(wanted: Wanted, *example: str, sentence: str = "") -> Rule:
    said = sentence or "both give the function that the law demands, in modes of the same sizes."
    return Rule("same", said, lambda o: o.same and o.our_values == wanted(o), example)


def neither(impossible: Callable[[Outcome], bool], sentence: str, *example: str) -> Rule:
    return Rule("neither", sentence, lambda o: o.neither and impossible(o), example)


def no_modes(wanted: Wanted, *example: str) -> Rule:
    return Rule(
        "no modes",
        "`()` is one coordinate without leaves, and ours is defined for it; pycute cannot make a layout of no layouts.",
        lambda o: o.only_ours and o.without_modes and o.our_values == wanted(o),
        example,
    )


def needless(wanted: Wanted, *example: str) -> Rule:
    return Rule(
        "needless assertion",
        "it exists and ours gives it; pycute asserts that a stride and the sizes that it passes divide one another, "
        "though the offsets never carry, or the mode has one coordinate.",
        lambda o: o.only_ours and o.raised == "AssertionError" and not o.without_modes and o.our_values == wanted(o),
        example,
    )


def exact(outcome: Outcome) -> bool:
    """Equal shapes and strides, not only the same function."""
    return outcome.both and as_theirs(outcome.ours) == outcome.theirs


# -- as text -----------------------------------------------------------------------------------------------------------


def read(source: str) -> Any:
    """An argument of an example: a layout, a number, a swizzle or a tuple of tiles as `text` writes it."""
    if source.startswith("["):
        return tuple(map(Layout.parse, source[1:-1].split()))
    if source.startswith("Sw"):
        return Swizzle.parse(source)
    return int(source) if source.lstrip("-").isdecimal() else Layout.parse(source)


def text(value: Any) -> str:
    """A value of either library, as the papers write it."""
    if isinstance(value, tuple):
        return f"[{' '.join(map(text, value))}]"
    return str(value).replace(" ", "")


def table(operations: Sequence[Operation]) -> str:
    """The rules of all operations with their examples, as Markdown."""
    lines = ["| operation | rule | example | ours | pycute |", "| --- | --- | --- | --- | --- |"]
    for operation in operations:
        for rule in operation.rules:
            outcome = operation.outcome(*map(read, rule.example))
            cells = (
                f"`{operation.name}`",
                f"*{rule.name}*: {rule.sentence}",
                " and ".join(f"`{e}`" for e in rule.example),
                "refuses" if outcome.refusal else f"`{text(outcome.ours)}`",
                outcome.raised or f"`{text(outcome.theirs)}`",
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
