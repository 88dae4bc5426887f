"""What goes wrong with a whole matmul: kernels with one mistake each, and what the emulator says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinygpu.ptx.cards.evidence.whole_matmul import MATMUL, PAIR, SCALED, edited
from tinygpu.ptx.cards.specimen import WRONG_VALUES, Specimen, Twin


@dataclass(frozen=True, slots=True)
class Mistake:
    """A twin whose illegal kernel has one text in the place of another, wherever that stands; "" for nothing."""

    twin: Twin
    right: str
    wrong: str


def _mistake(legal: Specimen, rule: str, right: str, wrong: str, refusal: str = WRONG_VALUES) -> Mistake:
    illegal = replace(legal, body=edited(legal.body, (right, wrong)))
    return Mistake(Twin(rule, "emulator", legal, illegal, refusal), right, wrong)


_WRITES_TO = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{}];\n"
_WAIT_FOR_SUMS = (
    "mbarrier.try_wait.parity.shared::cta.b64 %done, [%sums+48], %turn;\n@!%done bra $sums_full;\n"
)
_AFTER = "tcgen05.fence::after_thread_sync;\n"
OF_ONE = (
    Mistake(
        Twin(
            "tensor maps name the swizzle of the matrix descriptors", "emulator", MATMUL,
            replace(MATMUL, maps=tuple(replace(m, swizzle_bytes=0) for m in MATMUL.maps)),
            "tensor map and matrix descriptor must name the same",
        ),
        "swizzle 128 bytes wide", "no swizzle",
    ),
    _mistake(MATMUL, "the stride offset is that of eight rows: 8 x 128 bytes / 16", "0x40004040", "0x40004008"),
    _mistake(MATMUL, "addresses of a descriptor count 16 bytes: 32 bytes of k are 2", "%a_at, 2;", "%a_at, 32;"),
    _mistake(
        MATMUL, "M / 16 stands in bits 28:24", "0x08200010", "0x04200010",
        "loaded what nobody had written of lanes 0 to 31, columns 0 to 15",
    ),
    _mistake(
        MATMUL, "the first product of a tile overwrites what is in its columns", "setp.ne.u32 %add, %s, %s;",
        "setp.eq.u32 %add, %s, %s;", "added to sums that nobody had written",
    ),
    _mistake(MATMUL, "all others add", "setp.eq.u32 %add, %s, %s;", "setp.ne.u32 %add, %s, %s;"),
    _mistake(
        MATMUL, "who waits for room first waits for parity 1", "mov.u32 %phase, 1;", "mov.u32 %phase, 0;",
        "nothing has come to any of these mbarriers",
    ),
    _mistake(
        MATMUL, "the phase changes where the ring begins again", "@%p xor.b32 %phase, %phase, 1;\n", "",
        "1 arrivals at an mbarrier whose phase takes 0 more",
    ),
    _mistake(
        MATMUL, "*full* expects the bytes of both tiles", "[%full], 32768;", "[%full], 16384;",
        "wait for its completion first, in a phase that expects all of its bytes",
    ),
    _mistake(MATMUL, "a commit frees the stage", _WRITES_TO.format("%empty"), "", "0 of 1 arrivals"),
    _mistake(MATMUL, "a commit says that sums are complete", _WRITES_TO.format("%sums"), "", "0 of 1 arrivals"),
    _mistake(
        MATMUL, "*empty* of sums counts what arrives: a lane of each of four warps", "[%bars+64], 4;",
        "[%bars+64], 128;", "4 of 128 arrivals",
    ),
    _mistake(
        MATMUL, "one lane of each warp arrives", "@%p mbarrier.arrive.shared", "mbarrier.arrive.shared",
        "32 arrivals at an mbarrier whose phase takes 4 more",
    ),
    _mistake(
        MATMUL, "tcgen05.wait::ld stands behind the loads", "tcgen05.wait::ld.sync.aligned;\n", "",
        "tcgen05.wait::ld",
    ),
    _mistake(
        MATMUL, "tcgen05.fence::after_thread_sync stands behind the wait", _WAIT_FOR_SUMS + _AFTER, _WAIT_FOR_SUMS,
        "tcgen05.fence::after_thread_sync is missing after the wait",
    ),
    _mistake(
        MATMUL, "a warp's lanes are 2 to the 21 apart", "shl.b32 %cells, %cells, 21;", "shl.b32 %cells, %cells, 16;",
        "a shape of 32 lanes starts at lane",
    ),
    _mistake(
        MATMUL, "columns are allocated for both slots", "256;", "128;", "column 128 is not allocated",
    ),
)  # fmt: skip
OF_A_PAIR = (
    _mistake(
        PAIR, "`.cta_group::2` lets a load tell the mbarrier of the other CTA", "bytes.cta_group::2 [%to]",
        "bytes [%to]", "completes on an mbarrier of CTA 0: both must lie in the same CTA",
    ),
    _mistake(
        PAIR, "loads of both CTAs tell the even one", "mapa.shared::cluster.u32 %lead, %full, 0;",
        "mov.u32 %lead, %full;", "waits for 24576 more transaction bytes",
    ),
    _mistake(
        PAIR, "the even CTA expects the bytes of both", "[%full], 49152;", "[%full], 24576;",
        "has 24576 transaction bytes more than were expected",
    ),
    _mistake(PAIR, "a commit tells both", "mov.u16 %both, 3;", "mov.u16 %both, 1;", "of the cluster's CTA 1 waits"),
    _mistake(
        PAIR, "the even CTA alone multiplies", "setp.ne.u32 %p, %rank, 0;\n@%p bra $end;\nmov.u16", "mov.u16",
        "warp 1 of the cluster's CTA 1 waits",
    ),
    _mistake(PAIR, "each CTA brings its half of b", "{%k, %half}", "{%k, 0}"),
    _mistake(
        PAIR, "M is that of both CTAs", "0x10200010", "0x08200010",
        "loaded what nobody had written of lanes 0 to 31, columns 64 to 79",
    ),
    _mistake(
        PAIR, "*empty* of sums counts the warps of both", "mbarrier.init.shared.b64 [%bars+64], 8;",
        "mbarrier.init.shared.b64 [%bars+64], 4;", "has 2 completed phases, 0 of 4 arrivals",
    ),
)  # fmt: skip
OF_SCALES = (
    _mistake(SCALED, "each instruction names its scales of the four in a cell", "0x28a00010", "0x08a00000"),
    _mistake(SCALED, "bits 5:4 are the number of b's scale: there is no type of d", "0x08a00000", "0x08a00010"),
    _mistake(SCALED, "bit 23 says ue8m0", "0x08a00000", "0x08200000", "bit 23 selects ue4m3 scale factors"),
    _mistake(
        SCALED, "scales of both operands are copied",
        "add.u64 %scales_at, %scales_at, 32;\ntcgen05.cp.cta_group::1.32x128b.warpx4 [%b_scales], %scales_at;\n", "",
        "multiplied what nobody had written of the scale factors of B",
    ),
    _mistake(SCALED, "eight rows of scales are 128 bytes", "0x00004008", "0x00004010", "may still be writing"),
    _mistake(
        SCALED, "*full* expects the bytes of scales as well", "[%full], 33792;", "[%full], 32768;",
        "wait for its completion first, in a phase that expects all of its bytes",
    ),
    _mistake(
        SCALED, "scales have columns beside those of sums", "%a_scales, 256;", "%a_scales, 252;",
        "which `tcgen05.mma`",
    ),
    _mistake(
        SCALED, "scales of each stage have columns of their own", "shl.b32 %a_scales, %stage, 3;",
        "mov.u32 %a_scales, 0;", "overwrites what earlier tcgen05 work of this thread uses",
    ),
)  # fmt: skip
