"""The oldest target and the lowest .version that an instruction states: it assembles with them, and not with less."""

import pytest

from tinygpu.language.instruction import Elementwise
from tinygpu.ptx.cards import cards, refused_by_assembler, refused_variants
from tinygpu.ptx.cards.evidence.elementwise import statement
from tinygpu.ptx.cards.evidence.mma import specimen
from tinygpu.ptx.cards.specimen import TARGETS, Card, compute_capability
from tinygpu.ptx.isa import alu, cvt, special
from tinygpu.ptx.isa.cvt import CONVERSIONS, Cvt
from tinygpu.ptx.isa.elementwise import Arithmetic
from tinygpu.ptx.isa.mma import SHAPES, Shape
from tinygpu.ptx.lowering.lower import VERSIONS

pytest.importorskip("cuda.bindings", reason="judging needs the assembler")

# The versions of the PTX ISA up to the one that the oldest supported assembler reads.
ISAS = [(7, minor) for minor in range(9)] + [(8, minor) for minor in range(9)] + [(9, 0)]
LOWEST = {compute_capability(target): isa for target, isa in TARGETS}


def classes(module: object) -> list[type[Arithmetic]]:
    found = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Arithmetic) and v.spelling]
    return [c for c in found if c.__module__ == module.__name__]  # type: ignore[attr-defined]


ARITHMETIC: list[Elementwise] = [
    form for module in (alu, special, cvt) for c in classes(module) for kind in c.spelling for form in c.forms(kind)
]
ALL: list[Elementwise] = [*ARITHMETIC, *(Cvt(origin, to) for origin, to in CONVERSIONS)]


def module_version(target: int, isa: tuple[int, int]) -> tuple[int, int]:
    """The .version that lowering states for one instruction."""
    return max(VERSIONS[max(t for t in VERSIONS if t <= target)], isa)


def test_the_targets_and_versions_are_those_of_lowering() -> None:
    assert {cc: VERSIONS[cc] for cc in LOWEST} == LOWEST


def test_every_elementwise_class_is_tried() -> None:
    assert len({type(i).__name__ for i in ALL}) >= 32


@pytest.mark.parametrize("target", sorted({i.target for i in ALL}))
def test_elementwise_instructions_assemble_with_what_they_state(target: int) -> None:
    for isa in sorted({i.isa for i in ALL if i.target == target}):
        texts = [statement(i) for i in ALL if (i.target, i.isa) == (target, isa)]
        assert refused_variants(texts, f"sm_{max(target, 80)}", module_version(max(target, 80), isa)) == {}


@pytest.mark.parametrize("instruction", [i for i in ALL if i.target > 80], ids=lambda i: f"{i.label} to {i.types()[1]}")
def test_younger_instructions_do_not_exist_on_the_target_before(instruction: Elementwise) -> None:
    before = max(t for t in VERSIONS if t < instruction.target)
    refused = refused_variants([statement(instruction)], f"sm_{before}", (9, 0))
    assert f"requires .target sm_{instruction.target} or higher" in refused[0]


def beyond_the_lowest(instruction: Elementwise) -> bool:
    """Whether a module for its target could state less than the instruction does."""
    return instruction.isa > module_version(max(instruction.target, 80), (0, 0))


BEYOND = [i for i in ALL if beyond_the_lowest(i)]


@pytest.mark.parametrize("instruction", BEYOND, ids=lambda i: f"{i.label} to {i.types()[1]}")
def test_the_stated_version_is_the_lowest(instruction: Elementwise) -> None:
    before = ISAS[ISAS.index(instruction.isa) - 1]
    assert refused_variants([statement(instruction)], f"sm_{max(instruction.target, 80)}", before)


@pytest.mark.parametrize("shape", SHAPES, ids=[f"{s.text} {s.types[0]}" for s in SHAPES])
def test_shapes_of_mma_state_their_oldest_target_and_lowest_version(shape: Shape) -> None:
    made = specimen(shape)
    assert refused_by_assembler(made) == ""
    statements = [line for line in made.statements if line.startswith("mma")]
    stated = max(shape.isa, VERSIONS[89]) if shape.target == 89 else shape.isa
    assert refused_variants(statements, f"sm_{shape.target}", stated) == {}
    older = {75: None, 80: 75, 89: 87}[shape.target]
    if older is not None:
        assert "requires .target" in refused_variants(statements, f"sm_{older}", (9, 0))[0]
    if shape.isa > (7, 0):
        before = ISAS[ISAS.index(shape.isa) - 1]
        assert "requires PTX ISA" in refused_variants(statements, f"sm_{shape.target}", before)[0]


@pytest.mark.parametrize("card", cards(), ids=lambda c: c.name)
def test_examples_state_the_lowest_version_that_takes_them(card: Card) -> None:
    example = card.example
    assert f".version {'.'.join(map(str, module_version(example.target, example.isa)))}\n" in example.ptx
