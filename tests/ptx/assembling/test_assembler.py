"""Assembling by nvJitLink: figures, refusals in full text, targets, and workers that die."""

import json
import os
import pickle
import re
import subprocess
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.ptx.assembling import assembler
from tinygpu.ptx.assembling.assembler import (
    AssemblerError,
    AssemblerUnavailable,
    Assembly,
    Fault,
    assemble,
    cannot_run,
    entry_names,
    instruction_above,
)
from tinygpu.ptx.assembling.pool import AssemblyJob, assemble_many
from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.faults import PtxSyntaxError

pytest.importorskip("cuda.bindings.nvjitlink", reason="the CUDA wheels exist for Linux and Windows only")

# `.version` per target, as low as the target allows (PTX ISA, release notes).
VERSIONS = {
    "sm_80": "7.0",
    "sm_86": "7.1",
    "sm_89": "8.1",
    "sm_90": "7.8",
    "sm_90a": "8.0",
    "sm_100a": "8.6",
    "sm_120": "8.7",
}


def kernel(
    target: str = "sm_80", body: str = "", directives: str = "", smem_bytes: int = 0, version: str | None = None
) -> str:
    shared = f"\n  .shared .align 16 .b8 tile[{smem_bytes}];" if smem_bytes else ""
    return f""".version {version or VERSIONS[target]}
.target {target}
.address_size 64

.visible .entry k(.param .u64 p, .param .u32 n)
{directives}
{{{shared}
  .reg .u64 %a; .reg .f32 %f<201>; .reg .u32 %r<4>; .reg .pred %q;
  ld.param.u64 %a, [p];
{body}
  ret;
}}
"""


def live_values(count: int) -> str:
    """`count` loads that must all stay live: each sum needs two of them, and every store comes after every load."""
    loads = [f"  ld.volatile.global.f32 %f{i}, [%a+{4 * i}];" for i in range(count)]
    sums = [f"  add.f32 %f{i}, %f{i}, %f{i * 7 % count};" for i in range(count)]
    stores = [f"  st.volatile.global.f32 [%a+{4 * i}], %f{i};" for i in range(count)]
    return "\n".join(loads + sums + stores)


# one instruction that each target has and its elders lack
NATIVE = {
    "sm_80": "  cp.async.commit_group;",
    "sm_86": "  cp.async.commit_group;",
    "sm_89": "  .reg .b16 %h; cvt.rn.satfinite.e4m3x2.f32 %h, %f1, %f2; st.global.b16 [%a], %h;",
    "sm_90": "  barrier.cluster.arrive; barrier.cluster.wait;",
    "sm_90a": "  wgmma.fence.sync.aligned;",
    "sm_100a": "  tcgen05.fence::before_thread_sync;",
    "sm_120": "  .reg .b64 %d; .reg .b64 %e; cp.async.commit_group;",
}


@pytest.mark.parametrize("target", VERSIONS)
def test_each_target_gives_an_elf_with_its_figures(target: str) -> None:
    body = NATIVE[target] + "\n  ld.global.f32 %f1, [%a];\n  bar.sync 0;\n  st.shared.f32 [tile], %f1;"
    assembly = assemble(kernel(target, body, ".maxntid 128, 1, 1", smem_bytes=4096), target)
    assert assembly.cubin[:4] == b"\x7fELF"
    assert assembly.target == target
    assert 1 <= assembly.registers <= 255
    assert (assembly.spill_store_bytes, assembly.spill_load_bytes, assembly.stack_bytes) == (0, 0, 0)
    assert assembly.static_smem_bytes == 4096
    assert assembly.barriers == 1
    assert assembly.warnings == ()
    assert not assembly.spills


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_a_kernel_that_spills_says_so(target: str) -> None:
    free = assemble(kernel(target, live_values(180)), target)
    tight = assemble(kernel(target, live_values(180), ".maxnreg 32"), target)
    assert free.registers > 180
    assert not free.spills
    assert tight.registers == 32
    assert tight.spills
    # 180 live values do not fit into 32 registers: at least 148 of 4 bytes are written and read back
    assert tight.spill_store_bytes >= 148 * 4
    assert tight.spill_load_bytes >= 148 * 4
    assert tight.stack_bytes > 0


@pytest.mark.parametrize(("budget", "spills"), [(232, False), (40, True)])
def test_spills_are_those_under_the_largest_register_budget(budget: int, spills: bool) -> None:
    """384 threads leave 168 registers for each, and one role has more, which linking ignores."""
    body = f"setmaxnreg.inc.sync.aligned.u32 {budget};\n{live_values(190)}"
    found = assemble(kernel("sm_90a", body, ".reqntid 384, 1, 1\n.minnctapersm 1"), "sm_90a")
    assert found.spills is spills
    assert found.registers == 168


@pytest.mark.parametrize(("budget", "spills"), [(232, False), (40, True)])
def test_the_figures_of_a_kernel_with_budgets_are_those_of_a_second_link(
    budget: int, spills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where budgets are ignored nothing is linked again, and nothing else is said of the kernel."""
    body = f"setmaxnreg.inc.sync.aligned.u32 {budget};\n{live_values(190)}"
    text = kernel("sm_90a", body, ".reqntid 384, 1, 1\n.minnctapersm 1")
    found = assemble(text, "sm_90a")
    assert not assembler._links_budgets("8.0", "sm_90a"), "if it did, there would be machine code to give to a driver"
    monkeypatch.setattr(assembler, "_links_budgets", lambda version, target: True)
    twice = assemble(text, "sm_90a")
    assert found.loadable is twice.loadable is None
    linked = ("cubin", "warnings", "log", "one_budget")
    figures = ({k: v for k, v in a.to_json().items() if k not in linked} for a in (found, twice))
    assert next(figures) == next(figures)


def test_a_register_limit_is_kept_and_is_the_same_as_maxnreg() -> None:
    limited = assemble(kernel(body=live_values(120)), "sm_80", max_registers=40)
    written = assemble(kernel(body=live_values(120), directives=".maxnreg 40"), "sm_80")
    assert limited.registers == written.registers == 40
    assert limited.spill_store_bytes == written.spill_store_bytes > 0


@pytest.mark.parametrize("directive", [".maxntid 128, 1, 1", ".reqntid 128, 1, 1", ".maxnreg 64"])
def test_a_register_limit_that_would_be_ignored_is_refused(directive: str) -> None:
    name = directive.split()[0]
    with pytest.raises(ValueError) as refused:
        assemble(kernel(directives=directive), "sm_80", max_registers=32)
    assert str(refused.value) == (
        f"max_registers=32 would be ignored, because the PTX states {name}; write .maxnreg 32 into the PTX instead"
    )


@pytest.mark.parametrize("limit", [0, 23, 256])
def test_a_register_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ValueError) as refused:
        assemble(kernel(), "sm_80", max_registers=limit)
    assert str(refused.value) == f"max_registers is 24 to 255 per thread, not {limit}"


def test_figures_of_functions_that_are_called_count_for_the_kernel() -> None:
    function = """.noinline .func (.param .f32 r) twice(.param .f32 x)
{
  .local .align 8 .b8 scratch[128];
  .reg .f32 %f<2>; .reg .u32 %i; .reg .u32 %j;
  ld.param.f32 %f0, [x];
  cvt.rzi.u32.f32 %j, %f0;
  and.b32 %j, %j, 31;
  mov.u32 %i, scratch;
  mad.lo.u32 %i, %j, 4, %i;
  st.local.f32 [%i], %f0;
  st.local.f32 [scratch], %f0;
  ld.local.f32 %f1, [%i+32];
  st.param.f32 [r], %f1;
  ret;
}
"""
    call = "  { .param .f32 i; .param .f32 o; st.param.f32 [i], %f1; call (o), twice, (i); ld.param.f32 %f2, [o]; }"
    ptx = kernel(body=f"  ld.global.f32 %f1, [%a];\n{call}\n  st.global.f32 [%a], %f2;")
    ptx = ptx.replace(".visible .entry", function.replace(".noinline ", "") + "\n.visible .entry")
    assembly = assemble(ptx, "sm_80")
    assert assembly.stack_bytes >= 128


def test_advice_and_warnings_are_kept_word_for_word() -> None:
    assembly = assemble(kernel(directives=".maxntid 128, 1, 1\n.minnctapersm 40"), "sm_80")
    assert assembly.warnings == ("Value of minnctapersm for entry k is out of range. minnctapersm will be ignored",)


def test_an_assembly_is_a_value_that_saves_and_prints() -> None:
    assembly = assemble(kernel(smem_bytes=64, body="  st.shared.f32 [tile], %f1;"), "sm_90a")
    assert Assembly.from_json(json.loads(json.dumps(assembly.to_json()))) == assembly
    assert str(assembly) == (
        f"sm_90a: {assembly.registers} registers, no spills, 0 B stack, 64 B static shared memory, 0 barriers, "
        f"{len(assembly.cubin)} B cubin"
    )
    spilled = assemble(kernel(body=live_values(100), directives=".maxnreg 32"), "sm_80")
    assert re.fullmatch(
        r"sm_80: 32 registers, \d+ B stored and \d+ B loaded by spills, \d+ B stack, "
        r"0 B static shared memory, 0 barriers, \d+ B cubin",
        str(spilled),
    )


# --- refusals -----------------------------------------------------------------------------------------------------


def refusal(ptx: str, target: str) -> AssemblerError:
    with pytest.raises(AssemblerError) as refused:
        assemble(ptx, target)
    return refused.value


def test_an_error_points_at_the_line_and_at_the_machines_instruction() -> None:
    body = """  // load: ld.global A[64x16] -> r0
  ld.global.f32 %f1, [%a];
  // multiply: fma r0
  fma.rn.f32 %f1, %f2, %f3;"""
    error = refusal(kernel(body=body), "sm_80")
    assert str(error) == (
        "[sm_80] PTX line 13, in 'multiply: fma r0': Arguments mismatch for instruction 'fma': "
        "fma.rn.f32 %f1, %f2, %f3;"
    )
    assert error.faults == (
        Fault("Arguments mismatch for instruction 'fma'", 13, "fma.rn.f32 %f1, %f2, %f3;", "multiply: fma r0"),
    )


def test_several_errors_are_told_from_top_to_bottom() -> None:
    body = "  // load: first\n  ld.global.f32 %f1, [%b];\n  // load: second\n  foo.bar %f1;"
    error = refusal(kernel(body=body), "sm_80")
    assert [(fault.line, fault.message, fault.instruction) for fault in error.faults] == [
        (11, "Illegal operand type to instruction 'ld'", "load: first"),
        (11, "Unknown symbol '%b'", "load: first"),
        (13, "Unknown modifier '.bar'", "load: second"),
        (13, "Not a name of any known instruction: 'foo'", "load: second"),
    ]
    assert str(error) == (
        "[sm_80] PTX line 11, in 'load: first': Illegal operand type to instruction 'ld': "
        "ld.global.f32 %f1, [%b]; (and 3 more)"
    )
    assert "ptxas application ptx input, line 13" in error.log


def test_an_error_before_any_comment_names_the_line_alone() -> None:
    error = refusal(kernel(version="6.0"), "sm_80")
    assert str(error) == "[sm_80] PTX line 2: PTX .version 6.0 does not support .target sm_80: .target sm_80"


def test_a_version_above_the_assemblers_is_refused() -> None:
    error = refusal(kernel(version="99.0"), "sm_80")
    assert re.fullmatch(
        r"\[sm_80\] PTX line 1: Unsupported \.version 99\.0; current version is '[\d.]+': \.version 99\.0", str(error)
    )


@pytest.mark.parametrize(
    ("stated", "target", "text"),
    [
        ("sm_90a", "sm_100a", "the PTX states .target sm_90a, which runs on sm_90a alone, not on sm_100a"),
        ("sm_90a", "sm_90", "the PTX states .target sm_90a, which runs on sm_90a alone, not on sm_90"),
        ("sm_90", "sm_80", "the PTX states .target sm_90, which runs on sm_90 and later, not on sm_80"),
        (
            "sm_100f",
            "sm_120",
            "the PTX states .target sm_100f, which runs on sm_100 and later of its family, not on sm_120",
        ),
    ],
)
def test_a_target_that_cannot_run_the_ptx_is_told(stated: str, target: str, text: str) -> None:
    ptx = kernel("sm_80", version="9.0").replace(".target sm_80", f".target {stated}")
    assert str(refusal(ptx, target)) == f"[{target}] {text}"
    assert cannot_run(stated, target) == text


ARCHITECTURES = [
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103",
    "sm_103a", "sm_103f", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
]  # fmt: skip


@given(st.sampled_from(ARCHITECTURES), st.sampled_from(ARCHITECTURES))
@settings(max_examples=200, deadline=None)
@example("sm_100f", "sm_103")
@example("sm_120f", "sm_121a")
@example("sm_103f", "sm_100f")
def test_the_note_on_targets_agrees_with_the_assembler(stated: str, target: str) -> None:
    ptx = kernel(version="9.0").replace(".target sm_80", f".target {stated}")
    try:
        assemble(ptx, target)
    except AssemblerError:
        assert cannot_run(stated, target) != ""
    else:
        assert cannot_run(stated, target) == ""


def test_too_much_static_shared_memory_is_told() -> None:
    error = refusal(kernel(body="  st.shared.f32 [tile], %f1;", smem_bytes=200_000), "sm_80")
    assert str(error) == "[sm_80] Entry function 'k' uses too much shared data (0x30d40 bytes, 0xc000 max)"


@pytest.mark.parametrize("ptx", ["", "\n", "// .entry k\n", ".version 8.0\n.target sm_80\n.address_size 64\n"])
def test_ptx_without_a_kernel_is_refused(ptx: str) -> None:
    assert str(refusal(ptx, "sm_80")) == "[sm_80] the PTX holds no kernel, and one is assembled at a time"


def test_ptx_with_two_kernels_is_refused() -> None:
    second = kernel().split(".address_size 64")[1].replace(" k(", " k2(")
    error = refusal(kernel() + second, "sm_80")
    assert str(error) == "[sm_80] the PTX holds 2 kernels (k, k2), and one is assembled at a time"


def test_unknown_targets_are_refused() -> None:
    assert str(refusal(kernel(), "sm_99")) == "[sm_99] this assembler does not know the target 'sm_99'"
    for target in ["banana", "compute_80", "sm_90b", "sm_", ""]:
        with pytest.raises(ValueError) as refused:
            assemble(kernel(), target)
        assert str(refused.value) == f"a target is written like 'sm_80' or 'sm_90a', not {target!r}"


def test_any_unicode_in_comments_and_text_is_either_assembled_or_refused_in_words() -> None:
    assert assemble(kernel(body="  // tile 16×8, α = ½"), "sm_80").registers > 0
    assert str(refusal(kernel(body="  // first\n  ½;"), "sm_80")) == (
        "[sm_80] PTX line 11, in 'first': Unexpected non-ASCII character encountered: ½;"
    )


def test_a_failure_leaves_the_next_kernel_unharmed() -> None:
    good = assemble(kernel(body=live_values(20)), "sm_80")
    for _ in range(20):
        refusal(kernel(body="  foo;"), "sm_80")
        assert assemble(kernel(body=live_values(20)), "sm_80").cubin == good.cubin


def test_the_instruction_is_the_nearest_whole_comment_above() -> None:
    lines = ["// a", "x;  // beside", "//", "  // ---- b ----", "y;"]
    assert instruction_above(lines, 1) == ""
    assert instruction_above(lines, 2) == "a"
    assert instruction_above(lines, 4) == "a"
    assert instruction_above(lines, 5) == "---- b ----"
    assert instruction_above(["// the whole kernel", ".visible .entry k()", "{", "x;"], 4) == ""
    assert instruction_above([".visible .entry k()", "{", "// load", "x;"], 4) == "load"


def test_kernel_names_are_read_outside_comments() -> None:
    assert entry_names("// .entry a\n/* .entry b */ .visible .entry c (.param .u32 x) { ret; } .entry d() {}") == (
        "c",
        "d",
    )


def test_errors_survive_pickling() -> None:
    error = refusal(kernel(body="  // one\n  foo;"), "sm_80")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.faults, copy.target, copy.log) == (str(error), error.faults, error.target, error.log)


@pytest.mark.parametrize("missing", ["cuda.bindings", "cuda.pathfinder"])
def test_without_the_cuda_wheels_one_sentence_says_so(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AssemblerUnavailable) as refused:
        assemble(kernel(), "sm_80")
    assert str(refused.value) == (
        "assembling needs the wheels cuda-python and nvidia-nvjitlink, which exist for Linux and Windows only; "
        "everything except assembling and timing works without them"
    )


def test_importing_the_assembler_loads_no_cuda() -> None:
    program = "import sys, tinygpu.ptx.assembling.pool; print([name for name in sys.modules if 'cuda' in name])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


# --- several at once ----------------------------------------------------------------------------------------------


class Bomb(str):
    """PTX that does something to the worker as soon as it is read there."""

    def __new__(cls, call: object, *arguments: object) -> "Bomb":
        bomb = super().__new__(cls, "")
        bomb.action = (call, arguments)  # type: ignore[attr-defined]
        return bomb

    def __reduce__(self) -> object:  # type: ignore[override]
        return self.action  # type: ignore[attr-defined]


def test_many_at_once_are_each_what_one_alone_is() -> None:
    counts = [5, 60, 17, 33, 8, 90, 2]
    items = [kernel(body=live_values(count)) for count in counts]
    results = assemble_many(items, "sm_80", processes=2)
    assert [result.cubin for result in results if isinstance(result, Assembly)] == [
        assemble(item, "sm_80").cubin for item in items
    ]


def test_a_refused_item_takes_its_own_place_only() -> None:
    good, bad = kernel(body=live_values(5)), kernel(body="  // step 1\n  foo;")
    results = assemble_many([good, bad, good, bad, good], "sm_80", processes=2)
    assert [type(result) for result in results] == [Assembly, AssemblerError, Assembly, AssemblerError, Assembly]
    assert str(results[1]) == str(results[3]) == str(refusal(bad, "sm_80"))


def test_a_worker_that_dies_costs_its_kernel_and_nothing_else() -> None:
    good = kernel(body=live_values(5))
    items = [good, Bomb(os.abort), good, Bomb(os._exit, 3), good, good]
    results = assemble_many(items, "sm_80", processes=2)
    assert [type(result) for result in results] == [
        Assembly, AssemblerError, Assembly, AssemblerError, Assembly, Assembly,
    ]  # fmt: skip
    assert str(results[1]) == "[sm_80] the assembler was ended by SIGABRT (Aborted) on this kernel"
    assert str(results[3]) == "[sm_80] the assembler ended with status 3 on this kernel"


@pytest.mark.end_to_end
def test_a_worker_that_does_not_come_back_is_ended() -> None:
    results = assemble_many([Bomb(time.sleep, 600), kernel()], "sm_80", processes=1, timeout_seconds=2)
    assert str(results[0]) == "[sm_80] the assembler needed more than 2 s on this kernel"
    assert isinstance(results[1], Assembly)


def test_what_the_assembler_prints_does_not_mix_with_the_answers() -> None:
    results = assemble_many([Bomb(eval, "print('noise', flush=True) or ''"), kernel()], "sm_80", processes=1)
    assert str(results[0]) == "[sm_80] the PTX holds no kernel, and one is assembled at a time"
    assert isinstance(results[1], Assembly)


def test_register_limits_are_per_item_and_bad_ones_are_raised() -> None:
    ptx = kernel(body=live_values(100))
    free, limited = assemble_many([ptx, AssemblyJob(ptx, 40)], "sm_80", processes=1)
    assert isinstance(free, Assembly)
    assert isinstance(limited, Assembly)
    assert limited.registers == 40 < free.registers
    with pytest.raises(ValueError) as refused:
        assemble_many([ptx, AssemblyJob(ptx, 7)], "sm_80")
    assert str(refused.value) == "max_registers is 24 to 255 per thread, not 7"


def test_no_items_need_no_process() -> None:
    assert assemble_many([], "sm_80") == []
    with pytest.raises(ValueError) as refused:
        assemble_many([kernel()], "sm_80", processes=0)
    assert str(refused.value) == "assembling needs at least one process, not 0"


STATEMENTS = (
    ".reg .b32 %r<4>", ".reg .b64 %rd<3>", "ld.param.u64 %rd1, [x]", "mov.u32 %r1, %tid.x", "add.s32 %r2, %r1, 5",
    "mul.wide.u32 %rd2, %r1, 4", "add.u64 %rd2, %rd1, %rd2", "st.global.u32 [%rd2], %r2", "ret",
)  # fmt: skip


@given(
    st.integers(0, len(STATEMENTS) - 1),
    st.lists(st.sampled_from(["", "// a word of ours", "/* two */", "  "]), min_size=len(STATEMENTS)),
)
@settings(max_examples=30)
def test_a_missing_semicolon_is_told_at_its_statement(missing: int, between: list[str]) -> None:
    """Whatever comments and empty lines follow it."""
    lines = [".version 7.0", ".target sm_80", ".address_size 64", ".visible .entry k(.param .u64 x)", "{"]
    for number, (statement, comment) in enumerate(zip(STATEMENTS, between, strict=False)):
        lines += [statement + ";" * (number != missing), comment]
    wanted = 6 + 2 * missing
    ptx = "\n".join([*lines, "}", ""])
    with pytest.raises(AssemblerError) as refused:
        assemble(ptx, "sm_80")
    assert (refused.value.faults[0].line, refused.value.faults[0].text) == (wanted, STATEMENTS[missing])
    with pytest.raises(PtxSyntaxError) as misread:
        emulate(ptx, grid=1, block=32, args=[0])
    assert str(misread.value).startswith(f"PTX line {wanted}, column ")
