"""The lexer and parser: what they read, what they refuse and where, and that nothing makes them hang or crash."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import module

from tinygpu.ptx.emulator import PtxSyntaxError, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.source.lexer import tokenize
from tinygpu.ptx.emulator.source.parser import parse
from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction, RegisterOperand, SymbolOperand

KERNELS = Path(__file__).parent / "kernels"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def instructions(text: str) -> list[Instruction]:
    (function,) = parse(text).functions
    return [s for s in function.body if isinstance(s, Instruction)]


def test_an_instruction_has_modifiers_types_guard_and_place() -> None:
    body = ".reg .pred %p1; .reg .b32 %r<9>; .reg .b64 %rd<2>;\n"
    body += "  @!%p1 ld.global.nc.L1::no_allocate.v2.u32 {%r1,%r8}, [%rd1+-16];"
    (load,) = instructions(module(body, []))
    assert (load.opcode, load.modifiers) == ("ld", ("global", "nc", "L1::no_allocate", "v2", "u32"))
    assert load.types == ("u32",)
    assert load.guard is not None
    assert (load.guard.register.name, load.guard.negated) == ("%p1", True)
    assert (load.line, load.column) == (8, 9)
    address = load.operands[1]
    assert isinstance(address, AddressOperand)
    assert isinstance(address.base, RegisterOperand)
    assert (address.base.name, address.offset) == ("%rd1", -16)


def test_scopes_hide_registers_and_labels() -> None:
    body = """
.reg .b32 %r1;
{ .reg .b64 %r1; L: mov.u64 %r1, 1; bra L; }
{ L: mov.u32 %r1, 1; bra L; }
"""
    first, jump, second, back = instructions(module(body, []))
    inner, outer = first.operands[0], second.operands[0]
    assert isinstance(inner, RegisterOperand)
    assert isinstance(outer, RegisterOperand)
    assert (inner.type_name, outer.type_name) == ("b64", "b32")
    targets = [i.operands[0] for i in (jump, back)]
    assert all(isinstance(t, SymbolOperand) for t in targets)
    assert targets[0] != targets[1]


def test_constants_in_every_notation() -> None:
    text = ".reg .b32 %r1; mov.u32 %r1, "
    for written, value in (
        ("0x1F", 31), ("0b101", 5), ("017", 15), ("42U", 42), ("-7", -7), ("~0", -1), ("(3+4)*2", 14),
        ("1<<10|1", 1025), ("7/2-1", 2), ("-(2-9) % 4", 3), ("WARP_SZ", 32),
    ):  # fmt: skip
        (move,) = instructions(module(text + written + ";", []))
        assert move.operands[1].value == value, written  # type: ignore[union-attr]


def test_initialisers_of_variables() -> None:
    text = HEAD + (
        ".const .align 4 .b8 a[8] = {1, 2, 255};\n.global .f32 b[2] = {0f3F800000, 2.5};\n"
        ".global .align 8 .u64 c = a+4;\n.global .b16 d[] = {1,2,3};\n.global .u32 e[2][2] = {{1,2},{3,4}};\n"
    )
    a, b, c, d, e = parse(text).variables
    assert (a.size_bytes, a.elements) == (8, ((0, 1, 1), (1, 1, 2), (2, 1, 255)))
    assert b.elements == ((0, 4, 0x3F800000), (4, 4, 0x40200000))
    assert c.elements == ((0, 8, SymbolOperand("a", 4)),)
    assert (d.size_bytes, e.size_bytes) == (6, 16)
    assert [v for _, _, v in e.elements] == [1, 2, 3, 4]


REFUSED = [
    ("mov.u32 %r1, 1;", 1, 1, "a PTX module starts with .version, found `mov`"),
    (HEAD + ".visible .entry k(\n{ ret; }", 5, 1, "a parameter starts with .param, found `{`"),
    (HEAD + ".entry k() { .reg .b32 %r1; mov.u32 %r1, %r2; }", 4, 42, "register %r2 is not declared"),
    (HEAD + ".entry k() { bra L; }", 4, 14, "bra goes to L, which is no label here"),
    (HEAD + ".entry k() { .reg .b32 a; .reg .b64 a; }", 4, 37, "register a is declared twice in the same scope"),
    (HEAD + ".entry k() { .reg .b32 %r<4>; mov.u32 %r1 %r2; }", 4, 43, "expected `;` after `mov`, found `%r2`"),
    (HEAD + ".entry k() { ret; ", 4, 17, "the text ends inside the body of k"),
    (HEAD + ".entry k() { .reg .b32 %r1; @%r1 ret; }", 4, 30, "%r1 is no predicate register"),
    (HEAD + ".shared .b8 s[4] = {1,2,3,4,5};", 4, 13, "s has 4 bytes but 5 bytes of initial values"),
    (HEAD + ".shared .align 3 .b8 s[4];", 4, 9, ".align takes a power of two up to 2^20, not 3"),
    (HEAD + "/* open", 4, 1, "this comment is never closed with */"),
    (HEAD + ".entry k() { # }", 4, 14, "character '#' starts no token of PTX"),
    (HEAD + ".entry k() { .reg .b32 %r1; mov.u32 %r1, 1/0; }", 4, 43, "division by zero in a constant expression"),
    (HEAD + ".entry k() { .reg .b32 %r1; mov.u32 %r1, 0x1ffffffffffffffff; }", 4, 42,
     "0x1ffffffffffffffff does not fit into 64 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "sentence"), REFUSED, ids=[row[3][:40] for row in REFUSED])
def test_malformed_text_is_refused_with_its_place(text: str, line: int, column: int, sentence: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column, caught.value.sentence) == (line, column, sentence)
    assert str(caught.value) == f"PTX line {line}, column {column}: {sentence}"


WRONG_USE = [
    ("add.u32 %r1, %rd1, %r2;", "%rd1 is declared .b64 (64 bits), but .u32 needs 32 bits"),
    ("add.u32 %r1, %r2;", "`add.u32` takes 3 operands, not 2"),
    ("add.f32 %f1, %f2, 1;", "an integer constant cannot be .f32: write 0f or 0d and hexadecimal digits"),
    ("mul.u32 %r1, %r2, %r3;", "`mul.u32` needs .lo, .hi or .wide"),
    ("ld.global.v4.u64 {%rd1, %rd2, %rd1, %rd2}, [%r1];", None),
    ("ld.global.v2.u32 {%r1}, [%rd1];", "this load takes 2 registers, not 1"),
    ("ld.shared.u64 %r1, [%rd1];", "%r1 has 32 bits, too few for .u64"),
    ("mov.b64 {%r1, %r2, %r3}, %rd1;", "64 bits cannot fill 3 registers"),
    ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "cp.async.cg copies 16 bytes, not 8"),
    ("setp.u32 %p1, %r1, %r2;", "`setp.u32` needs one comparison such as .lt"),
    ("bar.sync 16;", "barriers are numbered 0 to 15, not 16"),
    ("lop3.b32 %r1, %r2, %r3, %r1, 256;", "the table of lop3 is 0 to 255, not 256"),
    ("cvt.s32.f32 %r1, %f1;", "`cvt.s32.f32` needs .rni, .rzi, .rmi or .rpi"),
    ("ld.param.u32 %r1, [a+8];", "bytes 8 to 11 are outside the kernel's 8 bytes of parameters"),
    ("st.shared.u32 [nowhere], %r1;", "nowhere is not declared"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), WRONG_USE, ids=[row[0][:40] for row in WRONG_USE])
def test_a_wrong_use_of_an_instruction_is_refused_before_anything_runs(text: str, sentence: str | None) -> None:
    body = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p<4>;\n" + text + "\nret;"
    if sentence is None:
        return
    with pytest.raises(PtxSyntaxError) as caught:
        emulate(module(body, [".param .u64 a"]), grid=1, block=32, args=[np.zeros(4)])
    assert (caught.value.line, caught.value.sentence) == (8, sentence)


@pytest.mark.parametrize(
    "text", ["nonsense;", "nonsense.b32 %r1;"]
)
def test_an_unknown_instruction_is_named_with_its_line(text: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        emulate(module(f".reg .b32 %r1;\nret;\n{text}\n", []), grid=1, block=32, args=[])
    assert caught.value.line == 9
    assert caught.value.instruction == text.split(";")[0].split(" ")[0]


def read(text: str) -> None:
    """Parsing gives a tree or a PtxSyntaxError; anything else is a bug."""
    with contextlib.suppress(PtxSyntaxError):
        parse(text)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


PIECES = [
    ".version", "8.0", ".target", "sm_80", ".entry", "k", "(", ")", "{", "}", "[", "]", ".reg", ".b32", "%r<4>", "%r1",
    ";", ",", "mov", ".u32", "@", "!", "%p", "bra", "L:", "L", "-", "~", "0x", "0f3F800000", "1", ".param", ".align",
    "4", "<", ">", "=", "|", "call", "ld", ".global", ".section", ".file", ".pragma", '"x"', ".shared", ".b8", "_",
    "::", ".v2", ".extern",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_sequence_of_pieces_is_read_or_refused(pieces: list[str]) -> None:
    read(HEAD + " ".join(pieces))
    read(HEAD + ".entry k() { .reg .pred %p; .reg .b32 %r<4>; " + " ".join(pieces) + " }")


def test_mutated_kernels_are_read_or_refused() -> None:
    source = (KERNELS / "integers.ptx").read_text()
    chance = random.Random(11)
    for _ in range(60):
        text = source
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(text))
            end = min(len(text), start + chance.randint(0, 30))
            other = chance.randrange(len(text))
            text = text[:start] + text[other : other + chance.randint(0, 30)] + text[end:]
        read(text)
    for cut in range(0, len(source), len(source) // 40):
        read(source[:cut])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("piece", ["(", "{", "-", "~", "[", "1+", "1*(", "!", "@"])
def test_deep_nesting_is_refused(piece: str) -> None:
    text = piece * 5000
    for prefix in ("", ".entry k() { .reg .b32 %r1; ", ".entry k() { .reg .b32 %r1; mov.u32 %r1, ", ".shared .b8 s["):
        with pytest.raises(PtxSyntaxError):
            parse(HEAD + prefix + text)


def test_huge_declarations_cost_nothing() -> None:
    parse(HEAD + ".entry k() { .reg .b32 %r<1000000000>; mov.u32 %r999999999, 1; ret; }")


def test_tokens_know_their_places() -> None:
    tokens = tokenize("ld.global /* two\nlines */ %r1;\n  0f3F800000 // end")
    assert [(t.text, t.line, t.column) for t in tokens[:-1]] == [
        ("ld", 1, 1), (".global", 1, 3), ("%r1", 2, 10), (";", 2, 13), ("0f3F800000", 3, 3)
    ]  # fmt: skip


def test_debugging_directives_are_passed_over() -> None:
    text = HEAD + (
        '.file 1 "x.cu"\n.entry k()\n{\n.loc 1 2 3, function_name $L__info, inlined_at 1 4 5\nret;\n'
        '.pragma "nounroll";\n}\n'
        ".section .debug_str { .b8 1, 2 }\n"
    )
    assert [i.opcode for i in instructions(text)] == ["ret"]


def test_the_alignment_behind_ptr_is_that_of_what_it_points_to() -> None:
    text = HEAD + (
        ".visible .entry k(.param .u32 n, .param .u64 .ptr .global .align 1 x, .param .align 16 .b8 s[4],\n"
        "    .param .u64 .ptr .align 2 y)\n{ ret; }\n"
    )
    (entry,) = parse(text).functions
    assert [parameter.align_bytes for parameter in entry.parameters] == [4, 8, 16, 8]
