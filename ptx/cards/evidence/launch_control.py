"""Evidence for cluster launch control: a question alone, a walk of clusters that take each other over, and twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinygpu.ptx.cards.specimen import Field, Specimen, Twin

_FIELDS = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
_EVERYWHERE = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all"
_ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1];"
_FREE = (
    "$free:",
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%s+24], %r6;",
    "@!%p4 bra $free;",
)
_COME = (
    "$come:",
    "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%s+16], %r5;",
    "@!%p4 bra $come;",
)
_TOGETHER = ("barrier.cluster.arrive;", "barrier.cluster.wait;")


def _made(title: str, lines: list[str], **more: Any) -> Specimen:
    facts: dict[str, Any] = {"target": 100, "isa": (8, 6), "specific": True} | more
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, _FIELDS, facts.pop("meaning"), **facts)


def asked(
    title: str, slot: int = 0, count: int = 16, wait: bool = True, again: bool = False, target: int = 100
) -> Specimen:
    """A grid of one cluster asks for another one's work: there is none, and the answer says so.

    count  bytes that are expected
    wait   whether the answer is waited for
    again  whether the first thread asks once more
    """
    once_more = (
        "@%p1 bra $end;",
        "fence.proxy.async.shared::cta;",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+32], 16;",
        _ASK,
        "$end:",
    )
    return _made(
        title,
        [
            ".reg .b128 %answer;",
            "setp.ne.u32 %p1, %t, 0;",
            "@%p1 bra $issued;",
            "mbarrier.init.shared.b64 [%s+32], 1;",
            "fence.proxy.async.shared::cta;",
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+32], {count};",
            f"add.u32 %r0, %s, {slot};",
            "add.u32 %r1, %s, 32;",
            _ASK,
            "$issued:",
            "bar.sync 0;",
            *(
                (
                    "$wait:",
                    "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%s+32], 0;",
                    "@!%p4 bra $wait;",
                )
                if wait
                else ()
            ),
            "ld.shared.b128 %answer, [%s];",
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %answer;",
            "ld.global.b32 %r2, [%x];",
            "@%p2 mov.b32 %r2, 0;",
            "st.global.b32 [%out], %r2;",
            *(once_more if again else ()),
        ],
        threads=128,
        smem_bytes=48,
        meaning=lambda x: x,
        target=target,
    )


def taken(
    title: str, told: int = 2, free: bool = True, come: bool = True, fence: bool = True, form: str = _EVERYWHERE,
    together: bool = True, specific: bool = True,
) -> Specimen:  # fmt: skip
    """Clusters of two CTAs double a part of x each, and those that run take over those that have not begun.

    told      CTAs in which an answer is expected
    free      whether who asks waits until the place is free
    come      whether an answer is waited for
    fence     whether who has read it fences that for the asynchronous proxy
    together  whether the CTAs of a cluster end together
    """
    return _made(
        title,
        [
            ".reg .b128 %answer;",
            "mov.u32 %r0, %cluster_ctarank;",
            "mov.u32 %r1, %ctaid.x;",
            "add.u32 %r2, %s, 16;",  # the answer has come
            "add.u32 %r3, %s, 24;",  # all have read it
            "setp.ne.u32 %p0, %t, 0;",
            "@%p0 bra $made;",
            "mbarrier.init.shared.b64 [%r2], 1;",
            "mbarrier.init.shared.b64 [%r3], 2;",  # the warps that read it, of both CTAs
            "fence.mbarrier_init.release.cluster;",
            "$made:",
            *_TOGETHER,
            "min.u32 %r4, %t, 1;",
            "mapa.shared::cluster.u32 %r4, %r2, %r4;",  # of each CTA, by lane
            "mapa.shared::cluster.u32 %r3, %r3, 0;",
            f"setp.lt.u32 %p1, %t, {told};",
            "mov.u32 %r5, 0;",
            "mov.u32 %r6, 1;",
            "$tile:",
            "setp.ne.u32 %p2, %r0, 0;",
            "@%p2 bra $asked;",
            *(_FREE if free else ()),
            "@%p1 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r4], 16;",
            f"@!%p0 {form}.b128 [%s], [%r2];",
            "$asked:",
            "ld.global.b32 %r7, [%x];",
            "add.f32 %r7, %r7, %r7;",
            "st.global.b32 [%out], %r7;",
            *(_COME if come else ()),
            "ld.shared.b128 %answer, [%s];",
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %answer;",
            "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r8, %answer;",
            "fence.proxy.async.shared::cta;" if fence else "",
            "bar.warp.sync -1;",
            "@!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];",
            "xor.b32 %r5, %r5, 1;",
            "xor.b32 %r6, %r6, 1;",
            "@!%p3 bra $done;",
            "add.u32 %r8, %r8, %r0;",  # the CTA in whose place this one goes on
            "sub.u32 %r9, %r8, %r1;",
            "mov.u32 %r1, %r8;",
            "mul.wide.s32 %d0, %r9, 128;",
            "add.s64 %x, %x, %d0;",
            "add.s64 %out, %out, %d0;",
            "bra $tile;",
            "$done:",
            *(_TOGETHER if together else ()),
        ],
        smem_bytes=32,
        ctas=2,
        clusters=6,
        meaning=lambda x: 2 * x,
        specific=specific,
    )


ASK = asked("ask for the work of another cluster")
TAKE = taken("double x, in clusters that take each other over")
ASK_TWINS = (
    Twin(
        "clusterlaunchcontrol exists from sm_100 on", "assembler", ASK,
        replace(asked("for sm_90", target=90), specific=False, isa=(8, 6)), "requires .target sm_100 or higher",
    ),
    Twin(
        "the answer's place is aligned to 16 bytes", "emulator", ASK, asked("8 bytes further", 8), "is misaligned",
    ),
    Twin(
        "16 bytes are expected", "emulator", ASK, asked("8 are expected", count=8),
        "8 transaction bytes more than were expected",
    ),
    Twin(
        "the answer is waited for before it is read", "emulator", ASK, asked("not waited for", wait=False),
        "reads 16 bytes",
    ),
    Twin(
        "behind a no a CTA does not ask again", "emulator", ASK, asked("asks again", again=True),
        "asks for another cluster after a thread of the CTA has seen that there was none left",
    ),
)  # fmt: skip
TAKE_TWINS = (
    Twin(
        "an answer to all CTAs is of the targets of an architecture or a family", "assembler", TAKE,
        taken("for all targets from sm_100 on", specific=False), "not supported on .target 'sm_100'",
    ),
    Twin(
        "an answer comes to all CTAs that wait for it", "emulator", TAKE,
        taken("to the first one only", form=_EVERYWHERE.removesuffix(".multicast::cluster::all")), "deadlock",
    ),
    Twin(
        "each CTA expects the bytes that come to it", "emulator", TAKE, taken("the first one only", told=1),
        "16 transaction bytes more than were expected",
    ),
    Twin(
        "who asks waits until all have read the answer before", "emulator", TAKE, taken("asks at once", free=False),
        "wait for its completion first",
    ),
    Twin(
        "who has read an answer fences that for the asynchronous proxy", "emulator", TAKE,
        taken("does not fence", fence=False), "without fence.proxy.async",
    ),
    Twin(
        "the CTAs of a cluster end together", "emulator", TAKE, taken("end one by one", together=False),
        "all CTAs must stay until a last cluster barrier",
    ),
)  # fmt: skip
