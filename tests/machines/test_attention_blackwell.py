"""Attention in tensor memory: random candidates over odd sizes; proved rings; wrong kernels; refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from stored_cells import HandedOn, Negated, PassedOn

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.interpreter.fault import ProgramFault
from tinygpu.language import TMEM, DeclarationError, Dim, Input, Machine, Output, blocked
from tinygpu.machines.attention_blackwell import AttentionBlackwell
from tinygpu.program.cells import columns
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.build import build, solve_buffers
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import Proofs, certify
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# (b, h, g, s, t): one of each; a row more than a tile; keys of one tile and of several; primes.
SIZES = ((1, 1, 1, 1, 1), (1, 2, 2, 129, 257), (2, 1, 1, 257, 131), (1, 1, 3, 130, 31), (1, 1, 1, 97, 401))
POINT = {
    "groups": 1, "corrects": "who weighs", "scaled": "every round", "powers": "ex2",
    "bn": 32, "stages": 2, "piece": 32, "columns": 64, "swizzle": 128, "issued": "values first",
}  # fmt: skip
WAYS = [(c, s) for c in ("who weighs", "a role") for s in ("every round", "where it grew")]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(12)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    b, h, g, s, t = SIZES[seed % len(SIZES)]
    d, kind, causal = (64, 128)[seed // 2 % 2], ("f16", "bf16")[seed % 2], bool(seed // 3 % 2)
    machine = AttentionBlackwell
    problem = machine.problem(b=b, h=h, g=g, s=s, t=t, d=d, dtypes={"q": kind}, options={"causal": causal})
    space = build_space(machine, problem, device("b200"))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late", "random"))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("issued", ["values first", "scores first"])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(6)
@pytest.mark.end_to_end
def test_random_candidates_of_each_order_are_right_and_proved(seed: int, issued: str, draw_candidate: Any) -> None:
    b, h, g, s, t = SIZES[(seed + 1) % len(SIZES)]
    d, kind, causal = (64, 128)[seed // 3 % 2], ("f16", "bf16")[seed % 2], bool(seed // 2 % 2)
    machine = AttentionBlackwell
    problem = machine.problem(b=b, h=h, g=g, s=s, t=t, d=d, dtypes={"q": kind}, options={"causal": causal})
    space = build_space(machine, problem, device("b200"))
    part: Any = space.space.restrict({"issued": issued})
    point = draw_candidate(part, np.random.default_rng(seed))
    right_and_proved(space, point)


@pytest.mark.parametrize(("way", "kind"), [(WAYS[0], "f16"), (WAYS[3], "bf16")])
@pytest.mark.end_to_end
def test_weights_by_polynomials_are_right(way: tuple[str, str], kind: str) -> None:
    """In f16 too, whose weights are rounded to 2^-12: a quarter of them is 2^-13.7 off before."""
    problem = AttentionBlackwell.problem(b=1, h=1, g=2, s=130, t=150, d=64, dtypes={"q": kind})
    space = build_space(AttentionBlackwell, problem, device("b200"))
    point = POINT | dict(zip(("corrects", "scaled"), way, strict=True)) | {"powers": "a quarter by fma"}
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert kernel.ptx.count("add.rn.f32 t, f") == 2 * 8  # of the first keys and of the others, a quarter of 32
    found = verify(kernel, AttentionBlackwell, problem, orders=("late", "random"))
    assert found.passed, str(found)


@pytest.mark.parametrize("growing", [0.5, 7.5, 8.5, 40.0])
@pytest.mark.end_to_end
def test_scores_that_grow_from_tile_to_tile_are_scaled_where_they_must_be(growing: float) -> None:
    """Scores of each tile of 32 keys are larger by a power of two than those before: below 2^8, and above."""
    keys, d = 160, 64
    rng = np.random.default_rng(1)
    q = np.ones((1, 1, 1, 130, d), np.float16)
    k = rng.standard_normal((1, 1, keys, d)).astype(np.float32) * 0.1
    k += (np.arange(keys) // 32 * (growing / np.log2(np.e) / 0.125 / d))[:, None]
    v = rng.standard_normal((1, 1, keys, d)).astype(np.float16)
    k = k.astype(np.float16)
    space = tg.space(AttentionBlackwell, b=1, h=1, g=1, s=130, t=keys, d=d, device="b200")
    wanted = AttentionBlackwell.reference(q, k, v, 0.125, False)
    for way in WAYS:
        kernel = tg.emit(space, POINT | dict(zip(("corrects", "scaled"), way, strict=True)))
        found = np.asarray(tg.emulate(kernel, q, k, v, scale=0.125), np.float64)
        assert np.abs(found - wanted).max() < 2e-3, way


@pytest.mark.parametrize(("corrects", "scaled"), WAYS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("issued", ["values first", "scores first"])
@pytest.mark.sampled(2)
@pytest.mark.end_to_end
def test_all_hand_overs_are_proved_and_no_register_is_spilled(
    issued: str, groups: int, corrects: str, scaled: str
) -> None:
    problem = AttentionBlackwell.problem(b=1, h=1, g=1, s=300, t=500, d=128, options={"causal": True})
    space = build_space(AttentionBlackwell, problem, device("b200"))
    bn = 112 if groups == 2 and corrects == "a role" else 128
    bn = 80 if groups == 2 and issued == "scores first" else bn  # columns of scores, of weights and of sums
    point = POINT | {"groups": groups, "corrects": corrects, "scaled": scaled, "bn": bn, "columns": 128}
    point |= {"issued": issued}
    program = space.program(point)
    swizzles = solve_buffers(program, SolverCache()).swizzles
    found = certify(lowered(program, problem, point, swizzles).protocol, Proofs())
    assert found.proved, str(found)
    apart = 3 if issued == "scores first" else 1
    assert len(found.rings) == 3 + groups * (apart + (corrects == "a role"))
    kernel = build(program, problem, point, SolverCache()).kernel
    assembly = assemble(kernel.ptx, kernel.assembled_for("sm_100"))
    assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)


def test_the_program_means_what_the_reference_says() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 2, 2, 70, 64), *[(1, 2, 90, 64)] * 2))
    space = tg.space(AttentionBlackwell, b=1, h=2, g=2, s=70, t=90, d=64, device="b200")
    found = space.program(space.sample(1, 3)[0]).run({"q": q, "k": k, "v": v}, {"scale": np.float32(0.125)})["o"]
    wanted = AttentionBlackwell.reference(q, k, v, 0.125, False)
    assert np.abs(found.astype(np.float64) - wanted).max() < 2e-3


@cache
def small(way: tuple[str, str] = WAYS[0]) -> tuple[Any, Kernel]:
    problem = AttentionBlackwell.problem(b=1, h=1, g=2, s=150, t=100, d=64, options={"causal": True})
    space = build_space(AttentionBlackwell, problem, device("b200"))
    point = POINT | dict(zip(("corrects", "scaled"), way, strict=True))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


def passes(ptx: str, way: tuple[str, str] = WAYS[0]) -> bool:
    """Whether a text in the small kernel's place is right; scores that grow past 2^8 are among random inputs alone."""
    problem, kernel = small(way)
    random = "where it grew" in way
    orders = ("late", "early")
    found = verify(replace(kernel, ptx=ptx), AttentionBlackwell, problem, orders=orders, random_inputs=random)
    return found.passed


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.end_to_end
def test_the_kernel_itself_passes(way: tuple[str, str]) -> None:
    assert passes(small(way)[1].ptx, way)


@pytest.mark.parametrize(("corrects", "scaled"), WAYS)
@pytest.mark.end_to_end
def test_every_statement_is_executed_scaling_what_was_added_up_too(corrects: str, scaled: str) -> None:
    space = tg.space(AttentionBlackwell, b=1, h=1, g=2, s=150, t=100, d=64, device="b200")
    found = tg.verify(tg.emit(space, POINT | {"corrects": corrects, "scaled": scaled}))
    assert found.passed, str(found)
    assert not found.notes


def without(pattern: str, which: int, way: tuple[str, str] = WAYS[0]) -> str:
    """The small kernel without one line of its roles; of a wait, without going back to it as well."""
    lines = small(way)[1].ptx.splitlines()
    first = next(i for i, line in enumerate(lines) if "// role" in line)
    at = [i for i in range(first, len(lines)) if re.search(pattern, lines[i])][which]
    lines[at : at + 1 + ("try_wait" in lines[at])] = [""]
    return "\n".join(lines)


CLEARED = r"setp\.ne\.u32 %p\d+, 0, 0;"
WRONG = {
    "queries are brought while those before are multiplied": ("try_wait", 0),
    "keys are multiplied before they have come": ("try_wait", 4),
    "scores are multiplied where the outputs of another tile are read": ("try_wait", 5),
    "weights are multiplied before they are stored": ("try_wait", 8),
    "scores are multiplied where weights still are": ("try_wait", 9),
    "the last weights are multiplied before they are stored": ("try_wait", 11),
    "scores are read before they are there": ("try_wait", 12),
    "scores of the next keys are read before they are there": ("try_wait", 14),
    "outputs are read before the last product": ("try_wait", 15),
    "nobody is told that scores are there": ("tcgen05.commit", 0),
    "nobody is told that weights were multiplied": ("tcgen05.commit", 2),
    "nobody is told that there are weights": ("mbarrier.arrive.shared", 0),
    "nobody is told that there is room for scores": ("mbarrier.arrive.shared", 1),
    "weights are handed over before they are stored": ("tcgen05.wait::st", 0),
    "sums are handed back before they are scaled": ("tcgen05.wait::st", 3),
    "no fence behind the wait for weights": ("fence::after_thread_sync", 5),
    "no fence before weights are handed over": ("fence::before_thread_sync", 0),
    "no fence before sums are handed back": ("fence::before_thread_sync", 2),
    "sums of the tile before are added to": (CLEARED, 1),
    "scores of the keys before are added to": (CLEARED, 2),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.sampled(2)
@pytest.mark.end_to_end
def test_a_wrong_kernel_is_refused(name: str) -> None:
    assert not passes(without(*WRONG[name])), name


# Of the kernel whose sums a role of its own corrects, where scores grew. Waits that others imply are equivalent there:
# for the scores of factors that have come, and for the sums of the scores that follow them.
WRONG_APART = {
    "nobody is told that there are factors": ("mbarrier.arrive.shared", 2),
    "factors are read before they have come": ("try_wait", 21),
    "sums of the last factors are read before they have come": ("try_wait", 23),
    "warps leave what they found without meeting": ("bar.sync", 0),
    "sums are scaled before they are loaded": ("tcgen05.wait::ld", 2),
    "sums are handed back before they are stored": ("tcgen05.wait::st", 3),
    "no fence before scaled sums are handed back": ("fence::before_thread_sync", 6),
    "nobody is told that factors were read": ("mbarrier.arrive.shared", 8),
    "outputs are read before the last product": ("try_wait", 22),
}


@pytest.mark.parametrize("name", WRONG_APART)
@pytest.mark.end_to_end
def test_a_wrong_kernel_with_a_role_that_corrects_is_refused(name: str) -> None:
    assert not passes(without(*WRONG_APART[name], WAYS[3]), WAYS[3]), name


@pytest.mark.parametrize("keys", [1, 31, 32, 33])
@pytest.mark.parametrize("issued", ["values first", "scores first"])
@pytest.mark.end_to_end
def test_keys_of_one_round_and_of_one_more_are_right(keys: int, issued: str) -> None:
    """Derived problems have several rounds, so that rings go round; this one has as many keys as it says."""
    rng = np.random.default_rng(keys)
    sizes = {"b": 1, "h": 1, "g": 1, "s": 130, "t": keys, "d": 64}
    point = POINT | {"issued": issued}
    kernel = tg.emit(tg.space(AttentionBlackwell, **sizes, device="b200"), point)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 1, 1, 130, 64), *[(1, 1, keys, 64)] * 2))
    found = tg.emulate(kernel, q, k, v, scale=0.125)
    wanted = AttentionBlackwell.reference(q, k, v, 0.125, False)
    assert np.abs(np.asarray(found, np.float64) - wanted).max() < 2e-3


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("machine", "sizes"),
    [(Negated, {"m": 200, "n": 72, "k": 136}), (PassedOn, {"m": 700}), (HandedOn, {"m": 100, "n": 72})],
)
@pytest.mark.end_to_end
def test_rings_that_warps_fill_are_proved_and_right(machine: Any, sizes: dict[str, int], seed: int) -> None:
    kinds = {"dtypes": {"a": ("f16", "bf16")[seed % 2]}} if machine is Negated else {}
    problem = machine.problem(**sizes, **kinds)
    space = build_space(machine, problem, device("b200"))
    (point,) = space.sample(1, seed)
    program = space.program(point)
    swizzles = solve_buffers(program, SolverCache()).swizzles
    found = certify(lowered(program, problem, point, swizzles).protocol, Proofs())
    assert found.proved, str(found)
    kernel = build(program, problem, point, SolverCache()).kernel
    verified = verify(kernel, machine, problem, orders=("late", "random"))
    assert verified.passed, f"{point}\n{verified}"


BROKEN: dict[type[Machine], dict[str, int]] = {
    Negated: {"m": 200, "n": 72, "k": 136}, PassedOn: {"m": 700}, HandedOn: {"m": 100, "n": 72},
}  # fmt: skip


@pytest.mark.parametrize("machine", BROKEN)
@pytest.mark.parametrize("kind", ["fence::before", "wait::st", "arrival", "too few arrivals", "warp's meeting"])
@pytest.mark.end_to_end
def test_a_ring_that_warps_fill_is_refused_where_something_is_missing(machine: Any, kind: str) -> None:
    """The protocol without one of the actions with which a slot is handed over is not proved."""
    if machine is HandedOn and kind in ("fence::before", "wait::st"):
        return  # shared memory: the barrier orders what threads do
    problem = machine.problem(**BROKEN[machine])
    space = build_space(machine, problem, device("b200"))
    (point,) = space.space.restrict({"slots": 1 if machine is Negated else 2}).sample(1, np.random.default_rng(0))
    program = space.program(point)
    protocol = lowered(program, problem, point, solve_buffers(program, SolverCache()).swizzles).protocol
    ring = {PassedOn: "rows", Negated: "left", HandedOn: "ring"}[machine]
    assert certify(protocol, Proofs()).proved

    def kept(step: Any) -> Any:
        match step:
            case sync.Fence(text) if kind == "fence::before" and kind in text:
                return None
            case sync.Settled("tcgen05.st") if kind == "wait::st":
                return None
            case sync.Arrive(b) if kind == "arrival" and (b.pipeline, b.side) == (ring, "full"):
                return None
            case sync.Init(barrier, 4) if kind == "too few arrivals" and barrier.pipeline == ring:
                return sync.Init(barrier, 3)
            case sync.Init(barrier, 2) if kind == "too few arrivals" and barrier.pipeline == ring:
                return sync.Init(barrier, 1)
            case sync.MeetWarp() if kind == "warp's meeting":
                return None
            case sync.RoleBody() | sync.Tiles() | sync.Rounds() | sync.When():
                return replace(step, body=edited(step.body))
        return step

    def edited(steps: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(found for step in steps if (found := kept(step)) is not None)

    found = certify(replace(protocol, body=edited(protocol.body)), Proofs())
    verdicts = {c.ring.name: c.verdict for c in found.rings}
    unknown = kind in ("fence::before", "wait::st", "warp's meeting")
    assert verdicts[ring] == ("unknown" if unknown else "refuted"), str(found)


def filled_and_emptied(self: Any, p: Any, value: Any, left: Any) -> None:
    with left.produce() as f:
        p.store(self.put, f.a, p.cast(value * -1.0, self.a.dtype))
    with left.consume():
        pass


def not_filled(self: Any, p: Any, value: Any, left: Any) -> None:
    with left.produce():
        p.store(self.st, self.c.tile(0, 0, shape=value.shape), p.cast(value, "f32"))


class Doubled(Machine):
    """y = x @ w, and what a reader leaves of the sums"""

    m = Dim()
    x, w, y = Input("f16", m, 32), Input("f16", 32, 32), Output("f32", m, 32)
    tma, mma, put, get, st = isa.TmaLoad(), isa.Tcgen05Mma(32), isa.Tcgen05St(), isa.Tcgen05Ld(), isa.StGlobal(1)
    slots, readers, in_branch, changed, over = 1, 1, False, False, ""

    def program(self, p: Any) -> None:
        rows = blocked((128, 32), threads=128, vector=1, across=1)
        stages = {"x": p.smem("f16", (128, 32), swizzle=64), "w": p.smem("f16", (32, 32), swizzle=64)}
        with (
            p.grid((self.m, 128)) as (i,),
            p.pipeline("ring", 1, **stages) as ring,
            p.pipeline("sums", self.slots, c=p.buffer(TMEM, "f32", (128, 32)), **self.beside(p)) as sums,
        ):
            with p.role("producer", warps=1), ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, 0, shape=(128, 32)), s.x)
                p.copy(self.tma, self.w.tile(0, 0, shape=(32, 32)), s.w)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t, ring.consume() as s:
                if self.in_branch:
                    with p.when(i < 128):
                        p.clear(t.c)
                else:
                    p.clear(t.c)
                with p.unroll(32, step=16) as kt:
                    p.multiply(self.mma, t.c, s.x.window((0, kt), (128, 16)), s.w.window((kt, 0), (16, 32)))
            for r in range(self.readers):
                with p.role(f"reader{r}", warps=4, first=4 + 4 * r), sums.consume() as t:
                    values = p.load(self.get, t.c, rows)
                    if self.over == "c":
                        p.store(self.put, t.e, values)
                        values = p.load(self.get, t.c, rows)
                    if not r and self.changed:
                        p.store(self.put, t.c, values * 2.0)
                    if r + 1 == self.readers:
                        p.store(self.st, self.y.tile(i, 0, shape=(128, 32)), values)

    def beside(self, p: Any) -> dict[str, Any]:
        return {"e": p.buffer(TMEM, "f32", (128, 32), over=self.over)} if self.over else {}

    conversions, compute = isa.arithmetic("f32"), "f32"

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return x @ w


REFUSED: dict[str, tuple[type[Machine], dict[str, Any], str]] = {
    "its own": (
        Negated, {"fill": filled_and_emptied},
        "role filler produces 'left' in tensor memory and consumes it itself; keep it in registers",
    ),
    "nothing": (
        Negated, {"fill": not_filled},
        "left.a lies in tensor memory, and nothing is added up or stored in it; multiply or store into it, or use "
        "p.smem",
    ),
    "two readers": (
        Doubled, {"readers": 2, "changed": True},
        "role reader0 stores into sums.c, which role reader1 consumes too; let one role consume it",
    ),
    "two slots": (
        Doubled, {"slots": 2, "changed": True},
        "put writes sums.c where 'sums' is consumed; do it where it is produced",
    ),
    "begun in a branch": (
        Doubled, {"slots": 2, "in_branch": True},
        "mma goes on adding to sums.c where 'sums' has 2 slots; give it one, or begin every slot with p.clear(...), in "
        "front of all loops, branches and other slots in it",
    ),
    "over nothing": (
        Doubled, {"over": "d"},
        "sums.e lies in the columns of sums.d, and the slot has no such buffer in TMEM with columns of its own",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_tensor_memory_cannot_hand_over_is_refused_where_it_is_declared(name: str) -> None:
    base, said, sentence = REFUSED[name]
    with pytest.raises(DeclarationError) as refused:
        type("Wrong", (base,), {**said, "__module__": __name__})
    assert str(refused.value).splitlines()[0] == f"Wrong.program: {sentence}"


def test_what_was_written_in_the_columns_of_another_buffer_is_lost_there() -> None:
    lost = type("Lost", (Doubled,), {"over": "c", "__module__": __name__})
    space = build_space(lost, lost.problem(m=100), device("b200"))
    given = {"x": np.ones((100, 32), np.float16), "w": np.ones((32, 32), np.float16)}
    with pytest.raises(ProgramFault, match=re.escape("sums.c[0, 0] is read, and nobody has written it")):
        space.program(space.sample(1, 0)[0]).run(given)
    assert columns(space.program(space.sample(1, 0)[0])).total == 32
