"""The emulator accepts an instruction for a target if and only if the assembler does."""

from __future__ import annotations

import random

import pytest
from instruction_bench import module
from spellings import module_of, spell

from tinygpu.ptx.emulator import PtxSyntaxError, emulate
from tinygpu.ptx.emulator.forms import FORM_CLASSES, Form, expand, forms_of
from tinygpu.ptx.emulator.source.linking import read_modules
from tinygpu.ptx.emulator.source.targets import has

VERSION = "9.2"
TARGETS = (
    "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103f", "sm_103a", "sm_110f",
    "sm_110a", "sm_120", "sm_120f", "sm_120a", "sm_121a",
)  # fmt: skip
assembler = pytest.importorskip("tinygpu.ptx.assembling.assembler")


def assembles(text: str, target: str) -> bool:
    try:
        assembler.assemble(text, target)
    except assembler.AssemblerUnavailable:
        pytest.skip("no assembler here")
    except assembler.AssemblerError as refused:
        if "unsupported .version" in str(refused).lower():
            pytest.skip("this assembler is older than the forms")
        return False
    return True


def accepts(text: str) -> bool:
    try:
        read_modules((text,))
    except PtxSyntaxError:
        return False
    return True


def refused(instructions: list[str], target: str) -> list[str]:
    """Those that the assembler refuses; as most are taken, many are assembled at once, and halved where one is not."""
    if not instructions or assembles(module_of("\n".join(instructions), target, VERSION), target):
        return []
    if len(instructions) == 1:
        return instructions
    half = len(instructions) // 2
    return [*refused(instructions[:half], target), *refused(instructions[half:], target)]


def differ(forms: list[Form], targets: int, spellings: int | None = None, seed: int = 0) -> list[str]:
    """Spellings and targets about which the two disagree: of so many targets, and of so many spellings of a form."""
    rng = random.Random(seed)
    taken: dict[str, list[str]] = {target: [] for target in TARGETS}
    found = []
    for form in forms:
        every = expand(form.template)
        for short in rng.sample(every, min(spellings or len(every), len(every))):
            instruction = spell(short)
            for target in rng.sample(TARGETS, targets):
                text = module_of(instruction, target, VERSION)
                if accepts(text):
                    taken[target].append(instruction)
                elif assembles(text, target):
                    found.append(f"{instruction} for {target} is refused here")
    for target, instructions in taken.items():
        found += [f"{text} for {target} is taken here" for text in refused(instructions, target)]
    return found


@pytest.mark.end_to_end
def test_targets_are_accepted_as_the_assembler_accepts_them() -> None:
    """A sample: of the forms that not every target has, one in four."""
    forms = [form for name in FORM_CLASSES for form in forms_of(name) if form.target != "sm_80"]
    assert differ(random.Random(2).sample(forms, len(forms) // 4), 4, spellings=1, seed=2) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORM_CLASSES)
def test_every_spelling_is_accepted_for_the_targets_for_which_it_assembles(name: str) -> None:
    assert differ(list(forms_of(name)), len(TARGETS)) == []


def test_families_and_architectures() -> None:
    assert [t for t in TARGETS if has(t, "100f")] == ["sm_100f", "sm_100a", "sm_103f", "sm_103a"]
    assert [t for t in TARGETS if has(t, "100a")] == ["sm_100a"]
    assert [t for t in TARGETS if has(t, "103f")] == ["sm_103f", "sm_103a"]
    assert has("sm_101a", "110f"), "sm_101 was renamed"


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_120a"])
def test_a_refusal_names_instruction_and_target(target: str) -> None:
    name = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
    text = module(f".reg .b32 %r1;\n{name} [%r1], 32;\nret;", [], target=target)
    with pytest.raises(PtxSyntaxError) as refused:
        emulate(text, grid=1, block=32, args=[])
    assert str(refused.value) == (
        f"PTX line 8, column 1: `{name}` needs sm_100f/a or sm_110f/a, but .target is {target}"
    )
