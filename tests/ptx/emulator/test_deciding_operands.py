"""No register is used without trace: an uninitialised one is a fault where it is used, or where its result is.

Forms of instructions run with one register uninitialised, and what they leave in registers is stored. What says nothing
of the result (hints, policies, the side that a selection does not take) may be uninitialised.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from instruction_bench import module
from spellings import registers_of, spell

from tinygpu.ptx.emulator import EmulationFault, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.forms import FORM_CLASSES, Form, expand, forms_of
from tinygpu.ptx.emulator.report import Report

REGISTER = re.compile(r"%([pbhrdfgq])\d+")
VALUES = {
    "p": "setp.eq.u32 {0}, 1, 1;", "b": "mov.b16 {{{0}, {0}}}, 257;", "h": "mov.b16 {0}, 1;", "r": "mov.b32 {0}, 1;",
    "d": "mov.b64 {0}, 1;", "f": "mov.f32 {0}, 0f3F800000;", "g": "mov.f64 {0}, 0d3FF0000000000000;",
    "q": "mov.b128 {0}, {{%d63, %d63}};",
}  # fmt: skip
STORES = {
    "p": "selp.u32 %r63, 1, 0, {0}; st.global.u32 [%d62], %r63;", "b": "st.global.b8 [%d62], {0};",
    "h": "st.global.b16 [%d62], {0};", "r": "st.global.b32 [%d62], {0};", "d": "st.global.b64 [%d62], {0};",
    "f": "st.global.b32 [%d62], {0};", "g": "st.global.b64 [%d62], {0};",
    "q": "mov.b128 {{%d60, %d61}}, {0}; st.global.b64 [%d62], %d60; st.global.b64 [%d62], %d61;",
}  # fmt: skip
# Registers without a say in what is computed: (instruction, which of its registers; all where no number stands). What
# is stored to memory of the CTA or the thread may be unknown there, too: what is read back is.
SILENT = (
    (r".*\.L2::cache_hint.*", (-1,)), (r"(prefetch|prefetchu|applypriority|discard|createpolicy|nanosleep)\b.*", ()),
    (r"(selp|slct)\..*", (2,)), (r"(and|or)\.pred .*", ()), (r"setp?(\.\w+)*\.(and|or)\..*", ()), (r"lop3\..*", ()),
    (r"st(\.\w+)*\.(shared|local)\b.*", ()), (r"(stmatrix|wmma\.store\S*\.shared)\b.*", ()),
    # fragments of f16 hold their elements twice, and one of them is multiplied; warpgroups have tests of their own
    (r"wmma\.mma(\.\w+)*\.(f16|f32)\.(f16|f32) .*", ()), (r"(wgmma|tcgen05)\..*", ()),
)  # fmt: skip
# What all that runs finds: bits of carries, and memory that has been written.
BEFORE_ALL = """
mov.b64 %d63, 1; mov.u32 %r63, %tid.x; add.cc.u32 %r62, %r63, 1;
mul.lo.u32 %r62, %r63, 8; mov.u32 %r61, sv; add.u32 %r62, %r62, %r61; st.shared.b64 [%r62], %d63;
""" + "".join(f"st.local.b64 [lv+{at}], %d63;\n" for at in range(0, 256, 8)) + """
bar.sync 0;
ld.param.u64 %d62, [p0]; add.u64 %d62, %d62, 4096;
"""  # fmt: skip


def place_of(instruction: str) -> str:
    """The variable that an instruction with one address works on; "" for the kernel's argument."""
    words = instruction.partition(" ")[0].split(".")
    if words[0] not in ("ld", "ldu", "st", "atom", "red"):
        return ""
    spaces = {"shared": "sv", "shared::cta": "sv", "shared::cluster": "sv", "local": "lv", "const": "cv"}
    return next((spaces[word] for word in words if word in spaces), "")


def run(instruction: str, target: str, unknown: str, stored: list[str], address: str = "") -> Report:
    """The form with all registers but one set, these stored behind it; addresses are of real memory, or as given."""
    inside = {m[0] for m in REGISTER.finditer(" ".join(re.findall(r"\[[^\]]*\]", instruction)))}
    lines = [BEFORE_ALL]
    for name in registers(instruction):
        place = address or place_of(instruction)
        if name == unknown:
            continue
        if name in inside and name[1] == "r":
            lines.append(f"mov.u32 {name}, {place or 'sv'};")
        elif name in inside and name[1] == "d":
            lines.append(f"mov.u64 {name}, {place};" if place else f"ld.param.u64 {name}, [p0];")
        else:
            lines.append(VALUES[name[1]].format(name))
    lines += [instruction, *(STORES[name[1]].format(name) for name in stored), "ret;"]
    head = ".global .align 32 .b8 gv[256]; .const .align 32 .b8 cv[256];"
    declared = f"{registers_of(instruction)}\n.shared .align 32 .b8 sv[256]; .local .align 32 .b8 lv[256];"
    text = module("\n".join([declared, *lines]), [".param .u64 p0"], target=target, head=head)
    text = text.replace(".version 8.5", ".version 9.2")
    return emulate(text, grid=1, block=32, args=[np.zeros(16384, np.uint32)], check="collect", step_limit=2000)


def registers(instruction: str) -> list[str]:
    return list(dict.fromkeys(m[0] for m in REGISTER.finditer(instruction)))


def noticed(report: Report) -> bool:
    """Parts of a wider store may be padding of a struct; they are told without being a fault."""
    return any(f.kind == "uninitialised" for f in report.faults) or any("padding" in str(a) for a in report.advisories)


def unnoticed(form: Form, rng: random.Random) -> list[str]:
    """Registers of one spelling that the instruction reads, and whose missing value nothing tells."""
    instruction = spell(rng.choice(expand(form.template)))
    target = "sm_90" if form.target == "sm_80" else form.target
    named, found = registers(instruction), []
    for pattern, which in SILENT:
        if re.fullmatch(pattern, instruction):
            silent = {named[n] for n in which if n < len(named)} if which else set(named)
            named = [name for name in named if name not in silent]
    for name in named:
        others = [other for other in registers(instruction) if other != name]
        try:
            if noticed(run(instruction, target, name, others)):
                continue
            # what the instruction writes has a value behind it
            if noticed(run(instruction, target, name, [*others, name])):
                found.append(f"{name} of {instruction}")
        except UnsupportedInstruction:
            return []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FORM_CLASSES)
def test_no_register_of_any_form_is_used_without_trace(name: str) -> None:
    rng = random.Random(name)
    found = [text for form in forms_of(name) for text in unnoticed(form, rng)]
    assert found == []


def test_no_register_of_some_forms_is_used_without_trace() -> None:
    rng = random.Random(5)
    forms = [form for name in ("atomics", "warp", "asynchronous") for form in forms_of(name)]
    assert [text for form in rng.sample(forms, 24) for text in unnoticed(form, rng)] == []


@pytest.mark.parametrize(
    "name", ["atomics", *(pytest.param(n, marks=pytest.mark.slow) for n in ("memory", "asynchronous"))]
)
def test_an_address_beyond_all_memory_is_a_fault_and_nothing_else(name: str) -> None:
    rng = random.Random(name)
    for form in forms_of(name):
        instruction = spell(rng.choice(expand(form.template)))
        try:
            run(instruction, "sm_90" if form.target == "sm_80" else form.target, "", [], address="0x700000")
        except UnsupportedInstruction:
            continue


# Each instruction, with {u} for the register, and what is said of it.
SENTENCES = {
    "cp.async.cg.shared.global [%r4],[%rd1],16,{u}; cp.async.wait_all;": "says how much cp.async reads",
    "cp.async.cg.shared.global [%r4],[%rd1],16,{p}; cp.async.wait_all;": "says how much cp.async reads",
    "atom.global.add.u32 %r5,[%rd1],{u};": "is what an atomic brings to memory",
    "atom.global.cas.b32 %r5,[%rd1],{u},3;": "is what an atomic brings to memory",
    "red.global.add.u32 [%rd1],{u};": "is what an atomic brings to memory",
    "mbarrier.init.shared::cta.b64 [%r4],{u};": "is a number of arrivals",
    "mbarrier.arrive.shared::cta.b64 _,[%r3],{u};": "is a number of arrivals",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r3],{u};": "is a number of bytes for an mbarrier",
    "shfl.sync.idx.b32 %r5,%r1,{u},31,-1;": "says which lanes exchange values",
    "shfl.sync.idx.b32 %r5,%r1,0,31,{u};": "says which lanes exchange values",
    "wmma.load.b.sync.aligned.col.m8n8k32.s4 {{%r5}},[%rd1],{u};": "says how far apart rows of a matrix are",
    "bar.warp.sync {u};": "says which lanes meet",
    "bar.sync {u},32;": "says what is done at a barrier",
    "bar.sync 1,{u};": "says what is done at a barrier",
    "bar.red.popc.u32 %r5,1,32,{p};": "says what is done at a barrier",
    "@{p} trap;": "decides whether this instruction executes",
}
BEFORE = """.reg .pred %p<4>; .reg .b32 %r<16>, %u; .reg .b64 %rd<4>;
.shared .align 128 .b8 s[512]; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r3, bar; mov.u32 %r9, s; mad.lo.u32 %r4, %r1, 16, %r9;
setp.ne.u32 %p1, %r1, 0; @!%p1 mbarrier.init.shared::cta.b64 [%r3], 32; bar.sync 0;
@%p1 bra USE; mov.u32 %u, 7; setp.eq.u32 %p2, %r1, %r1; USE:
"""


@pytest.mark.parametrize("text", SENTENCES)
def test_what_an_uninitialised_register_decides_is_said(text: str) -> None:
    """All lanes but one leave it uninitialised."""
    name = "%p2" if "{p}" in text else "%u"
    body = BEFORE + text.format(u="%u", p="%p2") + "\nret;"
    with pytest.raises(EmulationFault) as caught:
        emulate(module(body, [".param .u64 x"]), grid=1, block=32, args=[np.zeros(64, np.uint32)])
    assert (caught.value.kind, caught.value.sentence) == (
        "uninitialised",
        f"{name} {SENTENCES[text]}, but it holds a value that was never initialised: give it a value on every path to "
        "here",
    )
