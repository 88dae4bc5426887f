"""Spellings of instructions: what the assembler accepts has semantics, or is refused by name before anything runs."""

from __future__ import annotations

import pytest
from spellings import expand, files, module_of, spell, templates

from tinygpu.ptx.emulator import EmulationFault, UnsupportedInstruction, emulate

# Accepted by the assembler, and refused here with a sentence.
UNSUPPORTED = {
    "fma.rn.oob(|.relu).(f16|bf16) h,h,h,h": "which NaN marks an element out of bounds is not documented",
    "fma.rn.oob(|.relu).(f16x2|bf16x2) r,r,r,r": "which NaN marks an element out of bounds is not documented",
    "brkpt": "no debugger is attached",
}
TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
# The newest conversions need it.
VERSION = "9.3"


def compiles(text: str) -> str:
    """ "" where the emulator runs a spelling (to its end, or to a fault of the registers that hold zero)."""
    try:
        emulate(module_of(text, "sm_100a", "9.0"), grid=1, block=32, args=[0], check=False, step_limit=50)
    except EmulationFault:
        return ""
    except UnsupportedInstruction as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("name", files())
def test_every_spelling_has_semantics_or_is_refused_by_name(name: str) -> None:
    for template in templates(name):
        for short in expand(template):
            text = spell(short)
            reason = UNSUPPORTED.get(template)
            got = compiles(text)
            if reason is None:
                assert not got, text
            else:
                tail = f": {reason}" if reason else ""
                opcode = text.rstrip(";").split(" ")[0]
                assert got == f"PTX line 12: the emulator has no semantics for `{opcode}`{tail}"


@pytest.mark.slow
@pytest.mark.parametrize("name", files())
def test_the_assembler_accepts_most_spellings_of_each_template(name: str) -> None:
    """The corpus is PTX: of each template the assembler of some target accepts at least one spelling."""
    assembler = pytest.importorskip("tinygpu.ptx.assembler")
    for template in templates(name):
        accepted = False
        for short in expand(template):
            for target in TARGETS:
                try:
                    assembler.assemble(module_of(spell(short), target, VERSION), target)
                except assembler.AssemblerUnavailable:
                    pytest.skip("no assembler here")
                except assembler.AssemblerError:
                    continue
                accepted = True
                break
            if accepted:
                break
        assert accepted, template
