"""Lanes of a warp together: shuffles, votes, reductions; divergence, reconvergence, and threads that wait in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import module, run_instruction
from numpy.typing import NDArray

from tinygpu.ptx.emulator import EmulationFault, emulate
from tinygpu.ptx.emulator.run import scheduler
from tinygpu.ptx.emulator.source.control_flow import EXIT, build_blocks
from tinygpu.ptx.emulator.source.syntax import Guard, Instruction, Label, RegisterOperand, Statement, SymbolOperand
from tinygpu.ptx.emulator.state.emulation import Order

words = st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32)


def shuffle(mode: str, lane: int, by: int, control: int) -> tuple[int, bool]:
    """(source lane, in range): the pseudo code of the manual, bit by bit."""
    amount, limit, segment = by & 31, control & 31, control >> 8 & 31
    top = lane & segment | limit & ~segment & 31
    bottom = lane & segment
    if mode == "up":
        j, inside = lane - amount, lane - amount >= top
    elif mode == "down":
        j, inside = lane + amount, lane + amount <= top
    elif mode == "bfly":
        j, inside = lane ^ amount, (lane ^ amount) <= top
    else:
        j = bottom | amount & ~segment & 31
        inside = j <= top
    return (j if inside else lane), inside


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["up", "down", "bfly", "idx"]), words, words, st.sampled_from([32, 16, 8, 4, 2, 1]))
def test_shfl_follows_the_pseudo_code(mode: str, values: list[int], amounts: list[int], width: int) -> None:
    control = (32 - width) << 8 | (0 if mode == "up" else 31)
    got, inside = run_instruction(
        f"shfl.sync.{mode}.b32 %d0|%d1, %a0, %a1, {control}, -1;",
        [np.array(values, np.uint32), np.array(amounts, np.uint32)], [np.uint32, np.bool_],
    )  # fmt: skip
    for lane in range(32):
        source, held = shuffle(mode, lane, amounts[lane], control)
        assert (int(got[lane]), bool(inside[lane])) == (values[source], held)


@settings(max_examples=25, deadline=None)
@given(words, st.lists(st.booleans(), min_size=32, max_size=32))
def test_votes_and_reductions_over_lanes_of_a_branch(values: list[int], choice: list[bool]) -> None:
    """Both sides of a branch use their own member masks, taken with a vote before it."""
    text = """
{ .reg .b32 %m, %n; .reg .pred %q, %u;
vote.sync.ballot.b32 %m, %a1, -1; not.b32 %n, %m; mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
@%a1 bra YES;
redux.sync.add.u32 %d0, %a0, %n; redux.sync.min.s32 %d1, %a0, %n; match.any.sync.b32 %d2, %a0, %n; activemask.b32 %d3;
bra DONE;
YES: redux.sync.xor.b32 %d0, %a0, %m; redux.sync.max.u32 %d1, %a0, %m; setp.gt.u32 %u, %a0, 100;
vote.sync.all.pred %q, %u, %m; selp.b32 %d2, 1, 0, %q; activemask.b32 %d3;
DONE: }
"""
    arrays = [np.array(values, np.uint32), np.array(choice, np.bool_)]
    got = [g.tolist() for g in run_instruction(text, arrays, [np.uint32] * 4)]
    yes = [v for v, c in zip(values, choice, strict=True) if c]
    no = [v for v, c in zip(values, choice, strict=True) if not c]
    mask = sum(1 << k for k, c in enumerate(choice) if c)
    folded = 0
    for v in yes:
        folded ^= v
    for lane, taken in enumerate(choice):
        if taken:
            want = [folded, max(yes), int(all(v > 100 for v in yes)), mask]
        else:
            same = sum(1 << k for k, v in enumerate(values) if v == values[lane] and not choice[k])
            least = min(v - (1 << 32) if v >> 31 else v for v in no) & 0xFFFFFFFF
            want = [sum(no) & 0xFFFFFFFF, least, same, ~mask & 0xFFFFFFFF]
        assert [g[lane] for g in got] == want


def test_elect_chooses_one_lane_of_the_mask() -> None:
    got, leader = run_instruction(
        "{ .reg .b32 %m; mov.b32 %m, 0xff0; mov.b32 %d0, 99; setp.ne.u32 %d1, 0, 0; .reg .pred %q;"
        "setp.ge.u32 %q, %a0, 4; setp.lt.and.u32 %q, %a0, 12, %q; @!%q bra L; elect.sync %d0|%d1, %m; L: }",
        [np.arange(32, dtype=np.uint32)], [np.uint32, np.bool_],
    )  # fmt: skip
    assert got.tolist() == [99] * 4 + [4] * 8 + [99] * 20
    assert leader.tolist() == [lane == 4 for lane in range(32)]


def test_nested_divergence_meets_again() -> None:
    """After each join all lanes of the warp execute together: activemask is full, and no shuffle is refused."""
    text = """
{ .reg .pred %p, %q; .reg .b32 %x;
and.b32 %x, %a0, 1; setp.eq.u32 %p, %x, 0; mov.b32 %d0, 0;
@%p bra EVEN;
setp.lt.u32 %q, %a0, 16; @%q bra LOW; add.u32 %d0, %d0, 1; bra J1; LOW: add.u32 %d0, %d0, 2; J1: activemask.b32 %d1;
bra J2;
EVEN: setp.lt.u32 %q, %a0, 8; @!%q bra J3; add.u32 %d0, %d0, 4; J3: activemask.b32 %d1;
J2: activemask.b32 %d2; shfl.sync.idx.b32 %d3, %d0, 1, 31, -1; }
"""
    lanes = np.arange(32, dtype=np.uint32)
    value, inner, outer, shuffled = run_instruction(text, [lanes], [np.uint32] * 4)
    assert value.tolist() == [(4 if k < 8 else 0) if k % 2 == 0 else (2 if k < 16 else 1) for k in range(32)]
    assert set(inner[::2]) == {0x55555555}
    assert set(inner[1::2]) == {0xAAAAAAAA}
    assert set(outer) == {0xFFFFFFFF}
    assert set(shuffled) == {2}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=64, max_size=64), st.integers(0, 40))
def test_loops_with_breaks_meet_behind_the_loop(trips: list[int], early: int) -> None:
    text = """
{ .reg .pred %p; mov.b32 %d0, 0;
L: setp.ge.u32 %p, %d0, %a0; @%p bra OUT; add.u32 %d0, %d0, 1; setp.eq.u32 %p, %d0, %a1; @%p bra OUT; bra L;
OUT: activemask.b32 %d1; }
"""
    arrays = [np.array(trips, np.uint32), np.full(64, early, np.uint32)]
    count, mask = run_instruction(text, arrays, [np.uint32, np.uint32])
    assert count.tolist() == [min(t, early) if early else t for t in trips]
    assert set(mask) == {0xFFFFFFFF}


HEAD = ".reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>; ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x;\n"


def run_flag(body: str, block: int = 64, **options: Any) -> NDArray[np.uint32]:
    memory = np.zeros(8, np.uint32)
    emulate(module(HEAD + body, [".param .u64 a"]), grid=1, block=block, args=[memory], **options)
    return memory


def test_special_registers_are_read_by_any_set_of_warps() -> None:
    """Warps 0, 1 and 5 go one way: rows that are no slice, whose registers are gathered."""
    body = """
shr.u32 %r2, %r1, 5; mov.u32 %r5, 0; setp.eq.u32 %p1, %r2, 5; setp.lt.or.u32 %p1, %r2, 2, %p1; @!%p1 bra END;
mov.u32 %r5, %tid.x; mov.u32 %r4, %laneid; mad.lo.u32 %r5, %r4, 1000, %r5;
END: mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; st.global.u32 [%rd2], %r5; ret;
"""
    memory = np.zeros(256, np.uint32)
    emulate(module(HEAD + body, [".param .u64 a"]), grid=1, block=256, args=[memory])
    assert memory.tolist() == [t + 1000 * (t % 32) if t // 32 in (0, 1, 5) else 0 for t in range(256)]


@pytest.mark.parametrize("waiter", [0, 40])
def test_a_thread_may_wait_for_a_flag_that_another_sets(waiter: int) -> None:
    """The waiter stands before (in the same warp, even) or after the setter in the text: both come through."""
    body = f"""
setp.eq.u32 %p1, %r1, {waiter}; @%p1 bra WAIT;
setp.eq.u32 %p2, %r1, 9; @!%p2 bra END; mov.u32 %r2, 5; st.release.gpu.global.u32 [%rd1], %r2; bra END;
WAIT: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.eq.u32 %p3, %r3, 0; @%p3 bra WAIT; st.global.u32 [%rd1+4], %r3;
END: ret;
"""
    assert run_flag(body).tolist()[:2] == [5, 5]


def test_lanes_that_got_turns_wait_at_a_shuffle_for_the_rest() -> None:
    """Lane 3 polls until lane 4 releases it; both then meet in a shuffle of the whole warp and at a barrier."""
    body = """
setp.ne.u32 %p1, %r1, 3; @%p1 bra OTHERS;
POLL: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.eq.u32 %p3, %r3, 0; @%p3 bra POLL; bra JOIN;
OTHERS: setp.ne.u32 %p2, %r1, 4; @%p2 bra JOIN; mov.u32 %r2, 1; st.release.gpu.global.u32 [%rd1], %r2;
JOIN: shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1; bar.sync 0; setp.eq.u32 %p1, %r1, 3; @%p1 st.global.u32 [%rd1+4], %r4;
ret;
"""
    assert run_flag(body).tolist()[:2] == [1, 2]


@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_waiting_for_a_flag_that_nobody_sets_is_a_deadlock(order: Order) -> None:
    with pytest.raises(EmulationFault) as caught:
        run_flag("L: ld.acquire.gpu.global.u32 %r3, [%rd1];\nsetp.eq.u32 %p3, %r3, 0; @%p3 bra L; ret;", order=order)
    assert caught.value.kind == "deadlock"
    polls = {"random": 513}.get(order, 257)
    assert caught.value.sentence == (
        f"deadlock: {polls} polls (line 8) changed no memory, and every thread is back where it was: what they wait "
        "for never comes"
    )


@pytest.mark.parametrize("polls", [3_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_counting_without_end_while_polling_is_a_deadlock_after_many_polls(
    polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scheduler._FRUITLESS_POLLS == 50_000
    monkeypatch.setattr(scheduler, "_FRUITLESS_POLLS", polls)
    with pytest.raises(EmulationFault) as caught:
        run_flag(
            "L: ld.acquire.gpu.global.u32 %r3, [%rd1];\nadd.u32 %r4, %r4, 1; setp.eq.u32 %p3, %r3, 0; @%p3 bra L; ret;"
        )
    assert caught.value.sentence == (
        f"deadlock: in {polls} polls (line 8) no thread changed any memory, so what they wait for never comes"
    )


COUNTED = """
mov.u32 %r4, 0;
L: ld.acquire.gpu.global.u32 %r3, [%rd1]; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3000;
setp.eq.and.u32 %p3, %r3, 0, %p1; @%p3 bra L; @!%p1 st.global.u32 [%rd1+4], %r4; ret;
"""
CLOCKED = """
mov.u32 %r2, %clock;
L: mov.u32 %r4, %clock; sub.u32 %r4, %r4, %r2; setp.lt.u32 %p1, %r4, 2000; mov.u32 %r4, 3000;
ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.eq.and.u32 %p3, %r3, 0, %p1; @%p3 bra L;
@!%p1 st.global.u32 [%rd1+4], %r4; ret;
"""


@pytest.mark.parametrize("body", [COUNTED, CLOCKED])
def test_polling_that_gives_up_by_itself_is_none(body: str) -> None:
    assert run_flag(body).tolist()[:2] == [0, 3000]


@pytest.mark.parametrize("rounds", [300, 1500, 6000])
def test_who_works_long_before_it_sets_the_flag_is_waited_for(rounds: int) -> None:
    """The pollers come first in the text, and are back where they were again and again before the flag is set."""
    body = f"""
setp.ge.u32 %p1, %r1, 1; @%p1 bra WAIT; mov.u32 %r2, 0; bra WORK;
WAIT: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.eq.u32 %p3, %r3, 0; @%p3 bra WAIT; st.global.u32 [%rd1+4], %r3; ret;
WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, {rounds}; @%p2 bra WORK; st.release.gpu.global.u32 [%rd1], %r2; ret;
"""
    assert run_flag(body).tolist()[:2] == [rounds, rounds]


def test_an_endless_loop_ends_at_the_step_limit() -> None:
    with pytest.raises(EmulationFault) as caught:
        run_flag("mov.u32 %r2, 0;\nL: add.u32 %r2, %r2, 1; bra L;", step_limit=1000)
    assert caught.value.sentence == (
        "no end after 1000 blocks (line 9): a loop waits for something that never happens, or step_limit is too low"
    )


# ---- the order of blocks ------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Successors of each block: one or two, or none (exit)."""
    count = draw(st.integers(1, 9))
    return [draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True)) for _ in range(count)]


def statements(graph: list[list[int]]) -> list[Statement]:
    p = RegisterOperand("%p", "%p", "pred")
    out: list[Statement] = []
    for block, targets in enumerate(graph):
        out.append(Label(f"B{block}", block + 1))
        out.append(Instruction("nop", (), (), (), None, block + 1, 1))
        for position, target in enumerate(targets):
            guard = Guard(p, False) if position == 0 and len(targets) == 2 else None
            out.append(Instruction("bra", (), (), (SymbolOperand(f"B{target}"),), guard, block + 1, 2))
        if not targets:
            out.append(Instruction("exit", (), (), (), None, block + 1, 2))
    return out


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_a_block_ranks_below_what_it_dominates_backwards(graph: list[list[int]]) -> None:
    """Where all paths from a to the exit pass b (b post-dominates a) and b is no header of a loop around a, b ranks
    above a: lanes that wait at b are not run before those that are still at a."""
    blocks = build_blocks(statements(graph), {})
    edges = [[t for t in block.targets if t != EXIT] for block in blocks]
    exits = [EXIT in block.targets for block in blocks]
    assert sorted(block.rank for block in blocks) == list(range(len(blocks)))

    def reaches_exit(start: int, without: int) -> bool:
        seen, stack = {start}, [start]
        while stack:
            node = stack.pop()
            if exits[node]:
                return True
            for target in edges[node]:
                if target != without and target not in seen:
                    seen.add(target)
                    stack.append(target)
        return False

    def reaches(start: int, goal: int) -> bool:
        seen, stack = set(), list(edges[start])
        while stack:
            node = stack.pop()
            if node == goal:
                return True
            if node not in seen:
                seen.add(node)
                stack.extend(edges[node])
        return False

    for a in range(len(blocks)):
        for b in range(len(blocks)):
            if a != b and reaches_exit(a, -2) and not reaches_exit(a, b) and not reaches(b, a):
                assert a < b


CHAIN = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry chain(.param .u64 turn)
{
    .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [turn];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MEET;
WAIT:
    ld.acquire.gpu.global.u32 %r3, [%rd1];
    setp.ne.u32 %p2, %r3, %r2;
    @%p2 bra WAIT;
MEET:
    bar.warp.sync 0xffffffff;
    @%p1 bra DONE;
    red.release.gpu.global.add.u32 [%rd1], 1;
DONE:
    ret;
}
"""


def test_a_complete_warp_goes_on_while_others_wait_for_their_lanes() -> None:
    # Each CTA's first lane waits for the CTA before it while the other lanes stand at bar.warp.sync.
    turn = np.zeros(1, np.uint32)
    assert emulate(CHAIN, grid=5, block=32, args=[turn]).faults == ()
    assert turn[0] == 5


LEADER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry leader(.param .u64 y)
{
    .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd;
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 5;
    mov.b32 %r1, 7;
    @%p0 bra END;
    shfl.sync.idx.b32 %r2|%p1, %r1, SOURCE, 31, -1;
    bar.warp.sync -1;
    ld.param.u64 %rd, [y];
    st.global.u32 [%rd], %r2;
END: BEFORE
    ret;
}
"""


def run_leader(source: str, before: str) -> int:
    """What lane 5 stores while its mates go to `before; ret`."""
    y = np.zeros(1, np.uint32)
    emulate(LEADER.replace("SOURCE", source).replace("BEFORE", before), grid=1, block=32, args=[y])
    return int(y[0])


def test_lanes_that_only_exit_are_not_waited_for() -> None:
    """nvcc compiles `if (!elected) return;` to a branch to ret: full member masks may still name those lanes."""
    assert run_leader("5", "") == 7


def test_lanes_that_exit_give_nothing() -> None:
    with pytest.raises(EmulationFault) as fault:
        run_leader("4", "")
    assert fault.value.sentence == (
        "stores a value that was never initialised to global address 0x100000000000: give the register or the memory "
        "it came from a value first"
    )


def test_lanes_with_more_to_do_than_their_exit_are_expected() -> None:
    with pytest.raises(EmulationFault) as fault:
        run_leader("5", "membar.cta;")
    assert fault.value.sentence == (
        "the member mask 0xffffffff of `shfl.sync.idx.b32` names lane 0, which does not execute it: name only lanes "
        "that get here together (executing: 0x00000020)"
    )
