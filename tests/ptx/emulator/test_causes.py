"""The first fault names the cause: what is stuck, not who waits for it; and a race names both of its lines."""

from __future__ import annotations

import re

import numpy as np
import pytest
from bulk_bugs import BUGS as COPIES
from instruction_bench import module
from known_bad import CORPUS
from seeded_pipelines import BUGS as PIPELINES
from test_bulk_known_bad import launch

from tinygpu.ptx.emulator import ORDERS, EmulationFault, Order, emulate

# Thread 0 waits for something that never comes; then the warp, or all, must meet.
STUCK = """
.reg .pred %p, %done; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 8 .b64 bar; .shared .align 4 .b32 flag;
.shared .align 16 .b8 row[16]; mov.u32 %r7, row;
mov.u32 %r1, %tid.x; mov.u32 %r4, bar; mov.u32 %r5, flag; mov.u32 %r6, 0;
setp.ne.u32 %p, %r1, 0;
@!%p mbarrier.init.shared.b64 [%r4], 2;
@!%p st.shared.u32 [%r5], 0;
bar.sync 0;
@%p bra OVER;
mbarrier.arrive.shared.b64 _, [%r4];
AGAIN: {wait}
@!%done bra AGAIN;
OVER:
{meet}
ret;
"""
WAITS = (
    "mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0;",
    "mbarrier.test_wait.parity.shared.b64 %done, [%r4], 0;",
    "ld.volatile.shared.u32 %r3, [%r5]; setp.ne.u32 %done, %r3, 0;",
)
MEETINGS = (
    "bar.sync 1;", "barrier.sync.aligned 1, 64;", "bar.warp.sync 0xffffffff;",
    "shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffffffff;", "vote.sync.ballot.b32 %r2, %p, 0xffffffff;",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r7];",
)  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("meet", MEETINGS)
@pytest.mark.parametrize("wait", WAITS)
def test_what_is_stuck_comes_before_those_who_wait_for_it(wait: str, meet: str) -> None:
    text = module(STUCK.replace("{wait}", wait).replace("{meet}", meet), [])
    (line,) = (n for n, written in enumerate(text.split("\n"), 1) if written.startswith("AGAIN"))
    for order in ORDERS:
        with pytest.raises(EmulationFault) as first:
            emulate(text, grid=1, block=64, args=[], order=order)
        assert (first.value.kind, first.value.line) == ("deadlock", line)
        collected = emulate(text, grid=1, block=64, args=[], order=order, check="collect").faults
        assert (collected[0].kind, collected[0].line) == ("deadlock", line)


def test_a_deadlock_says_who_waits_for_the_rest_of_its_warp() -> None:
    text = module(STUCK.replace("{wait}", WAITS[0]).replace("{meet}", MEETINGS[0]), [])
    with pytest.raises(EmulationFault) as first:
        emulate(text, grid=1, block=64, args=[])
    assert first.value.sentence == (
        "deadlock: no thread can run. warp 0 waits on line 17 for parity 0 of an mbarrier: mbarrier 0x400 (initialised "
        "on line 12) has 0 completed phases, 1 of 2 arrivals; on line 20, barrier 1 has 32 of 64 threads (warps 1), "
        "and no other thread can run: warp 0 never comes. Every thread that the barrier counts must reach it; lanes of "
        "warp 0 wait on line 20 for the rest of their warp"
    )


# ---- races ----------------------------------------------------------------------------------------------------------


def races() -> list[tuple[str, str, str]]:
    """(name, text, sentence) of every race that the planted bugs of the corpora end in."""
    found = []
    for bug in CORPUS:
        if bug.kind == "race":
            with pytest.raises(EmulationFault) as caught:
                emulate(bug.text(True), grid=bug.grid, block=bug.block, args=bug.arguments(), **bug.options)
            found.append((bug.name, bug.text(True), caught.value.sentence))
    for copy in COPIES:
        try:
            launch(copy.broken(), (copy.bad_args or copy.args)(), copy, copy.orders[0])
        except EmulationFault as fault:
            if fault.kind == "race":
                found.append((copy.name, copy.broken(), fault.sentence))
    return found


ACCESSES = re.compile(r"(^|\s|;|\})(ld|st|red|atom|cp|mma|wgmma|tcgen05|mbarrier|ldmatrix|stmatrix|tensormap)[.a-z]")


def test_every_race_names_both_lines() -> None:
    """The fault has the one; the sentence the other, where an instruction stands that accesses memory."""
    found = races()
    assert len(found) > 15
    for name, text, sentence in found:
        if "in the same instruction" in sentence:
            continue
        (other,) = re.findall(r"\bline (\d+)", sentence)
        assert ACCESSES.search(text.split("\n")[int(other) - 1]), (name, sentence)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_race_in_global_memory_names_the_very_line(order: Order, seed: int) -> None:
    """Which of several accesses it was: warp 0 accesses one of four words, on a line each; then warp 1 does."""
    rng = np.random.default_rng(seed)
    mine, first, second = int(rng.integers(4)), *rng.choice(["ld", "st"], 2).tolist()
    access = {"ld": "ld.global.u32 %r2, [%rd1+{at}];", "st": "st.global.u32 [%rd1+{at}], %r1;"}
    second = second if first == "st" else "st"
    lines = "\n".join(access[first].replace("{at}", str(4 * k)) for k in range(4))
    body = (
        ".reg .pred %p, %one; .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x;\n"
        "setp.ge.u32 %p, %r1, 32; and.b32 %r3, %r1, 31; setp.ne.u32 %one, %r3, 0; add.u32 %r1, %r1, 7;\n"
        f"@%one bra END;\n@%p bra LATER;\n{lines}\nbra END;\nLATER:\n{access[second].replace('{at}', str(4 * mine))}\n"
        "END:\nret;"
    )
    text = module(body, [".param .u64 y"])
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=1, block=64, args=[np.zeros(8, np.uint32)], order=order, seed=seed)
    written = text.split("\n")
    lines_of = {
        n for n, line in enumerate(written, 1) if f"[%rd1+{4 * mine}]" in line and line.startswith((first, second))
    }
    said = {caught.value.line, *map(int, re.findall(r"\bline (\d+)", caught.value.sentence))}
    assert said == lines_of
    assert len(said) == 2


def test_pipelines_name_both_lines_too() -> None:
    for bug in PIPELINES:
        if bug.kind == "race":
            assert re.search(r"\bline \d+", bug.sentence), bug.sentence
