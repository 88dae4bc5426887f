"""Rules of TMA over whole domains: broken if and only if the launch refuses the tensor map or the kernel goes wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate, expr, symbol
from tinygpu.language.instruction import BulkTransfer
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import gmem_tile
from tinygpu.layouts.rows import cut_rows
from tinygpu.program.placement import BufferPlace
from tinygpu.ptx import isa
from tinygpu.ptx.cards import refused_by_emulator
from tinygpu.ptx.cards.evidence.tma import picture
from tinygpu.ptx.cards.evidence.tma_kernels import multicast
from tinygpu.ptx.cards.specimen import Field, FieldMap, Specimen, gmem_operand, swizzled_operand
from tinygpu.ptx.emulator import DeviceBuffer, LaunchError, TensorMap

KINDS = ("s8", "f16", "f32")
UNSWIZZLED = r"^stage is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128$"


def rules(kind: str, store: bool = False) -> dict[str, Constraint]:
    window, stage = gmem_operand(dtype(kind)), swizzled_operand(dtype(kind))
    made = isa.TmaStore().legality(stage, window) if store else isa.TmaLoad().legality(window, stage)
    return {r.name.removeprefix("cp.async.bulk.tensor ").removesuffix(" of x"): r for r in made}


def described(kind: str, rows: int, ld: int, align: int) -> str:
    """What the launch says of a map for boxes of `rows` rows of 32 bytes, at a pointer with no better alignment."""
    wide = dtype(kind)
    array = np.zeros(4096, wide.numpy)
    inner = 32 // wide.bytes
    try:
        TensorMap(
            DeviceBuffer(array, offset=align),
            (inner, rows),
            dims=(inner, 4),
            strides=(ld * wide.bytes,),
            swizzle="32B",
        )
    except LaunchError as refused:
        return str(refused)
    return ""


@settings(max_examples=200)
@example(kind="f16", store=False, rows=256, ld=32, align=16)
@example(kind="f16", store=True, rows=257, ld=32, align=16)
@given(
    kind=st.sampled_from(KINDS),
    store=st.booleans(),
    rows=st.integers(1, 300),
    ld=st.integers(32, 96),
    align=st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
)
def test_strides_and_boxes_are_legal_if_and_only_if_the_launch_describes_them(
    kind: str, store: bool, rows: int, ld: int, align: int
) -> None:
    align = max(align, dtype(kind).bytes)
    made, point = rules(kind, store), {"x.align": align, "x.ld": ld, "rows": rows}
    strides, box = (bool(evaluate(made[name].condition, point)) for name in ("strides", "box"))
    said = described(kind, rows, ld, align)
    assert (said == "") == (strides and box), said
    if strides and not box:
        assert said == f"tensor map: box[1] is {rows}, but a box dimension has 1 to 256 elements"


@pytest.mark.parametrize("rank", range(2, 8))
def test_axes_are_legal_if_and_only_if_the_launch_describes_them(rank: int) -> None:
    tensor = Tensor("x", dtype("f16"), tuple("abcdefg"[:rank]), "in")
    leading = tuple(expr(0) for _ in range(rank - 2))
    window = gmem_tile(tensor, (0, 0), (symbol("rows"), symbol("columns")), leading=leading)
    rule = isa.TmaLoad().legality(window, swizzled_operand(dtype("f16")))[0]
    try:
        TensorMap(np.zeros(1024, np.float16), (8,) * rank, dims=(8,) * rank, strides=(16,) * (rank - 1))
        described = True
    except LaunchError:
        described = False
    assert rule.condition.same(True) == described == (rank <= 5)
    assert rule.sentence == f"a tensor map describes 1 to 5 axes (here {rank})"


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("rows", range(2, 26, 2))
def test_parts_of_a_multicast_are_legal_just_where_they_arrive_as_the_whole_would(rows: int, swizzle: int) -> None:
    window, stage = gmem_operand(dtype("f16")), swizzled_operand(dtype("f16"))
    (rule,) = isa.TmaLoad().multicast_rules(window, stage, symbol("cluster"))
    said = refused_by_emulator(multicast("parts", rows, swizzle))
    assert (said == "") == bool(evaluate(rule.condition, {"rows": rows, "swizzle": swizzle, "cluster": 2})), said
    assert not evaluate(rule.condition, {"rows": rows + 1, "swizzle": swizzle, "cluster": 2})
    if said:
        assert "it must be a multiple of 128" in said


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_pieces_lie_where_the_picture_and_the_placement_of_buffers_say(swizzle: int) -> None:
    """A box of eight rows, dumped as it lies in shared memory."""
    pieces = swizzle // 16
    lines = f"""
        setp.ne.u32 %p0, %t, 0;
        @%p0 bra $issued;
        mbarrier.init.shared.b64 [%s+1024], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+1024], {8 * swizzle};
        {isa.TmaLoad().text(2, False)} [%s], [%x_map, {{0, 0}}], [%s+1024];
        $issued:
        bar.sync 0;
        $wait:
        mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s+1024], 0;
        @!%p1 bra $wait;
        mad.lo.u32 %r4, %t, 16, %s;
        ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%r4];
        st.global.v4.b32 [%out], {{%r0, %r1, %r2, %r3}};
    """
    shown = [[int(p) for p in row.split()[1:]] for row in picture(swizzle).splitlines()[1:]]
    for row in range(8):
        mask = 0
        for bit, flips in BufferPlace(0, cut_rows(((8, 1, 0), (swizzle, 0, 1)), 8, swizzle)).xor:
            mask ^= flips if row >> bit & 1 else 0
        assert shown[row] == [(16 * p ^ mask) // 16 for p in range(pieces)]
    order = [row * pieces + piece for row in range(8) for piece in shown[row]]
    fields = (Field("x", "f16", 8), Field("out", "f16", 8, "out"))
    maps = (FieldMap("x", (swizzle // 2, 8), (swizzle // 2, 8), swizzle),)
    made = Specimen("dump", lines, fields, lambda x: x[order], 90, (8, 0), 8 * pieces, 1032, maps, 1024)
    assert refused_by_emulator(made) == ""


@pytest.mark.parametrize("instruction", [isa.TmaLoad(), isa.TmaStore()], ids=["load", "store"])
def test_tma_moves_windows_to_and_from_swizzled_buffers(instruction: BulkTransfer) -> None:
    window, stage = gmem_operand(dtype("f16")), swizzled_operand(dtype("f16"))
    with pytest.raises(
        ValueError, match=r"^a tensor map describes a window of a tensor in GMEM, moved to or from a buffer$"
    ):
        instruction.legality(stage, stage)
    assert stage.buffer is not None
    plain = replace(stage, buffer=replace(stage.buffer, swizzle_bytes=None))
    with pytest.raises(ValueError, match=UNSWIZZLED):
        instruction.legality(window, plain)
    with pytest.raises(
        ValueError,
        match=r"^stage has its rows along axis 0, and x is contiguous along axis 1: TMA does not transpose$",
    ):
        instruction.legality(window, swizzled_operand(dtype("f16"), contiguous=0))
    with pytest.raises(ValueError, match=UNSWIZZLED):
        isa.TmaLoad().multicast_rules(window, plain, expr(2))
