"""A card as a page of the documentation (Markdown), and the index of all of them."""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator

from tinygpu.constraints.table import constraint_table
from tinygpu.language.instruction import OLDEST_TARGET
from tinygpu.ptx.cards.collect import FAMILIES
from tinygpu.ptx.cards.readings import of_card, table
from tinygpu.ptx.cards.specimen import WRONG_VALUES, Card, Specimen, Twin, markdown_table, version

# Lines of a kernel that are shown on either side of what makes its twin differ.
AROUND = 3


def page(card: Card) -> str:
    """The page of one instruction."""
    return "\n\n".join(_sections(card)) + "\n"


def _sections(card: Card) -> Iterator[str]:
    yield f"# {card.name}"
    yield _described(card)
    yield _facts(card)
    yield "## Operands"
    yield markdown_table(("operand", "memory", "shape", "type"), card.operands)
    yield "## Legality"
    yield constraint_table(card.rules)
    if any(rule.condition.same(True) for rule in card.rules):
        yield "`always`: the declaration decides it, and it holds for the operand that is shown here."
    if card.guarantees:
        yield "Kept by declarations and by lowering, so that no candidate can break them:"
        rows = [(g.name, g.sentence, g.judge) for g in card.guarantees]
        yield markdown_table(("rule", "what must hold", "judge"), rows)
    yield _domain(card)
    for title, text in card.pictures():
        yield f"## {title}"
        yield text if text.startswith("|") else f"```text\n{text}\n```"
    readings = of_card(card.name)
    if readings:
        yield "## Who judges the readings"
        yield (
            "The emulator and the lowering take descriptors and places to mean the same, and no chip of this "
            "generation has judged them. A *witness* is a kernel of another compiler (CuTe by nvcc, or Triton) whose "
            "result is right when the emulator reads so, and not when it reads otherwise: "
            "`tests/ptx/emulator/test_witnesses.py` tries both. What has none is unjudged."
        )
        yield table(readings)
    yield "## Semantics"
    yield f"`{card.meaning}`"
    yield "## Cost"
    yield f"{card.cost[0].upper()}{card.cost[1:]}."
    yield "## The smallest kernel"
    example = card.example
    where = f"{example.architecture} alone" if example.specific else f"{example.architecture} and every later target"
    yield f"It assembles for {where}, and runs in the emulator.{_maps(example)}"
    yield f"```ptx\n{card.example.ptx}```"
    yield "## Illegal twins"
    yield "Each differs from a legal kernel in one thing, and its judge refuses it."
    for twin in card.twins:
        yield from shown_twin(twin)


def _maps(specimen: Specimen) -> str:
    """The tensor maps that a kernel takes, as sentences."""
    return "".join(f" Tensor map {m}." for m in specimen.maps)


def _described(card: Card) -> str:
    """The docstring of the class, its parameters as a list."""
    lines = inspect.cleandoc(type(card.instruction).__doc__ or "").split("\n")
    return "\n".join(re.sub(r"^(\w+)  +(.*)$", r"- `\1`: \2", line) for line in lines)


def _facts(card: Card) -> str:
    instruction = card.instruction
    name = type(instruction).__name__
    rows = [
        ("class", f"`tinygpu.ptx.isa.{name}`, of the family {_family(card)}"),
        ("unit", instruction.unit),
        ("scope", instruction.scope),
        ("completes", f"by {instruction.completion}" if instruction.asynchronous else "when it is executed"),
        ("proxy", instruction.proxy),
        (_from(card), f"{_since(card)}, `.version` {version(card.example.isa)}"),
        ("source", instruction.source),
    ]
    return markdown_table(("", ""), rows)


def _from(card: Card) -> str:
    if card.instruction.only:
        return "exists on"
    return "exists from" if card.instruction.target > OLDEST_TARGET else "written for"


def _since(card: Card) -> str:
    """The architectures that have an instruction: "sm_90" and later ones, "sm_90a" alone."""
    instruction = card.instruction
    if instruction.only:
        return ", ".join(f"sm_{cc}a" for cc in instruction.only) + " alone"
    return f"sm_{max(instruction.target, OLDEST_TARGET)}"


def _family(card: Card) -> str:
    families = "tinygpu.language.instruction."
    bases = [b.__name__ for b in type(card.instruction).__mro__ if b.__module__.startswith(families)]
    return bases[0]


def _domain(card: Card) -> str:
    """How many spellings were tried, and what is left out of the agreement."""
    tried = list(card.variants())
    targets = ", ".join(dict.fromkeys(v.target for v in tried))
    legal = sum(v.legal for v in tried)
    text = (
        f"Rules and assembler are compared over {len(tried):,} spellings on {targets}: {legal:,} are legal by the "
        "rules, and exactly these assemble"
    )
    left = [v for v in tried if v.not_offered]
    if not left:
        return text + "."
    reasons = list(dict.fromkeys(v.not_offered for v in left))
    lines = [f"{text}, but for {len(left):,} that assemble and are not offered:"]
    for reason in reasons:
        examples = list(dict.fromkeys(v.text for v in left if v.not_offered == reason))
        lines.append(f"- {reason} (`{examples[0]}`{f' and {len(examples) - 1} more' if len(examples) > 1 else ''})")
    return lines[0] + "\n\n" + "\n".join(lines[1:])


def shown_twin(twin: Twin) -> Iterator[str]:
    """A twin: its rule as a heading, what differs, and what the judge says."""
    yield f"### {twin.rule}"
    if twin.device:
        yield f"The same kernel, assembled for {twin.device}."
    elif _lines(twin.illegal) != _lines(twin.legal):
        yield f"```diff\n{difference(twin.legal, twin.illegal)}\n```"
    elif twin.illegal.architecture != twin.legal.architecture:
        here, there = twin.illegal.architecture, twin.legal.architecture
        yield f"The same kernel with `.target {here}` instead of `.target {there}`."
    else:
        yield f"The same kernel, taken to mean something else ({twin.illegal.title})."
    if twin.refusal == WRONG_VALUES:
        yield f"Judge: {twin.judge}; it runs, and {WRONG_VALUES}."
    else:
        yield f"Judge: {twin.judge}; it says “{twin.refusal}”."


def difference(legal: Specimen, illegal: Specimen) -> str:
    """The lines that differ with what stands around them; of what both share in between, that there is more."""
    told = (line.rstrip() for line in difflib.ndiff(_lines(legal), _lines(illegal)) if not line.startswith("?"))
    lines = list(told)
    differ = [place for place, line in enumerate(lines) if line.startswith(("+", "-"))]
    shown = sorted({n for place in differ for n in range(place - AROUND, place + AROUND + 1) if 0 <= n < len(lines)})
    out = list[str]()
    for before, place in itertools.pairwise([-1, *shown, len(lines)]):
        if place > before + 1:
            out.append("  ...")
        out += lines[place : place + 1]
    return "\n".join(out)


def _lines(specimen: Specimen) -> list[str]:
    """What a kernel says and takes: its tensor maps, then its statements."""
    return [*(f"// {m}" for m in specimen.maps), *specimen.statements]


def index(listed: Iterable[Card]) -> str:
    """The page that lists all cards."""
    shown = list(listed)
    parts = [
        "# Instructions",
        "One card per instruction. A card is generated from the data that the solver, the lowering and the tests use: "
        "`python -m tinygpu.ptx.cards` writes these files, and a test compares them with what it would write.",
        "Every rule has a judge, somebody else than the rule, who refuses a kernel that breaks it:\n\n"
        "- the **assembler**: over a domain of spellings, an instruction is legal by the rules if and only if it "
        "assembles. What the assembler takes and we leave out is listed on the card, with the reason;\n"
        "- the **emulator**: it runs the kernel, and finds a fault or a result that differs from the meaning;\n"
        "- the **launch**: what is refused before a kernel begins. Tensor maps are made there, and cards have these "
        "rules; the limits of the device, such as threads, registers and shared memory per CTA, are rules that "
        "machines bring.",
        "Every rule has an *illegal twin* on its card: a kernel that differs from a legal one in one thing, with the "
        "judge's words.",
        "Kernels are written for sm_80 and later. Of an instruction that is as old, or older, the cards say just that.",
    ]
    for title, families in FAMILIES:
        members = [c for c in shown if _family(c) in families.split(", ")]
        rows = [
            (
                f"[{c.name}]({c.name}.md)",
                _first_sentence(c),
                c.instruction.unit,
                c.instruction.scope,
                _since(c),
                len(c.twins),
            )
            for c in members
        ]
        parts += [
            f"## {title}",
            markdown_table(("card", "what it does", "unit", "scope", "from", "illegal twins"), rows),
        ]
    return "\n\n".join(parts) + "\n"


def _first_sentence(card: Card) -> str:
    first = inspect.cleandoc(type(card.instruction).__doc__ or "").split("\n")[0]
    return first.rstrip(".")
