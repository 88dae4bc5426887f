"""What asynchronous work reads or overwrites was written by several warps at several times: each must be ordered.

Words of shared memory are written by three warps, in rounds; some of the warps meet warp 0 after the first round, and
warp 0 then starts a bulk copy out of these words, or into them. The copy races exactly if some word of it was written
by a warp that did not come, or again after the meeting. Neighbouring words have the same writer, or the same moment, or
neither.
"""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import emulate

WORDS = 48
# The number of no warp.
NOBODY = 4
BODY = """
.reg .pred %p, %q, %done; .reg .b32 %r<16>; .reg .b64 %rd<4>; .shared .align 128 .b8 s[{bytes}];
.shared .align 8 .b64 bar;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [owners]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r3, s;
mov.u32 %r4, bar; mov.u32 %r9, 0;
setp.ne.u32 %p, %r1, 0; @!%p mbarrier.init.shared::cta.b64 [%r4], 1;
and.b32 %r5, %r1, 31; setp.ne.u32 %p, %r5, 0;
bar.sync 0;
ROUND:
mov.u32 %r6, 0;
@%p bra MEET;
WORD:
// A word is written by the warp that a table names for this round.
mad.lo.u32 %r7, %r9, {words}, %r6; mul.wide.u32 %rd3, %r7, 4; add.u64 %rd3, %rd2, %rd3; ld.global.u32 %r8, [%rd3];
setp.eq.u32 %q, %r8, %r2; mad.lo.u32 %r10, %r6, 4, %r3; add.u32 %r11, %r9, %r6;
@%q st.shared.u32 [%r10], %r11;
add.u32 %r6, %r6, 1; setp.lt.u32 %q, %r6, {words}; @%q bra WORD;
MEET:
bar.warp.sync 0xffffffff;
setp.eq.u32 %q, %r9, 1; @%q bra OVER;
mov.u32 %r9, 1;
shl.b32 %r12, 1, %r2; and.b32 %r12, %r12, {comes}; setp.eq.u32 %q, %r12, 0; @%q bra ROUND;
fence.proxy.async.shared::cta;
bar.sync 1, {threads};
setp.ne.u32 %q, %r2, 0; @%q bra ROUND;
@%p bra OVER;
add.u32 %r3, %r3, {first};
{copy}
OVER:
bar.sync 2;
ret;
"""
OUT = """
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], {size};
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""
INTO = """
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {size};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], {size}, [%r4];
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %done, [%r4], 0; @!%done bra AGAIN;
"""


def races(seed: int, copy: str, body: str = BODY) -> tuple[bool, bool]:
    """(whether the copy must race, whether it was found to)."""
    rng = np.random.default_rng(seed)
    comes = [0, *sorted(rng.choice([1, 2, 3], int(rng.integers(1, 4)), replace=False).tolist())]
    owners = np.full((2, WORDS), NOBODY)
    owners[0] = rng.choice(comes[1:], WORDS) if rng.integers(2) else comes[1]
    first, size = 4 * int(rng.integers(WORDS // 4 - 4)), 4 * int(rng.integers(1, 5))
    inside = np.arange(first, first + size)
    # Sometimes one word, seldom the first, is written by who does not come, or once more afterwards.
    absent = [w for w in (1, 2, 3) if w not in comes]
    odd = int(rng.choice(inside[1:])) if rng.integers(3) else int(rng.integers(WORDS))
    if absent and rng.integers(2):
        owners[0, odd] = absent[0]
    elif rng.integers(2):
        owners[1, odd] = again = int(rng.choice([1, 2, 3]))
        # who does not come is not ordered after the first writer either, and their race would be none of the copy's
        owners[0, odd] = owners[0, odd] if again in comes else NOBODY
    wrong = bool(np.isin(owners[0, inside], absent).any() or (owners[1, inside] != NOBODY).any())
    text = body.replace("{copy}", copy).replace("{comes}", str(sum(1 << w for w in comes)))
    text = text.replace("{threads}", str(32 * len(comes))).replace("{words}", str(WORDS))
    text = text.replace("{first}", str(4 * first)).replace("{size}", str(4 * size)).replace("{bytes}", str(4 * WORDS))
    report = emulate(
        module(text, [".param .u64 x", ".param .u64 owners"]), grid=1, block=128,
        args=[np.zeros(64, np.uint32), owners.astype(np.uint32)], check="collect", seed=seed,
    )  # fmt: skip
    assert {fault.kind for fault in report.faults} <= {"race"}
    return wrong, bool(report.faults)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("copy", [OUT, INTO], ids=["out", "into"])
@pytest.mark.parametrize("seed", [*range(16), *(pytest.param(k, marks=pytest.mark.slow) for k in range(16, 200))])
def test_a_copy_races_exactly_if_one_of_its_words_is_not_ordered(seed: int, copy: str) -> None:
    wrong, found = races(seed, copy)
    assert found == wrong


@pytest.mark.parametrize("seed", range(3))
def test_without_a_proxy_fence_every_copy_out_of_them_races(seed: int) -> None:
    assert "fence.proxy.async.shared::cta;" in BODY
    assert races(seed, OUT, BODY.replace("fence.proxy.async.shared::cta;", ""))[1]


def test_the_draws_have_both() -> None:
    assert {races(seed, OUT)[0] for seed in range(16)} == {True, False}
