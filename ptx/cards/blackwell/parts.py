"""What sections of the page are made of: pictures, readings, kernels with their illegal twins, and cards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tinygpu.ptx.cards.page import shown_twin
from tinygpu.ptx.cards.readings import READINGS, table
from tinygpu.ptx.cards.specimen import Card, Specimen, Twin, markdown_table


def text(lines: Iterable[str]) -> str:
    """A block of lines as they are."""
    return "```text\n" + "\n".join(lines) + "\n```"


def readings(*groups: str) -> str:
    """The readings of these groups, with the witnesses of each."""
    return table(tuple(r for r in READINGS if r.group in groups))


def smallest_kernel(specimen: Specimen) -> Iterator[str]:
    """The smallest kernel around an instruction."""
    yield "### The smallest kernel"
    maps = "".join(f" Tensor map {m}." for m in specimen.maps)
    yield f"It assembles for {specimen.architecture}, and runs in the emulator.{maps}"
    yield f"```ptx\n{specimen.ptx}```"


def twins(twins: Iterable[Twin]) -> Iterator[str]:
    """What is wrong with each twin, and who says so."""
    for twin in twins:
        heading, *rest = shown_twin(twin)
        yield heading.replace("### ", "### Illegal twin: ", 1)
        yield from rest


def carded(shown: Card, kernel: bool = True) -> Iterator[str]:
    """The rules of a card, its kernel, and the first of its illegal twins that the emulator judges."""
    rows = [(r.name, r.sentence, r.judge) for r in shown.rules]
    rows += [(g.name, g.sentence, g.judge) for g in shown.guarantees]
    yield f"The rules, from [the card of {shown.name}](instructions/{shown.name}.md), which has a twin for each:"
    yield markdown_table(("rule", "what must hold", "judge"), rows)
    if kernel:
        yield from smallest_kernel(shown.example)
        yield from twins([next(t for t in shown.twins if t.judge == "emulator")])
