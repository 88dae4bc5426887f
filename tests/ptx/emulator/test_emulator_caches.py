"""L1, L2 and DRAM: reuse against a cache that runs step by step, and the whole model against one written with lists."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.source.parser import parse
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.caches import Accesses, AccessKind, Caches, Traffic, access_kind, traffic
from tinygpu.ptx.emulator.state.reuse import lru_misses, previous_access, resident_at_end

streams = st.lists(st.integers(0, 12), max_size=60).map(lambda keys: np.array(keys, np.int64))


class Lru:
    """A cache that runs step by step."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def touch(self, key: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """(what is kept of this key, what was kept of the key that had to leave)."""
        state = self.held.setdefault(key, {})
        self.held.move_to_end(key)
        gone = self.held.popitem(last=False)[1] if len(self.held) > self.capacity else None
        return state, gone


@settings(max_examples=200)
@given(streams, st.integers(0, 12))
def test_misses_are_those_of_a_cache_that_runs_step_by_step(keys: Any, capacity: int) -> None:
    cache = Lru(capacity)
    missed = []
    for key in keys.tolist():
        missed.append(key not in cache.held)
        cache.touch(key)
    assert lru_misses(keys, capacity).tolist() == missed
    assert sorted(keys[resident_at_end(keys, capacity)].tolist()) == sorted(cache.held)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 700))
def test_misses_of_long_streams(seed: int, capacity: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 1 + rng.integers(1, 800), rng.integers(1, 3000))
    cache = Lru(capacity)
    missed = []
    for key in keys.tolist():
        missed.append(key not in cache.held)
        cache.touch(key)
    assert lru_misses(keys, capacity).tolist() == missed


@given(streams)
def test_the_access_before(keys: Any) -> None:
    listed = keys.tolist()
    want = [max((j for j in range(i) if listed[j] == listed[i]), default=-1) for i in range(len(listed))]
    assert previous_access(keys).tolist() == want


def step_by_step(accesses: Accesses, caches: Caches) -> Traffic:
    """The model of caches.py, one access at a time."""
    rows = sorted(
        zip(
            (accesses.ctas // (caches.sms * caches.ctas_per_sm)).tolist(), accesses.steps.tolist(),
            accesses.ctas.tolist(), range(accesses.ctas.size), strict=True,
        )
    )  # fmt: skip
    l1s = [Lru(caches.l1_bytes // 128) for _ in range(caches.sms)]
    l2 = Lru(caches.l2_bytes // 32)
    n = dict.fromkeys(("l1", "l1_hit", "load", "load_hit", "store", "atomic", "read", "written"), 0)
    for _, _, cta, at in rows:
        sector, kind = int(accesses.sectors[at]), AccessKind(int(accesses.kinds[at]))
        if kind == AccessKind.CACHED_LOAD and caches.l1_bytes:
            n["l1"] += 1
            line, _ = l1s[cta % (caches.sms * caches.ctas_per_sm) % caches.sms].touch(sector // 4)
            known = line.setdefault("sectors", set())
            if sector in known:
                n["l1_hit"] += 1
                continue
            known.add(sector)
        there = sector in l2.held
        state, gone = l2.touch(sector)
        writes = kind in (AccessKind.STORE, AccessKind.ATOMIC)
        name = {AccessKind.STORE: "store", AccessKind.ATOMIC: "atomic"}.get(kind, "load")
        n[name] += 1
        n["load_hit"] += name == "load" and there
        n["read"] += not there and kind != AccessKind.STORE
        state["dirty"] = state.get("dirty", False) or writes
        n["written"] += gone is not None and gone.get("dirty", False)
    left = sum(state["dirty"] for state in l2.held.values())
    return Traffic(
        caches, n["l1"], n["l1_hit"], n["load"], n["load_hit"], n["store"], n["atomic"], 32 * n["read"],
        32 * (n["written"] + left), 32 * left,
    )  # fmt: skip


@st.composite
def accesses(draw: st.DrawFn) -> Accesses:
    size = draw(st.integers(0, 80))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    return Accesses(
        rng.integers(0, draw(st.integers(1, 40)), size), rng.integers(0, draw(st.integers(1, 9)), size, np.int32),
        rng.integers(0, 12, size, np.int32), rng.integers(1, 4, size, np.int32),
        rng.choice(list(AccessKind), size).astype(np.int8),
    )  # fmt: skip


some_caches = st.builds(
    Caches, st.integers(0, 4).map(lambda n: 128 * n), st.integers(1, 30).map(lambda n: 32 * n), st.integers(1, 4),
    st.integers(1, 3),
)  # fmt: skip


@settings(max_examples=200)
@given(accesses(), some_caches)
def test_traffic_is_that_of_the_caches_run_step_by_step(stream: Accesses, caches: Caches) -> None:
    found = traffic(stream, caches)
    want = step_by_step(stream, caches)
    names = [name for name in Traffic.__slots__ if name not in ("caches", "lines")]
    assert {n: getattr(found, n) for n in names} == {n: getattr(want, n) for n in names}


@settings(max_examples=100)
@given(accesses(), some_caches)
def test_lines_add_up_to_the_totals(stream: Accesses, caches: Caches) -> None:
    found = traffic(stream, caches)
    lines = found.lines.values()
    assert sum(n.l1_sectors for n in lines) == found.l1_sectors
    assert sum(n.l1_hit_sectors for n in lines) == found.l1_hit_sectors
    assert 32 * sum(n.l2_sectors for n in lines) == found.l2_bytes
    assert sum(n.dram_read_bytes for n in lines) == found.dram_read_bytes
    assert set(found.lines) == set(stream.lines.tolist())


@settings(max_examples=100)
@given(accesses(), some_caches)
def test_a_larger_cache_never_reads_more(stream: Accesses, caches: Caches) -> None:
    larger = Caches(caches.l1_bytes, 2 * caches.l2_bytes, caches.sms, caches.ctas_per_sm)
    assert traffic(stream, larger).dram_read_bytes <= traffic(stream, caches).dram_read_bytes


def instruction(text: str) -> Instruction:
    module = parse(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .shared .align 16 .b8 s[64];\n" + text + "\nret;\n}\n"
    )
    found = module.functions[0].body[0]
    assert isinstance(found, Instruction)
    return found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ld.global.f32 %f1, [%rd1];", AccessKind.CACHED_LOAD),
        ("ld.global.nc.f32 %f1, [%rd1];", AccessKind.CACHED_LOAD),
        ("ld.global.cg.f32 %f1, [%rd1];", AccessKind.LOAD),
        ("ld.volatile.global.f32 %f1, [%rd1];", AccessKind.LOAD),
        ("ld.acquire.gpu.global.u32 %r1, [%rd1];", AccessKind.LOAD),
        ("st.global.f32 [%rd1], %f1;", AccessKind.STORE),
        ("atom.global.add.u32 %r1, [%rd1], %r2;", AccessKind.ATOMIC),
        ("red.global.add.u32 [%rd1], %r2;", AccessKind.ATOMIC),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", AccessKind.CACHED_LOAD),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", AccessKind.LOAD),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];",
            AccessKind.LOAD,
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;", AccessKind.STORE),
        ("cp.async.bulk.prefetch.L2.global [%rd1], %r2;", AccessKind.LOAD),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], %r2;", AccessKind.ATOMIC),
    ],
)
def test_what_an_instruction_asks_of_the_caches(text: str, kind: AccessKind) -> None:
    assert access_kind(instruction(text)) == kind


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((100, 320, 1), "l1_bytes must be a multiple of 128 bytes and not negative, not 100"),
        ((-128, 320, 1), "l1_bytes must be a multiple of 128 bytes and not negative, not -128"),
        ((128, 33, 1), "l2_bytes must be a multiple of 32 bytes and not negative, not 33"),
        ((128, 320, 0), "sms must be at least 1, not 0"),
        ((128, 320, 1, 0), "ctas_per_sm must be at least 1, not 0"),
    ],
)
def test_sizes_that_no_cache_has_are_refused(arguments: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(LaunchError, match=f"^{re.escape(sentence)}$"):
        Caches(*arguments)
