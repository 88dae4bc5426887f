"""No text makes the emulator crash or hang: it runs, or is refused by one of four errors."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import EmulationFault, LaunchError, PtxSyntaxError, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.source.parser import parse

FOLDER = Path(__file__).parent
FIXTURES = [p for p in sorted(FOLDER.glob("*kernels/**/*.ptx")) if p.stat().st_size < 60_000]
HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|\.?[\w$%:]+|\s+|.', re.DOTALL)
ODD = [
    "\0", '"', "/*", "0xfffffffffffffffff", "99999999999999999999", "-1", ".b128", "-", "~", "{", "}", "(", ")", "[",
    "]", ";", "@", "|", "1e999", "0f00000000", "\u00e9", ".param", ".shared", ".align", "<4294967295>", "_",
    "%tid.x", "+",
]  # fmt: skip


def attempt(text: str, entry: str | None = None, **options: Any) -> str:
    """How a text fares; anything but the four errors passes through."""
    try:
        kernels = [f for f in parse(text).functions if f.is_entry and f.name == (entry or f.name)]
        parameters = kernels[0].parameters if kernels else ()
        args = [np.zeros(4096, np.uint8) if p.size_bytes == 8 else bytes(p.size_bytes) for p in parameters]
        block: Any = kernels[0].directives.get("reqntid", (32,)) if kernels else 32
        emulate(text, entry=entry, grid=1, block=block, args=args, step_limit=60, dynamic_smem=1024, **options)
    except (PtxSyntaxError, UnsupportedInstruction, LaunchError, EmulationFault) as refused:
        return type(refused).__name__
    return "ran"


def mutate(tokens: list[str], vocabulary: list[str], chance: random.Random) -> str:
    """A text with one to three tokens deleted, doubled, swapped, replaced or put in, or cut off."""
    tokens = list(tokens)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(tokens))
        kind = chance.randrange(7)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2:
            other = min(len(tokens) - 1, at + chance.randint(1, 3))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens[at] = chance.choice(vocabulary)
        elif kind == 4:
            tokens.insert(at, chance.choice(ODD))
        elif kind == 5:
            tokens[at] = chance.choice(tokens)
        elif chance.random() < 0.2:
            tokens = tokens[: at + 1]
    return "".join(tokens)


def fuzz(count: int, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    texts = [path.read_text() for path in FIXTURES]
    tokens = [TOKEN.findall(text) for text in texts]
    vocabulary = sorted({t for row in tokens for t in row if t.strip() and not t.startswith("//")}) + ODD
    outcomes: dict[str, int] = {}
    for _ in range(count):
        number = chance.randrange(len(texts))
        entry = chance.choice(re.findall(r"\.entry\s+(\w+)", texts[number]))
        outcome = attempt(mutate(tokens[number], vocabulary, chance), entry)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


@pytest.mark.end_to_end
def test_mutated_kernels_run_or_are_refused() -> None:
    outcomes = fuzz(60, 3)
    # Most mutants of a token are no PTX any more, some still run, and some fail while they run.
    assert outcomes["PtxSyntaxError"] > 20
    assert outcomes["ran"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_mutated_kernels_run_or_are_refused(seed: int) -> None:
    assert sum(fuzz(1500, 100 + seed).values()) == 1500


OPCODES = [
    "add", "mov", "ld", "st", "cvt", "setp", "bra", "call", "atom", "red", "shfl", "mma", "cp", "bar", "vote", "brx",
    "ret", "mad", "prmt", "ldmatrix", "wmma", "mbarrier", "fence", "tcgen05", "wgmma", "%malloc", "alloca", "vadd4",
]  # fmt: skip
MODIFIERS = [
    ".u32", ".s64", ".f32", ".f16x2", ".b128", ".pred", ".b8", ".sync", ".aligned", ".global", ".shared", ".param",
    ".v2", ".v4", ".lo", ".wide", ".rn", ".sat", ".cas", ".idx", ".m16n8k16", ".row", ".col", ".async", ".bulk", ".add",
    ".load", ".a", ".noftz", ".e2m1x2", ".x4", ".mbarrier::complete_tx::bytes", ".uni", ".local", ".const", ".to",
]  # fmt: skip
OPERANDS = [
    "%r1", "%rd1", "%f1", "%p1", "%h1", "%q1", "!%p1", "%r2|%p2", "{%r1, %r2}", "{%r1, %r2, %r3, %r4}", "[%rd1]",
    "[%rd1+8]", "[s]", "[s+0x7fffffffffffffff]", "[%rd1, {%r1, %r2}]", "(%r1)", "(p)", "0", "-1", "1.5", "_", "s", "L",
    "%tid.x", "%r1.b0", "-%r1", "[0]", "{}", "0xffffffffffffffff", "k", "f", "[L]", "{_, 1}", "v", "v.x",
]  # fmt: skip


@st.composite
def instruction(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(OPCODES)) + "".join(draw(st.lists(st.sampled_from(MODIFIERS), max_size=4)))
    guard = draw(st.sampled_from(["", "", "@%p1 ", "@!%p2 "]))
    return f"{guard}{name} {', '.join(draw(st.lists(st.sampled_from(OPERANDS), max_size=5)))};"


@settings(max_examples=400, deadline=None)
@given(st.lists(instruction(), min_size=1, max_size=3))
def test_any_instruction_runs_or_is_refused(lines: list[str]) -> None:
    body = "\n".join(lines)
    attempt(
        f"{HEAD}.func f(.param .b32 p) {{ ret; }}\n.entry k() {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;\n"
        ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b128 %q<9>; .reg .v4 .b32 v; .shared .align 16 .b8 s[64];\n"
        f".param .b32 p; L:\n{body}\nret; }}",
        check=False,
    )


HOSTILE = {
    "braces": ".entry k() {" + "{" * 20_000,
    "scopes": ".entry k() {" + "{}" * 20_000 + "ret; }",
    "parentheses": ".entry k() { .reg .b32 r; mov.u32 r, " + "(" * 20_000,
    "tildes": ".entry k() { .reg .b32 r; mov.u32 r, " + "~" * 20_000 + "1; }",
    "minus signs": ".entry k() { .reg .b32 r; mov.u32 r, " + "-" * 20_001 + "1; ret; }",
    "sums": ".entry k() { .reg .b32 r; mov.u32 r, " + "1+" * 20_000 + "1; ret; }",
    "a long number": ".entry k() { .reg .b32 r; mov.u32 r, " + "9" * 100_000 + "; }",
    "a long fraction": ".entry k() { .reg .f32 r; mov.f32 r, " + "9" * 100_000 + ".5; ret; }",
    "a long name": ".entry " + "k" * 100_000 + "() { ret; }",
    "modifiers": ".entry k() { mov" + ".u32" * 20_000 + " 1; }",
    "operands": ".entry k() { .reg .b32 r; mov.u32 " + "r," * 20_000 + "r; }",
    "an open comment": "/*" * 50_000,
    "an open string": '.entry k() { .pragma "' + "x" * 100_000,
    "quotes": '"a" ' * 20_000,
    "zeros": "\0" * 100_000,
    "nothing": "",
    "initial values": ".global .b8 g[] = {" + "1," * 20_000 + "1}; .entry k() { ret; }",
    "braces of initial values": ".global .b8 g[4] = " + "{" * 20_000,
    "huge arrays": ".global .b8 g[0xffffffffffffffff]; .entry k() { ret; }",
    "many dimensions": ".global .b8 g" + "[2]" * 20_000 + "; .entry k() { ret; }",
    "local memory": ".entry k() { .local .b8 x[1000000000]; ret; }",
    "shared memory": ".entry k() { .shared .b8 x[1000000]; .reg .b32 r; mov.u32 r, x; ret; }",
    "registers": ".entry k() { .reg .b32 r<4294967296>; mov.u32 r4294967295, 1; ret; }",
    "branches": ".entry k() { .reg .pred p; .reg .b32 r; mov.u32 r, 0; setp.ne.u32 p, r, 0;\n"
    + "".join(f"L{n}:\n" for n in range(2000)) + "".join(f"@p bra L{n};\n" for n in reversed(range(2000))) + "ret; }",
    "a jump table": ".entry k() { .reg .b32 r; mov.u32 r, 0; T: .branchtargets " + ",".join(["L"] * 20_000)
    + "; brx.idx r, T; L: ret; }",
    "calls": "".join(f".func f{n}() {{ call f{n + 1}; call f{n + 1}; ret; }}\n" for n in range(30))
    + ".func f30() { ret; }\n.entry k() { call f0; ret; }",
    "deep calls": "".join(f".func f{n}() {{ call f{n + 1}; ret; }}\n" for n in range(300))
    + ".func f300() { ret; }\n.entry k() { call f0; ret; }",
    "a circle of aliases": ".alias a, b;\n.alias b, a;\n.entry k() { call a; ret; }",
    "endless recursion": ".func f() { call f; ret; }\n.entry k() { call f; ret; }",
    "a section": ".section .debug { " + ".b8 1, 2\n" * 20_000,
    "attributes": ".attribute(" * 10_000,
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_run_or_are_refused(name: str) -> None:
    assert attempt(HEAD + HOSTILE[name]) in (
        "ran", "PtxSyntaxError", "UnsupportedInstruction", "LaunchError", "EmulationFault",
    )  # fmt: skip
    if not HOSTILE[name].startswith((".global", ".func", ".entry")):
        assert attempt(HOSTILE[name]) == "PtxSyntaxError"


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_are_no_ptx(data: bytes) -> None:
    assert attempt(data.decode("latin-1")) == "PtxSyntaxError"
    attempt(HEAD + data.decode("latin-1"))
