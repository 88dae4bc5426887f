"""Forms of instructions: what the assembler accepts has semantics, or is refused by name before anything runs."""

from __future__ import annotations

import pytest
from spellings import module_of, spell

from tinygpu.ptx.emulator import EmulationFault, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.coverage import REFUSED_FORMS, supported_instructions
from tinygpu.ptx.emulator.forms import FORM_CLASSES, expand, forms_of

# The newest conversions need it.
VERSION = "9.4"
TARGETS = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103a", "sm_110a", "sm_120", "sm_120a")


def refusal(text: str, target: str) -> str:
    """Why the emulator has no semantics; "" where it runs (to its end, or to a fault of registers that hold zero)."""
    try:
        emulate(module_of(text, target, "9.0"), grid=1, block=32, args=[0], check=False, step_limit=50)
    except EmulationFault:
        return ""
    except UnsupportedInstruction as refused:
        return str(refused)
    return ""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FORM_CLASSES)
@pytest.mark.end_to_end
def test_every_form_has_semantics_or_is_refused_by_name(name: str) -> None:
    for form in forms_of(name):
        reasons = [why for start, why in REFUSED_FORMS.items() if form.name.startswith(start)]
        for short in expand(form.template):
            text = spell(short)
            opcode = text.rstrip(";").split(" ")[0]
            want = f"PTX line 12: the emulator has no semantics for `{opcode}`: {reasons[0]}" if reasons else ""
            assert refusal(text, form.target) == want


def test_every_opcode_has_its_forms() -> None:
    known = {opcode for name in FORM_CLASSES for form in forms_of(name) for opcode in form.opcodes}
    for kind, opcodes in supported_instructions().items():
        if kind != "control":
            assert set(opcodes) <= known, kind


@pytest.mark.slow
@pytest.mark.parametrize("name", FORM_CLASSES)
def test_the_assembler_accepts_every_form_from_its_target_on(name: str) -> None:
    """One spelling of each form (the last: it has most modifiers) assembles for its target and for none before."""
    assembler = pytest.importorskip("tinygpu.ptx.assembling.assembler")
    for form in forms_of(name):
        text = spell(expand(form.template)[-1])
        for target in TARGETS[: TARGETS.index(form.target) + 1]:
            accepted = True
            try:
                assembler.assemble(module_of(text, target, VERSION), target)
            except assembler.AssemblerUnavailable:
                pytest.skip("no assembler here")
            except assembler.AssemblerError as refused:
                if "unsupported .version" in str(refused).lower() or "Unsupported .version" in str(refused):
                    pytest.skip("this assembler is older than the forms")
                accepted = False
            assert accepted == (target == form.target), f"{text} for {target}"
