"""What single statements ask for, against every lane's access listed and plain arithmetic over threads and values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tinygpu.program.merges import reduce_of
from tinygpu.cost.operations import Operations, Tally
from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.language import Partition, Route, blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.heuristic import HEURISTICS
from tinygpu.language.instruction import Transfer, tiled
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.language.partition import expr
from tinygpu.language.roles import Pipeline
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.program import nodes as n
from tinygpu.program.access import accesses
from tinygpu.program.program import Program
from tinygpu.ptx import isa
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK

LD, SMS = 1024, 20
GRID = n.Grid((n.Axis("i", expr(1000), expr(64)), n.Axis("j", expr(300), expr(32))), expr(1), expr(1))


def program(grid: n.Grid = GRID, *pipelines: Pipeline) -> Program:
    return Program("M", (), (), (), grid, (), pipelines, ())


def asked(
    s: n.Statement, *, threads: int, times: int = 1, looped: bool = False, left_out: str = "", **of: Any
) -> dict[str, int]:
    """What a statement asks for, but what it does not ask for."""
    tally = Tally()
    kept = tuple(h for h in HEURISTICS if h != left_out)
    operations = Operations(of.get("program", program()), kept, expr(threads))
    operations.add(s, tally, expr(times), looped)
    known = {"x.ld": of.get("ld", LD), "device.sm_count": SMS}
    found = {**tally.work, **tally.chain, "in_flight": tally.in_flight_bytes, "prefetch": operations.prefetch}
    numbers = {name: int(e.substitute(known)) for name, e in found.items()}
    return {name: number for name, number in numbers.items() if number}


def in_gmem(kind: str, shape: tuple[int, int], major: str = "row", offset: int = 0) -> Tile:
    tensor = Tensor("x", dtype(kind), ("m", "n"), "in", major)  # type: ignore[arg-type]
    begin = (symbol("i") * 64, expr(offset)) if major == "row" else (expr(offset), symbol("i") * 64)
    return gmem_tile(tensor, begin, shape)


def in_smem(
    kind: str, shape: tuple[int, int], contiguous: int = 1, swizzle: int | None = None, stages: int = 1
) -> Tile:
    sizes, width = (expr(shape[0]), expr(shape[1])), expr(swizzle) if swizzle else None
    buffer = Buffer("ring.x", SMEM, dtype(kind), sizes, contiguous, expr(0), "", expr(stages), width)
    return Tile("ring.x", SMEM, dtype(kind), sizes, (expr(0), expr(0)), buffer=buffer)


def registers(kind: str, who: Partition) -> Tile:
    return Tile("r", RMEM, dtype(kind), who.shape, (expr(0), expr(0)), partition=who)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[Partition, int, int]:
    """(partition, vector, axis): threads side by side over a tile, blocks of neighbours each."""
    axis, vector = draw(st.sampled_from([0, 1])), draw(st.sampled_from([1, 2, 4]))
    across, tall = draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64])), draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
    threads = across * tall
    if threads < 32:
        tall, threads = tall * 32 // threads, 32
    size = [0, 0]
    size[axis] = vector * across * draw(st.sampled_from([1, 2, 4]))
    size[1 - axis] = tall * draw(st.sampled_from([1, 3]))
    who = blocked((size[0], size[1]), threads=threads, vector=vector, axis=axis, across=across)
    kept = draw(st.sampled_from([(0, 1), (0, 1), (axis,)]))
    return who.along(*kept), vector, axis


def listed(s: n.Statement, size: int, ld: int = LD, offset: int = 0) -> Iterator[tuple[bool, int, int, int]]:
    """Per warp instruction that some lane takes part in: (writes, lanes' bytes, pieces of `size` bytes, lanes)."""
    for access in accesses(s):
        contiguous = access.tile.contiguous
        assert contiguous is not None
        for lanes in access.lanes:
            begun = lanes[lanes[:, 0] >= 0]
            if len(begun):
                element = begun[:, 1 - contiguous] * ld + begun[:, contiguous] + offset
                byte = element[:, None] * access.tile.dtype.bytes + np.arange(access.width_bytes)
                yield access.writes, access.width_bytes, len(np.unique(byte // size)), len(begun)


@settings(max_examples=60)
@given(pieces(), st.sampled_from(["f32", "f16", "s8"]), st.integers(1, 3), st.booleans())
def test_transfers_of_gmem_ask_for_the_pieces_that_their_lanes_touch(
    found: tuple[Partition, int, int], kind: str, times: int, looped: bool
) -> None:
    who, vector, axis = found
    shape = (int(who.shape[0]), int(who.shape[1]))
    tile = in_gmem(kind, shape, "row" if axis == 1 else "col")
    threads = int(expr(who.made_for if who.made_for is not None else 0))
    load = n.Load("l", isa.LdGlobal(vector), tile, registers(kind, who))
    store = n.Store("s", isa.StGlobal(vector), registers(kind, who), tile)
    width = vector * dtype(kind).bytes
    ask = asked(load, threads=threads, times=times, looped=looped)
    counts = {size: [one for *_, one, _ in listed(load, size)] for size in (32, 64)}
    assert ask.pop("warp_instructions") == 2 * times * len(counts[32])
    assert ask.pop("l1_wavefronts") == times * len(counts[32]) * max(width // 4, 1)
    assert ask.pop("sectors_read") == times * sum(counts[32])
    assert ask.pop("accesses_read") == times * sum(counts[64])
    assert ask == ({"in_flight": 32 * sum(counts[32])} if looped else {"global_loads": 1})
    ask = asked(store, threads=threads, times=times)
    counts = {size: [one for *_, one, _ in listed(store, size)] for size in (32, 64)}
    if not [*who.copies()] or len(counts[32]) == int(who.value_count) // vector:
        written = {"sectors_written": times * sum(counts[32]), "accesses_written": times * sum(counts[64])}
        assert ask == {"warp_instructions": 2 * times * len(counts[32]), **written}


@settings(max_examples=40)
@given(pieces(), st.sampled_from(["f32", "f16", "s8"]), st.integers(0, 40), st.integers(0, 9))
def test_without_coalescing_lanes_count_as_neighbours(
    found: tuple[Partition, int, int], kind: str, gap: int, offset: int
) -> None:
    who, vector, axis = found
    shape = (int(who.shape[0]), int(who.shape[1]))
    tile = in_gmem(kind, shape, "row" if axis == 1 else "col", offset)
    threads = int(expr(who.made_for if who.made_for is not None else 0))
    load = n.Load("l", isa.LdGlobal(vector), tile, registers(kind, who))
    requests = sum(1 for _ in listed(load, 32))
    plain = asked(load, threads=threads, ld=LD + gap, left_out="coalescing")
    assert plain["sectors_read"] == requests * -(-32 * vector * dtype(kind).bits // 256)
    assert plain["accesses_read"] == requests * -(-32 * vector * dtype(kind).bits // 512)


@settings(max_examples=40)
@given(pieces(), st.sampled_from(["f32", "f16", "s8"]), st.integers(1, 3))
def test_transfers_of_smem_and_copies_take_a_wavefront_for_every_word_of_a_lane(
    found: tuple[Partition, int, int], kind: str, times: int
) -> None:
    who, vector, axis = found
    shape = (int(who.shape[0]), int(who.shape[1]))
    tile, gmem = in_smem(kind, shape, axis), in_gmem(kind, shape, "row" if axis == 1 else "col")
    threads = int(expr(who.made_for if who.made_for is not None else 0))
    waves = max(vector * dtype(kind).bytes // 4, 1)
    get = n.Load("l", isa.LdShared(vector), tile, registers(kind, who))
    requests = times * sum(1 for _ in listed(get, 32))
    assert asked(get, threads=threads, times=times) == {
        "warp_instructions": 2 * requests,
        "smem_load_wavefronts": requests * waves,
    }
    put = n.Store("s", isa.StShared(vector), registers(kind, who), tile)
    if not [*who.copies()]:
        assert asked(put, threads=threads, times=times) == {
            "warp_instructions": 2 * requests,
            "smem_store_wavefronts": requests * waves,
        }
    through: Transfer = isa.CpAsync(vector)
    copied = n.Copy("c", through, gmem, tile, who, None)
    sectors = {size: times * sum(one for w, _, one, _ in listed(copied, size) if not w) for size in (32, 64)}
    read = {"sectors_read": sectors[32], "accesses_read": sectors[64]}
    passes = {} if vector * dtype(kind).bytes == 16 else {"l1_wavefronts": requests * waves}
    stored = {"smem_store_wavefronts": requests * waves}
    issued = {"warp_instructions": 2 * requests}
    assert asked(copied, threads=threads, times=times) == {**issued, **read, **passes, **stored}
    routed = n.Copy("c", Route(isa.LdGlobal(vector), isa.StShared(vector)), gmem, tile, who, None)
    assert asked(routed, threads=threads, times=times) == {
        "warp_instructions": 3 * requests,
        "l1_wavefronts": requests * waves,
        **read,
        **stored,
    }


@pytest.mark.parametrize("kind", ["f32", "f16", "s8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_window_that_begins_between_sectors_touches_what_its_lanes_touch(kind: str, axis: int) -> None:
    """One row of a warp, from everywhere in a sector and in an access of L2."""
    for vector, offset in itertools.product((1, 2, 4), (*range(10), 15, 16, 17, 31, 32, 33, 63, 64, 65)):
        size = [1, 1]
        size[axis] = 32 * vector
        who = blocked((size[0], size[1]), threads=32, vector=vector, axis=axis, across=32)
        tile = in_gmem(kind, (size[0], size[1]), "row" if axis == 1 else "col", offset)
        load = n.Load("l", isa.LdGlobal(vector), tile, registers(kind, who))
        ask = asked(load, threads=32)
        touched = {piece: sum(one for *_, one, _ in listed(load, piece, LD, offset)) for piece in (32, 64)}
        if offset % vector == 0:
            assert (ask["sectors_read"], ask["accesses_read"]) == (touched[32], touched[64]), (vector, offset)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_lanes_at_steps_of_any_length_share_pieces_where_steps_are_shorter(kind: str) -> None:
    for apart in range(1, 40):
        who = blocked((1, 32 * apart), threads=32, vector=apart, across=32)
        load = n.Load("l", isa.LdGlobal(1), in_gmem(kind, (1, 32 * apart)), registers(kind, who))
        ask = asked(load, threads=32)
        for name, piece in (("sectors_read", 32), ("accesses_read", 64)):
            _, _, first, _ = next(listed(load, piece, 4096))  # of the lanes' first elements
            assert ask[name] == apart * first, (apart, name)


def test_a_request_of_rows_or_columns_that_another_order_keeps_apart() -> None:
    """Lanes along the axis that is not contiguous access rows of their own; one dim has no rows."""
    who = blocked((32, 4), threads=32, across=1)
    down = n.Load("l", isa.LdGlobal(1), in_gmem("f32", (32, 4)), registers("f32", who))
    assert asked(down, threads=32)["sectors_read"] == 4 * 32
    line = gmem_tile(Tensor("x", dtype("f32"), ("n",), "in"), (expr(0),), (128,))
    one = blocked((128,), threads=32, vector=4)
    load = n.Load("l", isa.LdGlobal(4), line, Tile("r", RMEM, dtype("f32"), one.shape, (expr(0),), partition=one))
    assert asked(load, threads=32, ld=7)["sectors_read"] == 16
    nowhere = gmem_tile(Tensor("x", dtype("f32"), ("m", "n"), "in"), (expr(0),), (128,), (None,))
    one = blocked((128,), threads=32)
    same = n.Load("l", isa.LdGlobal(1), nowhere, Tile("r", RMEM, dtype("f32"), one.shape, (expr(0),), partition=one))
    assert asked(same, threads=32)["sectors_read"] == 4


@pytest.mark.parametrize(
    ("warps", "shape", "kind"), [((2, 2), (64, 32), "f16"), ((1, 4), (32, 64), "f16"), ((1, 1), (128, 64), "f16")]
)
def test_matrices_take_one_wavefront_for_eight_rows(warps: tuple[int, int], shape: tuple[int, int], kind: str) -> None:
    made = tiled(isa.MmaSync(), dtype(kind), dtype(kind), shape, warps)
    threads = 32 * warps[0] * warps[1]
    inside = (int(made.a.shape[0]), int(made.a.shape[1]))
    load = n.Load("l", isa.LdMatrix(), in_smem(kind, inside), registers(kind, made.a))
    matrices = sum(len(t.lanes) for t in accesses(load))
    each = int(made.a.value_count) * 16 // 32
    count = threads // 32 * -(-each // 4)
    assert asked(load, threads=threads, times=5) == {
        "smem_load_wavefronts": 5 * matrices,
        "warp_instructions": 5 * count,
        "smem_loads": 1,
    }
    store = n.Store("s", isa.StMatrix(), registers(kind, made.c), in_smem(kind, shape))
    matrices = sum(len(t.lanes) for t in accesses(store))
    each = int(made.c.value_count) * 16 // 32
    assert asked(store, threads=threads, times=3) == {
        "smem_store_wavefronts": 3 * matrices,
        "warp_instructions": 3 * threads // 32 * -(-each // 4),
    }


def test_matrix_loads_of_one_phase_are_waited_for_once() -> None:
    made = tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (32, 16), (1, 1))
    load = n.Load("l", isa.LdMatrix(), in_smem("f16", (32, 16)), registers("f16", made.a))
    tally, operations = Tally(), Operations(program(), HEURISTICS, expr(32))
    for _ in range(3):
        operations.add(load, tally, expr(2), True)
    assert int(tally.chain["smem_loads"]) == 1
    assert int(tally.work["warp_instructions"]) == 3 * 2 * 2


@settings(max_examples=40)
@given(
    st.sampled_from([8, 16, 64]),
    st.sampled_from([32, 64, 128]),
    st.sampled_from([(None, "f16"), (32, "f16"), (64, "f16"), (128, "f16"), (128, "f32"), (None, "s8")]),
    st.sampled_from([(None, 1), (0, 1), (1, 1), (1, 2)]),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_bulk_copies_move_boxes_of_whole_sectors(
    rows: int, columns: int, layout: Any, along: tuple[int | None, int], stages: int, times: int
) -> None:
    """One instruction a box, as wide as the swizzle; 32 bytes of GMEM and 128 of SMEM at a time."""
    swizzle, kind = layout
    axes = (n.Axis("i", expr(1000), expr(64), expr(2)), n.Axis("j", expr(300), expr(32), expr(4)))
    buffer = in_smem(kind, (rows, columns), 1, swizzle, stages)
    other = Pipeline("rin", expr(9), ())
    held = program(n.Grid(axes, expr(1), expr(8)), other, Pipeline("ring", expr(stages), ()))
    row = columns * dtype(kind).bytes
    width = min(row, swizzle or row)
    boxes = [(r, first) for r in range(rows) for first in range(0, row, width)]
    accesses = sum(-(-width // 64) for _ in boxes)
    moved = rows * row
    ctas = {(None, 1): 1, (0, 1): 2, (1, 1): 4, (1, 2): 2}[along]
    load = n.Copy("t", isa.TmaLoad(), in_gmem(kind, (rows, columns)), buffer, None, None, *along)
    expected = {
        "sectors_read": times * -(-moved // (32 * ctas)),
        "accesses_read": times * -(-accesses // ctas),
        "smem_store_wavefronts": times * -(-moved // 128),
        "warp_instructions": times * (-(-row // width)),
        "in_flight": stages * -(-moved // ctas),
        "prefetch": stages - 1,
    }
    assert asked(load, threads=32, times=times, program=held) == {k: v for k, v in expected.items() if v}
    # A buffer that no pipeline owns is filled once.
    once = {**expected, "in_flight": -(-moved // ctas), "prefetch": 0}
    nobody = program(held.grid, other)
    assert asked(load, threads=32, times=times, program=nobody) == {k: v for k, v in once.items() if v}
    store = n.Copy("t", isa.TmaStore(), buffer, in_gmem(kind, (rows, columns)), None, None)
    assert asked(store, threads=32, times=times, program=held) == {
        "sectors_written": times * -(-moved // 32),
        "accesses_written": times * accesses,
        "smem_load_wavefronts": times * -(-moved // 128),
        "warp_instructions": times * (-(-row // width)),
    }


@pytest.mark.parametrize(
    ("instruction", "unit", "each"),
    [(isa.Fma("f32"), "fma_flops", 2), (isa.Tanh("f32"), "sfu_ops", 1), (isa.Max("f32"), "alu_ops", 1)],
)
@pytest.mark.parametrize("threads", [64, 66])
def test_element_wise_work_goes_by_lanes_and_values(instruction: Any, unit: str, each: int, threads: int) -> None:
    who = blocked((16, 32), threads=64, across=32)
    s = n.Apply("f", instruction, (), registers("f32", who))
    warps, values = -(-threads // 32), 8
    assert asked(s, threads=threads, times=3) == {
        "warp_instructions": 3 * warps * values,
        unit: 3 * threads * values * each,
    }


@pytest.mark.parametrize("threads", [64, 80])
def test_a_reduction_goes_through_values_and_then_five_times_through_lanes(threads: int) -> None:
    who = blocked((8, 128), threads=64, across=32)  # 16 values of a thread, of 4 rows
    source, result = registers("f32", who), registers("f32", who.reduced(1))
    s = reduce_of("r", isa.Add("f32"), isa.ShflBfly(), source, result, 1)
    values, results, warps = 16, 4, -(-threads // 32)
    sums = values - results + 5 * results
    assert asked(s, threads=threads, times=3) == {
        "warp_instructions": 3 * warps * (sums + 5 * results + results),
        "l1_wavefronts": 3 * warps * 5 * results,
        "fma_flops": 3 * threads * 2 * sums,
        "alu_ops": 3 * threads * results,
        "smem_loads": 3 * 5,
        "fmas": 3 * ((values // results - 1).bit_length() + 5),  # neighbours first: 4 values in 2 merges in a row
    }


def accumulator(shape: tuple[int, int]) -> Tile:
    return Tile("c", RMEM, dtype("f32"), (expr(shape[0]), expr(shape[1])), (expr(0), expr(0)))


def operand(shape: tuple[int, int]) -> Tile:
    return Tile("a", RMEM, dtype("f16"), (expr(shape[0]), expr(shape[1])), (expr(0), expr(0)))


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_matrix_work_counts_instructions_and_what_they_read(m: int, nn: int, k: int, times: int) -> None:
    rows, columns, depth = 16 * m, 8 * nn, 16 * k
    s = n.Multiply("m", isa.MmaSync(), operand((rows, depth)), operand((depth, columns)), accumulator((rows, columns)))
    count = m * nn * k
    assert asked(s, threads=32, times=times) == {
        "tensor_flops": times * 2 * rows * columns * depth,
        "warp_instructions": times * count,
    }
    rows, columns = 64 * m, 32 * nn
    a, b = in_smem("f16", (rows, depth)), in_smem("f16", (depth, columns))
    read_b = sum(depth * columns * 2 for _ in range(m))  # all of b for each 64 rows
    read_a = sum(rows * depth * 2 for _ in range(nn))  # all of a for each n columns of an instruction
    for first, read in ((a, read_a + read_b), (operand((rows, depth)), read_b)):
        s = n.Multiply("w", isa.Wgmma(n=32), first, b, accumulator((rows, columns)))
        assert asked(s, threads=128, times=times) == {
            "tensor_flops": times * 2 * rows * columns * depth,
            "smem_load_wavefronts": times * -(-read // 128),
            "warp_instructions": times * 4 * count,
        }


def fix_up(values: int, combine: Any, vector: int) -> n.FixUp:
    who = blocked((32, values), threads=32, vector=vector, across=1)
    tile = registers("f32", who)
    return n.FixUp("g", combine, isa.StGlobal(vector), isa.LdGlobal(vector), tile, tile, ())


@settings(max_examples=30)
@given(
    st.integers(4, 9),
    st.sampled_from([4, 8, 32, 64]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([(isa.Add("f32"), "fma_flops", 2), (isa.Max("f32"), "alu_ops", 1)]),
    st.integers(1, 3),
    st.sampled_from([32, 66]),
)
def test_parts_of_a_tile_are_left_once_and_all_taken_by_the_last(
    many: int, values: int, vector: int, combine: Any, times: int, threads: int
) -> None:
    instruction, unit, each = combine
    s = fix_up(values, instruction, vector)
    sectors, warps, vectors = -(-threads * values * 4 // 32), -(-threads // 32), values // vector
    together = max(8 // vectors, 1)
    for parts in (1, 2, 3, many):
        shared = program(n.Grid(GRID.axes, expr(1), expr(1), OneTile(expr(parts))))
        expected = {
            "sectors_written": sectors,
            "sectors_read": parts * sectors,
            "warp_instructions": warps * (vectors + parts * vectors + (parts - 1) * values),
            unit: threads * values * (parts - 1) * each,
            "barriers": 2,
            "l2_trips": 1 + -(-parts // together),
        }
        whole = {name: times * amount for name, amount in expected.items()}
        assert asked(s, threads=threads, times=times, program=shared) == (whole if parts > 1 else {})


@settings(max_examples=30)
@given(
    st.integers(1, 2000),
    st.integers(1, 400),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([(isa.Add("f32"), "fma_flops", 2), (isa.Max("f32"), "alu_ops", 1)]),
    st.sampled_from([0, 1]),
    st.sampled_from([1, SMS]),
)
def test_rounds_in_a_row_cut_one_tile_for_every_cluster(
    m: int, nn: int, cluster: int, combine: Any, stream_k: int, sms: int
) -> None:
    instruction, unit, each = combine
    axes = (n.Axis("i", expr(m), expr(64), expr(cluster)), n.Axis("j", expr(nn), expr(32)))
    in_a_row = symbol("rows") * 0 + symbol("in_a_row")
    grid = n.Grid(axes, expr(1), expr(cluster), StreamK(in_a_row, StaticPersistent()))
    s, clusters = fix_up(16, instruction, 4), max(sms // cluster, 1)
    tiles = -(-m // (64 * cluster)) * -(-nn // 32)
    tally, operations = Tally(), Operations(program(grid), HEURISTICS, expr(66))
    operations.add(s, tally, expr(3), False)
    sectors, warps, vectors = 66 * 16 * 4 // 32, 3, 4
    cut = sum(1 for _ in range(min(clusters, tiles)))
    pieces = clusters + cut
    known = {"device.sm_count": sms, "in_a_row": stream_k}
    found = {name: int(e.substitute(known)) for name, e in {**tally.work, **tally.chain}.items()}
    expected = {
        "sectors_written": pieces * sectors,
        "sectors_read": pieces * sectors,
        "warp_instructions": warps * (2 * pieces * vectors + clusters * 16),
        unit: 66 * 16 * clusters * each,
        "barriers": 2 * cut,
        "l2_trips": cut + pieces,
    }
    per_tile = {name: 3 * stream_k * -(-amount // tiles) for name, amount in expected.items()}
    assert {name: number for name, number in found.items() if number} == {k: v for k, v in per_tile.items() if v}


def test_what_nobody_holds_asks_for_nothing() -> None:
    bare = Tile("r", RMEM, dtype("f32"), (expr(8),), (expr(0),))
    load = n.Load("l", isa.LdGlobal(1), in_gmem("f32", (8, 8)), bare)
    assert asked(load, threads=32, looped=True) == {}
    assert asked(n.Store("s", isa.StGlobal(1), bare, in_gmem("f32", (8, 8))), threads=32) == {}
    assert asked(n.Constant(bare, 1.0), threads=32) == {}
    nobody = n.Copy("c", isa.CpAsync(4), in_gmem("f32", (8, 8)), in_smem("f32", (8, 8)), None, None)
    assert asked(nobody, threads=32) == {}
