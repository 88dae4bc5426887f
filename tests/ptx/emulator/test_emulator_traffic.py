"""What kernels move between L1, L2 and DRAM, against closed forms; and that recording changes nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import Caches, DeviceBuffer, Report, TensorMap, Traffic, emulate

KERNELS = Path(__file__).parent / "kernels"


def run(name: str, grid: Any, block: int, args: list[Any], caches: Caches, **more: Any) -> Traffic:
    text = (KERNELS / f"{name}.ptx").read_text(encoding="utf-8")
    report = emulate(text, grid=grid, block=block, args=args, caches=caches, **more)
    assert report.traffic is not None
    return report.traffic


def vector_add(n: int, caches: Caches) -> Traffic:
    x, y, z = (np.zeros(n, np.float32) for _ in range(3))
    return run("vector_add", (n + 255) // 256, 256, [x, y, z, n], caches)


@pytest.mark.parametrize("l1_bytes", [0, 1 << 15])
@pytest.mark.parametrize("l2_bytes", [1 << 12, 1 << 20])
def test_a_stream_moves_its_size_once(l1_bytes: int, l2_bytes: int) -> None:
    n = 20_000
    t = vector_add(n, Caches(l1_bytes, l2_bytes, 4))
    assert (t.dram_read_bytes, t.dram_write_bytes) == (8 * n, 4 * n)
    assert t.l1_hit_sectors == t.l2_load_hit_sectors == 0
    assert t.l2_bytes == 12 * n
    # A large L2 still holds everything that was written; a small one only its last sectors.
    assert t.left_in_l2_bytes == (4 * n if l2_bytes == 1 << 20 else t.left_in_l2_bytes)
    assert t.left_in_l2_bytes <= l2_bytes


AGAIN = """
.reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .pred %p;
ld.param.u64 %rd1, [a]; ld.param.u32 %r4, [n]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
mov.u32 %r2, 0;
ROUND: mov.u32 %r3, 0; mov.u64 %rd3, %rd1;
PART: ld.global.CACHEu32 %r5, [%rd3]; add.u64 %rd3, %rd3, 128; add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, %r4;
@%p bra PART;
add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 5;
@%p bra ROUND;
ret;
"""


def again(lines: int, caches: Caches, operator: str = "") -> Traffic:
    """One warp that reads `lines` lines of 128 bytes five times."""
    text = module(AGAIN.replace("CACHE", operator), [".param .u64 a", ".param .u32 n"])
    report = emulate(text, grid=1, block=32, args=[np.zeros(32 * lines, np.uint32), lines], caches=caches)
    assert report.traffic is not None
    return report.traffic


@pytest.mark.parametrize("lines", [1, 7, 8, 9, 12])
def test_repeated_reads_come_from_l1_as_long_as_they_fit(lines: int) -> None:
    t = again(lines, Caches(8 * 128, 1 << 20, 1))
    # Least recently used: one line too many, and every read of a round misses.
    hits = 4 * 4 * lines if lines <= 8 else 0
    assert (t.l1_sectors, t.l1_hit_sectors) == (20 * lines, hits)
    assert t.l2_load_sectors == 20 * lines - hits
    assert t.dram_read_bytes == 128 * lines
    around = again(lines, Caches(8 * 128, 1 << 20, 1), "cg.")
    assert (around.l1_sectors, around.l2_load_sectors, around.dram_read_bytes) == (0, 20 * lines, 128 * lines)


@pytest.mark.parametrize("lines", [1, 7, 8, 9, 12])
def test_repeated_reads_come_from_l2_as_long_as_they_fit(lines: int) -> None:
    t = again(lines, Caches(0, 8 * 128, 1))
    assert t.dram_read_bytes == 128 * lines * (1 if lines <= 8 else 5)
    assert t.l2_load_hit_sectors == (16 * lines if lines <= 8 else 0)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (64, 192, 32)])
def test_a_tiled_product_reads_each_operand_once_per_tile_of_the_other(m: int, n: int, k: int) -> None:
    a, b, c = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.zeros((m, n), np.float32)
    grid = (n // 64, m // 64)
    t = run("matmul_simt", grid, 256, [a, b, c, m, n, k], Caches(0, 1 << 20, 2))
    assert 32 * t.l2_load_sectors == a.nbytes * (n // 64) + b.nbytes * (m // 64)
    assert t.dram_read_bytes == a.nbytes + b.nbytes
    assert t.dram_write_bytes == c.nbytes
    # Without room in L2 every tile comes from DRAM again: CTAs of different waves share nothing that is left.
    alone = run("matmul_simt", grid, 256, [a, b, c, m, n, k], Caches(0, 32 * 128, 1))
    assert alone.dram_read_bytes == 32 * alone.l2_load_sectors == 32 * t.l2_load_sectors


def test_ctas_of_one_wave_meet_in_l2_and_those_of_one_sm_in_l1() -> None:
    m, n, k = 64, 256, 128
    a, b, c = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.zeros((m, n), np.float32)
    args = [a, b, c, m, n, k]
    # Four CTAs read the same rows of a at the same pace: an L2 of one step's tiles is enough.
    step = (64 * 16 + 16 * 256) * 4
    together = run("matmul_simt", 4, 256, args, Caches(0, 2 * step, 4))
    assert together.dram_read_bytes == a.nbytes + b.nbytes
    apart = run("matmul_simt", 4, 256, args, Caches(0, 2 * step, 1))
    assert apart.dram_read_bytes == 4 * a.nbytes + b.nbytes
    one_sm = run("matmul_simt", 4, 256, args, Caches(1 << 17, 0, 1, 4))
    assert 32 * one_sm.l2_load_sectors == a.nbytes + b.nbytes


def test_atomics_are_updates_in_l2() -> None:
    text = module(
        ".reg .b64 %rd<3>; ld.param.u64 %rd1, [a]; red.global.add.u32 [%rd1], 1; ret;", [".param .u64 a"]
    )
    x = np.zeros(8, np.uint32)
    report = emulate(text, grid=10, block=64, args=[x], caches=Caches(1 << 15, 1 << 10, 2))
    t = report.traffic
    assert t is not None
    assert x[0] == 640
    assert (t.l1_sectors, t.l2_atomic_sectors, t.dram_read_bytes, t.dram_write_bytes) == (0, 20, 32, 32)
    c = report.counters
    assert (c.global_atomic_requests, c.global_atomic_sectors, c.global_atomic_bytes) == (20, 20, 2560)
    assert c.shared_atomic_requests == 0


LOCAL = """
.local .align 4 .b8 mine[64];
.reg .b32 %r<4>; .reg .b64 %rd<3>;
mov.u32 %r1, %tid.x; mov.u64 %rd1, mine;
st.local.u32 [%rd1+4], %r1; ld.local.u32 %r2, [%rd1+4]; ld.local.u32 %r3, [%rd1+4];
ret;
"""


def test_local_memory_is_counted_by_direction_and_no_traffic() -> None:
    report = emulate(module(LOCAL, []), grid=1, block=64, args=[], caches=Caches(1 << 15, 1 << 10, 2))
    c = report.counters
    assert (c.local_store_requests, c.local_store_sectors, c.local_store_bytes) == (2, 8, 256)
    assert (c.local_load_requests, c.local_load_sectors, c.local_load_bytes) == (4, 16, 512)
    assert c.local_requests == 6
    assert report.traffic == Traffic(Caches(1 << 15, 1 << 10, 2))


def test_shared_atomics_are_counted_apart() -> None:
    body = """
.shared .align 4 .b8 s[128];
.reg .b32 %r<4>; .reg .pred %p;
mov.u32 %r1, %tid.x; mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2;
st.shared.u32 [%r3], 0; bar.sync 0;
red.shared.add.u32 [%r3], 1; red.shared.add.u32 [%r2], 1;
ret;
"""
    c = emulate(module(body, []), grid=1, block=32, args=[]).counters
    assert (c.atomic_requests, c.shared_atomic_requests, c.shared_atomic_wavefronts) == (2, 2, 2)
    assert (c.shared_atomic_bytes, c.global_atomic_requests) == (256, 0)
    assert c.shared_atomic_turns == 1 + 32  # words of their own in as many banks; and one word for all lanes


@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.end_to_end
def test_recording_changes_no_count(order: Any) -> None:
    m = n = k = 128
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (m, k)).astype(np.float16) for _ in range(2))

    def product(caches: Caches | None, ctas: Any = None) -> Report:
        c = DeviceBuffer(np.zeros((m, n), np.float32))
        text = (KERNELS / "matmul_mma.ptx").read_text(encoding="utf-8")
        return emulate(
            text, grid=1, block=128, args=[a, b, c, m, n, k], dynamic_smem=65536, order=order, caches=caches, ctas=ctas
        )

    plain, recorded = product(None), product(Caches(1 << 14, 1 << 20, 2))
    assert plain.traffic is None
    assert recorded.counters == plain.counters
    assert recorded.lines == plain.lines
    t = recorded.traffic
    assert t is not None
    assert t.dram_read_bytes == a.nbytes + b.nbytes
    assert t.l1_sectors == 0
    assert t.l2_load_sectors == plain.counters.global_load_sectors
    assert {n: line.l2_sectors for n, line in t.lines.items()} == {
        n: line.sectors for n, line in plain.lines.items() if line.sectors
    }


@pytest.mark.end_to_end
def test_tensor_copies_pass_l1_by_and_meet_in_l2() -> None:
    m, n, k = 128, 192, 256
    a, b, c = np.ones((m, k), np.float16), np.ones((n, k), np.float16), np.zeros((m, n), np.float32)
    maps = [TensorMap(x, (64, 64), swizzle="128B") for x in (a, b)]
    text = (KERNELS / "sm_90a" / "matmuls.ptx").read_text(encoding="utf-8")
    report = emulate(
        text, entry="wgmma_pipelined", grid=(n // 64, m // 64), block=128, args=[*maps, c, n, k], dynamic_smem=65536,
        caches=Caches(1 << 15, 1 << 20, 2),
    )  # fmt: skip
    t, counters = report.traffic, report.counters
    assert t is not None
    assert counters.bulk_load_bytes == a.nbytes * (n // 64) + b.nbytes * (m // 64)
    assert 32 * t.l2_load_sectors == counters.bulk_load_bytes
    assert (t.l1_sectors, t.dram_read_bytes, t.dram_write_bytes) == (0, a.nbytes + b.nbytes, c.nbytes)
    assert counters.wgmma_operations == counters.tensor_operations == 2 * m * n * k
    assert counters.multicast_bytes == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("warps", [8, 24])
@pytest.mark.end_to_end
def test_figures_do_not_depend_on_how_many_ctas_run_together(monkeypatch: pytest.MonkeyPatch, warps: int) -> None:
    m, n, k = 128, 256, 96
    args: list[Any] = [np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.zeros((m, n), np.float32), m, n, k]
    for caches in (Caches(1 << 13, 1 << 14, 2), Caches(0, 1 << 13, 3, 2)):
        whole = run("matmul_simt", (4, 2), 256, args, caches)
        with monkeypatch.context() as patched:
            patched.setattr(sys.modules["tinygpu.ptx.emulator.emulate"], "_BATCH_WARPS", warps)
            assert run("matmul_simt", (4, 2), 256, args, caches) == whole
