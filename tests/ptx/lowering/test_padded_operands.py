"""Operands in shared memory that do not lie one element behind the other: padded ones, and pairs of chunks of tf32.

What a user's machine may say of them, where they lie beside the emulator's own formulas, kernels that are wrong.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.counting import count
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate, symbol
from tinygpu.language import TMEM, DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.instruction import BulkTransfer
from tinygpu.layouts.rows import cut_rows
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.program.layouts import buffer_layouts
from tinygpu.program.placement import BufferPlace, place
from tinygpu.ptx import isa
from tinygpu.ptx.cards.specimen import gmem_operand, smem_operand, swizzled_operand
from tinygpu.ptx.emulator import DeviceBuffer, LaunchError, TensorMap
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.spaces.part import SpaceError

B200 = device("b200")


class Padded(Machine):
    """c = a @ b of one tile: what p.smem says of a is the class's"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input(("e2m1", "e2m3", "tf32"), m, k, majors=("row", "col")), Input(("e4m3",), k, n, majors=("col",))
    c = Output("f32", m, n)
    swizzle = Param(32, 64, 128)
    tma, mma, ld, st, ld_shared = isa.TmaLoad(), isa.Tcgen05Mma(32), isa.Tcgen05Ld(), isa.StGlobal(1), isa.LdShared(1)
    said: dict[str, Any] = {"padded": True}
    threads_read, swizzled = False, True

    def program(self, p: Any) -> None:
        of = type(self)
        width = self.swizzle if of.swizzled else None
        a = p.smem(self.a.dtype, (128, 128), contiguous=self.a.contiguous, swizzle=width, **of.said)
        b = p.smem(self.b.dtype, (128, 32), contiguous=0, swizzle=128)
        who = blocked((128, 32), threads=128, across=1)
        with (
            p.grid((self.m, 128), (self.n, 32)) as (i, j), p.pipeline("ring", 2, a=a, b=b) as ring,
            p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (128, 32))) as sums,
        ):  # fmt: skip
            with p.role("bring", warps=1), p.loop(self.k, step=128) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(128, 128)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(128, 32)), s.b)
            with p.role("multiply", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=128), ring.consume() as s, p.unroll(128, step=32) as kt:
                    if of.threads_read:
                        p.load(self.ld_shared, s.a, blocked((128, 128), threads=32))
                    p.multiply(self.mma, t.c, s.a.window((0, kt), (128, 32)), s.b.window((kt, 0), (32, 32)))
            with p.role("keep", warps=4, first=4), sums.consume() as t:
                total = p.load(self.ld, t.c.window((0, 0), (128, 32)), who)
                p.store(self.st, self.c.tile(i, j, shape=(128, 32)), total)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


@cache
def made(kind: str) -> tuple[Any, Kernel]:
    problem = Padded.problem(m=130, n=36, k=384, dtypes={"a": kind})
    space = build_space(Padded, problem, B200)
    (point,) = space.space.sample(1, np.random.default_rng(0))
    assert point["swizzle"] == 128  # under which alone TMA pads
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.parametrize("kind", ["e2m1", "e2m3"])
def test_a_users_product_of_padded_elements_is_right(kind: str) -> None:
    problem, kernel = made(kind)
    assert verify(kernel, Padded, problem).passed
    assert {(spec.tensor, spec.padded) for spec in kernel.maps} == {("a", True), ("b", False)}
    # the mbarrier counts what lies in global memory, and not the padding
    assert f", {128 * 128 * dtype(kind).bits // 8 + 128 * 32};" in kernel.ptx


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0x08080290", "0x08080010"),  # a as if e4m3
        ("0x08080290", "0x08080210"),  # a as if e3m2
        (", 12288;", ", 20480;"),  # an mbarrier that waits for padding
    ],
)
def test_wrong_kernels_are_refused(old: str, new: str) -> None:
    problem, kernel = made("e2m1")
    assert old in kernel.ptx
    found = verify(replace(kernel, ptx=kernel.ptx.replace(old, new)), Padded, problem, orders=("late",))
    assert not found.passed


def test_a_map_that_does_not_pad_is_refused() -> None:
    problem, kernel = made("e2m1")
    maps = tuple(replace(spec, padded=False) for spec in kernel.maps)
    assert not verify(replace(kernel, maps=maps), Padded, problem, orders=("late",)).passed


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"said": {}},
            "tcgen05.mma reads e2m1 of ring.a padded to 16 bytes for each 16 of them, and they lie one behind the "
            "other: give its buffer padded=True",
        ),
        (
            {"threads_read": True},
            "ld.shared moves elements that lie one behind the other, and those of ring.a are padded to 16 bytes for "
            "each 16 of them: TMA writes such a buffer, and tensor cores alone read it",
        ),
        ({"said": {"atom": 64}}, "a swizzle leaves 16 or 32 bytes together, not 64"),
        (
            {"swizzled": False},
            "a buffer with padded elements lies as TMA writes it; give the width of its swizzle, 128",
        ),
        (
            {"said": {"padded": True, "atom": 32}},
            "ring.a has e2m1 along k, and tcgen05.mma reads them under a swizzle that leaves 16 bytes together, not "
            "32: give its buffer atom=16",
        ),
    ],
)
def test_what_a_buffer_says_of_padding_is_what_its_readers_take(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as error:
        type("Own", (Padded,), {"__module__": __name__, "__doc__": Padded.__doc__} | facts)
    assert str(error.value).endswith(f": {said}")


def test_tf32_across_k_says_how_its_swizzle_leaves_bytes_together() -> None:
    tile = swizzled_operand(dtype("tf32"), "a", 0)
    with pytest.raises(ValueError) as error:
        isa.Tcgen05Mma(32).operand_rules(tile, swizzled_operand(dtype("tf32"), "b", 0))
    assert str(error.value) == (
        "a has tf32 along m, and tcgen05.mma reads them under a swizzle that leaves 32 bytes together, not 16: give "
        "its buffer atom=32"
    )


def test_cells_of_narrow_elements_are_not_multiplied() -> None:
    with pytest.raises(TypeError) as error:
        isa.Tcgen05MmaCells(32).kind(dtype("e2m1"), dtype("e4m3"))
    assert str(error.value) == "tcgen05.mma.cells takes operand a of 8 bits or more in TMEM, and e2m1 has 4"


def test_padding_is_not_taken_away() -> None:
    stage = swizzled_operand(dtype("e2m1"), padded=True)
    with pytest.raises(ValueError) as error:
        isa.TmaStore().legality(stage, gmem_operand(dtype("e2m1"), "y"))
    assert str(error.value) == "cp.async.bulk.tensor does not take padding away, and stage is padded; store another"


def test_elements_of_6_bits_are_moved_with_padding_alone() -> None:
    with pytest.raises(ValueError) as error:
        isa.TmaLoad().legality(gmem_operand(dtype("e2m3")), swizzled_operand(dtype("e2m3")))
    assert str(error.value) == (
        "cp.async.bulk.tensor pads x, whose elements have 6 bits: give stage padded=True, as instructions read it"
    )


def test_matrices_of_padded_elements_are_not_loaded() -> None:
    stage = swizzled_operand(dtype("e2m1"), padded=True)
    with pytest.raises(TypeError, match=r"^ldmatrix moves elements that lie one behind the other, and those of stage"):
        isa.LdMatrix().legality(stage, blocked((8, 16), threads=32))
    assert smem_operand(dtype("e2m1")).buffer is not None


# -- where they lie ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 3])
def test_pairs_of_chunks_lie_where_the_emulators_swizzle_moves_them(stages: int) -> None:
    rows, columns = 8, 64  # of 4 bytes: two widths of 128
    layout = cut_rows(((rows, 1, 0), (columns, 0, 4)), rows, 128, stages, rows * columns * 4, atom_bytes=32)
    at = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1).reshape(-1, 2)
    row, byte = at[:, 0], 4 * at[:, 1]
    plain = byte // 128 * rows * 128 + row * 128 + byte % 128
    assert np.array_equal(BufferPlace(0, layout).addresses(at), SWIZZLES["128B_ATOM_32B"].apply(plain))


def test_sixteen_padded_elements_have_the_address_of_their_chunk() -> None:
    layout = cut_rows(((8, 1, 0), (256, 0, 1)), 8, 128, 1, 2048, padded=True)
    at = np.stack(np.meshgrid(np.arange(8), np.arange(256), indexing="ij"), axis=-1).reshape(-1, 2)
    row, chunk = at[:, 0], at[:, 1] // 16
    plain = chunk // 8 * 1024 + row * 128 + chunk % 8 * 16
    assert np.array_equal(BufferPlace(0, layout).addresses(at), SWIZZLES["128B"].apply(plain))
    assert (BufferPlace(0, layout).swizzle_bytes, BufferPlace(0, layout).block_bytes) == (128, 1024)


def test_layouts_say_how_elements_are_padded() -> None:
    problem = Padded.problem(m=128, n=32, k=128)
    space = build_space(Padded, problem, B200)
    program = space.program(space.sample(1, 0)[0])
    shown = {b.buffer.name: b for b in buffer_layouts(program, place(program, {}))}
    assert str(shown["ring.a"].layout) == "Sw<3,4,3> o (128,(16,8,1),2):(128,(0,16,16384),16384)"
    assert shown["ring.a"].picture(8) is None
    assert shown["ring.a"].buffer.stage_bytes.same(128 * 128)


# -- rules of TMA beside what the launch says --------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["e2m1", "e2m3", "e3m2"]),
    swizzle=st.sampled_from([32, 64, 128]),
    rows=st.integers(1, 300),
    elements=st.integers(1, 40).map(lambda n: 16 * n),
    pitch=st.integers(1, 60).map(lambda n: 16 * n),
    align=st.sampled_from([8, 16, 32, 64]),
)
def test_boxes_that_are_padded_are_legal_if_and_only_if_the_launch_describes_them(
    kind: str, swizzle: int, rows: int, elements: int, pitch: int, align: int
) -> None:
    window, stage, bits = gmem_operand(dtype(kind)), swizzled_operand(dtype(kind), padded=True), dtype(kind).bits
    assert window.tensor is not None
    load: BulkTransfer = isa.TmaLoad()
    made = [*load.legality(window, stage), *load.narrow_rules(window.tensor, symbol("n"), (), padded=True)]
    point = {"x.align": align, "x.ld": pitch, "rows": rows, "swizzle": swizzle, "n": elements}
    legal = {rule.name: bool(evaluate(rule.condition, point)) for rule in made if rule.condition.symbols}
    assert all(rule.judge in ("launch", "assembler") for rule in made)
    if pitch * bits % 8:
        assert not all(legal.values())
        return
    try:
        TensorMap(
            DeviceBuffer(np.zeros(1 << 16, np.uint8), offset=align), (128, rows), dims=(elements, 4),
            strides=(pitch * bits // 8,), dtype=f"16u{bits}_align16b", swizzle=f"{swizzle}B",
        )  # fmt: skip
        said = ""
    except LaunchError as refused:
        said = str(refused)
    assert (said == "") == all(legal.values()), (said, legal)


def test_spaces_of_rows_that_are_no_boxes_are_empty() -> None:
    space = build_space(Padded, Padded.problem(m=128, n=32, k=192), B200)
    with pytest.raises(SpaceError):
        space.sample(1, 0)


def test_padding_takes_the_time_and_the_place_of_bytes() -> None:
    """Tensor cores read e2m1 that is padded as they read e4m3, and multiply it no faster; global memory has half."""
    found = {}
    for kind in ("e2m1", "e4m3"):
        problem = MatmulBlackwell.problem(
            m=256, n=256, k=512, dtypes={"a": kind, "b": kind, "c": "f32"}, majors={"b": "col"}
        )
        space = build_space(MatmulBlackwell, problem, B200)
        point = space.space.restrict({"bm": 128, "bn": 128, "bk": 128, "swizzle": 128, "ctas": "one"}).at(0)
        counted = count(space.program(point))
        assert (counted.operand, counted.accumulator) == ("e4m3", "f32")
        found[kind] = counted.demand(problem.environment(), B200)
    narrow, wide = found["e2m1"], found["e4m3"]
    for work in ("tensor_flops", "smem_load_wavefronts", "smem_store_wavefronts"):
        assert getattr(narrow.iteration.work, work) == getattr(wide.iteration.work, work) > 0
    assert 2 * narrow.iteration.work.sectors_read == wide.iteration.work.sectors_read > 0
    assert narrow.smem_bytes_per_cta == wide.smem_bytes_per_cta
