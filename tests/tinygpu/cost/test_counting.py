"""What a whole kernel asks for: closed forms against every lane of a CTA listed, and against plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.counting import count
from tinygpu.cost.demand import Chain, Demand, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, blocked
from tinygpu.machines.attention_decoding import KeysOfPart
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.machines.elementwise import BiasRelu
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.program.placement import place
from tinygpu.ptx import isa
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing import Case, Workbench, examine

SIZES = {"m": 500, "n": 384, "k": 256}
LARGE = {"m": 5000, "n": 3840, "k": 256}  # more tiles than run at a time


@pytest.mark.parametrize(
    ("machine", "chip", "sizes"),
    [
        (MatmulAmpere, "rtx4090", {"m": 256, "n": 256, "k": 32}),
        (MatmulHopper, "h100", SIZES),
        (BiasRelu, "a100", {"m": 100, "n": 96}),
    ],
)
def test_closed_forms_of_a_cta_equal_listing_its_lanes(machine: Any, chip: str, sizes: dict[str, int]) -> None:
    bench, problem = Workbench(), machine.problem(**sizes)
    space = Case(machine, problem, device(chip)).space(bench)
    points = space.space.sample(16, np.random.default_rng(3))
    points = [p for p in points if not space.program(p).grid.scheduler.settled().shares][:4]
    found = [examine("counts", Case(machine, problem, device(chip), point), bench) for point in points]
    assert [f.fault for f in found] == [""] * len(found)
    assert any(f.looked for f in found)


def demand_of(space: MachineSpace, point: Any, **more: Any) -> Demand:
    index = space.structure_index(point)
    axes = {a: int(point[a]) for a in space.traces[index].axes}
    return space.counts(index).demand({**space.environment, **axes}, more.pop("chip", space.device), **more)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "chip"), [(MatmulAmpere, "a100"), (MatmulHopper, "h100")])
def test_the_sizes_of_a_matmul(machine: Any, chip: str) -> None:
    """Tiles, rounds, bytes and threads, in plain numbers; buffers by where they are placed.

    CTAs run together as threads, registers and shared memory allow; one does where a device has too little.
    """
    m, n, k = LARGE.values()
    space = build_space(machine, machine.problem(**LARGE), device(chip))
    chips, residents = [device(chip)], set[int]()
    for figure, share in (("registers_per_sm", 2), ("registers_per_sm", 8), ("max_smem_per_sm", 2)):
        number = int(device(chip).number(figure)) // share
        chips.append(device(chip).with_figures({figure: replace(device(chip).figure(figure), value=number)}))
    for point in space.space.sample(16, np.random.default_rng(3)):
        filled, d = space.program(point), demand_of(space, point)
        bm, bn, bk, stages = (int(point[name]) for name in ("bm", "bn", "bk", "stages"))
        read, written = 2 * (m * k + k * n), 2 * m * n
        tiles = -(-m // bm), -(-n // bn)
        parts = int(filled.grid.scheduler.slices)
        # whole clusters, some of whose CTAs may lie beyond the last tile
        clusters = [int(point.get(name, 1)) for name in ("cluster_m", "cluster_n")]
        whole = [-(-tile // cluster) * cluster for tile, cluster in zip(tiles, clusters, strict=True)]
        assert d.ctas == math.prod(whole) * parts
        assert d.threads_per_cta == int(filled.threads)
        assert (d.persistent, d.held) == (int(filled.grid.scheduler.persistent), int(len(filled.roles) > 1))
        assert d.turns == max(role.share[1] for role in filled.roles)
        assert d.even == int(filled.grid.scheduler.even)
        assert (d.dram_bytes_written, d.compulsory_dram_bytes) == (written, read + written)
        assert (d.useful_tensor_flops, d.operand, d.accumulator) == (2 * m * n * k, "f16", "f32")
        assert d.tensor_path == ("wgmma" if machine is MatmulHopper else "mma.sync")
        assert d.prefetch_iterations == stages - 1
        if parts == 1 and not d.even:
            assert d.iterations == -(-k // bk)
        if machine is MatmulAmpere:
            assert d.bytes_in_flight_per_cta == max(stages - 1, 1) * (bm + bn) * bk * 2
        if d.turns == 1:
            assert d.smem_bytes_per_cta == place(filled, {}).asked_bytes
        # of the last tile, which ends at the tensor's, every tile has its share
        rows, columns = min(bm * tiles[0], m), min(bn * tiles[1], n)
        panels = {
            "row_panel_bytes": -(-rows * k * 2 // tiles[0]), "column_panel_bytes": -(-columns * k * 2 // tiles[1]),
        }  # fmt: skip
        counts = space.counts(space.structure_index(point))
        told = {**panels, "tile_bytes": bm * bn * 2, "group": int(filled.grid.raster)}
        told |= {f"tiles{axis}": tile for axis, tile in enumerate(tiles)}
        for name, number in told.items():
            assert (
                counts.value(name.removesuffix("_bytes") if name in panels else name, values_of(space, point)) == number
            )
        for gpu in chips:
            smem, threads = d.smem_bytes_per_cta + gpu.reserved_smem_bytes_per_block, d.threads_per_cta
            registers = counts.value("registers", values_of(space, point)) * threads
            resident = min(
                gpu.max_threads_per_sm // threads, gpu.max_smem_bytes_per_sm // smem, gpu.registers_per_sm // registers
            )
            residents.add(int(resident))
            at_a_time = gpu.sm_count * max(resident, 1)
            for kept, said in (
                (gpu.l2_near_bytes, demand_of(space, point, chip=gpu).dram_bytes_read),
                (0, counts.counted(values_of(space, point)).refetched_bytes(gpu)),
            ):
                group = int(filled.grid.raster)
                tile_bytes = bm * bn * 2
                assert said == dram_read_bytes(kept, *panels.values(), tile_bytes, *tiles, group, at_a_time)
    assert {0, 1, 2} <= residents


@pytest.mark.end_to_end
def test_tensor_work_is_of_the_operands_type() -> None:
    sizes = {"m": 512, "n": 512, "k": 512}
    space = build_space(MatmulAmpere, MatmulAmpere.problem(**sizes, dtypes={"a": "s8"}), device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(5))
    found = demand_of(space, point)
    assert (found.operand, found.accumulator) == ("s8", "s32")


def values_of(space: MachineSpace, point: Any) -> dict[str, int]:
    index = space.structure_index(point)
    return {**space.environment, **{a: int(point[a]) for a in space.traces[index].axes}}


class Rows(Machine):
    """y = max(x + bias, 0), by rows: at once, round by round, or through a ring"""

    m, n = Dim(), Dim()
    x, bias = Input("f32", m, n), Input("f32", n)
    y = Output("f32", m, n)
    warps, stages = Param(1, 2, 4), Param(1, 2, 3)
    how = Choice("at once", "rounds", "ring", "ring of stores", "two rings", "apart", "written out")
    ld, st, cp, get, put = isa.LdGlobal(1), isa.StGlobal(1), isa.CpAsync(1), isa.LdShared(1), isa.StShared(1)
    add, relu = isa.Add("f32"), isa.Max("f32")

    def program(self, p: Any) -> None:
        columns, wide = self.warps * 32, self.warps * 32
        shape, who = (4, columns), blocked((4, columns), threads=wide, across=wide)
        tile = p.smem("f32", shape)

        def keep(i: Any, j: Any, x: Any) -> None:
            total = p.apply(self.relu, p.apply(self.add, x, x), 0.0)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

        with p.grid((self.m, 4)) as (i,):
            if self.how == "ring":
                with p.pipeline("ring", self.stages, t=tile) as ring, p.role("all", warps=self.warps):
                    first = p.load(self.ld, self.x.tile(i, 0, shape=shape), who)
                    with p.loop(self.n, step=columns) as j, ring.produce() as slot:
                        p.copy(self.cp, self.x.tile(i, j, shape=shape), slot.t, who)
                    with p.loop(self.n, step=columns) as j, ring.consume() as slot:
                        keep(i, j, p.load(self.get, slot.t, who))
                    p.store(self.st, self.y.tile(i, 0, shape=shape), first)
            elif self.how == "ring of stores":
                with p.pipeline("ring", self.stages, t=tile) as ring, p.role("all", warps=self.warps):
                    with p.loop(self.n, step=columns) as j, ring.produce() as slot:
                        p.store(self.put, slot.t, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
                    with p.loop(self.n, step=columns) as j, ring.consume() as slot:
                        keep(i, j, p.load(self.get, slot.t, who))
            elif self.how == "two rings":
                with (
                    p.pipeline("ring", self.stages, t=tile) as ring,
                    p.pipeline("late", self.stages, u=p.smem("f32", shape)) as late,
                    p.role("all", warps=self.warps),
                ):
                    with p.loop(self.n, step=columns) as j, ring.produce() as slot:
                        p.copy(self.cp, self.x.tile(i, j, shape=shape), slot.t, who)
                    with p.loop(self.n, step=columns) as j, ring.consume() as slot:
                        keep(i, j, p.load(self.get, slot.t, who))
                    with p.loop(self.n, step=columns) as j, late.produce() as slot:
                        p.copy(self.cp, self.x.tile(i, j, shape=shape), slot.u, who)
                    with p.loop(self.n, step=columns) as j, late.consume() as slot:
                        keep(i, j, p.load(self.get, slot.u, who))
            else:
                with p.role("all", warps=self.warps):
                    if self.how == "rounds":
                        with p.loop(self.n, step=columns) as j:
                            keep(i, j, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
                    elif self.how == "written out":
                        with p.unroll(3) as r:
                            keep(i, r * columns, p.load(self.ld, self.x.tile(i, r * columns, shape=shape), who))
                    elif self.how == "apart":
                        with p.loop(self.n, step=columns) as j, p.loop(5):
                            keep(i, j, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
                    else:
                        keep(i, 0, p.load(self.ld, self.x.tile(i, 0, shape=shape), who))

    @staticmethod
    def reference(x: Any, bias: Any) -> Any:
        return x


def amounts(part: Work | Chain) -> dict[str, int]:
    return {name: int(getattr(part, name) or 0) for name in part.__dataclass_fields__ if getattr(part, name)}


def plus(*parts: dict[str, int], times: int = 1) -> dict[str, int]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: times * sum(part.get(name, 0) for part in parts) for name in names}


@pytest.mark.parametrize("how", ["at once", "rounds", "ring", "ring of stores", "two rings", "apart", "written out"])
@pytest.mark.parametrize("warps", [1, 4])
def test_what_belongs_to_prologue_rounds_and_epilogue(how: str, warps: int) -> None:
    """Four rows of 128 B for every warp: 4 warp instructions, of 4 sectors and 2 accesses each; 16 instructions more a
    round, 60 to begin with.
    """
    space = build_space(Rows, Rows.problem(m=64, n=640), device("a100"))
    rows = 4 * warps
    load = {"warp_instructions": 2 * rows, "sectors_read": 4 * rows, "accesses_read": 2 * rows, "l1_wavefronts": rows}
    store = {"warp_instructions": 2 * rows, "sectors_written": 4 * rows, "accesses_written": 2 * rows}
    both = {"warp_instructions": 2 * rows, "fma_flops": 2 * 32 * rows, "alu_ops": 32 * rows}
    fetch = {**load, "smem_store_wavefronts": rows}
    get = {"warp_instructions": 2 * rows, "smem_load_wavefronts": rows}
    put = {"warp_instructions": 2 * rows, "smem_store_wavefronts": rows}
    begin, more = {"warp_instructions": 60 * warps}, {"warp_instructions": 16 * warps}
    number, tile = {"fmas": 30}, 512 * rows // 4
    for stages in (1, 3):
        # the first tile of a ring that runs ahead; rounds that wait for their own have no other latency before them
        late = plus(number, {"global_loads": 1}) if stages > 1 else number
        d = demand_of(space, {"how": how, "warps": warps, "stages": stages})
        phases = [(amounts(p.work), amounts(p.chain)) for p in (d.prologue, d.iteration, d.epilogue)]
        rounds = 640 // (32 * warps)
        none: dict[str, int] = {}
        if how == "at once":
            expected = [(none, {"fmas": 30}), (plus(load, both, store, begin), none), (none, none)]
            assert (d.iterations, d.prefetch_iterations, d.bytes_in_flight_per_cta) == (1, 0, tile)
        elif how == "written out":
            three = plus(plus(load, both, store, times=3), begin)
            expected = [(none, {"fmas": 30}), (three, none), (none, none)]
            assert d.iterations == 1
        elif how == "rounds":
            expected = [(begin, number), (plus(load, both, store, more), none), (none, none)]
            assert (d.iterations, d.prefetch_iterations, d.bytes_in_flight_per_cta) == (rounds, 0, tile)
        elif how == "apart":
            # of the rounds inside, which read the same, L1 serves all but one
            found = {**load, "sectors_read": -(-4 * rows // 5), "accesses_read": -(-2 * rows // 5)}
            five = plus(plus(found, both, store, times=5), more)
            expected = [(begin, number), (five, none), (none, none)]
            assert d.iterations == rounds
        else:
            waits = {"barriers": 2 if stages == 1 else 1}
            start = plus(late, {"global_loads": 1})
            expected = [(plus(begin, load), start), (plus(fetch, get, both, store, more), waits), (store, none)]
            if how == "ring of stores":
                expected = [(begin, late), (plus(load, put, get, both, store, more), waits), (none, none)]
            if how == "two rings":
                again = plus(fetch, get, both, store, times=rounds), {"barriers": rounds}
                expected = [(begin, late), (plus(fetch, get, both, store, more), waits), again]
            assert (d.iterations, d.prefetch_iterations) == (rounds, stages - 1)
            assert d.bytes_in_flight_per_cta == max(stages - 1, 1) * tile
        assert phases == expected, stages


@pytest.mark.parametrize(("how", "more"), [("at once", 0), ("rounds", 0), ("ring", 1)])
@pytest.mark.parametrize("rounds", [1, 4])
def test_one_latency_before_the_first_value_and_one_for_each_round_that_waits(how: str, more: int, rounds: int) -> None:
    """One CTA, for which a slower DRAM adds its latency as often as data are waited for, and no further time. What is
    loaded before the ring is waited for by itself.
    """
    gpu = device("a100")
    figure = gpu.figure("lat_dram")
    slower = gpu.with_figures({"lat_dram": replace(figure, value=float(figure.value or 0) + 1000)})
    space = build_space(Rows, Rows.problem(m=4, n=32 * rounds), gpu)
    d = demand_of(space, {"how": how, "warps": 1, "stages": 1})
    waits = d.iterations + more
    added_s = float(predict(slower, d).seconds) - float(predict(gpu, d).seconds)
    assert added_s == pytest.approx(waits * 1000 / gpu.boost_clock_hz)
    assert waits == (1 if how == "at once" else rounds + more)


def test_where_reuse_is_left_out_every_input_is_read_once() -> None:
    problem = MatmulAmpere.problem(**SIZES)
    space = build_space(MatmulAmpere, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(1))
    kept = tuple(name for name in MatmulAmpere.heuristics if name != "locality")
    index = space.structure_index(point)
    demand = count(space.traces[index].program, kept).demand(values_of(space, point), device("a100"))
    m, n, k = SIZES.values()
    assert demand.dram_bytes_read == 2 * (m * k + k * n)
    assert demand.dram_bytes_written == 2 * m * n


def test_conflicts_are_added_to_a_round_where_they_are_asked_for() -> None:
    space = build_space(Rows, Rows.problem(m=64, n=640), device("a100"))
    point = {"how": "ring", "warps": 1, "stages": 2}
    plain, more = demand_of(space, point), demand_of(space, point, extra_wavefronts=7)
    assert more.iteration.work.smem_load_wavefronts == plain.iteration.work.smem_load_wavefronts + 7
    counts = space.counts(space.structure_index(point))
    assert counts.value("iterations", values_of(space, point)) == 20
    assert counts.value("threads", values_of(space, point)) == 32


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("machine", "chip", "sizes"),
    [
        (MatmulHopper, "h100", SIZES),
        (MatmulSkinny, "h100", {"m": 13, "n": 384, "k": 1000}),
        (MatmulAmpere, "a100", SIZES),
        (BiasRelu, "a100", {"m": 500, "n": 384}),
    ],
)
@pytest.mark.end_to_end
def test_counts_of_a_structure_are_those_of_each_program_in_it(machine: Any, chip: str, sizes: dict[str, int]) -> None:
    """Counting with parameters left open and then filling them in, or the other way round, comes to the same."""
    space = build_space(machine, machine.problem(**sizes), device(chip))
    for point in space.space.sample(20, np.random.default_rng(0)):
        index = space.structure_index(point)
        open_, filled = space.counts(index), count(space.program(point), machine.heuristics)
        values = {**space.environment, **{a: int(point[a]) for a in space.traces[index].axes}}
        known = dict(zip(filled.names, filled.compute(values), strict=True))
        for name, found in zip(open_.names, open_.compute(values), strict=True):
            assert found == known[name], (name, point)


class Filled(Machine):
    """y = 1: nothing is read"""

    m, n = Dim(), Dim()
    y = Output("f32", m, n)
    warps = Param(1)
    st = isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who = blocked((4, 32), threads=32, across=32)
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=self.warps):
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), p.full(who, "f32", 1.0))

    @staticmethod
    def reference() -> Any:
        return 1


def test_what_reads_nothing_has_a_byte_under_way_and_reads_none() -> None:
    space = build_space(Filled, Filled.problem(m=64, n=64), device("a100"))
    demand = demand_of(space, space.space.at(0))
    assert (demand.bytes_in_flight_per_cta, demand.dram_bytes_read, demand.dram_bytes_written) == (1, 0, 64 * 64 * 4)
    assert (demand.ctas, demand.total.sectors_read, demand.total.sectors_written) == (32, 0, 16)
    assert (demand.operand, demand.accumulator, demand.useful_tensor_flops) == ("f16", "f32", None)
    assert space.counts(0).useful(values_of(space, space.space.at(0))) == 0


@pytest.mark.parametrize("overlapped", [0, 1])
@pytest.mark.parametrize("groups", [2, "2 in turns"])
@pytest.mark.parametrize("weights", ["registers", "shared memory"])
def test_useful_operations_of_two_products_are_those_of_their_elements(
    overlapped: int, groups: int | str, weights: str
) -> None:
    """Whatever tiles they come in: of keys that end in a tile, of rounds before, in and behind a loop."""
    sizes = {"b": 2, "h": 3, "g": 2, "s": 100, "t": 331, "d": 64}
    space = build_space(AttentionHopper, AttentionHopper.problem(**sizes), device("h100"))
    point = {"groups": groups, "overlapped": overlapped, "bn": 32, "stages": 2, "columns": 64, "swizzle": 128}
    point["weights_in"] = weights
    wanted = 4 * 2 * 3 * 2 * 100 * 331 * 64
    index = space.structure_index(point)
    assert space.counts(index).useful(values_of(space, point)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.end_to_end
@pytest.mark.parametrize("chunk", [256, 8192])
def test_useful_operations_of_rounds_that_data_decide_are_what_is_expected(chunk: int) -> None:
    """Lengths are drawn evenly from none to t keys: half of them, in the mean, however they are split."""
    sizes = {"b": 8, "h": 4, "r": 8, "t": 8192, "d": 128, "c": 8192 // chunk}
    space = build_space(KeysOfPart, KeysOfPart.problem(**sizes), device("a100"))
    point = {"vector": 8, "across": 16, "chunk": chunk, "warps": 1, "bn": 32, "stages": 2}
    found = space.counts(0).useful(values_of(space, point))
    assert found == pytest.approx(4 * 8 * 4 * 8 * 4096 * 128, rel=0.07)
