"""Hopper and Blackwell: a ping-pong and a two-CTA matmul are declared, traced, printed, saved and loaded."""

# ruff: noqa: E501 (listings are as wide as they are)

import json
import re
from itertools import product

import numpy as np
import pytest
from asynchronous_machines import MatmulPingpong, MatmulTwoCta

from tinygpu.devices import device
from tinygpu.expressions import evaluate
from tinygpu.language import Machine
from tinygpu.language.trace import Trace, trace
from tinygpu.program import nodes as n
from tinygpu.program.placement import place
from tinygpu.program.saved import load_program, save_program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lower
from tinygpu.spaces.build import MachineSpace, build_space

DIMS = {"m": 4096, "n": 4096, "k": 4096}
MACHINES = (MatmulPingpong, MatmulTwoCta)
HOME: dict[type[Machine], str] = {MatmulPingpong: "h100_sxm", MatmulTwoCta: "b200"}


def traced(machine: type[Machine]) -> Trace:
    return trace(machine, machine.problem(**DIMS), ())


def space_on(machine: type[Machine], name: str) -> MachineSpace:
    return build_space(machine, machine.problem(**DIMS), device(name))


PINGPONG = """\
program MatmulPingpong()
  in    a: f16[m, k] row-major
  in    b: f16[k, n] row-major
  out   c: f16[m, n] row-major
  role producer: warps 0 to 3, 40 registers
  role ping: warps 4 to 7, 232 registers, tiles 0 of every 2
  role pong: warps 8 to 11, 232 registers, tiles 1 of every 2
  pipeline ring: 4 stages, mbarrier
    SMEM ring.a: f16[64, 64], axis 1 contiguous, pad 0 as layout_a
    SMEM ring.b: f16[64, 128], axis 1 contiguous, pad 0 as layout_b
  pipeline math: turn
  pipeline tail: turn
  pipeline out_ping: 1 stages, barrier
    SMEM out_ping.c: f16[64, 128], axis 1 contiguous, pad 0 as layout_c
  pipeline out_pong: 1 stages, barrier
    SMEM out_pong.c: f16[64, 128], axis 1 contiguous, pad 0 as layout_c
  grid tile0 in m/64, tile1 in n/128; raster 1; clusters of 2 x 1 persistent
    with ring:
      with math:
        with tail:
          role producer:
            for i1 < (k + 63) // 64:
              produce ring:
                token2(ring.a: mbarrier): ring.a[0:+64, 0:+64] = tma a[64*tile0:+64, 64*i1:+64]
                token3(ring.b: mbarrier): ring.b[0:+64, 0:+128] = tma b[64*i1:+64, 128*tile1:+128] to the cluster along 0
          with out_ping:
            role ping:
              %v4 = 0
              turn math:
                for i5 < (k + 63) // 64:
                  consume ring:
                    unrolled u6 < 4:
                      token7(v4: wgmma group): %v4 += wgmma ring.a[0:+64, 16*u6:+16], ring.b[16*u6:+16, 0:+128]
              turn tail:
                produce out_ping:
                  %v8 = narrow %v4
                  out_ping.c[0:+64, 0:+128] = st %v8
                consume out_ping:
                  token9(c: bulk group): c[64*tile0:+64, 128*tile1:+128] = put out_ping.c[0:+64, 0:+128]
          with out_pong:
            role pong:
              %v10 = 0
              turn math:
                for i11 < (k + 63) // 64:
                  consume ring:
                    unrolled u12 < 4:
                      token13(v10: wgmma group): %v10 += wgmma ring.a[0:+64, 16*u12:+16], ring.b[16*u12:+16, 0:+128]
              turn tail:
                produce out_pong:
                  %v14 = narrow %v10
                  out_pong.c[0:+64, 0:+128] = st %v14
                consume out_pong:
                  token15(c: bulk group): c[64*tile0:+64, 128*tile1:+128] = put out_pong.c[0:+64, 0:+128]"""

TWO_CTA = """\
program MatmulTwoCta()
  in    a: f16[m, k] row-major
  in    b: f16[k, n] row-major
  out   c: f32[m, n] row-major
  role producer: warp 0
  role mma: warp 1
  role epilogue: warps 4 to 7
  pipeline ring: 4 stages, mbarrier
    SMEM ring.a: f16[128, 64], axis 1 contiguous, pad 0 as layout_a
    SMEM ring.b: f16[64, 64], axis 1 contiguous, pad 0 as layout_b
  pipeline acc: 2 stages, tcgen05 commit
    TMEM acc.c: f32[128, 128], axis 1 contiguous, pad 0
  grid tile0 in n/128, tile1 in m/128; raster 1; clusters of 1 x 2 persistent
    with ring:
      with acc:
        role producer:
          for i1 < (k + 63) // 64:
            produce ring:
              token2(ring.a: mbarrier): ring.a[0:+128, 0:+64] = tma a[128*tile1:+128, 64*i1:+64]
              token3(ring.b: mbarrier): ring.b[0:+64, 0:+64] = tma b[64*i1:+64, 128*tile0 + 64*(tile1 % 2):+64]
        role mma:
          produce acc:
            acc.c[0:+128, 0:+128] = 0
            for i4 < (k + 63) // 64:
              consume ring:
                unrolled u5 < 4:
                  token6(acc.c: tcgen05 commit): acc.c[0:+128, 0:+128] += mma ring.a[0:+128, 16*u5:+16], ring.b[16*u5:+16, 0:+64]
        role epilogue:
          consume acc:
            %v7 = ld acc.c[0:+128, 0:+128]
            c[128*tile1:+128, 128*tile0:+128] = st %v7"""


@pytest.mark.parametrize(
    ("machine", "point", "listing"),
    [
        (MatmulPingpong, {"bm": 64, "bn": 128, "bk": 64, "stages": 4, "cluster": 2}, PINGPONG),
        (MatmulTwoCta, {"bn": 128, "bk": 64, "stages": 4, "accumulators": 2, "vector": 4}, TWO_CTA),
    ],
)
def test_a_candidate_prints_as_what_it_does(machine: type[Machine], point: dict[str, int], listing: str) -> None:
    space = space_on(machine, HOME[machine])
    assert point in space.space
    assert str(space.program(point)) == listing


@pytest.mark.parametrize("machine", MACHINES)
def test_the_program_comes_back_from_text(machine: type[Machine]) -> None:
    program = traced(machine).program
    loaded = load_program(json.loads(json.dumps(save_program(program))))
    assert str(loaded) == str(program)
    assert save_program(loaded) == save_program(program)
    assert [s.token for s in walk(loaded.body) if isinstance(s, (n.Copy, n.Multiply))] == [
        s.token for s in walk(program.body) if isinstance(s, (n.Copy, n.Multiply))
    ]


@pytest.mark.parametrize("machine", MACHINES)
def test_devices_without_its_instructions_admit_no_candidate(machine: type[Machine]) -> None:
    for name in ("a100", "rtx4090", "h100_sxm", "b200", "rtx5090"):
        admitted = space_on(machine, name).space.size
        assert (admitted > 0) == (name == HOME[machine]), name


def test_the_reason_names_instruction_and_target() -> None:
    space = space_on(MatmulPingpong, "b200").space
    point = {"bm": 64, "bn": 128, "bk": 64, "stages": 4, "cluster": 2}
    assert any("wgmma exists on sm_90 only" in str(v) for v in space.explain(point))


# --- derived constraints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_admitted_fits_into_shared_memory_with_its_barriers(machine: type[Machine]) -> None:
    """The capacity constraint and the placement count the same bytes; at the edge one stage more is refused."""
    space = space_on(machine, HOME[machine])
    limit = space.environment["device.max_smem_per_block_optin"]
    points = list(space.space.sample(25, np.random.default_rng(0)))
    sizes = [place(space.program(p), {}).total_bytes for p in points]
    assert max(sizes) <= limit
    rejected = [
        p
        for values in product(*[q.values for q in machine.params()])
        for p in [dict(zip([q.name for q in machine.params()], values, strict=True))]
        if p not in space.space
    ]
    over = [p for p in rejected if any(v.constraint.name == "smem capacity" for v in space.space.explain(p))]
    assert over
    for p in over[:10]:
        assert place(space.program(p), {}).total_bytes > limit


def test_barriers_lie_side_by_side_16_bytes_a_stage_and_the_address_of_tensor_memory_behind_them() -> None:
    space = space_on(MatmulTwoCta, "b200")
    placed = place(space.program({"bn": 128, "bk": 64, "stages": 4, "accumulators": 2, "vector": 4}), {})
    assert placed.total_bytes == 4 * (128 * 64 + 64 * 64) * 2 + 16 * (4 + 2) + 8


def test_the_outputs_of_two_roles_do_not_share_memory() -> None:
    space = space_on(MatmulPingpong, "h100_sxm")
    places = place(space.program({"bm": 64, "bn": 64, "bk": 32, "stages": 2, "cluster": 1}), {}).places
    ping, pong = places["out_ping.c"], places["out_pong.c"]
    assert pong.offset_bytes >= ping.offset_bytes + ping.stage_bytes


def constraint(machine: type[Machine], name: str) -> tuple[str, str]:
    (found,) = [c for c in traced(machine).constraints if c.name == name]
    return str(found.condition), found.kind


def test_threads_registers_and_tmem_are_derived() -> None:
    assert constraint(MatmulPingpong, "threads per CTA") == ("384 <= device.max_threads_per_block", "legality")
    # 128 x 40 + 256 x 232
    assert constraint(MatmulPingpong, "register budget") == ("64512 <= device.registers_per_sm", "legality")
    assert constraint(MatmulPingpong, "registers of ping")[1] == "dominance"
    assert constraint(MatmulPingpong, "cluster size") == ("cluster <= device.max_cluster_size_portable", "legality")
    assert constraint(MatmulTwoCta, "tmem capacity") == ("512*accumulators*bn <= device.tmem_bytes_per_sm", "legality")


def test_an_accumulator_beyond_its_roles_budget_is_dominated() -> None:
    """64 x 256 f32 over 128 threads are 128 registers, 128 x 256 are 256 of 232."""
    (budget,) = [c for c in traced(MatmulPingpong).constraints if c.name == "registers of ping"]
    assert evaluate(budget.condition, {"bm": 64, "bn": 256})
    assert not evaluate(budget.condition, {"bm": 128, "bn": 256})


@pytest.mark.parametrize("machine", MACHINES)
def test_warps_of_roles_are_apart(machine: type[Machine]) -> None:
    roles = traced(machine).program.roles
    taken = [set(range(int(r.first), int(r.first + r.warps))) for r in roles]
    assert sum(map(len, taken)) == len(set().union(*taken))


# --- lowering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (
            MatmulPingpong,
            "MatmulPingpong is not lowered: tma is cp.async.bulk.tensor, wgmma is wgmma and put is "
            "cp.async.bulk.tensor; kernels are written for instructions that are not "
            "traced only",
        ),
        (
            MatmulTwoCta,
            "MatmulTwoCta is not lowered: tma is cp.async.bulk.tensor, mma is tcgen05.mma and ld is tcgen05.ld; kernels "
            "are written for instructions that are not traced only",
        ),
    ],
)
def test_lowering_refuses_in_one_sentence(machine: type[Machine], sentence: str) -> None:
    space = space_on(machine, HOME[machine])
    point = next(p for p in space.space.points() if p.get("cluster", 2) == 2)
    with pytest.raises(LoweringError, match=f"^{re.escape(sentence)}$"):
        lower(space.program(point), space.problem, point)
