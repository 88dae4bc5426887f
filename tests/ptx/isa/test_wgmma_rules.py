"""Rules of wgmma over whole domains: broken if and only if a kernel that ignores them goes wrong."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate, symbol
from tinygpu.language.instruction import tiled
from tinygpu.ptx import isa
from tinygpu.ptx.cards import refused_by_assembler, refused_by_emulator
from tinygpu.ptx.cards.evidence import wgmma_registers as registers
from tinygpu.ptx.cards.evidence.wgmma import offered, specimen
from tinygpu.ptx.cards.evidence.wgmma_kernels import sum_held_by
from tinygpu.ptx.cards.specimen import swizzled_operand
from tinygpu.ptx.isa.wgmma import TYPES

PAIRS = [(a, b) for a, (others, _) in TYPES.items() for b in others]


@pytest.mark.parametrize("n", [8, 16, 24, 96, 256])
def test_the_fragment_is_the_formula_thread_by_thread(n: int) -> None:
    """PTX ISA, wgmma register fragment D."""

    kind = dtype("f16")
    who = tiled(isa.Wgmma(n), kind, kind, (64, n), (1, 1)).c.coordinates()
    assert who.shape == (128, n // 2, 2)
    seen = set()
    for thread in range(128):
        for value in range(n // 2):
            lane = thread % 32
            row = 16 * (thread // 32) + (lane >> 2) + 8 * ((value >> 1) & 1)
            column = 8 * (value >> 2) + 2 * (lane & 3) + (value & 1)
            assert tuple(who[thread, value]) == sum_held_by(thread, value) == (row, column)
            seen.add((row, column))
    assert len(seen) == 64 * n


@settings(max_examples=40)
@given(
    pair=st.sampled_from(PAIRS),
    n=st.integers(1, 32).map(lambda x: 8 * x),
    swizzle=st.sampled_from([32, 64, 128]),
    transposed=st.booleans(),
    blocks=st.integers(1, 2),
)
def test_what_the_rules_admit_multiplies(
    pair: tuple[str, str], n: int, swizzle: int, transposed: bool, blocks: int
) -> None:
    kinds = dtype(pair[0]), dtype(pair[1])
    transposed = transposed and kinds[0].bits == 16
    columns = n * blocks if transposed else 0
    # Buffers have whole widths, and the specimen's threads whole elements.
    assume(columns * 2 % swizzle == 0 and (transposed or n * swizzle % (128 * kinds[1].bytes) == 0))
    a, b = swizzled_operand(kinds[0], "a"), swizzled_operand(kinds[1], "b", 1 if transposed else 0)
    k = 32 // kinds[0].bytes
    rules = [*isa.Wgmma(symbol("n")).type_rules(*kinds), *isa.Wgmma(symbol("n")).operand_rules(a, b)]
    for rule in rules:
        own = {"rows": 64, "columns": k} if rule.name.endswith(" of a") else {"rows": k, "columns": max(n, columns)}
        assume(evaluate(rule.condition, {"n": n, "swizzle": swizzle} | own))
    assert refused_by_emulator(specimen("admitted", n, pair, swizzle, transposed=transposed, columns=columns)) == ""


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("n", range(8, 72, 8))
def test_columns_along_the_rows_are_legal_if_and_only_if_no_instruction_runs_into_the_next_row(
    n: int, swizzle: int
) -> None:
    """The second instruction of a row of three; b has as many columns as make whole swizzle widths."""
    kind = dtype("f16")
    rules = isa.Wgmma(symbol("n")).operand_rules(swizzled_operand(kind, "a"), swizzled_operand(kind, "b"))
    rule = next(r for r in rules if r.name == "wgmma swizzle of b")
    columns = 3 * n
    while columns * 2 % swizzle:
        columns += 8
    legal = bool(evaluate(rule.condition, {"n": n, "columns": columns, "swizzle": swizzle}))
    starts = {number * n * 2 % swizzle for number in range(columns // n)}
    fits = all(start == 0 or start + n * 2 <= swizzle for start in starts)
    assert legal == fits
    said = refused_by_emulator(specimen("second", n, swizzle=swizzle, transposed=True, columns=columns))
    if legal:
        assert said == ""
    elif n * 2 % swizzle and n * 2 % swizzle + n * 2 > swizzle:
        assert "it would run into the next row" in said


@pytest.mark.parametrize("kind", ["f16", "tf32", "s8"])
def test_an_instruction_multiplies_32_bytes_along_k_whichever_way_its_operands_lie(kind: str) -> None:
    wide = dtype(kind)
    for along_k in (True, False):
        a, b = swizzled_operand(wide, "a", int(along_k)), swizzled_operand(wide, "b", int(not along_k))
        rules = {r.name: r for r in isa.Wgmma(64).operand_rules(a, b)}
        for elements in range(4, 68, 4):
            legal = elements * wide.bytes == 32
            assert bool(evaluate(rules["wgmma step of a"].condition, {"columns": elements})) == legal
            assert bool(evaluate(rules["wgmma step of b"].condition, {"rows": elements})) == legal
        assert ("wgmma major of a" in rules) == ("wgmma major of b" in rules) == (not along_k)
        if not along_k:
            assert rules["wgmma major of a"].condition.same(kind == "f16")


def test_operands_of_different_signs_state_a_later_version() -> None:
    for pair in PAIRS:
        made = specimen("types", 32, pair)
        mixed = pair[0] != pair[1] and not dtype(pair[0]).is_float
        assert made.isa == ((8, 4) if mixed else (8, 0))
        assert refused_by_assembler(made) == ""
        if mixed:
            said = refused_by_assembler(replace(made, isa=(8, 3)))
            assert "requires PTX ISA .version 8.4 or later" in said


def test_types_that_wgmma_does_not_multiply_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^wgmma does not multiply f16 by bf16$"):
        isa.Wgmma().accumulator(dtype("f16"), dtype("bf16"))
    with pytest.raises(TypeError, match=r"^wgmma does not multiply f32 by f32$"):
        isa.Wgmma().accumulator(dtype("f32"), dtype("f32"))
    assert not offered(64, 16, 16, "f32", "f16", "bf16", ", 1, 1, 0, 0")
    assert offered(64, 16, 16, "f32", "f16", "f16", ", 1, 1, 1, 0")


def test_a_specimen_divides_its_operands_among_the_threads() -> None:
    with pytest.raises(ValueError, match=r"^768 bytes of b are not whole elements of tf32 for each of 128 threads$"):
        specimen("uneven", 24, ("tf32", "tf32"))


def test_operands_in_memory_are_swizzled() -> None:
    a, b = swizzled_operand(dtype("f16"), "a"), swizzled_operand(dtype("f16"), "b")
    assert a.buffer is not None
    plain = replace(a, buffer=replace(a.buffer, swizzle_bytes=None))
    with pytest.raises(ValueError, match=r"^a is an operand of wgmma: give the width of its swizzle, "
        r"swizzle=32, 64 or 128$"):
        isa.Wgmma().operand_rules(plain, b)


@pytest.mark.parametrize("kind", ["f16", "tf32", "e4m3"])
def test_the_left_fragment_is_the_formula_thread_by_thread(kind: str) -> None:
    """PTX ISA, wgmma register fragment A: it covers 64 x 32 bytes once, and each warp's part is that of mma.sync."""
    wide = dtype(kind)
    fragment, _, _ = isa.WgmmaRegisters(8).fragments(wide, wide)
    of_mma, _, _ = isa.MmaSync().fragments(wide, wide)
    assert fragment is not None
    assert of_mma is not None
    assert (fragment[1], fragment[0][0], fragment[0][1]) == (of_mma[1], of_mma[0][0], of_mma[0][1])
    seen = set()
    for thread in range(128):
        for element in range(16 // wide.bytes):
            at = fragment.coordinate(thread, element)
            assert at == registers.held_by(thread, element, kind)
            seen.add(at)
    assert len(seen) == 64 * 32 // wide.bytes


@settings(max_examples=20)
@given(
    pair=st.sampled_from(PAIRS),
    n=st.integers(1, 32).map(lambda x: 8 * x),
    swizzle=st.sampled_from([32, 64, 128]),
    transposed=st.booleans(),
)
def test_what_the_rules_admit_multiplies_from_registers(
    pair: tuple[str, str], n: int, swizzle: int, transposed: bool
) -> None:
    kinds = dtype(pair[0]), dtype(pair[1])
    transposed = transposed and kinds[0].bits == 16
    columns = n if transposed else 0
    assume(columns * 2 % swizzle == 0 and (transposed or n * swizzle % (128 * kinds[1].bytes) == 0))
    instruction = isa.WgmmaRegisters(symbol("n"))
    assume(evaluate(instruction.type_rules(*kinds)[0].condition, {"n": n}))
    made = registers.specimen("admitted", n, pair, swizzle, transposed=transposed, columns=columns)
    assert refused_by_emulator(made) == ""
    assert refused_by_assembler(made) == ""
