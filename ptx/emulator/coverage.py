"""Which instructions have semantics, as a value and as the tables of the docs."""

from __future__ import annotations

import re

from tinygpu.ptx.emulator.forms import FORM_CLASSES, Form, forms_of
from tinygpu.ptx.emulator.instructions.floating import FLOATING
from tinygpu.ptx.emulator.instructions.integer import INTEGER
from tinygpu.ptx.emulator.instructions.refused import REFUSED
from tinygpu.ptx.emulator.run.operations import INSTRUCTION_TABLES

_CONTROL = (
    "alloca", "bra", "brx.idx", "call", "exit", "ret", "stackrestore", "stacksave", "trap", "brkpt", "bar", "barrier"
)  # fmt: skip
_CHOICE = re.compile(r"\(([^()]*)\)")
# Forms that assemble and have no semantics, by how they start, and why.
REFUSED_FORMS: dict[str, str] = {
    "fma.rn.oob": "which NaN marks an element out of bounds is not documented",
    "tcgen05.ld.red": "reductions while loading",
    "multimem": REFUSED["multimem"],
}


def supported_instructions() -> dict[str, tuple[str, ...]]:
    """Opcodes with semantics, by class; forms that they lack raise UnsupportedInstruction where they are executed."""
    result = {"integer": tuple(sorted(INTEGER)), "float": tuple(sorted(FLOATING))}
    for kind, table in INSTRUCTION_TABLES:
        # Names that start with % are the emulator's own: what calls of the system become.
        named = [name for name in table if not name.startswith("%")]
        result[kind] = tuple(sorted({*result.get(kind, ()), *named}))
    result["control"] = _CONTROL
    return result


def coverage_table() -> str:
    """The tables of docs/emulator.md: one a class, one row an opcode with its forms and the target each needs."""
    parts: list[str] = []
    for name, title in FORM_CLASSES.items():
        rows = _rows(forms_of(name))
        parts.append(f"**{title}**\n\n| instruction | forms |\n| --- | --- |")
        parts[-1] += "".join(f"\n| `{opcode}` | {text} |" for opcode, text in sorted(rows.items()))
    control = " ".join(f"`{name}`" for name in _CONTROL)
    parts.append(f"**control**\n\n{control}: calls, through registers too, recursion, tables of branches")
    parts.append("**refused by name, where they are executed**\n\n| form | from | why |\n| --- | --- | --- |")
    for form, why in refused_forms():
        parts[-1] += f"\n| `{_braces(form.name)}` | {form.target} | {why} |"
    textures = " ".join(f"`{name}`" for name in sorted(REFUSED) if name not in REFUSED_FORMS)
    parts.append(f"and all forms of {textures}: {REFUSED['tex']}")
    return "\n\n".join(parts)


def refused_forms() -> list[tuple[Form, str]]:
    """The forms that assemble and have no semantics, and why."""
    return [
        (form, why)
        for name in FORM_CLASSES
        for form in forms_of(name)
        for start, why in REFUSED_FORMS.items()
        if form.name.startswith(start)
    ]


def _rows(forms: tuple[Form, ...]) -> dict[str, str]:
    """Opcode to its forms, those of one target together, sm_80's first."""
    found: dict[str, dict[str, list[str]]] = {}
    for form in forms:
        if any(form.name.startswith(start) for start in REFUSED_FORMS):
            continue
        for opcode in form.opcodes:
            shown = f"`{_braces(form.modifiers) or opcode}`"
            listed = found.setdefault(opcode, {}).setdefault(form.target, [])
            if shown not in listed:
                listed.append(shown)
    order = {target: number for number, target in enumerate(("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100"))}
    return {
        opcode: "; ".join(
            ("" if target == "sm_80" else f"from {target}: ") + " ".join(shown)
            for target, shown in sorted(by_target.items(), key=lambda item: (order.get(item[0], 9), item[0]))
        )
        for opcode, by_target in found.items()
    }


def _braces(template: str) -> str:
    """Choices as {a,b}, since a bar would end a cell of the table; {.a}? may be left out.

    >>> _braces(".add(|.sat).(u32|s32)")
    '.add{.sat}?.{u32,s32}'
    """

    def choice(match: re.Match[str]) -> str:
        parts = match.group(1).split("|")
        kept = [part for part in parts if part]
        if len(kept) == 1 and len(parts) == 1:
            return kept[0]
        return "{" + ",".join(kept) + "}" + ("?" if "" in parts else "")

    return _CHOICE.sub(choice, template)
